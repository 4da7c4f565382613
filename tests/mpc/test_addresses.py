"""Correlated randomness: every address is handed out once, to dealer, parties, actor and rewarder alike."""

from __future__ import annotations

import numpy as np
import pytest

from hiddenarm.errors import AddressError, ProtocolError
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, PartyRun, ProgramMaterial, compile_program
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.material import Layout, Seeds, program_stream
from hiddenarm.mpc.run import Program, Run
from hiddenarm.mpc.values import Shared
from support import fixed_key, run_program, words_from

SEEDS = Seeds(fixed_key("addresses"))
PARTIES = 3


def square(run: Run) -> Program:
    """A program with words of every holder: parties, corrections, actor, rewarder and coins."""
    run.deal((2,), lambda: run.actor_words((2,)))
    run.deal((), lambda: run.rewarder_words(()) + run.coin_words(()))
    (x,) = yield (mask(run, Shared((4,), run.given((4,)))),)
    return form(run, "i,i->", x, x)


LAYOUT = layout_of(square, PARTIES, 1)


def dealer() -> ProgramDealer:
    return ProgramDealer("square", square, LAYOUT, SEEDS, 1)


def material(party: int, ahead: int = 4) -> ProgramMaterial:
    return ProgramMaterial(party, PARTIES, "square", LAYOUT, SEEDS.party(party), ahead)


def test_the_layout_counts_every_holder() -> None:
    # The mask 4 words, the actor's 2, the dealt word 1, the masks' square 1. The last party expands the mask.
    assert Layout((8, 8, 4), 4, actor_words=2, rewarder_words=1, coin_words=1, round_bytes=((32, 32, 32),)) == LAYOUT


def test_the_dealer_deals_each_step_once() -> None:
    one, other = dealer(), dealer()
    rows = one.deal(0, 10)
    for first, count in ((0, 10), (9, 1), (5, 2), (9, 5), (0, 1)):
        with pytest.raises(AddressError):
            one.deal(first, count)
    assert np.array_equal(one.deal(10, 5), other.deal(10, 5))  # the refusals used nothing up
    assert rows.shape == (10, LAYOUT.correction_words)


def test_dealing_many_steps_equals_dealing_each() -> None:
    one, other = dealer(), dealer()
    assert np.array_equal(one.deal(0, 6), np.concatenate([other.deal(step, 1) for step in range(6)]))


@pytest.mark.parametrize("party", range(PARTIES))
def test_a_party_runs_each_step_once(party: int) -> None:
    stock = material(party)
    if party == PARTIES - 1:
        stock.add_corrections(0, dealer().deal(0, 20))
    stock.take(0)
    stock.take(7)
    for step in (7, 0, 3, -1):
        with pytest.raises(AddressError):
            stock.take(step)
    stock.take(8)


def test_a_run_without_its_correction_uses_nothing_up() -> None:
    stock, dealt = material(PARTIES - 1), dealer()
    assert not stock.ready(0)
    with pytest.raises(ProtocolError, match="no correction is stocked for step 0"):
        stock.take(0)
    stock.add_corrections(0, dealt.deal(0, 2))
    assert stock.ready(0)
    stock.take(0)
    with pytest.raises(ProtocolError, match="step 2"):
        stock.take(2)
    stock.take(1)


def test_skipped_steps_keep_corrections_in_step() -> None:
    """Corrections arrive in blocks of any size; a run finds its own row, whatever was skipped before."""
    rows = dealer().deal(0, 12)
    stock = material(PARTIES - 1)
    for first, last in ((0, 1), (1, 5), (5, 6), (6, 12)):
        stock.add_corrections(first, rows[first:last])
    for step in (0, 2, 3, 7, 11):
        assert stock.ready(step)
        assert np.array_equal(stock.take(step).corrections, rows[step])
    assert not stock.ready(11)


def test_corrections_must_follow_each_other() -> None:
    stock, rows = material(PARTIES - 1), dealer().deal(0, 3)
    stock.add_corrections(0, rows)
    for first, block in ((0, rows), (4, rows), (2, rows), (3, rows[:, 1:])):
        with pytest.raises(ProtocolError):
            stock.add_corrections(first, block)
    assert stock.stocked_until == 3


