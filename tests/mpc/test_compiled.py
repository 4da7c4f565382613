"""Scripts: a place for every value while it is alive, and runs of one script that leave each other alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import reduce
from itertools import permutations
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hiddenarm.bandit.catalogue import ProgramId, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ScoreRangeError
from hiddenarm.mpc.compiled import CompiledProgram
from hiddenarm.mpc.evaluation import DealtWords, Evaluation, compile_program
from hiddenarm.mpc.run import Opening, Program, ProgramText, Run, Sharing
from hiddenarm.mpc.tracing import CONSTANTS, CORRECTIONS, GIVEN, MEMORY, OWN, Block, TracedWords, Tracer, winning_slots
from hiddenarm.mpc.values import Masked, Shared
from hiddenarm.ring.words import Words
from plain_machine import perform
from support import NOTHING_DEALT, words_from

Received = tuple[bytes | None, ...]


def never() -> Words:
    """What the dealer would compute; a party does not ask."""
    raise AssertionError


@dataclass
class Recorded:
    """A script, the recording it was made of, and the cells of what it gives."""

    script: CompiledProgram
    recording: Tracer
    result: list[TracedWords]
    announced: list[TracedWords]


def recorded(text: ProgramText, party: int = 0, parties: int = 2, replicates: int = 1) -> Recorded:
    seen: list[Any] = []

    def watched(run: Run) -> Program:
        result = yield from text(run)
        seen.extend([run.recording, cells_in(result), cells_in(run.announced)])  # type: ignore[attr-defined]
        return result

    script = compile_program(watched, party, parties, replicates)
    return Recorded(script, *seen)


def cells_in(value: Any) -> list[Any]:
    """All cells of a result, or all arrays of one that was read."""
    if isinstance(value, TracedWords | np.ndarray):
        return [value]
    if is_dataclass(value):
        return cells_in([getattr(value, item.name) for item in fields(value)])
    return [cells for item in value for cells in cells_in(item)] if isinstance(value, list | tuple) else []


# ---- Places


def lifetimes(of: Recorded) -> dict[Block, tuple[int, int]]:
    """The first and the last instruction for which each block in memory is there."""
    instructions = [instruction for round_ in of.recording.segments for instruction in round_]
    lives: dict[Block, tuple[int, int]] = {}
    for at, instruction in enumerate(instructions):
        for block in instruction.used():
            lives[block] = (lives.get(block, (at, at))[0], at)
    for cells in (*of.result, *of.announced):
        if isinstance(cells, TracedWords) and cells.block in lives:
            lives[cells.block] = (lives[cells.block][0], len(instructions))
    return lives


def check_places(of: Recorded) -> None:
    """No two blocks that are alive at once have a word in common, and all lie in memory."""
    lives, memory = list(lifetimes(of).items()), len(of.script.memory())
    for number, (block, (born, dies)) in enumerate(lives):
        assert 0 <= block.first <= block.first + block.length <= memory
        for other, (other_born, other_dies) in lives[:number]:
            together = born <= other_dies and other_born <= dies
            apart = block.first + block.length <= other.first or other.first + other.length <= block.first
            assert apart or not together


UNWRITTEN = -1


class OwnPlaces:
    """Every block has words of its own, which nothing else can overwrite."""

    def __init__(self, of: Recorded, dealt: DealtWords, given: Sequence[Words]) -> None:
        constants = [np.empty(0, np.uint64), *of.recording.constants]
        banks = [np.concatenate(constants), dealt.own, dealt.corrections, *given]
        self._banks = dict(zip([CONSTANTS, OWN, CORRECTIONS, *range(GIVEN, GIVEN + len(given))], banks, strict=True))
        self._words: dict[Block, list[int]] = {}

    def read(self, place: Block, count: int) -> list[int]:
        assert count == place.length
        if place.bank == MEMORY:
            return list(self._words.get(place, [UNWRITTEN] * count))
        words: list[int] = self._banks[place.bank].ravel()[place.first : place.first + count].tolist()
        assert len(words) == count
        return words

    def write(self, place: Block, words: list[int]) -> None:
        assert place.bank == MEMORY
        assert len(words) == place.length
        assert UNWRITTEN not in words
        self._words[place] = words

    def array(self, cells: TracedWords) -> Words:
        return np.array(self.read(cells.block, cells.size), np.uint64).reshape(cells.shape)


def check_run(of: Recorded, *labels: str | int) -> None:
    """One step, on words and messages made up, is what its instructions say one by one."""
    script, expected = of.script, of.script.expected
    dealt = DealtWords(
        words_from(expected.own_words, "own", *labels), words_from(expected.correction_words, "corrections", *labels)
    )
    brought = [words_from(count, "given", number, *labels) for number, count in enumerate(expected.given_words)]
    known = len(brought) - len(expected.awaited)
    evaluation, plain = Evaluation(script, dealt, brought[:known]), OwnPlaces(of, dealt, brought)
    for words in brought[known:]:
        evaluation.tell(words)
    received: tuple[bytes | None, ...] = (None,) * 9
    for number, instructions in enumerate(of.recording.segments):
        sent = b"".join([perform(each.operation.label, each.arguments, plain, received) for each in instructions])
        assert (evaluation.payload or b"") == sent
        if evaluation.ended:
            break
        sizes = expected.round_bytes[evaluation.round] if evaluation.payload is not None else ()
        received = tuple(
            None
            if party == script.party
            else words_from(size // 8 + 1, "sent", number, party, *labels).tobytes()[:size]
            for party, size in enumerate(sizes)
        )
        evaluation.advance(received)
    assert evaluation.ended
    assert number == len(script.segments) - 1
    for found, cells in zip(cells_in(evaluation.result), of.result, strict=True):
        assert np.array_equal(found, plain.array(cells))


def some_program(data: st.DataObject) -> ProgramText:
    """Random operations on random earlier values, with rounds and pauses between them."""

    def choose(values: Sequence[Any]) -> Any:
        return values[data.draw(st.integers(0, len(values) - 1))]

    def operate(run: Run, cells: list[Any]) -> None:
        x = choose(cells)
        others = [y for y in cells if y.shape == x.shape]
        match data.draw(st.integers(0, 11)):
            case 0 | 1:
                cells.append(x + choose(others))
            case 2:
                cells.append(choose(others) - x * np.uint64(3))
            case 3:
                cells.append((x ^ choose(others)) >> np.uint64(7))
            case 4:
                cells.append(x.take(np.array(data.draw(st.lists(st.integers(0, x.shape[-1] - 1), min_size=1)))))
            case 5:
                cells.append(x.columns(0, data.draw(st.integers(1, x.shape[-1]))))
            case 6:
                cells.append(x.padded(data.draw(st.integers(0, 9)), 1))
            case 7:
                cells += x.split_truncated(20)
            case 8:
                cells.append(x.argsort())
            case 9:
                cells.append(x.pick(x.argsort()))
            case 10:
                cells.append((x < choose(others)) + np.arange(x.shape[-1], dtype=np.uint64))
            case 11:
                cells.append(run.random(x.shape[1:]) & choose(others))

    def open_some(cells: list[Any]) -> tuple[Opening[Any], ...]:
        chosen = [choose(cells) for _ in range(data.draw(st.integers(0, 2)))]
        widths = [data.draw(st.sampled_from([1, 8, 13, 32, 64])) for _ in chosen]
        sharing = data.draw(st.sampled_from(Sharing))
        return tuple(
            Opening(x.shape[1:], x, lambda opened: opened, sharing, bits)
            for x, bits in zip(chosen, widths, strict=True)
        )

    def text(run: Run) -> Program:
        cells: list[Any] = [run.given((data.draw(st.integers(1, 20)),)), run.random((3,)), run.deal((5,), never)]
        for _ in range(data.draw(st.integers(0, 3))):
            for _ in range(data.draw(st.integers(0, 8))):
                operate(run, cells)
            cells += yield open_some(cells)
        for _ in range(data.draw(st.integers(0, 8))):
            operate(run, cells)
        return data.draw(st.lists(st.sampled_from(cells), max_size=5))

    return text


@given(st.data(), st.integers(0, 2), st.integers(1, 2))
@settings(max_examples=200)
def test_random_programs_keep_what_is_alive(data: st.DataObject, party: int, replicates: int) -> None:
    of = recorded(some_program(data), party, 3, replicates)
    check_places(of)
    check_run(of)


FEDERATION = Federation(arms=3, features=(2, 1), epsilon=0.1)
LONG = Federation(arms=50, features=(1, 1), epsilon=0.1)


def learner(name: str, count: int = 1, federation: Federation = FEDERATION) -> ProgramText:
    return program_text(federation, ProgramId(name, count))


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize(
    ("name", "count"),
    [("step", 1), ("learn", 1), ("gather", 3), ("solve", 2), ("invert boosted", 1), ("invert last", 1)],
)
def test_the_programs_of_the_learner_keep_what_is_alive(name: str, count: int, party: int) -> None:
    of = recorded(learner(name, count), party)
    check_places(of)
    check_run(of, name)


@pytest.mark.parametrize("party", [0, 1])
@pytest.mark.parametrize("federation", [FEDERATION, LONG], ids=["by payloads", "by turns"])
def test_decisions_keep_what_is_alive(federation: Federation, party: int) -> None:
    # Words that are made up are no order, so only the places are checked.
    of = recorded(learner("decide", 2, federation), party)
    check_places(of)
    announced_in = [number for number, segment in enumerate(of.script.segments) if segment.announced is not None]
    assert announced_in == [len(of.script.rounds)]


@pytest.mark.parametrize("name", ["decide", "learn", "gather", "solve"])
def test_memory_is_used_again(name: str) -> None:
    of = recorded(learner(name, 1, Federation(arms=10, features=(12, 8), epsilon=0.1)))
    check_places(of)
    assert len(of.script.memory()) < 0.75 * sum(block.length for block in lifetimes(of))


def test_a_long_chain_needs_the_memory_of_two_values() -> None:
    def text(run: Run) -> Program:
        x: Any = run.given((100,))
        for _ in range(50):
            x = x + x
        return x
        yield ()

    of = recorded(text)
    check_places(of)
    assert len(of.script.memory()) == 2 * 104  # whole cache lines


def test_what_is_returned_early_survives_to_the_end() -> None:
    def text(run: Run) -> Program:
        x: Any = run.given((10,))
        early = [x + np.uint64(number) for number in range(5)]
        for _ in range(3):
            late = [value * np.uint64(7) for value in early]
            (x,) = yield (Opening((10,), late[-1], lambda opened: opened),)
        return early, late, x

    of = recorded(text)
    check_places(of)
    check_run(of, "early")


# ---- Results


def test_results_keep_their_kind() -> None:
    def text(run: Run) -> Program:
        x: Any = run.given((2,))
        return [Shared((2,), x + x), (Masked((2,), None, (), opened=False), None, 5), "text"]
        yield ()

    words = words_from((1, 2), "kind")
    result: Any = Evaluation(compile_program(text, 0, 1), NOTHING_DEALT, [words]).result
    shared, (masked, none, number), said = result
    assert isinstance(shared, Shared)
    assert shared.share is not None
    assert np.array_equal(shared.share, words + words)
    assert isinstance(masked, Masked)
    assert masked.delta is none is None
    assert (number, said) == (5, "text")


def test_a_party_may_return_what_it_brought_or_was_dealt() -> None:
    def text(run: Run) -> Program:
        return run.given((2,)), run.random((3,)), run.deal((1,), never)
        yield ()

    dealt = DealtWords(words_from(6, "own"), words_from(2, "corrections"))
    words = words_from((2, 2), "brought")
    result: Any = Evaluation(compile_program(text, 1, 2, 2), dealt, [words]).result
    given, random, told = result
    assert np.array_equal(given, words)
    assert np.array_equal(random, dealt.own.reshape(2, 3))
    assert np.array_equal(told, dealt.corrections.reshape(2, 1))
    for returned, source in ((given, words), (random, dealt.own), (told, dealt.corrections)):
        assert not np.shares_memory(returned, source)


# ---- Several runs of one script


def passing_on(run: Run) -> Program:
    """Three rounds; every value depends on all words brought, dealt and received before."""
    brought: Any = run.given((6,))
    x = brought + run.random((6,))
    for number in range(3):
        (opened,) = yield (Opening((6,), x, lambda opened: opened),)
        x = x * opened + np.uint64(number)
        if number == 1:
            run.announce(x + opened)
    return x, opened


class Step:
    """One step of `passing_on`, and what it must come to."""

    def __init__(self, script: CompiledProgram, number: int) -> None:
        self._received = [words_from((1, 6), "received", number, round_) for round_ in range(3)]
        own, brought = words_from(6, "own", number), words_from((1, 6), "brought", number)
        self.evaluation = Evaluation(script, DealtWords(own, np.empty(0, np.uint64)), [brought])
        x = brought + own
        for round_, words in enumerate(self._received):
            opened = x + words
            x = x * opened + np.uint64(round_)
            if round_ == 1:
                self.announced = x + opened
        self.expected = x, opened

    def advance(self) -> None:
        self.evaluation.advance((None, self._received[self.evaluation.round].tobytes()))

    def check(self) -> None:
        assert self.evaluation.ended
        assert self.evaluation.payload is None
        result: Any = self.evaluation.result
        assert all(map(np.array_equal, result, self.expected))
        announced: Any = self.evaluation.announced
        assert np.array_equal(announced, self.announced)


def test_runs_of_one_script_that_overlap_do_not_meet() -> None:
    """Three runs take their rounds in every order of turns, one after the other on memory used before."""
    script = compile_program(passing_on, 0, 2)
    orders = sorted(set(permutations([0, 0, 0, 1, 1, 1, 2, 2, 2])))[::40]
    assert len(orders) == 42
    for order in orders:
        steps = [Step(script, number) for number in range(3)]
        memories = [step.evaluation._banks[0] for step in steps]
        assert not any(np.shares_memory(memories[i], memories[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
        for turn in order:
            steps[turn].advance()
        for step in steps:
            step.check()


def test_what_a_run_gave_is_not_changed_by_later_ones() -> None:
    script = compile_program(passing_on, 0, 2)
    finished = []
    for number in range(12):
        step = Step(script, number)
        for _ in range(3):
            step.advance()
        finished.append(step)
        for earlier in finished:
            earlier.check()
    memory = script.memory()
    for step in finished:
        result: Any = step.evaluation.result
        for array in (*result, cast(Words, step.evaluation.announced)):
            assert array.flags.owndata or array.base.flags.owndata
            assert not np.shares_memory(array, memory)


def test_an_announcement_is_there_before_the_end_and_stays() -> None:
    script = compile_program(passing_on, 0, 2)
    step = Step(script, 1)
    for round_ in range(3):
        assert (step.evaluation.announced is not None) == (round_ >= 2)
        step.advance()
    step.check()


def test_only_a_few_memories_are_kept() -> None:
    script = compile_program(passing_on, 0, 2)
    steps = [Step(script, number) for number in range(10)]
    for step in steps:
        for _ in range(3):
            step.advance()
        step.check()
    assert len(script._spares) == 4
    assert len({memory.ctypes.data for memory in script._spares}) == 4


def test_a_run_that_is_refused_gives_no_memory_back() -> None:
    """Whoever holds on to it cannot disturb the next run."""

    def text(run: Run) -> Program:
        (less,) = yield (Opening((3,), run.given((3,)), lambda opened: opened, Sharing.XOR, bits=1),)
        return winning_slots(less, (3,))

    script = compile_program(text, 0, 2)
    refused = Evaluation(script, NOTHING_DEALT, [np.zeros((1, 3), np.uint64)])
    with pytest.raises(ScoreRangeError, match="no arm beats"):
        refused.advance((None, bytes([0b10100000])))
    assert refused.result is None
    following = Evaluation(script, NOTHING_DEALT, [np.zeros((1, 3), np.uint64)])
    assert not np.shares_memory(following._banks[0], refused._banks[0])
    following.advance((None, bytes([0b11100000])))
    result: Any = following.result
    assert result.tolist() == [[2]]


def test_every_message_must_be_there() -> None:
    script = compile_program(passing_on, 1, 3)
    own = DealtWords(words_from(6, "own"), np.empty(0, np.uint64))
    message = bytes(48)
    incomplete: list[Received] = [(None, None, message), (message, None, None), (None, message, message)]
    for received in incomplete:
        with pytest.raises(ValueError, match="do not fit"):
            Evaluation(script, own, [words_from((1, 6), "brought")]).advance(received)
    wrong: list[Received] = [(message, None), (message, None, message, message), ()]
    for received in wrong:
        with pytest.raises((ValueError, IndexError)):
            Evaluation(script, own, [words_from((1, 6), "brought")]).advance(received)


def test_a_program_without_rounds_has_ended_at_once() -> None:
    def text(run: Run) -> Program:
        first: Any = run.given((2,))
        second: Any = run.given((2,))
        return first + second
        yield ()

    words = words_from((1, 2), "at once")
    evaluation = Evaluation(compile_program(text, 0, 2), NOTHING_DEALT, [words, words])
    assert evaluation.ended
    assert evaluation.openings == ()
    result: Any = evaluation.result
    assert np.array_equal(result, words + words)


def test_parties_agree_on_what_they_opened() -> None:
    """Three parties pass words on; what each opened is what all sent."""

    def text(run: Run) -> Program:
        seen: list[Any] = []
        x: Any = run.given((4,))
        for sharing in (Sharing.ADD, Sharing.XOR):
            (x,) = yield (Opening((4,), x, lambda opened: opened, sharing),)
            seen.append(x)
            x = x * np.uint64(3 + 2 * (run.party or 0))
        return seen

    words = [words_from((2, 4), "brought", party) for party in range(3)]
    evaluations = [Evaluation(compile_program(text, p, 3, 2), NOTHING_DEALT, [w]) for p, w in enumerate(words)]
    while evaluations[0].payload is not None:
        sent = [evaluation.payload for evaluation in evaluations]
        for party, evaluation in enumerate(evaluations):
            evaluation.advance(tuple(None if p == party else message for p, message in enumerate(sent)))
    total = reduce(np.add, words)
    second = total * np.uint64(3) ^ total * np.uint64(5) ^ total * np.uint64(7)
    for evaluation in evaluations:
        result: Any = evaluation.result
        assert np.array_equal(result[0], total)
        assert np.array_equal(result[1], second)
