"""The public description of a federation: what all roles agree on, and what follows from it.

Numbers whose worst legal data do not fit the ring (`fitting`) are refused when the federation is made, with what would
fit (`advice`). For that a federation declares the most interactions that its model is to hold; beyond them it does not
learn.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property, lru_cache
from math import ceil, log2, sqrt
from typing import Any, Final, TypedDict, Unpack

from hiddenarm.bandit.accounting import Budget, budget_of, check_budget
from hiddenarm.bandit.advice import FRACTION_BITS, largest, two_digits, what_would_fit
from hiddenarm.bandit.arm_table import ARM_BITS, ArmTable
from hiddenarm.bandit.evaluation import PolicyValues, check_evaluation
from hiddenarm.bandit.fitting import HEADROOM, fit_problem
from hiddenarm.bandit.planning import GradientNumbers, NoisyNumbers, Numbers
from hiddenarm.bandit.policies import EPSILON_GREEDY, make_policy
from hiddenarm.bandit.policy import Learner, Policy
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.comparison import MAX_BITS
from hiddenarm.mpc.lookup import ReciprocalShape, reciprocal_shape
from hiddenarm.mpc.payloads import payload_chunks, payload_words
from hiddenarm.privacy.mechanisms import Mechanism, NoisyGradient, NoisyMechanism, NoisySums, Unbounded

_SCORE_ERROR = 0.02
"""What is added to the bound of a score for the errors of fixed point."""
_LEAST_REAL = 1e-9
"""Ridge and norm bounds lie between this and its inverse, so that no formula below overflows."""
PAYLOAD_ARMS = 48
"""Most arms that are compared pair by pair. With more, shuffling them first deals fewer words, in more rounds."""
MAX_THREE_ROUND_WORDS = 8192
"""Most words dealt, 64 KiB, for the payloads of a decision that takes three rounds instead of four."""
KEY_FRACTION_BITS = range(12, 17)
"""Fractional bits of a score that are compared: 2^-16 is far below what a bandit can know. As many as leave keys half a
word, which travels in four bytes; fewer than this only where scores are so large that more do not fit a comparison."""
MAX_INTERACTIONS = 10**9
DEFAULT_INTERACTIONS = range(10_000, 1_000_001)
"""Unless it is declared, a federation is given the most interactions in this range that its numbers hold."""
_KEY_ERROR = 0.004
"""Largest error of a difference of scores that are compared: a unit of the last bit for each party."""
_MOST_BATCH = 4095
_HALF_A_WORD = 32
NEWTON_ITERATIONS = 7
"""Of the paper's reciprocal, unless a federation says otherwise."""
_LEAST_CONTEXT_BITS = 8
SUITES: Final = ("fast", "paper")
DEFAULT_MAX_BATCH = 256
_FAST_NUMBERS: Final[dict[str, int]] = {
    "max_interactions": 0,
    "max_batch": DEFAULT_MAX_BATCH,
    "reciprocal_bits": 8,
    "repair_every": 10_000,
}
"""Numbers that only the fast suite has, and what they are unless given."""
_WHOLE: Final = ("arms", "fraction_bits", "reward_slot", "keep_interactions", "expires_after", *_FAST_NUMBERS)
_LONGEST_SLOT: Final = 7 * 24 * 3600
_LONGEST_WAIT: Final = 366 * 24 * 3600