def test_no_two_holders_or_programs_share_words() -> None:
    seeds = [SEEDS.party(0), SEEDS.party(1), SEEDS.party(10), SEEDS.actor(), SEEDS.rewarder(), SEEDS.coins()]
    other = Seeds(fixed_key("another epoch"))
    seeds += [other.party(0), other.party(1), other.actor()]
    rows = [program_stream(seed, name, 64).step(0) for seed in seeds for name in ("decide", "learn")]
    words = np.concatenate(rows)
    assert len(np.unique(words)) == len(words)


def test_a_program_that_uses_fewer_words_than_dealt_is_stopped() -> None:
    script = compile_program(_nothing, 0, PARTIES)
    with pytest.raises(ProtocolError, match="do not run the same program"):
        Evaluation(script, material(0).take(0))


def test_a_program_that_uses_more_words_than_dealt_is_stopped() -> None:
    def longer(run: Run) -> Program:
        yield from square(run)
        return run.random(())

    script = compile_program(longer, 0, PARTIES)
    with pytest.raises(ProtocolError, match="do not run the same program"):
        Evaluation(script, material(0).take(0), [words_from((1, 4), "given")])


@pytest.mark.parametrize("party", range(PARTIES))
def test_a_program_reads_its_dealt_words_and_no_others(party: int) -> None:
    """What a party's recording counts is what tracing the same text at the dealer counts."""
    expected = compile_program(square, party, PARTIES).expected
    last = party == PARTIES - 1
    assert expected.own_words == LAYOUT.party_words[party]
    assert expected.correction_words == (LAYOUT.correction_words if last else 0)
    assert expected.round_bytes == LAYOUT.round_bytes


def _nothing(run: Run) -> Program:
    return None
    yield ()


@pytest.mark.parametrize("ask", ["actor_words", "rewarder_words", "coin_words"])
def test_parties_cannot_ask_for_others_words(ask: str) -> None:
    run = PartyRun(0, 1, 1)
    with pytest.raises(ProtocolError, match="a party asked"):
        getattr(run, ask)((1,))


def test_only_the_owner_holds_an_input_mask() -> None:
    sizes = (2, 1, 3)

    def text(run: Run, _: Shared) -> Program:
        yield ()
        return run.owned((), sizes)

    ran = run_program(text, [words_from(1, "nothing")], 3, "owned")
    start = 0
    for size, (words, own) in zip(sizes, ran.results, strict=True):
        assert np.all(words[0, start : start + size] != 0)
        assert np.count_nonzero(words) == size
        assert np.array_equal(words[:, start : start + size], own)
        start += size


@pytest.mark.parametrize("parties", [2, 3, 5])
def test_any_parties_but_one_hold_uniform_words(parties: int) -> None:
    """A dealt value is fixed only by all shares: without any one of them the others add up to noise."""

    def text(run: Run, _: Shared) -> Program:
        yield ()
        return run.deal((), lambda: np.full(run.batch, 42, np.uint64))

    ran = run_program(text, [words_from(100, "nothing")], parties, "dealt", parties)
    shares = np.stack(ran.results)
    assert np.all(shares.sum(axis=0, dtype=np.uint64) == 42)
    for left_out in range(parties):
        others = np.delete(shares, left_out, axis=0).sum(axis=0, dtype=np.uint64)
        assert len(np.unique(others)) == 100
        assert 42 not in others


@pytest.mark.parametrize("owner", range(PARTIES))
def test_words_of_one_party_are_known_to_it_alone(owner: int) -> None:
    def text(run: Run, _: Shared) -> Program:
        own = run.words_of(owner, (3,))
        told = run.tell_last((2,), lambda: np.full((*run.batch, 2), 7, np.uint64))
        yield ()
        return own, told

    ran = run_program(text, [words_from(1, "nothing")], PARTIES, "words of", owner)
    assert [own is not None for own, _ in ran.results] == [party == owner for party in range(PARTIES)]
    assert [told is not None for _, told in ran.results] == [False, False, True]
    assert ran.results[-1][1].tolist() == [[7, 7]]
