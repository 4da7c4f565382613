"""What each party sees: uniform words whatever the inputs, where arms are shuffled a uniform slot, and neither the arm
nor the reward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import numpy as np
import pytest

from hiddenarm.bandit.catalogue import DECIDE, LEARN, LEARN_AHEAD
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.run import Openings, Sharing
from hiddenarm.mpc.tournament import RANDOM_ORDER, pairs
from hiddenarm.ring.words import Words, encode, low_bits
from support import (
    FORMS,
    SIGNIFICANCE,
    evenness,
    fixed_key,
    independence,
    same_distribution,
    uniformity,
    winners_of,
)

ARMS = 4
LEARN_ROUNDS = 5
THREE, FOUR, SHUFFLED = FORMS
KINDS = pytest.mark.parametrize(
    ("lesson", "form"), [(LEARN, THREE), (LEARN_AHEAD, THREE), (LEARN, FOUR), (LEARN, SHUFFLED)], ids=str
)
"""Both programs that learn one interaction, and all ways to decide."""

Place = tuple[str, int, int, int | str]


def decide_rounds(form: str, parties: int) -> int:
    """In a shuffle: scores, their mask, a turn of each party, a tournament, and a turn of each again."""
    return {THREE: 3, FOUR: 4, SHUFFLED: 2 + parties + 3 + parties}[form]


class Views:
    """Everything that crosses between parties, by place: (program, round, opening, sender or "opened"); and beside it
    the opened order of shuffled keys, which is uniform among orders, not among bits."""

    def __init__(self) -> None:
        self.words: dict[Place, list[Words]] = defaultdict(list)
        self.bits: dict[Place, int] = {}
        self.orders: list[Words] = []
        self._program, self._round = DECIDE, 0

    def start(self, program: str) -> None:
        self._program, self._round = program, 0

    def __call__(self, openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for number, (opening, sent) in enumerate(zip(openings, by_opening, strict=True)):
            here = (self._program, self._round, number)
            for sender, words in enumerate(sent):
                self._note((*here, sender), words, opening.bits)
            if opening.owners is not None:
                continue
            add = np.add if opening.sharing is Sharing.ADD else np.bitwise_xor
            opened = low_bits(reduce(add, sent), opening.bits)
            if opening.why == RANDOM_ORDER:
                self.orders.append(opened)
            else:
                self._note((*here, "opened"), opened, opening.bits)
        self._round += 1

    def _note(self, place: Place, words: Words, bits: int) -> None:
        if not words.size:  # in the turn of another party
            return
        self.words[place].append(words.copy())
        self.bits[place] = bits


def unit(values: list[float], replicates: int) -> np.ndarray:
    return np.tile(np.array(values), (replicates, 1))


CONTEXTS = {"zeros": ([0.0, 0.0], [0.0, 0.0], [0.0]), "extremes": ([1.0, 0.0], [0.0, -1.0], [1.0])}


def watched(
    inputs: str,
    reward: float,
    key: str,
    *,
    lesson: str = LEARN,
    parties: int = 2,
    replicates: int = 1000,
    steps: int = 4,
    form: str = THREE,
) -> tuple[Views, Lockstep]:
    """Decide and learn some steps on the same inputs; all replicates get the same ones, with masks of their own."""
    federation = FORMS[form](arms=ARMS, features=(2, 2, 1)[:parties], epsilon=0.2)
    views = Views()
    lockstep = Lockstep(federation, fixed_key("views", key), replicates=replicates, deal_ahead=1, observer=views)
    contexts = [unit(values, replicates) for values in CONTEXTS[inputs][:parties]]
    for _ in range(steps):
        views.start(DECIDE)
        number, _ = lockstep.decide(contexts)
        views.start(lesson)
        lockstep.learn(number, np.full(replicates, reward), ahead=lesson == LEARN_AHEAD)
    return views, lockstep


def corrected(p_values: list[float]) -> float:
    """Bonferroni's smallest p-value of many tests."""
    return min(p_values) * len(p_values)


@KINDS
@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize(("inputs", "reward"), [("zeros", 0.0), ("extremes", 1.0)])
def test_every_word_a_party_sees_is_uniform(parties: int, inputs: str, reward: float, lesson: str, form: str) -> None:
    views, lockstep = watched(inputs, reward, f"{inputs} {parties}", parties=parties, lesson=lesson, form=form)
    seen = {(program, number) for program, number, _, _ in views.words}
    rounds = {DECIDE: decide_rounds(form, parties), lesson: LEARN_ROUNDS}
    assert seen == {(program, number) for program in rounds for number in range(rounds[program])}
    p_values = [uniformity(np.concatenate(words), views.bits[place]) for place, words in views.words.items()]
    assert corrected(p_values) > SIGNIFICANCE
    if inputs == "extremes":  # the model has moved: the words hide something
        assert np.abs(lockstep.reveal_model()[1]).max() > 0.3


