"""What the tests of the lower layers share: run a small program at all parties, and ask whether words look uniform.

All keys are fixed, so every statistical test sees the same words each time: it passes or fails, it does not flicker.
"""

from __future__ import annotations

import re
from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy import stats

from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.comparison import SharedBit
from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import DealtWords, Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.lockstep import LockstepMeter, Observer, run_lockstep
from hiddenarm.mpc.material import Layout, Seeds, program_stream
from hiddenarm.mpc.run import Openings, Program, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.streams import Stream, derive
from hiddenarm.ring.words import Words

NAME = "test"
_NAMED = re.compile(r"(\w+) = (\[[^]]*]|[\d.e+-]+)")
NOTHING_DEALT = DealtWords(np.empty(0, np.uint64), np.empty(0, np.uint64))
PARTIES = (2, 3, 5)
SIGNIFICANCE = 1e-4
"""A test that sees less than this under its null hypothesis fails. Keys are fixed, so this happens never or always."""


def fixed_key(*labels: str | int) -> bytes:
    """A fixed key."""
    return derive(bytes(32), "test", *labels)


@dataclass(frozen=True, init=False)
class FourRoundFederation(Federation):
    """A federation whose single decisions take four rounds, as those of more arms do."""

    @property
    def decides_in_three_rounds(self) -> bool:
        return False


@dataclass(frozen=True, init=False)
class ShufflingFederation(Federation):
    """A federation that shuffles its arms before it compares them, as it does if there are many."""

    @property
    def decides_by_payloads(self) -> bool:
        return False


FORMS: dict[str, type[Federation]] = {
    "three rounds": Federation,
    "four rounds": FourRoundFederation,
    "shuffled": ShufflingFederation,
}
"""The ways to decide, each by a kind of federation that takes it for single decisions of few arms."""


def suggested(error: str) -> list[dict[str, Any]]:
    """The changes that the error about numbers of a federation suggests: one number in each, or two."""
    _, _, text = error.partition("What would fit: ")
    changes = text.split(", or ") if text else []
    return [{name: literal_eval(value) for name, value in _NAMED.findall(change)} for change in changes]


def words_from(shape: int | tuple[int, ...], *labels: str | int) -> Words:
    """Fixed uniform words."""
    count = int(np.prod(shape))
    return Stream(fixed_key("words", *labels), count).step(0).reshape(shape)


def signed(words: Words) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.int64)


def unsigned(integers: Any) -> Words:
    return np.asarray(integers, np.int64).view(np.uint64)


def unsigned_words(integers: Sequence[int]) -> Words:
    """Words from integers of 0 to 2^64 - 1."""
    return np.array(list(integers), np.uint64)


def split(values: Words, parties: int, *labels: str | int) -> list[Words]:
    """Random additive shares of plain words."""
    shares = [words_from(values.shape, "share", *labels, party) for party in range(parties - 1)]
    return [*shares, reduce(np.subtract, shares, values)]


@dataclass
class Ran:
    """One run of a program at all parties."""

    results: list[Any]
    layout: Layout
    meter: LockstepMeter
    seeds: Seeds
    replicates: int
    observed: list[tuple[Openings, Sequence[Sequence[Words]]]]
    payloads: list[bytes]
    """What was sent, party by party in every round."""

    def opened(self, pick: Callable[[Any], Any] = lambda result: result) -> Words:
        """What the parties' shares of the result (or of a picked part of it) add up to."""
        parts = [pick(result) for result in self.results]
        operation = np.bitwise_xor if isinstance(parts[0], SharedBit) else np.add
        return reduce(operation, [part.share for part in parts])

    def actor_words(self) -> Words:
        words = self.layout.actor_words
        return program_stream(self.seeds.actor(), NAME, words).step(0).reshape(self.replicates, -1)


