"""What a policy is: the rule by which arms are chosen and rewards learned, as one object that all roles agree on.

    Policy    its name and options, how it explores, what it guarantees, its plain twin
    Learner   the same at work in one federation and one suite: its named state arrays, its programs on shares with what
              each reads and writes, and its schedule of programs

A policy is a frozen dataclass; its fields are its options. It lives in a module of its own in `bandit.policies`, under
whose name it is found. docs/adding-a-policy.md shows how to write one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import inf, isfinite, log
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from hiddenarm.bandit.answers import Answers
from hiddenarm.bandit.catalogue import DECIDE_ONE, LEARN_ONE, STEP_ONE, ProgramId
from hiddenarm.bandit.coins import Exploration, Positions, exploration_thresholds
from hiddenarm.bandit.interactions import Rewarded, stacked
from hiddenarm.bandit.plain import PlainBandit, PlainBandits, PlainSharedBandit, PlainSharedBandits
from hiddenarm.bandit.schedule import Schedule
from hiddenarm.bandit.state import State, StateArray
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.run import ProgramText
from hiddenarm.options import Optioned
from hiddenarm.privacy.ledger import coarse
from hiddenarm.privacy.mechanisms import EXPLORE, REFUSE, ActionBudget, NoisyGradient, Unbounded
from hiddenarm.ring.words import Floats, Words

if TYPE_CHECKING:
    from hiddenarm.bandit.federation import Federation
    from hiddenarm.bandit.subsets import Subset

_COIN_UNITS = 2.0**63
LEAST_EPSILON = 1 / _COIN_UNITS
"""The dealer's coin has 63 bits: a smaller epsilon would never explore."""


@dataclass(frozen=True, slots=True)
class Guarantee:
    """What holds for one released action, whatever the data and the scores are. `epsilon` is the exact chance of the
    coin; `eta` bounds log P(arm | D) - log P(arm | D') for any two data sets."""

    arms: int
    epsilon: float

    @property
    def least(self) -> float:
        """The least probability of an arm."""
        return self.epsilon / self.arms

    @property
    def most(self) -> float:
        """The largest probability of an arm."""
        return 1 - self.epsilon + self.epsilon / self.arms

    @property
    def eta(self) -> float:
        """log(A / epsilon - A + 1); infinite without exploration."""
        return log(self.arms / self.epsilon - self.arms + 1) if self.epsilon else inf

    @property
    def sentence(self) -> str:
        if not self.epsilon:
            return "Decisions are never explored: a released action has no differential privacy."
        return (
            f"Every arm has a probability between {self.least:.4g} and {self.most:.4g}, whatever the scores are: a "
            f"released action is eta-differentially private with eta = {self.eta:.4g}."
        )


