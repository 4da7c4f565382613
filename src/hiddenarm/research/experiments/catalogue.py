"""All experiments, in the paper's order."""

from __future__ import annotations

from collections.abc import Sequence

from hiddenarm.errors import ConfigError
from hiddenarm.research.experiments.arms_time import ArmsTime
from hiddenarm.research.experiments.findings import Experiment
from hiddenarm.research.experiments.membership import Membership
from hiddenarm.research.experiments.newton import Newton
from hiddenarm.research.experiments.operations import Operations
from hiddenarm.research.experiments.parties_time import PartiesTime
from hiddenarm.research.experiments.precision import Precision
from hiddenarm.research.experiments.privacy import Privacy
from hiddenarm.research.experiments.privacy_arms import PrivacyArms
from hiddenarm.research.experiments.training import Training

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