@KINDS
@pytest.mark.parametrize("inputs", ["zeros", "extremes"])
def test_words_of_different_steps_and_openings_share_no_mask(inputs: str, lesson: str, form: str) -> None:
    """A mask used twice leaves each word uniform but not their difference (see tests/mpc/test_masking)."""
    views, _ = watched(inputs, 1.0, f"pairs {inputs}", lesson=lesson, form=form)
    p_values = []
    for place, words in views.words.items():
        if views.bits[place] == 1:
            continue
        p_values += [
            uniformity(low_bits(later - earlier, views.bits[place]), views.bits[place])
            for earlier, later in pairwise(words)
        ]
    # Weights and features are masked in both programs, and in several openings of one: take any two of the same shape.
    full = [(place, words[-1]) for place, words in views.words.items() if views.bits[place] == 64]
    for index, (_, one) in enumerate(full):
        p_values += [uniformity(one - other) for _, other in full[index + 1 :] if one.shape == other.shape]
    assert len(p_values) > 100
    assert corrected(p_values) > SIGNIFICANCE


@KINDS
def test_views_of_very_different_inputs_have_one_distribution(lesson: str, form: str) -> None:
    zeros, _ = watched("zeros", 0.0, "sample one", lesson=lesson, form=form)
    extremes, _ = watched("extremes", 1.0, "sample two", lesson=lesson, form=form)
    assert zeros.words.keys() == extremes.words.keys()
    p_values = [
        same_distribution(np.concatenate(words), np.concatenate(extremes.words[place]), zeros.bits[place])
        for place, words in zeros.words.items()
    ]
    assert corrected(p_values) > SIGNIFICANCE


def test_opened_orders_of_very_different_inputs_have_one_distribution() -> None:
    both = [watched(inputs, 1.0, f"order {inputs}", form=SHUFFLED)[0] for inputs in CONTEXTS]
    orders = [order_number(np.concatenate(views.orders)) for views in both]
    sample = np.repeat([0, 1], [len(orders[0]), len(orders[1])])
    assert independence(sample, np.unique(np.concatenate(orders), return_inverse=True)[1]) > SIGNIFICANCE


@pytest.mark.parametrize("lesson", [LEARN, LEARN_AHEAD])
@pytest.mark.parametrize("reward", [0.0, 0.731, 1.0])
def test_views_stay_uniform_for_every_reward_under_one_key(reward: float, lesson: str) -> None:
    views, _ = watched("extremes", reward, "one key", lesson=lesson)
    learnt = {place: words for place, words in views.words.items() if place[0] == lesson}
    p_values = [uniformity(np.concatenate(words), views.bits[place]) for place, words in learnt.items()]
    assert corrected(p_values) > SIGNIFICANCE


def test_the_masked_reward_is_uniform() -> None:
    """What the rewarder sends to all parties: the reward under a mask that no party knows."""
    replicates = 20_000
    _, lockstep = watched("zeros", 0.0, "rewarder", replicates=replicates, steps=0)
    number, _ = lockstep.decide([unit(values, replicates) for values in CONTEXTS["zeros"][:2]])
    shares = [interaction.reward_mask for interaction in lockstep._pending[number]]
    mask = program_stream(Seeds(fixed_key("views", "rewarder")).rewarder(), DECIDE, replicates).step(number)
    assert np.array_equal(reduce(np.add, shares), mask)
    sent = encode(np.ones(replicates), 20) + mask
    for seen in (sent, sent - shares[0], sent - shares[1]):  # alone, and with what either party holds of the mask
        assert uniformity(seen) > SIGNIFICANCE


