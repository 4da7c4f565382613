"""Reward slots between roles: what ends a slot, and which decisions it had.

The clocks of the parties end slots, the rewarder has none. Each party tells the rewarder at the end of each of its
slots which decisions can be rewarded since the one before: those whose arm is known here (SLOT). A slot has ended when
all parties have said so, and a decision belongs to the first slot by the end of which all have named it. So every
party holds it when its reward comes, also after a crash. At the start of an epoch a party names everything again that
waits for a reward; the rewarder passes over what it knows. Nothing here depends on rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from hiddenarm.bandit.decisions import MAX_PENDING
from hiddenarm.errors import FrameError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.roles.messages import slot_frames


class OwnSlots:
    """The slots of one party in one epoch."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds, self._clock = seconds, clock
        self._begun_at = clock()
        self._number = 0
        self._names: dict[int, None] = {}

    def add(self, names: Iterable[int]) -> None:
        """They can be rewarded from now on."""
        self._names.update(dict.fromkeys(names))

    def end_if_due(self) -> list[Frame]:
        """What to tell the rewarder, if the slot under way has lasted long enough. It is never shorter than said."""
        now = self._clock()
        if now - self._begun_at < self._seconds:
            return []
        frames = slot_frames(self._number, list(self._names))
        self._begun_at, self._number, self._names = now, self._number + 1, {}
        return frames


class HeardSlots:
    """What all parties have told the rewarder of the slots of one epoch."""

    def __init__(self, parties: Sequence[Identity]) -> None:
        self._ended = dict.fromkeys(parties, 0)
        self._named_by: dict[int, set[Identity]] = {}
        self._number = 0

    def hear(self, party: Identity, slot: int, names: Sequence[int], more: bool) -> list[list[int]]:
        """Note what a party has said; for each slot that has thereby ended, its decisions in the order of their
        names."""
        if slot != self._ended[party]:
            raise FrameError(f"{party} ended slot {slot} where {self._ended[party]} was due")
        for name in names:
            self._named_by.setdefault(name, set()).add(party)
        self._ended[party] += not more
        ended = []
        while min(self._ended.values()) > self._number:
            self._number += 1
            ended.append(self._take())
        if ended and len(self._named_by) > 2 * MAX_PENDING:  # before, the others may be about to name them
            raise FrameError(f"{party} has named more than {2 * MAX_PENDING} decisions that other parties do not know")
        return ended

    def _take(self) -> list[int]:
        common = sorted(name for name, by in self._named_by.items() if len(by) == len(self._ended))
        for name in common:
            del self._named_by[name]
        return common
