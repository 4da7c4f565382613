"""A ridge regression per arm in the paper's protocol: run by the programs of `hiddenarm.paper`.

    inverses   [arms, D, D]   M       L fractional bits
    biases     [arms, D]      b       L

The weights M b are computed for every decision. There are no sums, no batches of lessons and no repair. Coins are drawn
as in the other suite, so that both have the same plain twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE, LEARN, ProgramId
from hiddenarm.bandit.coins import Coins, Exploration
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.policy import Brings, Learner, LearnerProgram
from hiddenarm.bandit.programs import own_features
from hiddenarm.bandit.schedule import Schedule, SinglySchedule
from hiddenarm.bandit.state import State, StateArray, reveal
from hiddenarm.errors import ProtocolError
from hiddenarm.mpc.masking import dealt_share, given_share
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.learner import Samples, Setting, decide, learn
from hiddenarm.ring.words import Floats, Words

_MODEL = ("inverses", "biases")


class PaperRidgeLearner(Learner):
    """In the paper's suite."""

    decide_reads = _MODEL
    largest_programs = ()
    ties_without_a_model = True

    @property
    def arrays(self) -> tuple[StateArray, ...]:
        arms, size, bits = self.federation.arms, self.federation.dimension, self.federation.fraction_bits
        return (
            StateArray("inverses", (arms, size, size), bits, np.eye(size), 1 / self.federation.ridge),
            StateArray("biases", (arms, size), bits),
        )

    def schedule(self) -> Schedule:
        return SinglySchedule()

    def reveal(self, states: Sequence[State]) -> tuple[Floats, Floats]:
        """Inverses [replicates, arms, D, D], and the weights that follow from the biases."""
        clear = reveal(self.arrays, states)
        return clear["inverses"], np.einsum("raij,raj->rai", clear["inverses"], clear["biases"])

    def program(self, program: ProgramId, exploration: Exploration | None = None) -> LearnerProgram:
        name, count = program
        if name == DECIDE:
            exploring = exploration or self.policy.exploration()
            return LearnerProgram(lambda run: self._decide(run, exploring, count), _MODEL, Brings.CONTEXTS)
        if name == LEARN and count == 1:
            return LearnerProgram(self._learn, _MODEL, Brings.INTERACTION, _MODEL)
        raise ProtocolError(f"the paper's suite has no program {name!r} for {count} at once")

    @property
    def _setting(self) -> Setting:
        federation = self.federation
        assert federation.newton_iterations is not None
        return Setting(federation.arms, federation.features, federation.fraction_bits, federation.newton_iterations)

    def _decide(self, run: Run, exploration: Exploration, count: int) -> Program:
        federation = self.federation

        @cache
        def samples() -> Samples:
            words = run.coin_words((count, Coins.words(federation.arms)))
            thresholds = exploration.at(run.first_step, run.batch[0], count)
            return samples_of(words, thresholds, federation.fraction_bits)

        inverses, biases = self._model(run)
        own = own_features(run, federation, count)
        arm = yield from decide(run, self._setting, inverses, biases, own, samples, count)
        run.announce(arm.share)
        reward_mask = dealt_share(run, (count,), lambda: run.rewarder_words((count,)))
        return Decided.of_one_hots(arm.share, arm, reward_mask)

    def _learn(self, run: Run) -> Program:
        inverses, biases = self._model(run)
        own = own_features(run, self.federation)
        arm, reward = given_share(run, self.federation.arms), given_share(run)
        return tuple((yield from learn(run, self._setting, inverses, biases, own, arm, reward)))

    def _model(self, run: Run) -> tuple[Shared, Shared]:
        inverses, biases = (given_share(run, *array.shape) for array in self.arrays)
        return inverses, biases


def samples_of(words: Words, thresholds: Words, fraction_bits: int) -> Samples:
    """The paper's private samples from the words of the coins [..., 1 + arms].

    v has the order of the tags, so that the highest tag wins, as in the plain twin. The tags are a uniformly random
    permutation that says nothing of how large the words are; so v, the words from the smallest to the largest arranged
    by the tags, are independent and uniform.
    """
    coins = Coins.from_words(words, thresholds)
    uniform = np.take_along_axis(np.sort(words[..., 1:], axis=-1), coins.tags, axis=-1)
    return Samples(
        explore=coins.explore.astype(np.uint64),
        uniform=uniform >> np.uint64(64 - fraction_bits),
        permutation=coins.tags.astype(np.uint64) + np.uint64(1),
    )