def test_the_returned_one_hot_is_uniform() -> None:
    """What the actor sends to all parties where they do not hold the arm: its one-hot under a mask of its own."""
    replicates = 20_000
    _, lockstep = watched("extremes", 0.0, "actor", replicates=replicates, steps=0)
    number, arms = lockstep.decide([unit(values, replicates) for values in CONTEXTS["extremes"][:2]])
    kept = lockstep._pending[number]
    shares, (sent, again) = [own.arm_mask for own in kept], [own.masked_arm for own in kept]
    assert sent is not None
    assert again is not None
    assert np.array_equal(sent, again)
    assert np.array_equal(sent - reduce(np.add, shares), np.eye(ARMS, dtype=np.uint64)[arms])
    for seen in (sent, sent - shares[0], sent - shares[1]):  # alone, and with what either party holds of the mask
        assert uniformity(seen) > SIGNIFICANCE
        assert (
            corrected([independence((seen[:, arm] >> np.uint64(62)).astype(int), arms) for arm in range(ARMS)])
            > SIGNIFICANCE
        )


@pytest.mark.parametrize("lesson", [LEARN, LEARN_AHEAD])
def test_literal_rewards_arms_and_features_do_not_travel(lesson: str) -> None:
    reward = 0.7316284179687500  # exact at 20 bits
    views, _ = watched("extremes", reward, "literal", lesson=lesson)
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


def order_number(order: np.ndarray) -> np.ndarray:
    places = np.arange(len(pairs((ARMS,))[0]))
    numbers: np.ndarray = (order.astype(np.int64) << places).sum(axis=-1)
    return numbers.ravel()


def many_decisions(weights: list[float], epsilon: float, key: str, draws: int) -> tuple[np.ndarray, ...]:
    """Decide `draws` times by shuffling, with given weights of the arms for a context of one; orders, slots, arms."""
    federation = FORMS[SHUFFLED](arms=ARMS, features=(1, 1), epsilon=epsilon)
    replicates, views = 20_000, Views()
    lockstep = Lockstep(federation, fixed_key("many", key), replicates=replicates, deal_ahead=1, observer=views)
    share = lockstep.states[1]["weights"]
    share[:, :, 0] = encode(weights, 20)
    arms = [
        lockstep.decide([np.ones((replicates, 1)), np.zeros((replicates, 1))])[1] for _ in range(draws // replicates)
    ]
    order = np.concatenate(views.orders)
    return order, winners_of(order, (ARMS,)).ravel(), np.concatenate(arms)


@pytest.mark.parametrize(
    ("weights", "best", "epsilon"),
    [
        ([0.0, 0.0, 0.0, 0.0], [0, 1, 2, 3], 0.0),
        ([0.3, 0.1, -0.2, 0.7], [3], 0.0),
        ([0.5, -0.1, 0.5, 0.5], [0, 2, 3], 0.0),
        ([-3.9, -3.9, 3.9, -3.9], [2], 0.0),
        ([-32.0, -32.0, 32.0, 32.0], [2, 3], 0.0),
        ([-3.9, 0.1, 3.9, 0.3], [0, 1, 2, 3], 0.5),
        ([2.0**40, -(2.0**42), 0.0, 2.0**43 - 1], [0, 1, 2, 3], 1.0),
    ],
)
def test_order_and_slot_of_a_shuffle_are_uniform_and_independent_of_the_arm(
    weights: list[float], best: list[int], epsilon: float
) -> None:
    """Exploring shows no more than choosing the best does."""
    order, slot, arm = many_decisions(weights, epsilon, f"{weights} {epsilon}", 40_000)
    numbers, seen = np.unique(order_number(order), return_inverse=True)
    assert len(numbers) == 24
    assert evenness(seen, 24) > SIGNIFICANCE
    assert evenness(slot, ARMS) > SIGNIFICANCE
    assert set(arm) == set(best)
    if len(best) > 1:
        assert independence(slot, arm) > SIGNIFICANCE
        assert independence(seen, arm) > SIGNIFICANCE


@pytest.mark.parametrize("form", FORMS)
def test_all_words_of_a_decision_are_independent_of_the_arm(form: str) -> None:
    """With all arms tied the arm is random: no opened word's top bits go with it."""
    views, lockstep = watched("zeros", 0.0, "arm", replicates=8000, steps=0, form=form)
    views.start(DECIDE)
    _, arm = lockstep.decide([unit(values, 8000) for values in CONTEXTS["zeros"][:2]])
    p_values = []
    for place, words in views.words.items():
        width = min(views.bits[place], 2)
        tops = (words[0] >> np.uint64(views.bits[place] - width)).astype(np.int64).reshape(8000, -1)
        p_values += [independence(tops[:, column], arm) for column in range(tops.shape[1])]
    assert len(p_values) > 80
    assert corrected(p_values) > SIGNIFICANCE
