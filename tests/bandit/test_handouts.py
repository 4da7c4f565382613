"""No word of any key stream is handed out twice: in one process, whatever programs are mixed."""

from __future__ import annotations

import numpy as np
import pytest

from handouts import HandOuts, Ranges, Reused
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.ring.streams import Stream
from support import fixed_key


def mixed_lessons(parties: int = 2) -> HandOuts:
    """Decide and learn singly, by `decide` and by `step`, and in batches, with repairs in between; what was handed out.
    The first decision is rewarded last: so decisions and lessons have different numbers, and both are numbers of steps.
    Of the runs of `step`, some go on to learn, and some are dropped."""
    federation = Federation(arms=3, features=(2,) * parties, epsilon=0.2, repair_every=3)
    with HandOuts() as given:
        lockstep = Lockstep(federation, fixed_key("handouts", parties), replicates=2, deal_ahead=2, online=True)
        one, many = [np.full((2, 2), 0.3)] * parties, [np.full((2, 4, 2), 0.3)] * parties
        late, _ = lockstep.decide(one)
        for step in range(9):
            number, _ = lockstep.decide(one)
            if step % 3 == 1:
                other, _ = lockstep.decide(one)
                lockstep.learn(other, [1.0, 1.0])
            lockstep.learn(number, [0.0, 1.0])
            if step % 4 == 3:
                batch, _ = lockstep.decide_batch(many)
                lockstep.learn_batch(batch, np.ones((2, 4)))
        lockstep.learn(late, [1.0, 0.0])
    return given


@pytest.mark.parametrize("parties", [2, 3])
def test_no_word_is_handed_out_twice(parties: int) -> None:
    given = mixed_lessons(parties)
    assert {"step", "decide 4", "learn", "gather 4", "repair 3", "invert last"} <= given.dealt
    assert given.words > 1000


def test_nor_in_the_papers_suite() -> None:
    with HandOuts() as given:
        federation = Federation(arms=3, features=(2, 2), epsilon=0.2, suite="paper")
        lockstep = Lockstep(federation, fixed_key("paper"), deal_ahead=2)
        for _ in range(5):
            number, _ = lockstep.decide([np.full((1, 2), 0.3)] * 2)
            lockstep.learn(number, [1.0])
    assert given.dealt == {"decide", "learn"}


def test_ranges_meet_where_they_share_a_place() -> None:
    ranges = Ranges()
    for first, end in (10, 20), (30, 31), (0, 5):
        ranges.add(first, end)
    for first, end in (19, 20), (0, 1), (4, 11), (30, 31), (5, 100), (29, 40), (12, 13):
        assert ranges.meets(first, end), (first, end)
    for first, end in (5, 10), (20, 30), (31, 99):
        assert not ranges.meets(first, end), (first, end)


def test_two_streams_of_one_key_are_seen_whatever_their_widths() -> None:
    key = fixed_key("two streams")
    with HandOuts():
        Stream(key, 4).step(1)  # places 4 to 7
        Stream(key, 3).step(2)  # 8 to 10
        with pytest.raises(Reused):
            Stream(key, 2).step(3)  # 6 and 7
        with pytest.raises(Reused):
            Stream(key, 5).steps(0, 2)  # 0 to 10
        Stream(key, 1, in_order=False).word(6, 0)  # 12
        with pytest.raises(Reused):
            Stream(key, 12).step(1)


def test_the_rewarders_words_are_not_excused_for_other_programs() -> None:
    seed = Seeds(fixed_key("rewarder")).rewarder()
    with HandOuts():
        program_stream(seed, "decide", 1).step(0)
        with pytest.raises(Reused):
            program_stream(seed, "decide", 1).step(0)
