"""Values of policies, opened between roles: what the federation agrees on, the program of a window, the estimates.

k = 1 - y is the dealer's coin of a decision: 1 where the policy's own arm was chosen, 0 where it was explored. The
dealer deals it once more with the decision, as a sharing that parties keep until the reward comes. A *window* is a
number of rewarded decisions, in the order of their lessons. When it is full, all parties run the program `value`:

    1. each party brings its shares of the rewards r and of the coins k, and of their sums, which it adds up itself
    2. mask r and k                                                                     1 round
    3. [sum k r], and of it and the sums: [sum (1 - k) r], [sum k]                      none
    4. add dealt noise to each of those that are opened                                 none

What is opened in the round is uniform: each r and each k has a mask of its own. Each party then sends its shares of the
results to the one receiver. All but one party's shares are uniform given the sums, so no party learns anything, and the
receiver learns the noisy sums.

One row changes, by its reward, by its coin or by both, every opened sum by 1 at most. Noise of deviation sqrt(n) / mu
in each of n sums makes an opening mu-GDP about a row's reward and coin together. A row is part of one window only. So
where sums are noisy, what all openings tell about it is mu-GDP, beside what the model tells (docs/evaluation.md). Where
they are not, later decisions depend on a row, and opened sums tell something of all their coins, on which the bound of
exploration rests: there is no bound then, and the ledger says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from typing import TYPE_CHECKING, ClassVar, Final

from hiddenarm.errors import ConfigError
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import dealt_share, given_share, mask
from hiddenarm.mpc.run import Program, ProgramText, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.options import Optioned, make
from hiddenarm.privacy.mechanisms import ActionBudget
from hiddenarm.privacy.noise import LARGEST_DEVIATION, LEAST_WIDTH, Gaussian
from hiddenarm.ring.words import Words, decode

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation

GREEDY: Final = "greedy"
UNIFORM: Final = "uniform"
POLICIES: Final = (GREEDY, UNIFORM)
RECEIVERS: Final = ("actor", "rewarder")
MOST_WINDOW: Final = 4095
_MODEL: Final = "model"
_ESTIMATOR: Final = "estimator"


@dataclass(frozen=True)
class PolicyValues(Optioned):
    """The table `[evaluation]`: the noise of an opening, as the mu of its mu-GDP; which role the sums are opened to;
    over how many decisions each; and of which policies, separated by commas."""

    name: ClassVar[str] = "evaluation"

    mu: float
    opened_to: str
    window: int = 256
    policies: str = ",".join(POLICIES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (isfinite(self.mu) and self.mu > 0):
            raise ConfigError(f"mu must be a positive number, got {self.mu}")
        if self.opened_to not in RECEIVERS:
            raise ConfigError(f"opened_to must be {' or '.join(RECEIVERS)}, got {self.opened_to!r}")
        if not 1 <= self.window <= MOST_WINDOW:
            raise ConfigError(f"window must lie in 1..{MOST_WINDOW} decisions, got {self.window}")
        if _MODEL in self.named:
            raise ConfigError(
                "the value of another model is evaluated in lockstep only, by `hiddenarm evaluate`: between roles "
                f"policies may name {', '.join(POLICIES)}"
            )
        unknown = [name for name in self.named if name not in POLICIES]
        if unknown or not self.named or len(set(self.named)) != len(self.named):
            raise ConfigError(f"policies must name some of {', '.join(POLICIES)}, once each; got {self.policies!r}")

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.options.items())

    @property
    def named(self) -> tuple[str, ...]:
        """The policies whose values are opened."""
        return tuple(name.strip() for name in self.policies.split(",") if name.strip())

    @property
    def sums(self) -> int:
        """How many sums are opened: of rewards for each policy, and how many decisions were not explored."""
        return len(self.named) + 1

    @property
    def deviation(self) -> float:
        """Of the noise of each sum of a window."""
        return sqrt(self.sums) / self.mu


def values_of_table(table: Mapping[str, object]) -> PolicyValues:
    """The values that a table `[evaluation]` of a file names; ConfigError for an estimator, of which there are several
    for the value of another model only."""
    if _ESTIMATOR in table:
        raise ConfigError(
            f"evaluation has no {_ESTIMATOR} between roles: {table[_ESTIMATOR]!r} is for the value of another model, "
            "which is evaluated in lockstep only, by `hiddenarm evaluate`; leave it out"
        )
    return make(PolicyValues, PolicyValues.name, table)


def chance_of(federation: Federation) -> float:
    """The one chance to explore that all decisions have, which every estimate needs; ConfigError if there is none."""
    epsilon = federation.policy.options.get("epsilon")
    if federation.suite != "fast":
        raise ConfigError("values of policies are evaluated in suite fast")
    if not isinstance(epsilon, float) or not 0 < epsilon < 1:
        raise ConfigError(
            "values of other policies follow from explored decisions: they need an epsilon above 0 and below 1, the "
            f"same for all; the policy is {federation.policy}"
        )
    if federation.budget is not None and federation.budget.explores:
        raise ConfigError("values need one epsilon for all decisions: a budget that explores when it is spent has two")
    return federation.policy.guarantee(federation.arms).epsilon


def check_evaluation(federation: Federation) -> None:
    """Raise ConfigError for an evaluation that a federation cannot have."""
    values = federation.evaluation
    if values is None:
        return
    if not isinstance(values, PolicyValues):
        raise ConfigError(f"evaluation must be PolicyValues(mu, opened_to), got {values!r}")
    if isinstance(federation.privacy, ActionBudget):
        raise ConfigError(
            f"privacy {federation.privacy.name} does not go with [evaluation]: opened sums tell something about which "
            "decisions were explored, and the budget rests on that being secret; choose noisy-sums, or leave one out"
        )
    chance_of(federation)
    unit = 2.0**-federation.fraction_bits
    if not LEAST_WIDTH * unit <= values.deviation <= LARGEST_DEVIATION * unit:
        raise ConfigError(
            f"mu {values.mu:g} gives noise of {values.deviation:.3g} to each sum, which cannot be drawn with "
            f"{federation.fraction_bits} fractional bits"
        )


# The program


def value_text(federation: Federation, count: int) -> ProgramText:
    """The program `value` for a window of `count` decisions."""
    return lambda run: noisy_window_sums(run, federation, count)


def noisy_window_sums(run: Run, federation: Federation, count: int) -> Program:
    """Shares of the sums of a window, with noise, at L bits: of rewards where the policy's own arm was chosen if it is
    to be evaluated, of rewards where it was explored if a uniform arm is, and of how many were not explored."""
    values, bits = federation.evaluation, federation.fraction_bits
    assert values is not None
    rewards = given_share(run, count, label="rewards")
    coins = given_share(run, count, label="1 where the policy's own arm was chosen, 0 where it was explored")
    all_rewards, not_explored = given_share(run, label="sum of the rewards"), given_share(run, label="sum of the coins")
    r, k = yield (mask(run, rewards, "rewards r"), mask(run, coins, "coins k"))
    own = form(run, "b,b->", k, r, label="sum of rewards that were not explored")
    by_policy = {GREEDY: own, UNIFORM: all_rewards - own}
    noise = Gaussian(values.deviation * 2.0**bits)
    sums = (*(by_policy[name] for name in values.named), not_explored << bits)
    return tuple(noised(run, one, noise) for one in sums)


def noised(run: Run, one: Shared, noise: Gaussian) -> Shared:
    """A sum with noise that the dealer draws for this run alone."""
    return one + dealt_share(run, (), lambda: noise.sample(run.coin_words((noise.words,))), "noise of an opened sum")


# The estimates


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """What a policy earns per decision: `unbiased`; as a `ratio`, nearly unbiased, which varies less, nan if noise
    leaves nothing to divide by; and the deviation that the noise adds to the first."""

    unbiased: float
    ratio: float
    noise: float


@dataclass(frozen=True, slots=True)
class OpenedValues:
    """What the receiver knows: the values of policies, from all windows that were opened."""

    windows: int
    decisions: int
    by_policy: dict[str, PolicyValue]

    def at_epsilon(self, epsilon: float) -> float:
        """What the same policy would earn with another chance to explore: it earns what the two values say, each in its
        share of the decisions. Unbiased."""
        return mixed_value({name: value.unbiased for name, value in self.by_policy.items()}, epsilon)


def mixed_value(values: Mapping[str, float], epsilon: float) -> float:
    """What a policy earns that explores with some chance, by the values without exploration and of a uniform arm."""
    if not 0 <= epsilon <= 1:
        raise ConfigError(f"epsilon must lie in [0, 1], got {epsilon}")
    if values.keys() != set(POLICIES):
        opened = " and ".join(sorted(values)) or "none"
        raise ConfigError(f"the value at another epsilon takes those of {' and '.join(POLICIES)}; here is {opened}")
    return (1 - epsilon) * values[GREEDY] + epsilon * values[UNIFORM]


def estimated(federation: Federation, windows: int, sums: Words) -> OpenedValues:
    """The values that follow from the sums of all windows together, [sums] as they were opened."""
    values = federation.evaluation
    assert values is not None
    decisions, chance = windows * values.window, chance_of(federation)
    *rewards, kept = decode(sums, federation.fraction_bits).tolist()
    counts, shares = {GREEDY: kept, UNIFORM: decisions - kept}, {GREEDY: 1 - chance, UNIFORM: chance}
    by_policy = {}
    for name, total in zip(values.named, rewards, strict=True):
        weight = shares[name] * decisions
        ratio = total / counts[name] if counts[name] > 0 else nan
        by_policy[name] = PolicyValue(total / weight, ratio, values.deviation * sqrt(windows) / weight)
    return OpenedValues(windows, decisions, by_policy)
