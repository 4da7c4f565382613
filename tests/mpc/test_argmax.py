"""The maximum by shuffling and opened comparisons: exact, ties included, and what is opened says nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import comb, factorial

import numpy as np
import pytest
from scipy import stats

from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.masking import mask, share_of
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.shuffle import Shuffle, order_of
from hiddenarm.mpc.tournament import (
    LARGEST_GROUP,
    MOST_COMPARISONS,
    ONE_GROUP,
    comparisons,
    even_groups,
    levels,
    open_winner,
    pairs,
)
from hiddenarm.mpc.tracing import winning_slots
from hiddenarm.mpc.values import Shared
from support import (
    PARTIES,
    SIGNIFICANCE,
    Ran,
    computed,
    evenness,
    independence,
    run_program,
    signed,
    uniformity,
    unsigned,
    winners_of,
    words_from,
)

BITS = 34
TAG_BITS = 9


def best(parties: int) -> Callable[..., Program]:
    """Shuffle tagged keys, open the winning slot, find its item. Each party adds its own permutation."""

    def text(run: Run, scores: Shared, tags: Shared) -> Program:
        shuffle = Shuffle(run, (), scores.shape[-1], parties)
        (keys,) = yield (mask(run, (scores << TAG_BITS) + tags),)
        (masked,) = yield from shuffle.apply(keys)
        shuffled = share_of(run, masked)
        slot = yield from open_winner(run, shuffled, BITS)
        one_hot = yield from shuffle.one_hot(slot)
        return slot, one_hot, shuffled, None if run.party is None else shuffle._orders[run.party]

    return text


def permutation_in(ran: Ran, place: int = 3) -> np.ndarray:
    """The item in each slot, from the permutations of all parties."""
    orders = [result[place].astype(np.intp) for result in ran.results]
    chain = np.broadcast_to(np.arange(orders[0].shape[-1]), orders[0].shape)
    for own in orders:
        chain = np.take_along_axis(chain, own, axis=-1)
    return chain


def random_tags(count: int, size: int, *labels: str | int) -> np.ndarray:
    return np.argsort(words_from((count, size), "tags", *labels), axis=-1)


def run_best(scores: np.ndarray, tags: np.ndarray, parties: int, *labels: str | int) -> Ran:
    return run_program(best(parties), [unsigned(scores), unsigned(tags)], parties, "best", *labels, keep=True)


def opened_bits(ran: Ran) -> list[np.ndarray]:
    """What the parties learn of the order, level by level."""
    return [reduce(np.bitwise_xor, words[0]) for openings, words in ran.observed if openings[0].bits == 1]


def order_number(bits: np.ndarray) -> np.ndarray:
    """Number the opened orders of a short list: the pattern of comparison bits."""
    return np.asarray((bits.astype(np.int64) << np.arange(bits.shape[-1])).sum(axis=-1))


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("spread", [0, 1, 3, 1000, 2**20])
@pytest.mark.parametrize(
    ("size", "count"), [(2, 500), (10, 1600), (32, 100), (33, 50), (100, 20), (450, 4), (700, 2), (10_000, 1)]
)
def test_argmax_is_exact_with_and_without_ties(parties: int, spread: int, size: int, count: int) -> None:
    # 15 combinations of 1600 lists of 10 keys alone are 1.08 million compared pairs, those of 32 keys 0.7 million.
    scores = signed(words_from((count, size), "scores", spread) % np.uint64(2 * spread + 1)) - spread
    tags = random_tags(count, size, spread)
    keys = (scores << TAG_BITS) + tags
    ran = run_best(scores, tags, parties, parties, spread)
    permutation = permutation_in(ran)
    shuffled = np.take_along_axis(keys, permutation, axis=-1)
    assert np.array_equal(signed(ran.opened(lambda result: result[2])), shuffled)
    first, second = pairs(levels(size)[0])
    assert np.array_equal(opened_bits(ran)[0], (shuffled[:, first] < shuffled[:, second]).astype(np.uint64))
    for slot, *_ in ran.results:
        assert np.array_equal(slot, np.argmax(shuffled, axis=-1))
    arm = np.take_along_axis(permutation, ran.results[0][0].astype(np.intp)[:, None], axis=-1)[:, 0]
    assert np.array_equal(arm, np.argmax(keys, axis=-1))
    assert np.array_equal(ran.opened(lambda result: result[1]), np.eye(size, dtype=np.uint64)[arm])


@pytest.mark.parametrize("scores", [[0, 0, 0, 0], [3, 1, 2, 0], [5, 5, -1, -1]], ids=["equal", "different", "pairs"])
def test_order_and_slot_are_uniform_whatever_the_scores(scores: list[int]) -> None:
    count, size = 24_000, 4
    tags = random_tags(count, size, "uniform")
    ran = run_best(np.tile(scores, (count, 1)), tags, 2, "uniform", str(scores))
    (order,) = opened_bits(ran)
    numbers, seen = np.unique(order_number(order), return_inverse=True)
    assert len(numbers) == factorial(size)
    assert evenness(seen, 24) > SIGNIFICANCE
    slot = ran.results[0][0].astype(np.intp)
    assert evenness(slot, size) > SIGNIFICANCE
    arm = np.take_along_axis(permutation_in(ran), slot[:, None], axis=-1)[:, 0]
    tied = np.flatnonzero(np.array(scores) == max(scores))
    assert set(arm) == set(tied)
    if len(tied) > 1:
        assert evenness(np.searchsorted(tied, arm), len(tied)) > SIGNIFICANCE
        assert independence(slot, arm) > SIGNIFICANCE
        assert independence(seen, arm) > SIGNIFICANCE


@pytest.mark.parametrize("parties", PARTIES)
def test_lists_are_shuffled_alike_public_ones_too(parties: int) -> None:
    """What is public lands in the same slots as what is secret; and an item is found back from any slot."""
    count, size = 600, 10
    public = words_from((size,), "public")

    def text(run: Run, values: Shared) -> Program:
        shuffle = Shuffle(run, (), size, parties)
        (masked,) = yield (mask(run, values),)
        told, slot = None, None
        if not run.dealing:
            told = run.recording.constant(np.broadcast_to(public, (count, size)))  # type: ignore[attr-defined]
            slot = run.recording.constant(np.arange(count) % size)  # type: ignore[attr-defined]
        first, second = yield from shuffle.apply(masked, shuffle.public(told))
        found = yield from shuffle.one_hot(slot)
        own = None if run.party is None else shuffle._orders[run.party]
        return share_of(run, first), share_of(run, second), found, own

    values = words_from((count, size), "alike")
    ran = run_program(text, [values], parties, "alike", parties)
    permutation = permutation_in(ran)
    assert np.array_equal(ran.opened(lambda result: result[0]), np.take_along_axis(values, permutation, axis=-1))
    assert np.array_equal(ran.opened(lambda result: result[1]), public[permutation])
    items = permutation[np.arange(count), np.arange(count) % size]
    assert np.array_equal(ran.opened(lambda result: result[2]), np.eye(size, dtype=np.uint64)[items])
    assert ran.layout.actor_words == 0
    assert ran.layout.rounds == 1 + 2 * parties


def test_without_tags_a_tie_shows_in_the_order() -> None:
    # The trap: equal keys come out in slot order. One order of 24 instead of all.
    zeros = np.zeros((24_000, 4), np.int64)
    ran = run_best(zeros, zeros, 2, "untagged")
    assert len(np.unique(order_number(opened_bits(ran)[0]))) == 1


@pytest.mark.parametrize("scores", ["equal", "different"])
def test_long_lists_show_as_little(scores: str) -> None:
    """By turns and in groups: the slot and each group's winner are uniform, and every message is."""
    count, size, parties = 4000, 40, 3
    values = np.zeros(size, np.int64) if scores == "equal" else np.arange(size)
    ran = run_best(np.tile(values, (count, 1)), random_tags(count, size, "long"), parties, "long", scores)
    assert evenness(ran.results[0][0].astype(np.intp), size) > SIGNIFICANCE
    # Winners of larger groups win more often, for a public reason; within the first level all is even.
    bits, sizes = opened_bits(ran)[0], levels(size)[0]
    starts = np.cumsum((0, *sizes[:-1]))
    for group, winners in enumerate(winners_of(bits, sizes).T):
        assert evenness(winners - starts[group], sizes[group]) > SIGNIFICANCE
    trio = order_number(bits[:, [0, 1, sizes[0] - 1]])  # the order of the first three keys
    assert evenness(np.unique(trio, return_inverse=True)[1], 6) > SIGNIFICANCE
    last = winners_of(opened_bits(ran)[-1], levels(size)[-1])[:, 0]
    assert stats.chisquare(np.bincount(last), count * np.array(sizes) / size).pvalue > SIGNIFICANCE
    p_values = [
        uniformity(words, opening.bits)
        for openings, by_opening in ran.observed
        for opening, sent in zip(openings, by_opening, strict=True)
        for words in sent
        if words.size
    ]
    # The masked keys and three messages of three parties a level, and one message a party and turn, forth and back.
    assert len(p_values) == parties * (1 + 3 * len(levels(size)) + 2)
    assert min(p_values) * len(p_values) > SIGNIFICANCE


