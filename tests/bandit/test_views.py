"""What parties and actor see: uniform words whatever the inputs; the actor finds the arm, and nothing beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hiddenarm.bandit.catalogue import DECIDE, LEARN, STEP, ProgramId
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.payloads import PAYLOAD_BITS
from hiddenarm.mpc.run import Openings, Sharing
from hiddenarm.ring.words import Words, encode, low_bits
from support import (
    SIGNIFICANCE,
    FourRoundFederation,
    evenness,
    fixed_key,
    independence,
    same_distribution,
    uniformity,
)

ARMS = 4
THREE, FOUR = "three rounds", "four rounds"
FORMS = {THREE: Federation, FOUR: FourRoundFederation}
"""Both ways to come from comparisons to payloads."""
APART, TOGETHER = (DECIDE, LEARN), (STEP,)
"""Decide and learn by two programs, or by one."""
KINDS = pytest.mark.parametrize(
    ("programs", "form"),
    [(APART, THREE), (TOGETHER, THREE), (APART, FOUR), (TOGETHER, FOUR)],
    ids=lambda kind: kind if isinstance(kind, str) else " and ".join(kind),
)
ANSWERED, RETURNED = -1, -2
"""In place of a round: the answers to the actor, and what it returns."""

Place = tuple[str, int, int, int | str]


def rounds_of(programs: tuple[str, ...], form: str) -> dict[str, int]:
    decide = {THREE: 3, FOUR: 4}[form]
    return {STEP: decide + 4} if programs == TOGETHER else {DECIDE: decide, LEARN: 5}


class Views:
    """Everything that crosses between parties, and between them and the actor, by place: (program, round, opening,
    sender or "opened")."""

    def __init__(self) -> None:
        self.words: dict[Place, list[Words]] = defaultdict(list)
        self.bits: dict[Place, int] = {}
        self._program, self._round = DECIDE, 0

    def start(self, program: str) -> None:
        self._program, self._round = program, 0

    def __call__(self, openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for number, (opening, sent) in enumerate(zip(openings, by_opening, strict=True)):
            here = (self._program, self._round, number)
            for sender, words in enumerate(sent):
                self._note((*here, sender), words, opening.bits)
            if opening.owners is None:
                add = np.add if opening.sharing is Sharing.ADD else np.bitwise_xor
                self._note((*here, "opened"), low_bits(reduce(add, sent), opening.bits), opening.bits)
        self._round += 1

    def act(self, decided: list[Decided], arms: NDArray[np.int64]) -> None:
        """The actor got answers, found arms [replicates, 1] and returned one-hots. Of what is in the answers, the words
        at other arms, in the order in which these follow the arm."""
        answers = [own.answer for own in decided if own.answer is not None]
        for sender, words in enumerate(answers):
            self._note((self._program, ANSWERED, 0, sender), words, PAYLOAD_BITS)
        found = np.bitwise_xor.reduce(answers)
        losers = np.take_along_axis(found, (arms[..., None] + np.arange(1, ARMS)) % ARMS, axis=-1)
        self._note((self._program, ANSWERED, 0, "opened"), losers, PAYLOAD_BITS)
        for place, (one, other) in enumerate(((0, 1), (0, 2), (1, 2))):
            self._note(
                (self._program, ANSWERED, 1 + place, "opened"), losers[..., one] ^ losers[..., other], PAYLOAD_BITS
            )
        assert decided[0].masked_arm is not None
        self._note((self._program, RETURNED, 0, "opened"), decided[0].masked_arm, 64)

    def _note(self, place: Place, words: Words, bits: int) -> None:
        self.words[place].append(words.copy())
        self.bits[place] = bits


@contextmanager
def actor_watched(views: Views) -> Iterator[None]:
    honest = Lockstep._act

    def act(
        lockstep: Lockstep, program: ProgramId, step: int, decided: list[Decided], eligible: Words
    ) -> NDArray[np.int64]:
        arms = honest(lockstep, program, step, decided, eligible)
        views.act(decided, arms)
        return arms

    with patch.object(Lockstep, "_act", act):
        yield


def unit(values: list[float], replicates: int) -> np.ndarray:
    return np.tile(np.array(values), (replicates, 1))


CONTEXTS = {"zeros": ([0.0, 0.0], [0.0, 0.0], [0.0]), "extremes": ([1.0, 0.0], [0.0, -1.0], [1.0])}


def watched(
    inputs: str,
    reward: float,
    key: str,
    *,
    programs: tuple[str, ...] = APART,
    parties: int = 2,
    replicates: int = 1000,
    steps: int = 4,
    form: str = THREE,
) -> tuple[Views, Lockstep]:
    """Decide and learn some steps on the same inputs; all replicates get the same ones, with masks of their own."""
    federation = FORMS[form](arms=ARMS, features=(2, 2, 1)[:parties], epsilon=0.2)
    views = Views()
    lockstep = Lockstep(
        federation,
        fixed_key("views", key),
        replicates=replicates,
        deal_ahead=1,
        observer=views,
        online=programs == TOGETHER,
    )
    contexts = [unit(values, replicates) for values in CONTEXTS[inputs][:parties]]
    with actor_watched(views):
        for _ in range(steps):
            views.start(programs[0])
            number, _ = lockstep.decide(contexts)
            if programs == APART:
                views.start(LEARN)
            lockstep.learn(number, np.full(replicates, reward))
    return views, lockstep


def corrected(p_values: list[float]) -> float:
    """Bonferroni's smallest p-value of many tests."""
    return min(p_values) * len(p_values)