class FastNumbers(TypedDict, total=False):
    """The same, as they may be given."""

    max_interactions: int
    max_batch: int
    reciprocal_bits: int
    repair_every: int


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, init=False)
class Federation:
    """What all roles know and must agree on.

    `features` and `norms` have an entry for each party. `policy` says how arms are chosen and rewards learned;
    `epsilon=0.1` is short for `policy=EpsilonGreedy(0.1)`. `suite` is the protocol: "fast" or "paper". `privacy` is
    what is promised over time about one row of data, such as `NoisySums(1.0)`; nothing unless given. `reward_slot` is
    the length of a slot in seconds: rewards are sent at the ends of slots, `default_reward` for those that have not
    come (docs/reward-slots.md). Without it, a reward is sent when it comes. No decision names an arm that is `retired`,
    by number (docs/changing.md). A decision without a reward expires `expires_after` seconds after it was made, or up
    to twice that: it is learned with `expired_reward`, or dropped if that is not given. `arm_features` is a table of
    public features of the arms: all of them then have one model, and some of them one of their own on top
    (docs/arm-features.md). `evaluation` says which values of policies are opened, to whom, and with how much noise
    (docs/evaluation.md); none unless given.

    Parties keep the newest `keep_interactions` that were learned, so that they can be unlearned; without it all where
    state lasts, and the newest 1,000 in memory (docs/unlearning.md).

    Of the fast suite: the model holds at most `max_interactions`; further rewards are refused, and decisions go on with
    the model as it is. Unless given, it is as large as the numbers allow, up to a million. At most `max_batch`
    interactions are learned at once. After `repair_every` interactions learned one by one the model is solved anew, so
    that rounding errors do not add up. Reciprocals are exact to 2 `reciprocal_bits` + 2 bits. In the paper's suite
    these are rejected, and are 0.

    Of the paper's suite: `newton_iterations` of its reciprocal, 7 unless given. In the fast suite it is rejected, and
    is None.
    """

    arms: int
    features: tuple[int, ...]
    policy: Policy
    suite: str
    ridge: float
    norms: tuple[float, ...]
    fraction_bits: int
    max_interactions: int
    max_batch: int
    reciprocal_bits: int
    repair_every: int
    newton_iterations: int | None
    privacy: Mechanism
    reward_slot: int
    default_reward: float
    keep_interactions: int
    retired: tuple[int, ...]
    expires_after: int
    expired_reward: float | None
    arm_features: ArmTable | None
    evaluation: PolicyValues | None

    def __init__(
        self,
        arms: int,
        features: tuple[int, ...],
        policy: Policy | None = None,
        suite: str = "fast",
        *,
        epsilon: float | None = None,
        ridge: float = 1.0,
        norms: tuple[float, ...] = (),
        fraction_bits: int = 20,
        newton_iterations: int | None = None,
        privacy: Mechanism | None = None,
        reward_slot: int = 0,
        default_reward: float = 0.0,
        keep_interactions: int = 0,
        retired: tuple[int, ...] = (),
        expires_after: int = 0,
        expired_reward: float | None = None,
        arm_features: ArmTable | None = None,
        evaluation: PolicyValues | None = None,
        **fast_numbers: Unpack[FastNumbers],
    ) -> None:
        given: dict[str, Any] = {**fast_numbers}
        _check_names(given)
        numbers = _FAST_NUMBERS | given if suite == "fast" else dict.fromkeys(_FAST_NUMBERS, 0)
        if newton_iterations is None and suite == "paper":
            newton_iterations = NEWTON_ITERATIONS
        self._set(
            arms=arms,
            features=tuple(features) if isinstance(features, list) else features,
            policy=_chosen_policy(policy, epsilon),
            suite=suite,
            ridge=ridge,
            norms=tuple(norms) if isinstance(norms, list) else norms,
            fraction_bits=fraction_bits,
            newton_iterations=newton_iterations,
            privacy=Unbounded() if privacy is None else privacy,
            reward_slot=reward_slot,
            default_reward=default_reward,
            keep_interactions=keep_interactions,
            retired=tuple(retired) if isinstance(retired, list) else retired,
            expires_after=expires_after,
            expired_reward=expired_reward,
            arm_features=arm_features,
            evaluation=evaluation,
            **numbers,
        )
        self._check_suite(given)
        self._check_types()
        if not self.norms:
            self._set(norms=(1.0,) * len(self.features))
        self._check_counts()
        self._check_reals()
        self._check_slot()
        self._check_expiry()
        self.policy.check(self)
        self._check_retired()
        check_budget(self.arms, self.policy, self.privacy)
        check_evaluation(self)
        if suite == "fast":
            self._check_fit()
        self._check_drops()

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _check_fit(self) -> None:
        given = self.max_interactions
        if not given:
            self._set(max_interactions=self._default_interactions())
        problem = fit_problem(self)
        if problem is not None:
            advice = what_would_fit(self, lambda **changes: self._would_fit(bool(given), **changes))
            raise ConfigError(f"{problem}. {advice}")

    @property
    def terms(self) -> dict[str, Any]:
        """All that the roles must agree on, by name: the suite, the policy and the mechanism of privacy over time, the
        options of both under their own names, and the numbers that the suite has."""
        absent = tuple(_FAST_NUMBERS) if self.suite == "paper" else ("newton_iterations",)
        if not self.reward_slot:
            absent = (*absent, "reward_slot", "default_reward")
        if not self.keep_interactions:
            absent = (*absent, "keep_interactions")
        if not self.retired:
            absent = (*absent, "retired")
        absent = (*absent, *(name for name in ("expires_after", "expired_reward") if not self._expires(name)))
        if self.arm_features is None:
            absent = (*absent, "arm_features")
        absent = (*absent, "evaluation")
        numbers = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in absent}
        if self.arm_features is not None:
            numbers["arm_features"] = self.arm_features.digest
            numbers["arm_columns"] = self.arm_features.columns or self.arm_features.width
            if self.arm_features.own:
                numbers["own_models"] = self.arm_features.own
        chosen = {"policy": self.policy.name, "privacy": self.privacy.name}
        values = {} if self.evaluation is None else {"evaluation": str(self.evaluation)}
        return {**numbers, **chosen, **values, **self.policy.options, **self.privacy.options}

    @cached_property
    def learner(self) -> Learner:
        """What runs the policy in the suite."""
        return self.policy.learner(self)

    def among(self, arms: int) -> Federation:
        """The same as a decision among so many of its arms runs it (`bandit.subsets`). What is learned stays that of
        all arms, so scores have the bounds that they have here."""
        return _Among.of(self, arms)

    @cached_property
    def budget(self) -> Budget | None:
        """How many decisions may be made, where privacy over time is a budget of actions."""
        return budget_of(self.arms, self.policy, self.privacy)

    @property
    def naming_seconds(self) -> int:
        """How long a slot lasts at whose end parties tell the rewarder which decisions can be rewarded; 0 if they need
        not, as decisions neither expire nor have reward slots."""
        return self.reward_slot or self.expires_after

    @property
    def parties(self) -> int:
        return len(self.features)

    @property
    def dimension(self) -> int:
        return sum(self.features)

    @property
    def context_bits(self) -> int:
        """Fractional bits of a feature of a context: L, or so many that its product with one of an arm has L."""
        return self.fraction_bits - (0 if self.arm_features is None else ARM_BITS)

    @property
    def models(self) -> int:
        """How many models are learned: one for each arm, or one for all where arms have features."""
        return self.arms if self.arm_features is None else 1

    @property
    def model_size(self) -> int:
        """The weights of a model: one for each feature of a context, or for each product with one of an arm."""
        return self.dimension * (1 if self.arm_features is None else self.arm_features.width)

    @property
    def arm_width(self) -> int:
        """The numbers by which a lesson knows the arm: its one-hot, or its features."""
        return self.arms if self.arm_features is None else self.arm_features.width

    @cached_property
    def joint_norm(self) -> float:
        """R: the largest norm a whole context can have, after each party has clipped and rounded its features. Also
        that of its products with the features of an arm, whose norm is at most 1."""
        rounding = 2.0 ** -(self.context_bits + 1)
        bounds = (norm + sqrt(count) * rounding for norm, count in zip(self.norms, self.features, strict=True))
        return sqrt(sum(bound**2 for bound in bounds))

    @property
    def largest_quadratic_form(self) -> float:
        """The largest x'Mx."""
        return self.joint_norm**2 / self.ridge

    @property
    def numbers(self) -> Numbers:
        """What the plans of `solve` depend on. Where sums have noise, for all noise but that of a chance of one in a
        million (`NoisySums.shift`), after as many refreshes as the interactions bring."""
        norm, size, privacy = self.joint_norm, self.model_size, self.privacy
        usual = self.fraction_bits, size, norm, self.ridge, self.max_interactions, self.repair_every
        gathers = self.reward_slot > 0
        if not isinstance(privacy, NoisySums | NoisyGradient):
            return Numbers(*usual, gathers)
        last = max(1, privacy.refreshes_by(self.max_interactions))
        if isinstance(privacy, NoisyGradient):
            steps = privacy.refresh_every, self.max_batch, privacy.first_step, self.models * size
            return GradientNumbers(*usual, gathers, *steps, *_gradient_noise(privacy, last, norm, size, self.models))
        moment_noise = privacy.most_moment_noise(last, norm, size, self.models)
        shift = max(
            privacy.shift(k, self.ridge, norm, size, self.models)
            for k in range(max(1, last + 1 - max(1, privacy.correlated)), last + 1)
        )  # correlated noise also falls in a block
        return NoisyNumbers(*usual, gathers, shift, moment_noise)

    @property
    def noisy(self) -> NoisyMechanism | None:
        """The mechanism of privacy over time, if it draws noise."""
        return self.privacy if isinstance(self.privacy, NoisyMechanism) else None

    @property
    def score_bound(self) -> float:
        """The largest |score| that legal data can bring about."""
        return self.numbers.largest_score

    @property
    def key_bound(self) -> float:
        """The largest |score| with what the policy adds to it: what is compared."""
        return self.score_bound + self.policy.largest_bonus(self)

    @property
    def score_drift(self) -> float:
        """What the rounding errors of all lessons between two repairs add to a score, as a standard deviation."""
        return self.joint_norm * self.numbers.weight_drift

    @property
    def score_rounding(self) -> float:
        """How far apart the exact scores of two arms may lie that rounding can put in either order.

        Keys: each of the N parties shifts its own share of a score, and drops less than a unit of the last bit that is
        compared. A key is too low by less than N units, the difference of two keys is off by less than N units.
        Model: the difference of two scores has drifted by sqrt(2) times as much as one; three standard deviations.

        The paper's suite compares scores x'(M b) of L bits and shifts twice: the D entries of M b, which x multiplies,
        and the score. The error of its M depends on the data, has no bound before them, and is not allowed for.
        """
        if self.suite == "paper":
            units = 1 + sqrt(self.dimension) * self.joint_norm
            return self.parties * units * 2.0**-self.fraction_bits
        keys = self.parties * 2.0**-self.key_fraction_bits
        return keys + 3 * sqrt(2) * self.score_drift

    @property
    def gain_bits(self) -> int:
        """Fractional bits of g = 1 / (1 + x'Mx): more than L where it can be below 1/4, so that g u, too, is exact."""
        return self.fraction_bits + max(0, ceil(log2(self.largest_quadratic_form / 4)))

    @property
    def reciprocal_shape(self) -> ReciprocalShape:
        """How g is cut into polynomials."""
        return reciprocal_shape(
            2 * self.reciprocal_bits + 3, self.largest_quadratic_form, least_spacing=2.0**-self.reciprocal_bits
        )

    @property
    def reciprocal_power_bits(self) -> int:
        """Bits of the powers of which polynomials are sums."""
        return 2 * self.reciprocal_bits + 4

    @property
    def wide_gain_bits(self) -> int:
        """Fractional bits of g as it is looked up: with them coefficients are rounded to four bits more than g has."""
        return self.gain_bits + self.reciprocal_power_bits + 4

    @property
    def tag_bits(self) -> int:
        """Bits below a score that make keys distinct."""
        return max(1, (self.arms - 1).bit_length())

    @property
    def score_range_bits(self) -> int:
        """Integer bits of a difference of keys: that of two scores within the bound, bonus included."""
        return max(1, ceil(log2(2 * (self.key_bound * HEADROOM + _SCORE_ERROR))))

    @property
    def key_fraction_bits(self) -> int:
        """Fractional bits of a score that are compared; fewer where scores are large."""
        least, most = KEY_FRACTION_BITS[0], KEY_FRACTION_BITS[-1]
        beside = self._key_bits_beside_fraction
        return min(2 * self.fraction_bits, most, max(least, _HALF_A_WORD - beside), MAX_BITS - beside)

    @property
    def comparison_bits(self) -> int:
        """Bits of a comparison key, and of the difference of two."""
        return self.key_fraction_bits + self._key_bits_beside_fraction

    @property
    def _key_bits_beside_fraction(self) -> int:
        return self._key_range_bits + self.tag_bits

    @property
    def _key_range_bits(self) -> int:
        """Sign and integer bits; in a shuffle one more, by which arms that are not eligible are lower than others."""
        return 1 + self.score_range_bits + (not self.decides_by_payloads)

    @property
    def spare_score_bits(self) -> int:
        """How many more fractional bits than 2L a score may have, for its key to be right modulo 2^64."""
        return 64 - 2 * self.fraction_bits - self._key_range_bits

    @property
    def least_key_bits(self) -> int:
        """Fewest fractional bits that a comparison needs."""
        return ceil(log2(self.parties / _KEY_ERROR))

    @property
    def decides_by_payloads(self) -> bool:
        """Whether arms are compared pair by pair (`mpc.payloads`), not shuffled before (`mpc.shuffle`)."""
        return self.arms <= PAYLOAD_ARMS

    @property
    def decides_in_three_rounds(self) -> bool:
        """Whether a single decision takes three rounds: where few words are dealt for it."""
        words = payload_words(payload_chunks(self.comparison_bits))
        return self.decides_by_payloads and self.arms * (self.arms - 1) // 2 * words <= MAX_THREE_ROUND_WORDS

    def _check_suite(self, fast_numbers: dict[str, Any]) -> None:
        check_suite(self.suite, self.newton_iterations)
        if self.suite != "fast":
            for name, value in fast_numbers.items():
                if value or isinstance(value, bool):
                    raise ConfigError(f"{name} belongs to suite fast: choose it, or leave it out")

    def _check_types(self) -> None:
        for name in ("features", "norms"):
            if not isinstance(getattr(self, name), tuple):
                raise ConfigError(
                    f"{name} must be a list with an entry for each party, such as [3, 2]; got {getattr(self, name)!r}"
                )
        if not isinstance(self.arm_features, ArmTable | None):
            raise ConfigError(
                f"arm_features must be a table such as ArmTable.of([[...], ...]), got {self.arm_features!r}"
            )
        if not isinstance(self.privacy, Mechanism):
            raise ConfigError(f"privacy must be a mechanism such as NoisySums(1.0), got {self.privacy!r}")
        for name in _WHOLE:
            if not _is_whole(getattr(self, name)):
                raise ConfigError(f"{name} must be a whole number, got {getattr(self, name)!r}")
        for name, value in (("ridge", self.ridge), *self._named_norms()):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ConfigError(f"{name} must be a number, got {value!r}")

    def _check_counts(self) -> None:
        if len(self.features) < 2:
            raise ConfigError(f"a federation needs at least two parties, got {len(self.features)}")
        for number, count in enumerate(self.features):
            if not _is_whole(count) or count < 1:
                raise ConfigError(f"party {number} must contribute at least one feature, got {count!r}")
        if self.arms < 2:
            raise ConfigError(f"a bandit needs at least two arms, got {self.arms!r}")
        if self.arm_features is not None and self.arm_features.arms != self.arms:
            raise ConfigError(f"arm_features has {self.arm_features.arms} arms where the federation has {self.arms}")
        if self.arm_features is not None and self.context_bits < _LEAST_CONTEXT_BITS:
            raise ConfigError(
                f"with arm_features a context has {ARM_BITS} fractional bits fewer than other numbers: it takes at "
                f"least {_LEAST_CONTEXT_BITS + ARM_BITS} fraction_bits, got {self.fraction_bits}"
            )
        if len(self.norms) != len(self.features):
            raise ConfigError(f"{len(self.features)} parties but {len(self.norms)} norm bounds")
        ranges = [("fraction_bits", FRACTION_BITS[0], FRACTION_BITS[-1])]
        if self.suite == "fast":
            ranges += [
                ("max_interactions", 0, MAX_INTERACTIONS),
                ("max_batch", 1, _MOST_BATCH),
                ("repair_every", 1, 1_000_000),
                ("reciprocal_bits", 4, 12),
            ]
        for name, least, most in ranges:
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must lie in {least}..{most}, got {getattr(self, name)}")

    def _check_reals(self) -> None:
        for name, value in (("ridge", self.ridge), *self._named_norms()):
            if not _LEAST_REAL <= value <= 1 / _LEAST_REAL:
                raise ConfigError(f"{name} must lie in {_LEAST_REAL:g}..{1 / _LEAST_REAL:g}, got {value}")

    def _check_slot(self) -> None:
        if not 0 <= self.reward_slot <= _LONGEST_SLOT:
            raise ConfigError(f"reward_slot must lie in 0..{_LONGEST_SLOT} seconds, got {self.reward_slot}")
        if self.reward_slot and self.suite != "fast":
            raise ConfigError(
                f"reward_slot belongs to suite fast: suite {self.suite} learns from one reward at a time; leave it out"
            )
        if not 0 <= self.keep_interactions <= MAX_INTERACTIONS:
            raise ConfigError(f"keep_interactions must lie in 0..{MAX_INTERACTIONS}, got {self.keep_interactions}")
        least = 0 if self.evaluation is None else self.evaluation.window + self.max_batch
        if 0 < self.keep_interactions < least:
            raise ConfigError(
                f"keep_interactions must be at least {least}, got {self.keep_interactions}: what a window "
                "under way has learned is needed after a restart (window and max_batch together)"
            )
        value = self.default_reward
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"default_reward must lie in [0, 1], got {value!r}")
        if value and not self.reward_slot:
            raise ConfigError("default_reward is what a slot sends for a reward that has not come: set reward_slot too")

    def _expires(self, name: str) -> bool:
        """Whether a field of expiry was given."""
        return self.expires_after > 0 and getattr(self, name) is not None

    def _check_expiry(self) -> None:
        if not 0 <= self.expires_after <= _LONGEST_WAIT:
            raise ConfigError(f"expires_after must lie in 0..{_LONGEST_WAIT} seconds, got {self.expires_after}")
        if self.expires_after and self.reward_slot:
            raise ConfigError(
                "expires_after is not for reward slots, which send default_reward for what has not come: leave it out"
            )
        value = self.expired_reward
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ConfigError(f"expired_reward must lie in [0, 1], got {value!r}")
        if not self.expires_after:
            raise ConfigError("expired_reward is learned for a decision that has expired: set expires_after too")
        self._set(expired_reward=float(value))

    def _check_drops(self) -> None:
        """What has expired is dropped as what is unlearned, where that is possible."""
        if self.expires_after and self.expired_reward is None and self.learner.schedule().no_unlearning:
            raise ConfigError(
                f"policy {self.policy.name} in suite {self.suite} with privacy {self.privacy.name} cannot drop "
                "decisions that have expired: give expired_reward, which is learned for them"
            )

    def _check_retired(self) -> None:
        if not isinstance(self.retired, tuple) or not all(
            _is_whole(arm) and 0 <= arm < self.arms for arm in self.retired
        ):
            raise ConfigError(f"retired must be a list of numbers of arms below {self.arms}, got {self.retired!r}")
        if len(set(self.retired)) != len(self.retired):
            raise ConfigError("retired names an arm twice")
        if len(self.retired) == self.arms:
            raise ConfigError("all arms are retired: leave one at least")
        if self.retired and not self.policy.learners[self.suite].takes_eligible:
            raise ConfigError(f"suite {self.suite} takes no eligible arms, so none can be retired: choose suite fast")
        self._set(retired=tuple(sorted(self.retired)))

    def _named_norms(self) -> list[tuple[str, float]]:
        return [(f"the norm bound of party {number}", norm) for number, norm in enumerate(self.norms)]

    # What would fit

    def _default_interactions(self) -> int:
        """The most interactions that fit, of two significant digits."""
        least, most = DEFAULT_INTERACTIONS[0], DEFAULT_INTERACTIONS[-1]

        def fits(count: int) -> bool:
            return fit_problem(self._with(max_interactions=count)) is None

        found = largest(fits, (two_digits(least * 10 ** (step / 50)) for step in range(101)))
        return min(most, found or least)

    def _would_fit(self, chosen: bool, **changes: Any) -> bool:
        """Whether this would be accepted with other numbers. Interactions are found anew unless they were chosen."""
        changed = self._with(**changes)
        if not chosen and "max_interactions" not in changes:
            changed = changed._with(max_interactions=DEFAULT_INTERACTIONS[0])
        try:
            changed._check_counts()
            changed._check_reals()
        except ConfigError:
            return False
        return fit_problem(changed) is None

    def _with(self, **changes: Any) -> Federation:
        """A copy with other numbers, unchecked."""
        copy = object.__new__(type(self))
        for field in fields(self):
            object.__setattr__(copy, field.name, changes.get(field.name, getattr(self, field.name)))
        return copy


