"""Whether a peer still says anything.

A link is looked at now and then, and what it has received so far is compared with the last time: nothing is done for a
frame. Where nothing came, the transport sends PING; a peer whose loop runs answers PONG.
"""

from __future__ import annotations

from dataclasses import dataclass

Progress = tuple[int, int]
"""Frames that came whole, and bytes of the one that is on its way."""


@dataclass(slots=True)
class Heartbeat:
    """One link: when something last came, and since when a frame has been on its way. Times are those of the looks."""

    heard_at: float
    frame_since: float
    progress: Progress = (0, 0)
    warned: bool = False
    """Whether somebody was told of the silence."""

    def look(self, progress: Progress, now: float) -> bool:
        """Whether anything came since the last look."""
        before, self.progress = self.progress, progress
        if progress[0] != before[0] or not progress[1]:
            self.frame_since = now
        if progress == before:
            return False
        self.heard_at = now
        return True

    def forgive(self, now: float) -> None:
        """We were away ourselves: what was not heard meanwhile counts for nothing."""
        self.heard_at = self.frame_since = now

    def silence(self, now: float) -> float:
        """Seconds without a byte."""
        return now - self.heard_at

    def slowness(self, now: float) -> float:
        """Seconds for which the same frame has been on its way."""
        return now - self.frame_since
