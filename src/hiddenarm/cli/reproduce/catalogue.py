"""All experiments, in the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from hiddenarm.cli.reproduce.arms_time import ArmsTime
from hiddenarm.cli.reproduce.findings import Experiment
from hiddenarm.cli.reproduce.membership import Membership
from hiddenarm.cli.reproduce.newton import Newton
from hiddenarm.cli.reproduce.operations import Operations
from hiddenarm.cli.reproduce.parties_time import PartiesTime
from hiddenarm.cli.reproduce.precision import Precision
from hiddenarm.cli.reproduce.privacy import Privacy
from hiddenarm.cli.reproduce.privacy_arms import PrivacyArms
from hiddenarm.cli.reproduce.training import Training
from hiddenarm.errors import ConfigError

ALL = "all"


def experiments() -> list[Experiment]:
    """Every experiment."""
    return [
        Training(),
        Privacy(),
        Operations(),
        ArmsTime(),
        PartiesTime(),
        PrivacyArms(),
        Membership(),
        Precision(),
        Newton(),
    ]


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names; all of them for no name, or for `all`."""
    known = {experiment.name: experiment for experiment in experiments()}
    if not names or ALL in names:
        return list(known.values())
    for name in names:
        if name not in known:
            raise ConfigError(f"there is no experiment {name!r}: choose among {', '.join(known)}, or {ALL}")
    return [experiment for name, experiment in known.items() if name in names]