class _Among(Federation):
    """A federation as a decision among some of its arms sees it."""

    _whole: Federation

    @classmethod
    def of(cls, whole: Federation, arms: int) -> _Among:
        narrow = object.__new__(cls)
        narrow._set(**{field.name: getattr(whole, field.name) for field in fields(whole)})
        narrow._set(arms=arms, retired=(), _whole=whole)
        return narrow

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Among) and (self.arms, self._whole) == (other.arms, other._whole)

    def __hash__(self) -> int:
        return hash((self.arms, self._whole))

    @property
    def numbers(self) -> Numbers:
        return self._whole.numbers


@lru_cache
def _gradient_noise(privacy: NoisyGradient, last: int, norm: float, size: int, arms: int) -> tuple[float, float]:
    """What the noise of so many refreshes has added to the weights of an arm, and to all its gradients together."""
    return privacy.weight_noise(last, norm, size, arms), privacy.most_moment_noise(last, norm, size, arms)


def check_suite(suite: str, newton_iterations: int | None = None) -> None:
    """Reject an unknown suite, and an option that it does not have."""
    if suite not in SUITES:
        raise ConfigError(f"there is no suite {suite!r}; there are {' and '.join(SUITES)}")
    if newton_iterations is None:
        return
    if suite != "paper":
        raise ConfigError("newton_iterations belong to suite paper: choose it, or leave them out")
    if not _is_whole(newton_iterations) or not 0 <= newton_iterations <= 20:
        raise ConfigError(f"newton_iterations must be a whole number in 0..20, got {newton_iterations!r}")


def _check_names(fast_numbers: dict[str, Any]) -> None:
    for name in fast_numbers:
        if name not in _FAST_NUMBERS:
            known = [*(field.name for field in fields(Federation)), "epsilon"]
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise ConfigError(f"a federation has no {name!r}; {hint}")


def _chosen_policy(policy: Policy | None, epsilon: float | None) -> Policy:
    """The policy, or the one that `epsilon` is short for."""
    if policy is None:
        if epsilon is None:
            raise ConfigError("a federation needs a policy: policy=EpsilonGreedy(0.1), or for short epsilon=0.1")
        return make_policy(EPSILON_GREEDY, {"epsilon": epsilon})
    if epsilon is not None:
        raise ConfigError("epsilon is short for policy=EpsilonGreedy(epsilon): give one of the two")
    if not isinstance(policy, Policy):
        raise ConfigError(f"policy must be a policy such as EpsilonGreedy(0.1), got {policy!r}")
    return policy
