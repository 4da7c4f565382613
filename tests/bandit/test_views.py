"""What parties and actor see: uniform words whatever the inputs, and where arms are shuffled a uniform order of slots;
the actor finds the arm, and nothing beside it."""

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

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DECIDE, LEARN, STEP, ProgramId
from hiddenarm.bandit.interactions import Decided
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.subsets import Subset
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.payloads import PAYLOAD_BITS
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
THREE, FOUR, SHUFFLED = FORMS
APART, TOGETHER = (DECIDE, LEARN), (STEP,)
"""Decide and learn by two programs, or by one."""
KINDS = pytest.mark.parametrize(
    ("programs", "form"),
    [(APART, THREE), (TOGETHER, THREE), (APART, FOUR), (TOGETHER, FOUR), (APART, SHUFFLED)],
    ids=lambda kind: kind if isinstance(kind, str) else " and ".join(kind),
)
ANSWERED, RETURNED = -1, -2
"""In place of a round: the answers to the actor, and what it returns."""

Place = tuple[str, int, int, int | str]


def rounds_of(programs: tuple[str, ...], form: str, parties: int) -> dict[str, int]:
    """In a shuffle: scores, their masks, a turn of each party, a tournament, and a turn of each again."""
    decide = {THREE: 3, FOUR: 4, SHUFFLED: 2 + parties + 3 + parties}[form]
    return {STEP: decide + 4} if programs == TOGETHER else {DECIDE: decide, LEARN: 5}


class Views:
    """Everything that crosses between parties, and between them and the actor, by place: (program, round, opening,
    sender or "opened"); and beside it the opened orders of shuffled keys, uniform among orders, not among bits."""

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

    def act(self, decided: list[Decided], arms: NDArray[np.int64], returns: bool) -> None:
        """The actor got answers, found arms [replicates, 1] and returned one-hots. Of what is in the answers, the words
        at other arms, in the order in which these follow the arm."""
        answers = [own.answer for own in decided if own.answer is not None]
        for sender, words in enumerate(answers):
            self._note((self._program, ANSWERED, 0, sender), words, PAYLOAD_BITS if returns else 64)
        if not returns:  # shares of one-hots, which the parties hold already
            return
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
        if not words.size:  # in the turn of another party
            return
        self.words[place].append(words.copy())
        self.bits[place] = bits


@contextmanager
def actor_watched(views: Views) -> Iterator[None]:
    honest = Lockstep._act

    def act(
        lockstep: Lockstep,
        program: ProgramId,
        step: int,
        decided: list[Decided],
        eligible: Words,
        subset: Subset | None,
    ) -> NDArray[np.int64]:
        arms = honest(lockstep, program, step, decided, eligible, subset)
        views.act(decided, arms, lockstep.federation.learner.answers.returned)
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
    table: ArmTable | None = None,
) -> tuple[Views, Lockstep]:
    """Decide and learn some steps on the same inputs; all replicates get the same ones, with masks of their own."""
    federation = FORMS[form](arms=ARMS, features=(2, 2, 1)[:parties], epsilon=0.2, arm_features=table)
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
    rounds = rounds_of(programs, form, parties)
    answered = {(programs[0], place) for place in ((ANSWERED,) if form == SHUFFLED else (ANSWERED, RETURNED))}
    assert seen == answered | {(program, number) for program in rounds for number in range(rounds[program])}
    check_uniform(views)
    if inputs == "extremes":  # the model has moved: the words hide something
        assert np.abs(lockstep.reveal_model()[1]).max() > 0.3


@KINDS
@pytest.mark.parametrize("inputs", ["zeros", "extremes"])
def test_words_of_different_steps_and_openings_share_no_mask(inputs: str, programs: tuple[str, ...], form: str) -> None:
    """A mask used twice leaves each word uniform but not their difference (see tests/mpc/test_masking)."""
    views, _ = watched(inputs, 1.0, f"pairs {inputs}", programs=programs, form=form)
    check_no_mask_is_shared(views)


@KINDS
@pytest.mark.parametrize("own", [(), (1,)], ids=["one model", "hybrid"])
@pytest.mark.parametrize(("inputs", "reward"), [("zeros", 0.0), ("extremes", 1.0)])
def test_words_are_uniform_and_share_no_mask_where_arms_have_features(
    inputs: str, reward: float, own: tuple[int, ...], programs: tuple[str, ...], form: str
) -> None:
    """What the actor returns, features of an arm under a mask, is among them."""
    table = ArmTable.of(np.eye(ARMS, 3) * 0.6 + 0.2)
    table = table.with_own(own) if own else table
    key = f"features {inputs} {len(own)}"
    views, lockstep = watched(inputs, reward, key, form=form, table=table, programs=programs)
    rounds = rounds_of(programs, form, 2)
    answered = {(programs[0], place) for place in ((ANSWERED,) if form == SHUFFLED else (ANSWERED, RETURNED))}
    seen = {(program, number) for program, number, _, _ in views.words}
    assert seen == answered | {(program, number) for program in rounds for number in range(rounds[program])}
    check_uniform(views)
    check_no_mask_is_shared(views)
    if inputs == "extremes":
        assert np.abs(lockstep.reveal_model()[1]).max() > 0.1


def check_uniform(views: Views) -> None:
    p_values = [uniformity(np.concatenate(words), views.bits[place]) for place, words in views.words.items()]
    assert corrected(p_values) > SIGNIFICANCE


def check_no_mask_is_shared(views: Views) -> None:
    p_values = []
    for place, words in views.words.items():
        if views.bits[place] == 1:
            continue
        p_values += [
            uniformity(low_bits(later - earlier, views.bits[place]), views.bits[place])
            for earlier, later in pairwise(words)
        ]
    # Values of one shape are masked in several openings, and in two programs: take any two of them. Not two answers:
    # together they are the arm.
    whole = [place for place, bits in views.bits.items() if bits == 64 and place[1] != ANSWERED]
    full = [(place, views.words[place][-1]) for place in whole]
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


def order_number(order: np.ndarray) -> np.ndarray:
    places = np.arange(len(pairs((ARMS,))[0]))
    numbers: np.ndarray = (order.astype(np.int64) << places).sum(axis=-1)
    return numbers.ravel()


def test_opened_orders_of_very_different_inputs_have_one_distribution() -> None:
    both = [watched(inputs, 1.0, f"order {inputs}", form=SHUFFLED)[0] for inputs in CONTEXTS]
    orders = [order_number(np.concatenate(views.orders)) for views in both]
    sample = np.repeat([0, 1], [len(orders[0]), len(orders[1])])
    assert independence(sample, np.unique(np.concatenate(orders), return_inverse=True)[1]) > SIGNIFICANCE


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


@pytest.mark.parametrize(("programs", "form"), [(APART, THREE), (TOGETHER, THREE), (APART, FOUR), (APART, SHUFFLED)])
def test_all_words_of_a_decision_are_independent_of_the_arm(programs: tuple[str, ...], form: str) -> None:
    """With all arms tied the arm is random: no word's top bits go with it, those included that the actor returns and
    those that it finds at other arms. Of `step` these are the words up to the reward."""
    views, lockstep = watched("zeros", 0.0, "arm", replicates=8000, steps=0, programs=programs, form=form)
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
