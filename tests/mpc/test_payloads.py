"""The winner by payloads: one zero, at the right item, and uniform words everywhere else."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest

from hiddenarm.mpc.payloads import PAYLOAD_BITS, ByTag, answer_words, payload_chunks, payload_words
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.tournament import pairs
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Words
from support import (
    PARTIES,
    SIGNIFICANCE,
    Ran,
    evenness,
    independence,
    run_program,
    signed,
    uniformity,
    unsigned,
    words_from,
)

BITS = 32
TAG_BITS = 4
EXTREME = (1 << (BITS - 2 - TAG_BITS)) - 1
"""The largest score whose differences fit."""
ALL = np.uint64(2**64 - 1)


def winner(explore: np.ndarray, tags: np.ndarray, eligible: np.ndarray | None, three: bool) -> Callable[..., Program]:
    """Keys [lists, items] to this party's shares of the answers."""

    def text(run: Run, keys: Shared) -> Program:
        by_tag = ByTag(explore[None].astype(np.uint64), unsigned(tags)[None]) if run.dealing else None
        may_win = None
        if eligible is not None and not run.dealing:
            may_win = run.recording.constant(eligible)  # type: ignore[attr-defined]
        return (yield from answer_words(run, keys, BITS, may_win, by_tag, three=three))

    return text


def run_winner(
    scores: np.ndarray,
    parties: int,
    three: bool,
    *labels: str | int,
    explore: np.ndarray | None = None,
    eligible: np.ndarray | None = None,
) -> tuple[Ran, Words, np.ndarray]:
    """Run it; the answers [lists, items], and the tags."""
    lists, items = scores.shape
    tags = np.argsort(words_from((lists, items), "tags", *labels), axis=-1)
    chosen = np.zeros(lists, np.uint64) if explore is None else explore
    text = winner(chosen, tags, eligible, three)
    ran = run_program(text, [unsigned((scores << TAG_BITS) + tags)], parties, "winner", *labels, keep=True)
    return ran, reduce(np.bitwise_xor, ran.results), tags


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("three", [True, False])
@pytest.mark.parametrize("spread", [0, 1, 1000, EXTREME])
@pytest.mark.parametrize(("items", "lists"), [(2, 400), (3, 400), (10, 300), (16, 100)])
def test_the_only_zero_is_at_the_largest_key(parties: int, three: bool, spread: int, items: int, lists: int) -> None:
    scores = signed(words_from((lists, items), "scores", spread) % np.uint64(2 * spread + 1)) - spread
    explore = (np.arange(lists) % 3 == 0).astype(np.uint64)
    ran, answers, tags = run_winner(scores, parties, three, spread, items, explore=explore)
    keys = np.where(explore[:, None], tags, (scores << TAG_BITS) + tags)
    expected = np.eye(items, dtype=bool)[keys.argmax(axis=-1)]
    assert np.array_equal(answers == 0, expected)
    assert (answers < 2**PAYLOAD_BITS).all()
    assert ran.layout.rounds == (2 if three else 3)


@pytest.mark.parametrize("three", [True, False])
def test_only_eligible_items_win(three: bool) -> None:
    lists, items = 600, 6
    scores = signed(words_from((lists, items), "scores of eligible") % np.uint64(5))
    eligible = np.where(words_from((lists, items), "eligible") % np.uint64(2), ALL, np.uint64(0))
    eligible[np.arange(lists), np.arange(lists) % items] = ALL
    explore = (np.arange(lists) % 3 == 0).astype(np.uint64)
    _, answers, tags = run_winner(scores, 3, three, "eligible", explore=explore, eligible=eligible)
    keys = np.where(explore[:, None], tags, (scores << TAG_BITS) + tags)
    best = np.where(eligible, keys, -1).argmax(axis=-1)
    assert np.array_equal((answers == 0) & (eligible != 0), np.eye(items, dtype=bool)[best])
    assert not answers[eligible == 0].any()  # what is public anyway


@pytest.mark.parametrize("three", [True, False])
@pytest.mark.parametrize("explored", [False, True])
@pytest.mark.parametrize("scores", [[0, 0, 0, 0], [3, 1, 2, 0], [EXTREME, -EXTREME, EXTREME, -EXTREME]], ids=str)
def test_all_else_is_uniform(three: bool, explored: bool, scores: list[int]) -> None:
    """Whatever is opened, and the words of items that do not win, each and by pairs; ties and exploration evenly."""
    lists = 20_000
    explore = np.full(lists, explored, np.uint64)
    ran, answers, _ = run_winner(
        np.tile(scores, (lists, 1)), 3, three, str(scores), "uniform", explored, explore=explore
    )
    won = (answers == 0).argmax(axis=-1)
    lost = answers[answers != 0].reshape(lists, len(scores) - 1)
    p_values = [uniformity(column, PAYLOAD_BITS) for column in lost.T]
    p_values += [uniformity(lost[:, i] ^ lost[:, j], PAYLOAD_BITS) for i, j in zip(*pairs((3,)), strict=True)]
    p_values.append(uniformity(np.bitwise_xor.reduce(lost, axis=-1), PAYLOAD_BITS))
    for openings, by_opening in ran.observed:
        for opening, sent in zip(openings, by_opening, strict=True):
            p_values += [uniformity(words, opening.bits) for words in sent]
            opened = reduce(np.add if opening.sharing.name == "ADD" else np.bitwise_xor, sent)
            p_values.append(uniformity(opened & np.uint64(2**opening.bits - 1), opening.bits))
    assert min(p_values) * len(p_values) > SIGNIFICANCE
    tied = np.arange(4) if explored else np.flatnonzero(np.array(scores) == max(scores))
    assert set(won) == set(tied)
    if len(tied) > 1:
        assert evenness(np.searchsorted(tied, won), len(tied)) > SIGNIFICANCE
        assert independence(won, (lost[:, 0] >> np.uint64(30)).astype(np.intp)) > SIGNIFICANCE


@pytest.mark.parametrize("three", [True, False])
def test_keys_that_are_no_order_leave_no_zero(three: bool) -> None:
    """Differences wrap around: each of three keys is beaten by another. The receiver sees it, the parties do not."""
    third = (1 << (BITS - TAG_BITS)) // 3
    scores = np.tile([0, third, 2 * third], (500, 1))
    _, answers, _ = run_winner(scores, 2, three, "no order")
    assert (answers != 0).all()


@pytest.mark.parametrize(("bits", "widths", "words"), [(25, 3, 26), (29, 4, 38), (32, 4, 44), (37, 4, 62)])
def test_what_a_pair_costs_in_three_rounds(bits: int, widths: int, words: int) -> None:
    chunks = payload_chunks(bits)
    assert sum(chunks) == bits - 1
    assert len(chunks) == widths
    assert payload_words(chunks) == words


@pytest.mark.parametrize("bits", [0, 1, 80])
def test_unsupported_widths_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"comparison of {bits} bits"):
        payload_chunks(bits)
