"""Values of policies between roles: the windows of a party, and what their receiver hears.

A window is full when so many decisions were rewarded, in the order of lessons; where sums are noisy, a window takes at
most as many rows of one key as a refresh does. The lesson that fills it runs the program `value` after all others
(`bandit.evaluation`). A party adds the shares that come out to those of all windows before, and keeps these totals with
the end of the lesson, and the ledger that counts the opening, in one commit. Only then does it send the totals to the
receiver (VALUES), and again whenever an epoch opens. So

- no share leaves that is not counted;
- noise of a window that was told by all parties is never drawn again: all of them have the lesson, and its totals, in
  their logs, and no lesson of the common log is evaluated again;
- if some party lost the lesson, or crashed before it was kept, it has told no share of that window, and without it the
  others' are uniform. The log is cut, and the window is drawn anew. The ledger counts that as a second opening.

A decision that is unlearned before its window is full is left out of it; a window that was opened stays as it is.

The receiver keeps nothing: totals are what it needs, and it hears them in every epoch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hiddenarm.bandit.catalogue import VALUE, ProgramId, program_text
from hiddenarm.bandit.evaluation import OpenedValues, estimated
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction, Rewarded
from hiddenarm.bandit.policy import Brings, LearnerProgram
from hiddenarm.bandit.schedule import LessonPlan, Run
from hiddenarm.bandit.state import State
from hiddenarm.errors import FrameError
from hiddenarm.net.identity import Identity
from hiddenarm.ring.words import Words

Rewards = Sequence[tuple[int, int]]
"""Of a lesson: names of decisions, and masked rewards."""
_MOST_AHEAD = 1024
"""Totals of one party that the receiver keeps until the others have sent theirs."""


@dataclass(frozen=True, slots=True, repr=False)
class WindowTotals:
    """This party's shares of the noisy sums of all windows so far, added up. They were filled by the lesson before
    `version`; `position` of its rewards belong to windows, the rest is the first part of the next one. `new` of the
    windows were filled by this lesson."""

    windows: int
    version: int
    position: int
    shares: Words
    new: int = 0


@dataclass(slots=True, repr=False)
class _Filling:
    """The window that is not full: interactions with their masked rewards and names, and whose rows they are."""

    kept: list[Interaction] = field(default_factory=list)
    masked: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    rows: Counter[int] = field(default_factory=Counter)

    def copy(self) -> _Filling:
        return _Filling(list(self.kept), list(self.masked), list(self.names), Counter(self.rows))


@dataclass(slots=True, repr=False)
class _Planned:
    """What a lesson under way makes of the windows, if it is learned."""

    full: list[Rewarded]
    filling: _Filling
    position: int
    shares: Words
    opened: int = 0


class OwnWindows:
    """The windows of one party in one epoch."""

    def __init__(self, federation: Federation, number: int) -> None:
        values, privacy = federation.evaluation, federation.noisy
        assert values is not None
        self.totals = WindowTotals(0, 0, 0, np.zeros(values.sums, np.uint64))
        """Of all lessons that have ended."""
        self._program = ProgramId(VALUE, values.window)
        self._size = values.window
        self._most = None if privacy is None else privacy.rows_per_key
        self._number = number
        self._filling = _Filling()
        self._planned: _Planned | None = None
        self._steps = 0
        """Windows of this epoch: each is at an address of its own."""
        self.run_by = _WindowProgram(program_text(federation, self._program), (), Brings.NOTHING, windows=self)

    def resume(
        self,
        totals: WindowTotals | None,
        lessons: Sequence[tuple[int, Rewards]],
        unlearned: Container[int],
        interaction_of: Callable[[int], Interaction],
    ) -> None:
        """Go on from what was kept, and from the rewards of the lessons since, by their numbers: from the one that
        filled the last window on, without decisions that were unlearned since."""
        if totals is not None:
            self.totals = replace(totals, new=0)
        for number, rewards in lessons:
            first = self.totals.position if number + 1 == self.totals.version else 0
            for name, masked in rewards[first:]:
                if name not in unlearned:
                    self._take(self._filling, interaction_of(name), masked, name)

    def forget(self, name: int) -> None:
        """A decision was unlearned: if its window is not full, it is no part of it. One that was opened stays."""
        if name in self._filling.names:
            place = self._filling.names.index(name)
            for column in (self._filling.kept, self._filling.masked, self._filling.names):
                del column[place]

    def planned(self, plan: LessonPlan, rewards: Rewards, kept: Sequence[Interaction]) -> LessonPlan:
        """The plan of a lesson, with a run for each window that it fills. Nothing changes before the lesson ends."""
        filling, full, position = self._filling.copy(), [], 0
        for place, ((name, masked), interaction) in enumerate(zip(rewards, kept, strict=True)):
            self._take(filling, interaction, masked, name)
            if len(filling.kept) == self._size:
                full.append(Rewarded(filling.kept, np.array([filling.masked], np.uint64)))
                filling, position = _Filling(), place + 1
        self._planned = _Planned(full, filling, position, self.totals.shares)
        runs = tuple(Run(self._program, self._steps + place) for place in range(len(full)))
        return replace(plan, actions=(*plan.actions, *runs))

    def _take(self, filling: _Filling, interaction: Interaction, masked: int, name: int) -> None:
        """Take an interaction into a window, unless its key has enough rows there."""
        filling.rows[interaction.row_of] += 1
        if self._most is None or filling.rows[interaction.row_of] <= self._most:
            filling.kept.append(interaction)
            filling.masked.append(masked)
            filling.names.append(name)

    def given(self) -> list[Words]:
        """What this party brings of the next window that is full."""
        planned = self._planned
        assert planned is not None
        window = planned.full[planned.opened]
        rewards = window.rewards(self._number == 0)
        coins = np.stack([_coin(interaction) for interaction in window.kept], axis=1)
        return [rewards, coins, rewards.sum(axis=1), coins.sum(axis=1)]

    def opened(self, shares: Sequence[Words]) -> None:
        """A window was added up: this party's shares of its noisy sums."""
        planned = self._planned
        assert planned is not None
        planned.shares = planned.shares + np.concatenate(shares)
        planned.opened += 1

    def lesson_learned(self, number: int) -> WindowTotals | None:
        """The lesson under way was learned; the totals to keep and then to tell, if it has filled a window."""
        planned, self._planned = self._planned, None
        assert planned is not None
        self._filling = planned.filling
        if not planned.opened:
            return None
        self._steps += planned.opened
        windows = self.totals.windows + planned.opened
        self.totals = WindowTotals(windows, number + 1, planned.position, planned.shares, planned.opened)
        return self.totals


