"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from hiddenarm.errors import ConfigError

Command = Callable[..., None]
Decorator = Callable[[Command], Command]

SUITES = ("fast", "paper")
"""As in `bandit.federation`, which is not loaded before there is work."""

FILE = click.Path(path_type=Path, dir_okay=False)

SUITE_OPTIONS: tuple[Decorator, ...] = (
    click.option("--suite", type=click.Choice(SUITES), default="fast", show_default=True, help="Protocol suite."),
    click.option("--newton-iterations", type=int, help="Newton iterations of the paper's reciprocal; 7 unless given."),
)

POLICY_FLAGS: dict[str, str] = {
    "epsilon": "Probability of exploring; 0.1 unless a policy is given.",
    "alpha": "Weight of the bonus, of bonus, linucb and thompson.",
    "initial": "Of epsilon-schedule: probability of exploring at the start.",
    "final": "Of epsilon-schedule: lowest probability of exploring.",
    "decay": "Of epsilon-schedule: decisions after which it explores half as much.",
    "power": "Of epsilon-schedule: how fast it explores less, 1 unless given; 0.5 for a square root.",
}
"""The options of all policies; one that a policy does not have is refused."""


def _once(context: click.Context, parameter: click.Parameter, values: tuple[Any, ...]) -> Any:
    """The only value. Of several, click would take the last and say nothing."""
    if len(values) > 1:
        raise click.BadParameter("given more than once; `hiddenarm sweep` runs several policies, or values of epsilon")
    return values[0] if values else None


POLICY_OPTIONS: tuple[Decorator, ...] = (
    click.option(
        "--policy",
        multiple=True,
        callback=_once,
        metavar="NAME[:OPTION=VALUE,...]",
        help="How arms are chosen, such as bonus:alpha=0.5; epsilon-greedy unless given.",
    ),
    *(
        click.option(f"--{name}", type=float, multiple=True, callback=_once, help=text)
        for name, text in POLICY_FLAGS.items()
    ),
)


def chosen_policy(given: dict[str, Any]) -> Any:
    """What --policy names, with options in its text or as flags; epsilon-greedy unless it is given."""
    from hiddenarm.bandit.policies import EPSILON_GREEDY, make_policy, parse_policy

    flags = {name: given[name] for name in POLICY_FLAGS if given[name] is not None}
    if given["policy"] is None:
        return make_policy(EPSILON_GREEDY, {"epsilon": 0.1, **flags})
    return parse_policy(given["policy"], flags)


MECHANISMS = ("none", "action-budget", "noisy-sums", "noisy-gradient")
"""As in `privacy.mechanisms`."""

PRIVACY_OPTIONS: tuple[Decorator, ...] = (
    click.option("--privacy", type=click.Choice(MECHANISMS), help="Mechanism of privacy over time; none unless given."),
    click.option("--total-epsilon", type=float, help="Total privacy loss about one row, at most."),
    click.option("--delta", type=float, help="Chance that the loss is larger; 1e-6 unless given."),
    click.option(
        "--when-spent",
        type=click.Choice(("refuse", "explore")),
        help="Of action-budget: what to do when it is spent.",
    ),
    click.option("--first-refresh", type=int, help="Of noisy-sums: lessons before the first model; 500 unless given."),
    click.option(
        "--refresh-ratio", type=float, help="Of noisy-sums: growth of lessons between models; 1.3 unless given."
    ),
    click.option(
        "--rows-per-key", type=int, help="Of both noisy mechanisms: rows of one key in a refresh; 1 unless given."
    ),
    click.option(
        "--correlated",
        type=int,
        help="Of both: refreshes whose noise is correlated; unless given 0, or 64 for noisy-gradient.",
    ),
    click.option("--refresh-every", type=int, help="Of noisy-gradient: lessons between two steps; 200 unless given."),
    click.option("--first-step", type=float, help="Of noisy-gradient: the first step; 0.02 unless given."),
)
_PRIVACY_NUMBERS = (
    "total_epsilon",
    "delta",
    "when_spent",
    "first_refresh",
    "refresh_ratio",
    "rows_per_key",
    "correlated",
    "refresh_every",
    "first_step",
)


def chosen_privacy(options: dict[str, Any]) -> Any:
    """The mechanism that the options of `PRIVACY_OPTIONS` name."""
    from hiddenarm.privacy.mechanisms import make_privacy

    given = {name: options[name] for name in _PRIVACY_NUMBERS if options[name] is not None}
    if options["privacy"] is None and given:
        first = next(iter(given)).replace("_", "-")
        raise ConfigError(f"--{first} is an option of a mechanism: give --privacy noisy-sums or action-budget with it")
    return make_privacy(options["privacy"] or MECHANISMS[0], given)


def with_options(*options: Decorator) -> Decorator:
    """Several options as one, in the order of the help text."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate
