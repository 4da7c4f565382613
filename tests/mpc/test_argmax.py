"""The maximum by shuffling and opened comparisons: exact, ties included, and its order says nothing."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.comparison import combine, compare, reveal
from hiddenarm.mpc.masking import mask, share_of
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.shuffle import dealt_permutation, pair_differences, pairs, permutation_of, shuffle, winner
from hiddenarm.mpc.values import Shared
from support import PARTIES, SIGNIFICANCE, Ran, evenness, independence, run_program, signed, unsigned, words_from

BITS = 30
TAG_BITS = 4


def ordered(run: Run, scores: Shared, tags: Shared) -> Program:
    """Shuffle tagged keys, open their order; the permutation's share comes back too."""
    permutation = dealt_permutation(run, scores.shape[-1])
    (keys,) = yield (mask(run, (scores << TAG_BITS) + tags),)
    shuffled = shuffle(run, permutation, keys)
    (borrow,) = yield (compare(run, pair_differences(shuffled), BITS),)
    (less,) = yield (combine(run, borrow),)
    (order,) = yield (reveal(less),)
    return order, share_of(run, permutation)


def random_tags(count: int, size: int, *labels: str | int) -> np.ndarray:
    return np.argsort(words_from((count, size), "tags", *labels), axis=-1)


def run_ordered(scores: np.ndarray, tags: np.ndarray, parties: int, *labels: str | int) -> Ran:
    return run_program(ordered, [unsigned(scores), unsigned(tags)], parties, "order", *labels)


def order_number(order: np.ndarray, size: int) -> np.ndarray:
    """Number the opened orders: the pattern of comparison bits."""
    return (order.astype(np.int64) << np.arange(len(pairs(size)[0]))).sum(axis=-1)


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("spread", [0, 1, 3, 1000, 2**20])
def test_argmax_is_exact_with_and_without_ties(parties: int, spread: int) -> None:
    # 15 combinations of 1600 lists of 10 keys: 45 pairs each, 1.08 million compared pairs.
    count, size = 1600, 10
    scores = signed(words_from((count, size), "scores", spread) % np.uint64(2 * spread + 1)) - spread
    tags = random_tags(count, size, spread)
    ran = run_ordered(scores, tags, parties, parties, spread)
    order = ran.results[0][0]
    permutation = permutation_of(ran.actor_words())
    keys = np.take_along_axis((scores << TAG_BITS) + tags, permutation, axis=-1)
    first, second = pairs(size)
    assert np.array_equal(order, (keys[:, first] < keys[:, second]).astype(np.uint64))
    arm = np.take_along_axis(permutation, winner(order, size)[:, None], axis=-1)[:, 0]
    assert np.array_equal(arm, np.argmax((scores << TAG_BITS) + tags, axis=-1))
    one_hots = ran.opened(lambda result: result[1])[np.arange(count), winner(order, size)]
    assert np.array_equal(one_hots, np.eye(size, dtype=np.uint64)[arm])


@pytest.mark.parametrize("scores", [[0, 0, 0, 0], [3, 1, 2, 0], [5, 5, -1, -1]], ids=["equal", "different", "pairs"])
def test_order_and_slot_are_uniform_whatever_the_scores(scores: list[int]) -> None:
    count, size = 24_000, 4
    tags = random_tags(count, size, "uniform")
    ran = run_ordered(np.tile(scores, (count, 1)), tags, 2, "uniform", str(scores))
    order = ran.results[0][0]
    numbers, seen = np.unique(order_number(order, size), return_inverse=True)
    assert len(numbers) == len(list(permutations(range(size))))
    assert evenness(seen, 24) > SIGNIFICANCE
    slot = winner(order, size)
    assert evenness(slot, size) > SIGNIFICANCE
    arm = np.take_along_axis(permutation_of(ran.actor_words()), slot[:, None], axis=-1)[:, 0]
    best = np.flatnonzero(np.array(scores) == max(scores))
    assert set(arm) == set(best)
    if len(best) > 1:
        assert evenness(np.searchsorted(best, arm), len(best)) > SIGNIFICANCE
        assert independence(slot, arm) > SIGNIFICANCE
        assert independence(seen, arm) > SIGNIFICANCE


def test_without_tags_a_tie_shows_in_the_order() -> None:
    # The trap: equal keys come out in slot order. One order of 24 instead of all.
    count, size = 24_000, 4
    ran = run_ordered(np.zeros((count, size), np.int64), np.zeros((count, size), np.int64), 2, "untagged")
    assert len(np.unique(order_number(ran.results[0][0], size))) == 1


def test_bits_that_are_no_order_are_refused() -> None:
    # A rock-paper-scissors of three keys: 0 < 1, 1 < 2, 2 < 0.
    with pytest.raises(ScoreRangeError, match="score_bound"):
        winner(np.array([[1, 0, 1]], np.uint64), 3)


def test_scores_out_of_range_are_refused() -> None:
    scores = np.array([[0, 1 << 24, -(1 << 24), 1 << 25]])  # differences beyond 2^29 with their tags
    with pytest.raises(ScoreRangeError):
        winner(run_ordered(scores, random_tags(1, 4, "range"), 2, "range").results[0][0], 4)


def test_permutations_are_uniform() -> None:
    found = permutation_of(words_from((24_000, 4), "permutations"))
    _, seen = np.unique(found @ np.array([64, 16, 4, 1]), return_inverse=True)
    assert evenness(seen, 24) > SIGNIFICANCE