@dataclass(frozen=True, slots=True)
class _WindowProgram(LearnerProgram):
    """The program `value`, which brings a window and writes no array of the model."""

    windows: OwnWindows = field(kw_only=True)

    def given(self, state: State, taken: Rewarded | None, party: int) -> list[Words]:
        return self.windows.given()

    def write(self, state: State, result: object) -> None:
        assert isinstance(result, tuple)
        self.windows.opened([shared.share for shared in result])


def _coin(interaction: Interaction) -> Words:
    assert interaction.kept is not None, "values are evaluated, so coins are kept"
    return interaction.kept


class HeardValues:
    """What the receiver has heard from the parties, and what follows from it."""

    def __init__(
        self, federation: Federation, parties: Sequence[Identity], told: Callable[[OpenedValues], None]
    ) -> None:
        self.values: OpenedValues | None = None
        self._federation = federation
        self._told = told
        self._heard: dict[Identity, dict[int, Words]] = {party: {} for party in parties}

    def begin(self) -> None:
        """Another epoch: shares of totals that were not complete are of no use."""
        for totals in self._heard.values():
            totals.clear()

    def hear(self, party: Identity, windows: int, shares: Words) -> None:
        """A party's shares of the totals of so many windows. When all have sent theirs, the values are known."""
        own = self._heard[party]
        if not np.array_equal(own.setdefault(windows, shares), shares) or len(own) > _MOST_AHEAD:
            raise FrameError(f"{party} sent two totals of {windows} windows, or is too far ahead")
        if any(windows not in totals for totals in self._heard.values()):
            return
        sums: Words = np.add.reduce([totals[windows] for totals in self._heard.values()])
        for totals in self._heard.values():
            for known in [known for known in totals if known < windows]:
                del totals[known]
        before, self.values = self.values, estimated(self._federation, windows, sums) if windows else None
        if self.values is not None and (before is None or before.windows != windows):
            self._told(self.values)
