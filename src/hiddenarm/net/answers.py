"""Staying on the line for answers that should come at once, past the event loop.

To sleep and be woken up costs more than a short wait. So whoever has sent a frame may poll its peers' connections for a
moment. What comes instead of an answer, too late or in part is kept, in order, for the loop to deliver.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from hiddenarm.errors import FrameError
from hiddenarm.net.connection import Connection, Phase
from hiddenarm.net.frames import Frame, quick_frame

_FAILURES: Final = 20
_SKIPS: Final = 200


class Answers:
    """Waits for answers, at most `spin_seconds`, with `buffer` as scratch space.

    `frames` and `troubles` hold what the loop must see to before it reads anything else.
    """

    def __init__(self, buffer: memoryview, spin_seconds: float) -> None:
        self.frames: deque[tuple[Connection, Frame]] = deque()
        self.troubles: deque[tuple[Connection, FrameError | OSError | None]] = deque()
        """Connections that cannot go on, and why; None at the end of a stream."""
        self._buffer = buffer
        self._spin = spin_seconds
        self._patience = _Patience()

    def await_all(self, connections: Sequence[Connection], frame: Frame, data: bytes) -> list[bytes] | None:
        """The payloads of the same frame from all of these peers, or None if they do not come at once. `data` is the
        frame, encoded."""
        patience = self._patience
        if not self._spin or self.frames or self.troubles or (patience.failures and not patience.is_worth_it()):
            return None
        end = time.monotonic() + self._spin
        answers: list[bytes] = []
        for connection in connections:
            answer = self._await(connection, frame, data, end)
            if answer is None:
                patience.failures += 1
                early = [(peer, _answered(frame, payload)) for peer, payload in zip(connections, answers, strict=False)]
                self.frames.extendleft(reversed(early))
                return None
            answers.append(answer)
        patience.failures = 0
        for connection, answer in zip(connections, answers, strict=True):
            connection.meter.count_received(_answered(frame, answer))
        return answers

    def _await(self, connection: Connection, frame: Frame, data: bytes, end: float) -> bytes | None:
        """The payload of the next frame of a peer, if it comes before `end` and has the same kind, program, round and
        step."""
        while connection.phase is Phase.READY and not connection.backlog:
            left = end - time.monotonic()
            try:
                answer = connection.answer(data, self._buffer, left)
            except (FrameError, OSError) as error:
                self.troubles.append((connection, error))
                return None
            if isinstance(answer, bytes):
                return answer
            if answer is None:
                self.troubles.append((connection, None))
                return None
            if answer:
                first = answer.pop(0) if answer[0][:4] == frame[:4] else None
                if answer:
                    self.frames.extend([(connection, other) for other in answer])
                return None if first is None else first.payload
            if left <= 0:
                return None
        return None


def _answered(frame: Frame, payload: bytes) -> Frame:
    """The frame of a peer that answers ours."""
    kind, program, number, step, _ = frame
    return quick_frame((kind, program, number, step, payload))


class _Patience:
    """Whether to wait for answers at all: not for a while, once they kept failing to come in time."""

    def __init__(self) -> None:
        self.failures = 0
        """In a row."""
        self._skipped = 0

    def is_worth_it(self) -> bool:
        if self.failures < _FAILURES:
            return True
        self._skipped += 1
        if self._skipped >= _SKIPS:
            self.failures = self._skipped = 0
        return False
