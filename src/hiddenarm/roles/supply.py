"""A party's dealt material: layouts and words of every program it runs, and the orders that keep it stocked.

Programs are set up when they are first needed. The last party orders corrections ahead of use, one batch at a time for
each program, and keeps a stock that is bounded in bytes. It orders when nothing else is to be done, and otherwise only
when half of the stock is used up: dealing is off-line work. A program that was run a few times only, such as one for an
unusual number of interactions, is not kept in stock: each of its steps is ordered when it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hiddenarm.bandit.catalogue import (
    DECIDE,
    DESCEND,
    GATHER,
    LEARN,
    REFRESH,
    REPAIR_RUNS,
    STEP,
    ProgramId,
    program_text,
)
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import FrameError
from hiddenarm.mpc.compiled import CompiledProgram
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, compile_program
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.run import ProgramText
from hiddenarm.net.frames import Frame
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import DEALER, program_and_step, want_frame
from hiddenarm.roles.runs import Send
from hiddenarm.roles.stock import BATCHES_IN_STOCK, WORD_BYTES, batch_steps, expanded_steps, stock_steps

_USUAL_USES = 4
_ONLINE = (DECIDE, LEARN, STEP, GATHER)
"""The programs of strictly online use. `gather` is for single lessons where sums are noisy."""


class _Line:
    """One program's supply: its words, the next step to be used, and until where corrections were ordered."""

    def __init__(self, layout: Layout, compiled: CompiledProgram, material: ProgramMaterial) -> None:
        self.layout = layout
        self.compiled = compiled
        self.material = material
        self.next_step = 0
        self.wanted_until = 0
        self.uses = 0


class CompiledPrograms:
    """Programs that were compiled for a party. They are the same in every epoch."""

    def __init__(self, federation: Federation, number: int) -> None:
        self._federation = federation
        self._number = number
        self._layouts: dict[ProgramId, Layout] = {}
        self._cache: dict[ProgramId, CompiledProgram] = {}

    def layout(self, program: ProgramId) -> Layout:
        if program not in self._layouts:
            self._layouts[program] = layout_of(self._text(program), self._federation.parties, 1)
        return self._layouts[program]

    def program(self, program: ProgramId) -> CompiledProgram:
        if program not in self._cache:
            self._cache[program] = compile_program(self._text(program), self._number, self._federation.parties)
        return self._cache[program]

    def _text(self, program: ProgramId) -> ProgramText:
        return program_text(self._federation, program)


class Supply:
    """All material of one party in one epoch. Nothing is there before the seed."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        send: Send,
        stock: int,
        expand_ahead: int,
        compiled: CompiledPrograms | None = None,
    ) -> None:
        self._federation = federation
        self._number = number
        self._send = send
        self._stock = stock
        self._expand_ahead = expand_ahead
        self._compiled = compiled or CompiledPrograms(federation, number)
        self.corrected = number == federation.parties - 1
        """Whether this party needs the dealer for every step; the others expand their seeds."""
        self._seed: bytes | None = None
        self._lines: dict[ProgramId, _Line] = {}

    @property
    def in_stock(self) -> dict[str, int]:
        """Steps for which the last party has corrections, by program. The other parties need none."""
        if not self.corrected:
            return {}
        return {
            program.label: max(0, line.material.stocked_until - line.next_step) for program, line in self._lines.items()
        }

    def set_seed(self, seed: bytes, programs: tuple[ProgramId, ...]) -> None:
        """Take the epoch's seed, and order for the programs that are sure to be run."""
        if self._seed is not None:
            raise FrameError("the dealer sent a second seed")
        self._seed = seed
        for program in programs:
            self._order(program, self._line(program))

    def layout(self, program: ProgramId) -> Layout:
        return self._compiled.layout(program)

    def next_step(self, program: ProgramId) -> int:
        """The first step that was not begun."""
        return self._lines[program].next_step if program in self._lines else 0

    def ready(self, program: ProgramId, step: int) -> bool:
        """Whether a step can be run now; if not, its material is on order."""
        if self._seed is None:
            return False
        line = self._line(program)
        if line.material.ready(step):
            return True
        line.next_step = max(line.next_step, step)
        if line.wanted_until == line.material.stocked_until <= step:
            self._skip(program, line, step)
        self._order(program, line, room=1)
        return False

    def _skip(self, program: ProgramId, line: _Line, step: int) -> None:
        """Leave out the steps before this one; but orders begin at whole batches, so that the dealer does not see from
        them which step it is."""
        batch, _ = self._sizes(program, line)
        line.wanted_until = max(line.wanted_until, step - step % batch)
        line.material.skip_to(line.wanted_until)

    def stock_up(self) -> None:
        """There is time: order whatever there is room for."""
        for program, line in self._lines.items():
            if _is_usual(program, line):
                self._order(program, line, room=1)

    def begin(self, program: ProgramId, step: int) -> None:
        """A step is used or given up: keep the stock ahead of it."""
        line = self._line(program)
        line.next_step = step + 1
        line.uses += 1
        self._order(program, line)

    def evaluate(self, program: ProgramId, step: int, given: Sequence[Words]) -> Evaluation:
        """Begin to run a step on what this party brings (see `LearnerProgram`), with the step's words for the only
        time."""
        line = self._line(program)
        return Evaluation(line.compiled, line.material.take(step), given)

    def on_corrections(self, frame: Frame) -> None:
        program, first = program_and_step(frame)
        line = self._lines.get(program)
        columns = self.layout(program).correction_words
        count, rest = divmod(len(frame.payload), columns * WORD_BYTES)
        due = line.material.stocked_until if line is not None and self.corrected else None
        if line is None or first != due or not count or rest or first + count > line.wanted_until:
            raise FrameError("the dealer sent corrections that were not asked for")
        words = np.frombuffer(frame.payload, "<u8")
        line.material.add_corrections(first, words.reshape(-1, columns))
        self._order(program, line)

    def _line(self, program: ProgramId) -> _Line:
        if program not in self._lines:
            assert self._seed is not None
            layout, parties = self.layout(program), self._federation.parties
            most = max(1, self._expand_ahead // max(1, program.count))
            ahead = expanded_steps(layout.party_words[self._number], most)
            material = ProgramMaterial(self._number, parties, program.label, layout, self._seed, ahead)
            self._lines[program] = _Line(layout, self._compiled.program(program), material)
        return self._lines[program]

    def _order(self, program: ProgramId, line: _Line, room: int = BATCHES_IN_STOCK // 2) -> None:
        """Order a batch, unless one is under way or there is room for less than `room` batches."""
        if not self.corrected or line.wanted_until != line.material.stocked_until:
            return
        batch, stock = self._sizes(program, line)
        if line.wanted_until + room * batch <= line.next_step + stock:
            self._send(DEALER, want_frame(program, line.wanted_until, batch))
            line.wanted_until += batch

    def _sizes(self, program: ProgramId, line: _Line) -> tuple[int, int]:
        """Steps that are ordered at a time, and that are kept in stock."""
        if not _is_usual(program, line):
            return 1, 1
        return batch_steps(line.layout, self._stock), stock_steps(line.layout, self._stock)


def _is_usual(program: ProgramId, line: _Line) -> bool:
    """Whether a program is run so often that its corrections are kept in stock. Those of a repair or a refresh are many
    words, for a few runs in thousands of lessons."""
    if program.name in (REFRESH, DESCEND, *REPAIR_RUNS):
        return False
    return (program.name in _ONLINE and program.count == 1) or line.uses >= _USUAL_USES