@KINDS
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize(("inputs", "reward"), [("zeros", 0.0), ("extremes", 1.0)])
def test_every_word_that_anybody_sees_is_uniform(
    parties: int, inputs: str, reward: float, programs: tuple[str, ...], form: str
) -> None:
    views, lockstep = watched(inputs, reward, f"{inputs} {parties}", parties=parties, programs=programs, form=form)
    seen = {(program, number) for program, number, _, _ in views.words}
    rounds = rounds_of(programs, form)
    answered = {(programs[0], ANSWERED), (programs[0], RETURNED)}
    assert seen == answered | {(program, number) for program in rounds for number in range(rounds[program])}
    p_values = [uniformity(np.concatenate(words), views.bits[place]) for place, words in views.words.items()]
    assert corrected(p_values) > SIGNIFICANCE
    if inputs == "extremes":  # the model has moved: the words hide something
        assert np.abs(lockstep.reveal_model()[1]).max() > 0.3


@KINDS
@pytest.mark.parametrize("inputs", ["zeros", "extremes"])
def test_words_of_different_steps_and_openings_share_no_mask(inputs: str, programs: tuple[str, ...], form: str) -> None:
    """A mask used twice leaves each word uniform but not their difference (see tests/mpc/test_masking)."""
    views, _ = watched(inputs, 1.0, f"pairs {inputs}", programs=programs, form=form)
    p_values = []
    for place, words in views.words.items():
        if views.bits[place] == 1:
            continue
        p_values += [
            uniformity(low_bits(later - earlier, views.bits[place]), views.bits[place])
            for earlier, later in pairwise(words)
        ]
    # Values of one shape are masked in several openings, and in two programs: take any two of them.
    full = [(place, words[-1]) for place, words in views.words.items() if views.bits[place] == 64]
    for index, (_, one) in enumerate(full):
        p_values += [uniformity(one - other) for _, other in full[index + 1 :] if one.shape == other.shape]
    assert len(p_values) > 100
    assert corrected(p_values) > SIGNIFICANCE


@KINDS
def test_views_of_very_different_inputs_have_one_distribution(programs: tuple[str, ...], form: str) -> None:
    zeros, _ = watched("zeros", 0.0, "sample one", programs=programs, form=form)
    extremes, _ = watched("extremes", 1.0, "sample two", programs=programs, form=form)
    assert zeros.words.keys() == extremes.words.keys()
    p_values = [
        same_distribution(np.concatenate(words), np.concatenate(extremes.words[place]), zeros.bits[place])
        for place, words in zeros.words.items()
    ]
    assert corrected(p_values) > SIGNIFICANCE


@pytest.mark.parametrize("programs", [APART, TOGETHER])
@pytest.mark.parametrize("reward", [0.0, 0.731, 1.0])
def test_views_stay_uniform_for_every_reward_under_one_key(reward: float, programs: tuple[str, ...]) -> None:
    views, _ = watched("extremes", reward, "one key", programs=programs)
    learnt = {place: words for place, words in views.words.items() if place[0] == programs[-1]}
    p_values = [uniformity(np.concatenate(words), views.bits[place]) for place, words in learnt.items()]
    assert corrected(p_values) > SIGNIFICANCE


@pytest.mark.parametrize("programs", [APART, TOGETHER])
def test_what_the_clients_send_is_uniform(programs: tuple[str, ...]) -> None:
    """Reward and one-hot under masks that no party knows: alone, and with what either party holds of the mask."""
    replicates = 20_000
    _, lockstep = watched("zeros", 0.0, "clients", replicates=replicates, steps=0, programs=programs)
    number, _ = lockstep.decide([unit(values, replicates) for values in CONTEXTS["zeros"][:2]])
    seeds, kept = Seeds(fixed_key("views", "clients")), lockstep._pending[number]
    reward_masks, arm_masks = [own.reward_mask for own in kept], [own.arm_mask for own in kept]
    mask = program_stream(seeds.rewarder(), programs[0], replicates).step(number)
    assert np.array_equal(reduce(np.add, reward_masks), mask)
    arm_mask = program_stream(seeds.actor(), programs[0], replicates * ARMS).step(number)
    assert np.array_equal(reduce(np.add, arm_masks).ravel(), arm_mask)
    returned = kept[0].masked_arm
    assert returned is not None
    for sent, shares in ((encode(np.ones(replicates), 20) + mask, reward_masks), (returned, arm_masks)):
        for seen in (sent, sent - shares[0], sent - shares[1]):
            assert uniformity(seen) > SIGNIFICANCE


