"""One operation of a suite, measured.

It runs in lockstep on many replicates at once, as one party: the time is that of all parties divided by their number,
and includes expanding the dealt words. Beside it stands the NumPy operation that does the same in the clear. Rounds,
bytes and words are those the operation declares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from hiddenarm.mpc.dealing import ProgramDealer, layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import given_share
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.run import Program, ProgramText
from hiddenarm.research.bench.timing import Spread, seconds_of
from hiddenarm.ring.streams import Stream, fresh_key
from hiddenarm.ring.words import Floats, Words, encode

BITS = 20
"""Fractional bits of the inputs."""
_NAME = "bench"
_MOST_WORDS = 1 << 24
"""Dealt words of one run; operations that need many are run on fewer replicates."""

Text = Callable[..., Program]
Plain = Callable[..., object]


@dataclass(frozen=True, slots=True)
class Operation:
    """A program on shared inputs [size] each, and what does the same on floats."""

    name: str
    text: Text
    inputs: int = 1
    size: int | None = None
    plain: Plain | None = None


@dataclass(frozen=True, slots=True)
class OperationCost:
    """What one element of an operation costs a party. The keys of `--json`."""

    name: str
    rounds: int
    bytes_to_each_peer: float
    dealt_words: float
    correction_words: float
    us: float
    us_quartiles: tuple[float, float]
    plain_us: float | None
    ratio: float | None


def cost_of(operation: Operation, parties: int, replicates: int, repeats: int) -> OperationCost:
    """Run an operation and its plain counterpart in turn."""
    shape = () if operation.size is None else (operation.size,)
    words = layout_of(_text(operation, shape), parties, 1).party_words[0]
    count = max(1, min(replicates, _MOST_WORDS // max(1, words)))
    runner = _Runner(operation, shape, parties, count)
    inputs = [_floats((count, *shape), number) for number in range(operation.inputs)]
    private, plain = [], []
    for _ in range(repeats + 1):
        private.append(runner.seconds(inputs))
        if operation.plain is not None:
            plain.append(min(seconds_of(lambda: operation.plain and operation.plain(*inputs)) for _ in range(3)))
    time = Spread.of(private[1:]).scaled(1e6 / count / parties)
    plain_us = 1e6 * Spread.of(plain[1:]).median / count if plain else None
    return OperationCost(
        name=operation.name,
        rounds=runner.layout.rounds,
        bytes_to_each_peer=runner.layout.bytes_to_each_peer(0) / count,
        dealt_words=runner.layout.party_words[0] / count,
        correction_words=runner.layout.correction_words / count,
        us=time.median,
        us_quartiles=(time.lower, time.upper),
        plain_us=plain_us,
        ratio=None if plain_us is None else time.median / plain_us,
    )


class _Runner:
    """Deals and runs an operation, a step at a time."""

    def __init__(self, operation: Operation, shape: tuple[int, ...], parties: int, replicates: int) -> None:
        self._seeds = Seeds(fresh_key())
        text = _text(operation, shape)
        self.layout = layout_of(text, parties, replicates)
        self._dealer = ProgramDealer(_NAME, text, self.layout, self._seeds, replicates)
        self._scripts = [compile_program(text, party, parties, replicates) for party in range(parties)]
        self._materials = [
            ProgramMaterial(party, parties, _NAME, self.layout, self._seeds.party(party), ahead=1)
            for party in range(parties)
        ]
        self._step = 0

    def seconds(self, inputs: list[Floats]) -> float:
        """How long all parties take together; dealing is not counted."""
        step, self._step = self._step, self._step + 1
        self._materials[-1].add_corrections(step, self._dealer.deal(step, 1))
        values = [encode(value, BITS) for value in inputs]
        return seconds_of(lambda: self._run(step, values))

    def _run(self, step: int, values: list[Words]) -> list[Any]:
        """Party 0 holds the inputs: a sharing like any other."""
        zeros = [np.zeros_like(value) for value in values]
        parties = enumerate(zip(self._scripts, self._materials, strict=True))
        return run_lockstep(
            [
                Evaluation(script, material.take(step), zeros if party else values)
                for party, (script, material) in parties
            ]
        )


def _text(operation: Operation, shape: tuple[int, ...]) -> ProgramText:
    return lambda run: operation.text(run, *(given_share(run, *shape) for _ in range(operation.inputs)))


def _floats(shape: tuple[int, ...], number: int) -> Floats:
    """Some numbers in [0, 1)."""
    words = Stream(bytes(32), int(np.prod(shape))).step(number)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64).reshape(shape)