def run_program(
    program: Callable[..., Program],
    inputs: Sequence[Words],
    parties: int,
    *labels: str | int,
    observer: Observer | None = None,
    keep: bool = False,
) -> Ran:
    """Share plain `inputs` [replicates, ...], deal one step and run `program(run, *inputs)` at all parties in lockstep.

    With `keep` everything sent is kept in `observed`.
    """
    replicates = len(inputs[0])
    shared = [split(values, parties, *labels, number) for number, values in enumerate(inputs)]

    def text(run: Run) -> Program:
        return program(run, *(Shared(values.shape[1:], run.given(values.shape[1:])) for values in inputs))

    layout = layout_of(text, parties, replicates)
    seeds = Seeds(fixed_key("epoch", *labels))
    corrections = ProgramDealer(NAME, text, layout, seeds, replicates).deal(0, 1)
    evaluations = []
    payloads: list[bytes] = []
    for party in range(parties):
        material = ProgramMaterial(party, parties, NAME, layout, seeds.party(party), ahead=1)
        if party == parties - 1:
            material.add_corrections(0, corrections)
        script = compile_program(text, party, parties, replicates)
        evaluations.append(tapped(payloads)(script, material.take(0), [shares[party] for shares in shared]))
    observed: list[tuple[Openings, Sequence[Sequence[Words]]]] = []

    def watch(openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        if keep:
            observed.append((openings, by_opening))
        if observer is not None:
            observer(openings, by_opening)

    meter = LockstepMeter()
    results = run_lockstep(evaluations, program=NAME, meter=meter, observer=watch)
    return Ran(results, layout, meter, seeds, replicates, observed, payloads)


def tapped(payloads: list[bytes]) -> type[Evaluation]:
    """Evaluations that note the bytes they send."""

    class Tapped(Evaluation):
        def advance(self, received: tuple[bytes | None, ...] = ()) -> None:
            if self.payload is not None:
                payloads.append(self.payload)
            super().advance(received)

    return Tapped


def travelled(openings: Openings, by_opening: Sequence[Sequence[Words]], payloads: Sequence[bytes]) -> list[int]:
    """Check that what each party sent in a round is the observed words, as narrow as declared; the bytes of each."""
    for party, payload in enumerate(payloads):
        words = [sent[party] for sent in by_opening]
        assert payload == b"".join(plain_bytes(word, o.bits) for o, word in zip(openings, words, strict=True))
    return [len(payload) for payload in payloads]


def plain_bytes(words: Words, bits: int) -> bytes:
    """How words of so many bits travel: single bits eight a byte, others in 1, 2, 4 or 8 bytes, little-endian."""
    if bits == 1:
        return np.packbits(words.astype(np.uint8)).tobytes()
    size = next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
    return words.astype(f"<u{size}").tobytes()


def computed(compute: Callable[..., Any], *words: Words) -> Any:
    """What a party computes from words [replicates, ...] it brings along, without a round."""

    def text(run: Run) -> Program:
        return compute(*(run.given(array.shape[1:]) for array in words))
        yield ()

    return Evaluation(compile_program(text, 0, 1, len(words[0])), NOTHING_DEALT, words).result


def winners_of(less: Words, sizes: Sequence[int]) -> np.ndarray:
    """The slot of the maximum of each group from the bits "key i < key j" of all pairs i < j within groups."""
    winners, slot, pair = [], 0, 0
    for size in sizes:
        first, second = np.triu_indices(size, 1)
        bits = less[..., pair : pair + len(first)].astype(bool)
        won = np.where(bits, second, first)
        wins = (won[..., None] == np.arange(size)).sum(axis=-2)
        assert np.array_equal(np.sort(wins, axis=-1), np.broadcast_to(np.arange(size), wins.shape))
        winners.append(slot + np.argmax(wins, axis=-1))
        slot, pair = slot + size, pair + len(first)
    return np.stack(winners, axis=-1)


def uniformity(words: Words, bits: int = 64) -> float:
    """The p-value of "these words are uniform modulo 2^bits": chi-square on every byte, and on every bit of a last
    part byte, with Bonferroni's correction. Small means not uniform."""
    words = np.asarray(words, np.uint64).ravel()
    if bits < 64 and (words >> np.uint64(bits)).any():
        return 0.0
    smallest, tests = 1.0, 0
    for start in range(0, bits, 8):
        width = min(8, bits - start)
        cells = ((words >> np.uint64(start)) & np.uint64((1 << width) - 1)).astype(np.int64)
        # Cells of a chi-square test should expect five or more; merge low bits away where there are few words.
        while len(words) >> width < 5 and width > 1:
            cells, width = cells >> 1, width - 1
        smallest = min(smallest, float(stats.chisquare(np.bincount(cells, minlength=1 << width)).pvalue))
        tests += 1
    return min(1.0, smallest * tests)


def same_distribution(one: Words, other: Words, bits: int = 64) -> float:
    """The p-value of "these two samples of words have one distribution", on the highest bits."""
    width = min(bits, 4)
    cells = [(np.asarray(w, np.uint64).ravel() >> np.uint64(bits - width)).astype(np.int64) for w in (one, other)]
    table = np.stack([np.bincount(c, minlength=1 << width) for c in cells])
    return float(stats.chi2_contingency(table).pvalue)


def independence(one: np.ndarray, other: np.ndarray) -> float:
    """The p-value of "these two small integers are independent"."""
    table = np.zeros((int(one.max()) + 1, int(other.max()) + 1))
    np.add.at(table, (one.ravel(), other.ravel()), 1)
    return float(stats.chi2_contingency(table[table.sum(1) > 0][:, table.sum(0) > 0]).pvalue)


def evenness(cells: np.ndarray, size: int) -> float:
    """The p-value of "all of 0..size-1 are equally likely"."""
    return float(stats.chisquare(np.bincount(np.asarray(cells).ravel(), minlength=size)).pvalue)