@pytest.mark.parametrize("programs", [APART, TOGETHER])
def test_literal_rewards_arms_and_features_do_not_travel(programs: tuple[str, ...]) -> None:
    reward = 0.7316284179687500  # exact at 20 bits
    views, _ = watched("extremes", reward, "literal", programs=programs)
    bits = 20
    literal = {int(encode(value, scale)) for value in (reward, 1.0, -1.0, 0.5) for scale in (bits, 2 * bits, 3 * bits)}
    literal |= {0, 1, 2**64 - 1}  # one-hots, and untouched zeros
    words = np.concatenate(
        [np.concatenate(words).ravel() for place, words in views.words.items() if views.bits[place] == 64]
    )
    # A uniform word is one of these 15 with probability 15 / 2^64: a million words hit one with 1e-12.
    assert len(words) > 500_000
    assert not np.isin(words, np.array(sorted(literal), np.uint64)).any()
    assert len(np.unique(words)) == len(words)


def many_decisions(weights: list[float], epsilon: float, key: str, draws: int, form: str = THREE) -> NDArray[np.int64]:
    """The arms of so many decisions whose scores are these weights, which party 1 holds."""
    replicates = 4000
    federation = FORMS[form](arms=len(weights), features=(1, 1), epsilon=epsilon)
    lockstep = Lockstep(federation, fixed_key("many", key), replicates=replicates, deal_ahead=1)
    lockstep.states[1]["weights"][:, :, 0] = encode(weights, 20)
    contexts = [np.ones((replicates, 1)), np.zeros((replicates, 1))]
    return np.concatenate([lockstep.decide(contexts)[1] for _ in range(draws // replicates)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("weights", "best"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3]),
        ([0.3, 0.1, -0.2, 0.7], [3]),
        ([0.5, -0.1, 0.5, 0.5], [0, 2, 3]),
        ([-3.9, -3.9, 3.9, -3.9], [2]),
        ([-32.0, -32.0, 32.0, 32.0], [2, 3]),
        ([0.25, 0.25], [0, 1]),
    ],
)
def test_the_best_arm_is_chosen_and_ties_break_evenly(weights: list[float], best: list[int], form: str) -> None:
    arm = many_decisions(weights, 0.0, str(weights), 40_000, form)
    assert set(arm) == set(best)
    if len(best) > 1:
        assert evenness(np.searchsorted(best, arm), len(best)) > SIGNIFICANCE


@pytest.mark.parametrize("form", FORMS)
def test_exploring_does_not_look_at_scores_far_out_of_range(form: str) -> None:
    """Everything is explored: the arm is uniform, and no decision ends for want of an order."""
    arm = many_decisions([2.0**40, -(2.0**42), 0.0, 2.0**43 - 1], 1.0, "out of range", 40_000, form)
    assert evenness(arm, ARMS) > SIGNIFICANCE


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0])
def test_the_released_arm_has_the_papers_distribution(epsilon: float, form: str) -> None:
    draws = 100_000
    arm = many_decisions([-3.9, 0.1, 3.9, 0.3], epsilon, f"epsilon {epsilon}", draws, form)
    expected = np.full(ARMS, epsilon / ARMS)
    expected[2] += 1 - epsilon
    assert stats.chisquare(np.bincount(arm, minlength=ARMS), draws * expected).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("programs", [APART, TOGETHER])
def test_all_words_of_a_decision_are_independent_of_the_arm(programs: tuple[str, ...]) -> None:
    """With all arms tied the arm is random: no word's top bits go with it, those included that the actor returns and
    those that it finds at other arms. Of `step` these are the words up to the reward."""
    views, lockstep = watched("zeros", 0.0, "arm", replicates=8000, steps=0, programs=programs)
    views.start(programs[0])
    with actor_watched(views):
        _, arm = lockstep.decide([unit(values, 8000) for values in CONTEXTS["zeros"][:2]])
    p_values = []
    for place, words in views.words.items():
        width = min(views.bits[place], 2)
        tops = (words[0] >> np.uint64(views.bits[place] - width)).astype(np.int64).reshape(8000, -1)
        p_values += [independence(tops[:, column], arm) for column in range(tops.shape[1])]
    assert len(p_values) > 80
    assert corrected(p_values) > SIGNIFICANCE
