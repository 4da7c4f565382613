"""What a step costs: declared, sent and counted are one number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import hiddenarm.bandit.lockstep
from hiddenarm.bandit.catalogue import DECIDE, LEARN, STEP, ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.run import Openings
from hiddenarm.mpc.tournament import levels
from hiddenarm.ring.words import Words
from support import PARTIES, fixed_key, tapped, travelled


@pytest.mark.parametrize("parties", PARTIES)
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("programs", [(DECIDE, LEARN), (STEP,)])
def test_declared_bytes_are_those_that_travel(
    parties: int, replicates: int, programs: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(arms=4, features=tuple(range(1, parties + 1)), epsilon=0.1)
    observed: list[tuple[Openings, Sequence[Sequence[Words]]]] = []
    payloads: list[bytes] = []
    monkeypatch.setattr(hiddenarm.bandit.lockstep, "Evaluation", tapped(payloads))
    lockstep = Lockstep(
        federation,
        fixed_key("cost", parties),
        replicates=replicates,
        online=programs == (STEP,),
        observer=lambda openings, words: observed.append((openings, words)),
    )
    for _ in range(2):
        number, _ = lockstep.decide([np.full((replicates, size), 0.1) for size in federation.features])
        lockstep.learn(number, np.ones(replicates))
    layouts = {name: lockstep.layouts[name] for name in programs}
    by_round = [payloads[start : start + parties] for start in range(0, len(payloads), parties)]
    sent = [tuple(travelled(*seen, bytes_)) for seen, bytes_ in zip(observed, by_round, strict=True)]
    assert tuple(sent) == 2 * sum((layout.round_bytes for layout in layouts.values()), ())
    assert lockstep.meter.runs == dict.fromkeys(programs, 2)
    assert lockstep.meter.rounds == {name: 2 * layout.rounds for name, layout in layouts.items()}
    sent_by_first = {name: 2 * layout.bytes_to_each_peer(0) for name, layout in layouts.items()}
    assert lockstep.meter.bytes_to_each_peer == sent_by_first


@pytest.mark.parametrize("parties", PARTIES)
def test_rounds_and_bytes_stay_within_their_limits(parties: int) -> None:
    features = {2: (12, 8), 3: (8, 6, 6), 5: (4, 4, 4, 4, 4)}[parties]
    layouts = Lockstep(Federation(arms=10, features=features, epsilon=0.1), fixed_key("issue")).layouts
    assert {name: layout.rounds for name, layout in layouts.items()} == {DECIDE: 3, LEARN: 5, STEP: 7}
    for party in range(parties):
        assert layouts[STEP].bytes_to_each_peer(party) < 22_000


def test_a_step_of_ten_arms_and_twenty_features_by_hand() -> None:
    """What party 0 sends, counted on paper from the program text. In `step` x and w are masked once, and the one-hot
    and the reward come masked."""
    layouts = Lockstep(Federation(arms=10, features=(12, 8), epsilon=0.1), fixed_key("hand")).layouts
    x, o, weights, pairs, inverses = 12 * 8, 10 * 8, 200 * 8, 45, 10 * (20 * 21 // 2) * 8
    compare = [
        pairs * 4,  # 32 bits
        pairs * 1,  # four chunks: seven bits
    ]
    learn = [20 * 8 + 20 * 8 + 10 * 8, 8 + 200 * 8 + 8, 8 + 20 * 8, 20 * 8 + 20 * 8]
    assert sent(layouts[DECIDE]) == [x + weights, *compare]
    assert sent(layouts[LEARN]) == [x + o + inverses + weights + 8, *learn]
    assert sent(layouts[STEP]) == [x + weights + inverses, *compare, *learn]
    assert layouts[STEP].actor_words == 10
    assert layouts[STEP].rewarder_words == 1
    assert layouts[STEP].correction_words == layouts[DECIDE].correction_words + layouts[LEARN].correction_words
    assert 8 * layouts[STEP].correction_words <= 65_000  # bytes from the dealer


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
    assert layouts[LEARN].correction_words == expected
    if parties == 2:
        assert expected == 5158


def test_a_decision_of_many_pairs_by_hand() -> None:
    """With thirty arms three rounds deal too much: one of two payloads is taken by an opened bit."""
    layouts = Lockstep(Federation(arms=30, features=(12, 8), epsilon=0.1), fixed_key("bits")).layouts
    pairs = 435
    assert sent(layouts[DECIDE]) == [
        12 * 8 + 600 * 8,
        pairs * 4,  # 32 bits
        pairs * 2,  # six chunks: eleven bits
        55,  # 435 bits
    ]
    assert layouts[STEP].rounds == 8


@pytest.mark.parametrize(
    ("arms", "count", "words"),
    [
        (10, 1, 45 * (14 + 30) + 31),  # tables of (8, 8, 8, 7) bits, two heaps of 15 words
        (10, 5, 5 * (45 * (6 + 2 + 2) + 31)),  # six tables of a word, two heaps of bits, two payloads
        (60, 1, None),
    ],
)
def test_words_dealt_for_a_decision_by_hand(arms: int, count: int, words: int | None) -> None:
    """For each pair; and for each arm a tag, a mask of the one-hot and a product of masks; and a mask of the reward."""
    federation = Federation(arms=arms, features=(12, 8), epsilon=0.1)
    layout = layout_of(program_text(federation, ProgramId(DECIDE, count)), 2, 1)
    if words is None:
        # Eight for each pair within eight groups of seven or eight, and of their winners; for each arm a product of
        # masks, a tag, and what the scores, the public list, kept scores and the one-hot come to; kept, and the reward.
        groups = levels(arms)
        words = 8 * sum(size * (size - 1) // 2 for sizes in groups for size in sizes) + 6 * arms + 2
    assert layout.correction_words == words


def sent(layout: Layout) -> list[int]:
    """What party 0 sends, by round."""
    return [sizes[0] for sizes in layout.round_bytes]