@dataclass(frozen=True)
class Policy(Optioned, ABC):
    """A policy. Its fields are its options: numbers, text or truth values, each with its own name, which may not be
    that of a number of the federation."""

    name: ClassVar[str]
    learners: ClassVar[Mapping[str, type[Learner]]]
    """By suite, what runs it there."""
    explores_alike: ClassVar[bool] = False
    """Whether all decisions have the same chance to be explored: then it need not be looked up for each."""
    shared_learner: ClassVar[type[Learner] | None] = None
    """What runs it in the fast suite where arms have features, with one model for all of them
    (`bandit.shared_model`); None where it does not run there."""
    gradient_learner: ClassVar[type[Learner] | None] = None
    """What runs it in the fast suite where models go down a noisy gradient (`bandit.noisy_gradient`); None where it
    does not run there."""
    normals: ClassVar[bool] = False
    """Whether a decision takes a normal number for each arm, which only the dealer knows (see `coins`)."""

    @property
    def suites(self) -> tuple[str, ...]:
        """The suites that it runs in."""
        return tuple(self.learners)

    def __str__(self) -> str:
        """As `--policy` takes it."""
        options = ",".join(f"{name}={value}" for name, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    def check(self, federation: Federation) -> None:
        """Raise ConfigError if this policy cannot run this federation."""
        if federation.suite not in self.learners:
            raise ConfigError(
                f"policy {self.name} does not run in suite {federation.suite}; it runs in {' and '.join(self.suites)}"
            )
        if federation.arm_features is not None:
            self._check_arm_features(federation)
        if isinstance(federation.privacy, NoisyGradient) and federation.arm_features is not None:
            raise ConfigError(f"privacy {federation.privacy.name} does not run with arm_features: leave one out")
        mechanisms = self._learner_of(federation).mechanisms
        if federation.privacy.name not in mechanisms:
            raise ConfigError(
                f"policy {self.name} in suite {federation.suite} does not run with privacy {federation.privacy.name}; "
                f"it runs with {' and '.join(mechanisms)}"
            )
        ties = self._learner_of(federation).ties_without_a_model
        if federation.privacy.options.get("when_spent") == EXPLORE and not ties:
            raise ConfigError(
                f"policy {self.name} in suite {federation.suite} cannot explore purely when the budget is spent: "
                f'choose when_spent "{REFUSE}"'
            )

    def _check_arm_features(self, federation: Federation) -> None:
        if self.shared_learner is None:
            others = ", ".join(self._with_arm_features())
            raise ConfigError(
                f"policy {self.name} does not run with arm_features: choose one of {others}, or leave them out"
            )
        if federation.suite != "fast":
            raise ConfigError(f"suite {federation.suite} does not run with arm_features: choose suite fast")

    @staticmethod
    def _with_arm_features() -> list[str]:
        """The names of the policies that run where arms have features."""
        from hiddenarm.bandit.policies import policy_class, policy_names

        return [name for name in policy_names() if policy_class(name).shared_learner is not None]

    def _learner_of(self, federation: Federation) -> type[Learner]:
        if federation.arm_features is not None:
            return self.shared_learner or self.learners[federation.suite]
        downhill = isinstance(federation.privacy, NoisyGradient) and federation.suite == "fast"
        return (self.gradient_learner if downhill else None) or self.learners[federation.suite]

    def largest_bonus(self, federation: Federation) -> float:
        """How far scores can lie from w'x, whatever the data are."""
        return 0.0

    def problem(self, federation: Federation) -> str | None:
        """What of a federation's numbers does not fit this policy; None if all does."""
        return None

    def learner(self, federation: Federation) -> Learner:
        """What runs this policy in the suite of a federation."""
        return self._learner_of(federation)(federation)

    # Exploration

    @abstractmethod
    def epsilons(self, positions: Positions) -> Floats:
        """The chance to explore, by the public position of a decision (see `coins`)."""

    def thresholds(self, positions: Positions) -> Words:
        """The same as the dealer's coin has it: 63-bit integers, of a schedule few (`privacy.ledger.coarse`). Epsilon
        is exactly threshold / 2^63."""
        fine = exploration_thresholds(self.epsilons(positions))
        if self.explores_alike:
            return fine
        return np.array([coarse(threshold) for threshold in fine.ravel().tolist()], np.uint64).reshape(fine.shape)

    def levels(self, first: int, count: int) -> list[int]:
        """The thresholds of `count` positions from `first` on, as the ledger counts them."""
        if self.explores_alike:
            return [self._only_threshold] * count
        levels: list[int] = self.thresholds(np.arange(first, first + count, dtype=np.int64)).tolist()
        return levels

    @cached_property
    def _only_threshold(self) -> int:
        return int(self.thresholds(np.zeros(1, np.int64))[0])

    def exploration(self, origin: int = 0) -> Exploration:
        """For the dealer of an epoch before which `origin` decisions were made."""
        return Exploration(lambda positions: self.thresholds(positions)[:, None], origin)

    def guarantee(self, arms: int, position: int = 0) -> Guarantee:
        """What holds for the action at a position, if its scores have no randomness of their own."""
        (threshold,) = self.thresholds(np.array([position], np.int64)).tolist()
        return Guarantee(arms, threshold / _COIN_UNITS)

    # The plain twin

    def twin(self, federation: Federation) -> PlainBandit:
        """The same learner in the clear, with the coins given from outside."""
        if federation.arm_features is not None:
            return PlainSharedBandit(federation.arm_features.features, federation.dimension, federation.ridge)
        return PlainBandit(federation.arms, federation.dimension, federation.ridge)

    def twins(self, federation: Federation, replicates: int) -> PlainBandits:
        """Many of them that advance together."""
        if federation.arm_features is not None:
            table = federation.arm_features.features
            return PlainSharedBandits(replicates, table, federation.dimension, federation.ridge)
        return PlainBandits(replicates, federation.arms, federation.dimension, federation.ridge)


def check_epsilon(name: str, epsilon: float) -> None:
    """Reject what is no chance that the dealer's coin can have."""
    if not (isfinite(epsilon) and 0 <= epsilon <= 1):
        raise ConfigError(f"{name} must lie in [0, 1], got {epsilon}")
    if 0 < epsilon < LEAST_EPSILON:
        raise ConfigError(
            f"{name} {epsilon:g} is below {LEAST_EPSILON:.3g}, the least chance that the dealer's coin can have; give "
            "0 to never explore, or a larger one"
        )


class Brings(Enum):
    """What a party brings into a program after the arrays that it reads."""

    CONTEXTS = "own features of the contexts to decide on, and which arms are eligible if a request may say so"
    INTERACTION = "own features, one-hot of the arm and reward of one interaction"
    INTERACTIONS = "own features, one-hots and rewards of several interactions"
    NOTHING = "nothing more"


@dataclass(frozen=True, slots=True)
class LearnerProgram:
    """A program: its text, the state arrays that a party brings into it, in this order, what it brings after them, and
    the arrays that its result replaces, in this order. Arrays of `side_by_side` are brought as one each, along their
    last axis, after those that are read."""

    text: ProgramText
    reads: tuple[str, ...]
    brings: Brings
    writes: tuple[str, ...] = ()
    side_by_side: tuple[tuple[str, ...], ...] = ()

    def given(self, state: State, taken: Rewarded | None, party: int) -> list[Words]:
        """What a party brings into a run: arrays of its state, and what it holds of interactions."""
        given = [state[name] for name in self.reads]
        given += [np.concatenate([state[name] for name in names], axis=-1) for names in self.side_by_side]
        if self.brings is Brings.NOTHING:
            return given
        assert taken is not None
        adds = party == 0
        if self.brings is Brings.INTERACTIONS:
            return [*given, *stacked(taken.kept, adds), taken.rewards(adds)]
        (interaction,) = taken.kept
        return [*given, interaction.features, interaction.arm_share(adds), taken.rewards(adds)]

    def write(self, state: State, result: object) -> None:
        """Put the result of a run into the state."""
        assert isinstance(result, tuple)
        for name, shared in zip(self.writes, result, strict=True):
            state[name] = shared.share


class Learner(ABC):
    """A policy at work in one federation, in one suite."""

    single_lesson: ProgramId = LEARN_ONE
    """The program that learns one interaction."""
    takes_eligible = False
    """Whether a request may name the arms that are eligible."""
    mechanisms: ClassVar[tuple[str, ...]] = (Unbounded.name, ActionBudget.name)
    """The mechanisms of privacy over time that it runs with, by name."""
    ties_without_a_model: ClassVar[bool] = False
    """Whether all scores are exactly equal where all arrays that a decision reads are zero: then tags alone choose."""

    def __init__(self, federation: Federation) -> None:
        self.federation = federation
        self.policy = federation.policy
        self._among: dict[int, Learner] = {}

    @property
    @abstractmethod
    def arrays(self) -> tuple[StateArray, ...]:
        """The state: what lessons change."""

    @property
    @abstractmethod
    def decide_reads(self) -> tuple[str, ...]:
        """The arrays that a decision reads; of these, parties keep the last versions."""

    def public_inputs(self, eligible: Words, subset: Subset | None = None) -> Sequence[Words]:
        """What every party brings into a decision beside its own: public words, such as which arms are eligible
        [replicates, count, arms], or slots where it is among a subset."""
        return ()

    def rows(self, words: Words, subset: Subset) -> Words:
        """What a party brings of an array [replicates, ...] into a decision among a subset: the models of its arms."""
        return words[:, subset.rows]

    def among(self, size: int) -> Learner:
        """What runs decisions among so many slots (`bandit.subsets`)."""
        if size not in self._among:
            self._among[size] = self.federation.among(size).learner
        return self._among[size]

    @abstractmethod
    def program(self, program: ProgramId, exploration: Exploration | None = None) -> LearnerProgram:
        """A program by name and count."""

    @abstractmethod
    def schedule(self) -> Schedule:
        """Which programs a lesson needs, at the start."""

    @property
    def learns_many(self) -> bool:
        """Whether one lesson may have several rewards."""
        return self.schedule().learns_many

    @property
    @abstractmethod
    def largest_programs(self) -> tuple[ProgramId, ...]:
        """The programs of the largest messages, beside those for batches of decisions and `single_programs`."""

    @property
    def has_step(self) -> bool:
        """Whether it has the program `step`, which decides for one context and learns from the decision."""
        return False

    @property
    def online_programs(self) -> tuple[ProgramId, ...]:
        """The programs of strictly online use."""
        return (STEP_ONE,) if self.has_step else (DECIDE_ONE, self.single_lesson)

    @property
    def single_programs(self) -> tuple[ProgramId, ...]:
        """The programs that decide for one context, or learn from one decision, or both."""
        return (DECIDE_ONE, self.single_lesson, *((STEP_ONE,) if self.has_step else ()))

    @property
    def answers(self) -> Answers:
        """What the parties answer to the actor."""
        return Answers.ONE_HOTS

    @abstractmethod
    def reveal(self, states: Sequence[State]) -> tuple[Floats, Floats]:
        """Inverses and weights in the clear, for whoever holds all shares."""
