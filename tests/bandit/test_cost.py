"""What a step costs: declared, sent and counted are one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import hiddenarm.bandit.lockstep
from hiddenarm.bandit.catalogue import DECIDE, LEARN, LEARN_AHEAD
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.run import Openings
from hiddenarm.ring.words import Words
from support import PARTIES, fixed_key, tapped, travelled


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("lesson", [LEARN, LEARN_AHEAD])
def test_declared_bytes_are_those_that_travel(
    parties: int, replicates: int, lesson: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(arms=4, features=tuple(range(1, parties + 1)), epsilon=0.1)
    observed: list[tuple[Openings, Sequence[Sequence[Words]]]] = []
    payloads: list[bytes] = []
    monkeypatch.setattr(hiddenarm.bandit.lockstep, "Evaluation", tapped(payloads))
    lockstep = Lockstep(
        federation,
        fixed_key("cost", parties),
        replicates=replicates,
        observer=lambda openings, words: observed.append((openings, words)),
    )
    for _ in range(2):
        number, _ = lockstep.decide([np.full((replicates, size), 0.1) for size in federation.features])
        lockstep.learn(number, np.ones(replicates), ahead=lesson == LEARN_AHEAD)
    decide, learn = lockstep.layouts[DECIDE], lockstep.layouts[lesson]
    by_round = [payloads[start : start + parties] for start in range(0, len(payloads), parties)]
    sent = [tuple(travelled(*seen, bytes_)) for seen, bytes_ in zip(observed, by_round, strict=True)]
    assert tuple(sent) == 2 * (decide.round_bytes + learn.round_bytes)
    assert lockstep.meter.runs == {DECIDE: 2, lesson: 2}
    assert lockstep.meter.rounds == {DECIDE: 2 * decide.rounds, lesson: 2 * learn.rounds}
    assert lockstep.meter.bytes_to_each_peer == {
        DECIDE: 2 * decide.bytes_to_each_peer(0),
        lesson: 2 * learn.bytes_to_each_peer(0),
    }


@pytest.mark.parametrize("parties", PARTIES)
def test_rounds_and_bytes_stay_within_their_limits(parties: int) -> None:
    features = {2: (12, 8), 3: (8, 6, 6), 5: (4, 4, 4, 4, 4)}[parties]
    layouts = Lockstep(Federation(arms=10, features=features, epsilon=0.1), fixed_key("issue")).layouts
    assert layouts[DECIDE].rounds == 4
    for lesson in (LEARN, LEARN_AHEAD):
        assert layouts[lesson].rounds == 5
        for party in range(parties):
            assert sum(layouts[name].bytes_to_each_peer(party) for name in (DECIDE, lesson)) < 40_000


def test_a_step_of_ten_arms_and_twenty_features_by_hand() -> None:
    """What party 0 sends, counted on paper from the program text."""
    layouts = Lockstep(Federation(arms=10, features=(12, 8), epsilon=0.1), fixed_key("hand")).layouts
    weights, pairs, triangle = 200 * 8, 45, 20 * 21 // 2
    assert [sizes[0] for sizes in layouts[DECIDE].round_bytes] == [
        12 * 8 + weights,
        pairs * 8,  # 55 bits
        pairs * 4,  # nine chunks: seventeen bits
        6,  # 45 bits
    ]
    learn = [
        12 * 8 + 10 * 8 + 10 * triangle * 8 + weights,
        20 * 8 + 20 * 8 + 10 * 8,
        8 + 200 * 8 + 8,
        8 + 20 * 8,
        20 * 8 + 20 * 8,
    ]
    assert [sizes[0] for sizes in layouts[LEARN_AHEAD].round_bytes] == learn
    assert [sizes[0] for sizes in layouts[LEARN].round_bytes] == [learn[0] + 8, *learn[1:]]  # and the masked reward


@pytest.mark.parametrize("parties", PARTIES)
def test_the_words_dealt_for_a_lesson_by_hand(parties: int) -> None:
    """Corrections, counted on paper. They do not depend on the number of parties, but for the table of reciprocals."""
    arms, size = 10, 20
    features = {2: (12, 8), 3: (8, 6, 6), 5: (4, 4, 4, 4, 4)}[parties]
    federation = Federation(arms=arms, features=features, epsilon=0.1)
    triangle, cells = size * (size + 1) // 2, arms * size
    three = -(-size // 3)  # fields of 20 bits: three in a word
    chosen = triangle + 2 * cells + size + arms + 1  # u, and the score
    rounded = 2 * 2 * size + 3 * (size + three) + 2 * 2  # u twice; u (r - score), v, v (r - score); the score and g
    # Fields of g: 24 bits, two in a word.
    of_g = -(-size // (64 // (federation.wide_gain_bits - federation.gain_bits)))
    steps = (1 + size) + 2 * cells + (2 * size + three) + (2 * size + of_g) + (size + three + of_g)
    gained = arms * triangle + -(-arms * size**2 // 3) + cells + -(-cells // 3)
    expected = chosen + rounded + federation.reciprocal_shape.words + steps + gained
    layouts = Lockstep(federation, fixed_key("words")).layouts
    assert {layouts[name].correction_words for name in (LEARN, LEARN_AHEAD)} == {expected}
    if parties == 2:
        assert expected == 5158


def test_a_decision_that_rounds_its_scores_by_hand() -> None:
    """With twenty arms the exact form deals too much: the scores are masked in a round of their own."""
    layouts = Lockstep(Federation(arms=20, features=(12, 8), epsilon=0.1), fixed_key("rounded")).layouts
    pairs = 190
    assert [sizes[0] for sizes in layouts[DECIDE].round_bytes] == [
        12 * 8 + 400 * 8,
        20 * 8,
        pairs * 8,  # 37 bits
        pairs * 2,  # six chunks: eleven bits
        24,  # 190 bits
    ]