def test_turns_hide_the_order_from_each_party() -> None:
    """No party's own permutation goes with the item that wins: each alone knows nothing of the chain."""
    count, size, parties = 4000, 33, 3
    ran = run_best(np.zeros((count, size), np.int64), random_tags(count, size, "turns"), parties, "turns")
    slot = ran.results[0][0].astype(np.intp)
    arm = np.argmax(ran.opened(lambda result: result[1]), axis=-1)
    for *_, own in ran.results:
        at_slot = np.take_along_axis(own.astype(np.intp), slot[:, None], axis=-1)[:, 0]
        # A coarse grid, so that cells expect 4000 / 16 = 250.
        assert independence(at_slot * 4 // size, arm * 4 // size) > SIGNIFICANCE
    at_slot = np.take_along_axis(permutation_in(ran), slot[:, None], axis=-1)[:, 0]
    assert independence(at_slot * 4 // size, arm * 4 // size) < 1e-12  # all together know it


def test_bits_that_are_no_order_are_refused() -> None:
    # A rock-paper-scissors of three keys: 0 < 1, 1 < 2, 2 < 0.
    with pytest.raises(ScoreRangeError, match="no arm beats all others"):
        computed(lambda less: winning_slots(less, (3,)), np.array([[1, 0, 1]], np.uint64))


def test_scores_out_of_range_are_refused() -> None:
    scores = np.array([[0, 1 << 23, -(1 << 23), 1 << 24]])  # with their tags, differences beyond 2^33
    with pytest.raises(ScoreRangeError):
        run_best(scores, random_tags(1, 4, "range"), 2, "range")


@pytest.mark.parametrize(
    ("size", "depth"),
    [(2, 1), (3, 1), (10, 1), (32, 1), (33, 2), (40, 2), (100, 2), (600, 2), (700, 3), (1000, 3), (10_000, 3)],
)
def test_tournaments_have_few_levels_of_growing_groups(size: int, depth: int) -> None:
    left, largest, compared = size, 0, 0
    for sizes in levels(size):
        assert sum(sizes) == left
        assert max(sizes) - min(sizes) <= 1
        assert max(sizes) >= largest
        left, largest = len(sizes), max(sizes)
        first, second = pairs(sizes)
        assert len(first) == len(second) == sum(comb(group, 2) for group in sizes)
        compared += len(first)
    assert left == 1
    assert len(levels(size)) == depth
    assert largest <= LARGEST_GROUP
    assert compared == comparisons(levels(size))
    assert size <= ONE_GROUP or compared <= MOST_COMPARISONS * size


def test_no_other_tournament_of_as_many_levels_compares_less() -> None:
    """By trying all largest groups; numbers of groups between those of two such sizes may save a comparison or two."""
    for size in (33, 40, 100, 181, 600):
        fewest = min(
            sum(comb(group, 2) for group in even_groups(size, groups)) + comb(groups, 2)
            for groups in {-(-size // largest) for largest in range(1, size)}
        )
        assert sum(comb(group, 2) for sizes in levels(size) for group in sizes) == fewest


def test_the_most_arms_take_three_levels() -> None:
    """And no number of arms more levels than a smaller one."""
    sizes = (*range(33, 1_500), *range(1_500, 100_001, 9_850))
    depths = [len(levels(size)) for size in sizes]
    assert depths == sorted(depths)
    assert depths[-1] == 3
    assert max(levels(sizes[-1])[-1]) <= LARGEST_GROUP
    assert len(levels(200_000)) == 4, "a group of the last level would be too large"


@pytest.mark.parametrize("size", [1, 2, 63, 64, LARGEST_GROUP])
def test_the_winner_of_the_largest_groups_is_found(size: int) -> None:
    """And bits that are no order are refused, wherever the cycle is."""
    order = np.random.default_rng(size).permutation(size)
    first, second = pairs((size,))
    bits = (order[first] < order[second]).astype(np.uint64)
    if size > 1:
        (found,) = computed(lambda less: winning_slots(less, (size,)), bits[None])
        assert found.tolist() == [int(order.argmax())]
    if size > 2:
        low, high = np.flatnonzero(order == size - 1)[0], np.flatnonzero(order == 0)[0]
        turned = (first == min(low, high)) & (second == max(low, high))
        with pytest.raises(ScoreRangeError, match="no arm beats all others"):
            computed(lambda less: winning_slots(less, (size,)), (bits ^ turned.astype(np.uint64))[None])


def test_permutations_are_uniform() -> None:
    found = order_of(words_from((24_000, 4), "permutations"))
    _, seen = np.unique(found @ np.array([64, 16, 4, 1]), return_inverse=True)
    assert evenness(seen, 24) > SIGNIFICANCE
