"""What travels between two roles: frames, and nothing else.

A frame is a fixed header of 20 bytes, little endian, and a payload:

    magic "HA" | version u8 | kind u8 | program u8 | round u8 | reserved u16 = 0 | step u64 | length u32

The reader refuses a frame from its header alone, before a byte of its payload is kept: an unknown magic, version or
kind, a reserved field in use, a kind that is not expected on this link, a length above the cap of its kind.
Errors say what was wrong and never show payload.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple, TypeVar

from hiddenarm.errors import FrameError

MAGIC: Final = b"HA"
VERSION: Final = 1
HEADER: Final = Struct("<2sBBBBHQI")
HEADER_BYTES: Final = HEADER.size
_read_header: Final = Struct("<IBBHQI").unpack_from  # magic, version and kind in one number: see `_opening`
NOTICE_CAP: Final = 1024
NOTICE_CHARACTERS: Final = 400


AnyKind = TypeVar("AnyKind", bound=IntEnum)
"""The kinds of whoever uses a link."""


class LinkKind(IntEnum):
    """What a frame says about the link itself. All other kinds belong to whoever uses the link: enumerations of their
    own, with other numbers, named by the caps that a reader is given."""

    HELLO = 1
    ABORT = 10
    BYE = 11
    PROBE = 20
    PING = 21
    PONG = 22

    __hash__ = int.__hash__  # the hash of a kind is taken for every frame


DEFAULT_CAPS: Final[Mapping[IntEnum, int]] = {
    LinkKind.HELLO: 64 * 1024,
    LinkKind.ABORT: NOTICE_CAP,
    LinkKind.BYE: NOTICE_CAP,
    LinkKind.PROBE: 64 * 1024,
    LinkKind.PING: 0,
    LinkKind.PONG: 0,
}


class Frame(NamedTuple):
    """One message; a named tuple because nothing immutable is quicker to make."""

    kind: IntEnum
    program: int = 0
    round: int = 0
    step: int = 0
    payload: bytes = b""

    def __repr__(self) -> str:
        size = len(self.payload)
        return f"Frame({self.kind.name}, program={self.program}, round={self.round}, step={self.step}, {size} bytes)"

    @property
    def size(self) -> int:
        """Bytes on the wire, header included."""
        return HEADER_BYTES + len(self.payload)


_new: Final = tuple.__new__


def quick_frame(fields: tuple[IntEnum, int, int, int, bytes]) -> Frame:
    """A frame of all its fields, in half the time of `Frame(...)`."""
    return _new(Frame, fields)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame, header and payload in one piece: one frame, one write."""
    kind, program, round_, step, payload = frame
    return HEADER.pack(MAGIC, VERSION, kind, program, round_, 0, step, len(payload)) + payload


def notice(kind: IntEnum, text: str, *, retry: bool = False) -> Frame:
    """An ABORT or a BYE with its reason; `retry` (round = 1) tells a dialler that it may try again."""
    return Frame(kind, round=int(retry), payload=printable(text).encode("ascii"))


def notice_text(frame: Frame) -> str:
    """The reason inside an ABORT or a BYE, made safe to log."""
    return printable(frame.payload.decode("ascii", errors="replace"))


def printable(text: str) -> str:
    """`text` with everything but printable ASCII replaced, cut to a line's length."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:NOTICE_CHARACTERS])


def _opening(kind: IntEnum) -> int:
    """The first four bytes of a frame of this kind, as a number: they are right or wrong together."""
    return int.from_bytes(MAGIC + bytes((VERSION, kind)), "little")


class FrameReader:
    """Turns a stream of bytes, in pieces of any size, into frames.

    The caps of what links say about themselves are `DEFAULT_CAPS` unless `caps` names others; a kind without a cap is
    refused. When `first` is given, the first frame of the stream must be of one of these kinds. After an error the
    stream is worthless and the reader must not be fed again.
    """

    def __init__(self, caps: Mapping[AnyKind, int], first: Collection[IntEnum] = ()) -> None:
        self._caps = dict(DEFAULT_CAPS)
        self._caps.update(caps.items())
        self._kinds = {_opening(kind): (kind, cap) for kind, cap in self._caps.items()}
        self._allowed = {_opening(kind): (kind, self._caps[kind]) for kind in first} if first else self._kinds
        self._partial = bytearray()
        self._frame_size = 0  # of the frame that begins in _partial; 0 until its header is complete

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take the next bytes of the stream; return the frames they complete, in order."""
        frames: list[Frame] = []
        end = len(data)
        at = self._continue_partial(memoryview(data), frames) if self._partial else 0
        while end - at >= HEADER_BYTES:
            opening, program, round_, reserved, step, length = _read_header(data, at)
            allowed = self._allowed.get(opening)
            if allowed is None or reserved or length > allowed[1]:
                raise FrameError(self._complaint(data, at))
            start, stop = at + HEADER_BYTES, at + HEADER_BYTES + length
            if stop > end:
                self._frame_size = stop - at
                break
            payload = bytes(data[start:stop]) if length else b""
            frames.append(_new(Frame, (allowed[0], program, round_, step, payload)))
            self._allowed = self._kinds
            at = stop
        if at < end:
            self._partial += data[at:]
        return frames

    @property
    def partial(self) -> int:
        """Bytes of a frame that has not come whole."""
        return len(self._partial)

    def _continue_partial(self, view: memoryview, frames: list[Frame]) -> int:
        """Add to the frame under way what belongs to it; return how much of `view` that was."""
        at = 0
        if not self._frame_size:
            at = min(HEADER_BYTES - len(self._partial), len(view))
            self._partial += view[:at]
            if len(self._partial) < HEADER_BYTES:
                return at
            self._frame_size = HEADER_BYTES + self._header(self._partial, 0)[4]
        take = min(self._frame_size - len(self._partial), len(view) - at)
        self._partial += view[at : at + take]
        if len(self._partial) == self._frame_size:
            frames.append(self._finish_partial())
        return at + take

    def _finish_partial(self) -> Frame:
        with memoryview(self._partial) as whole:
            kind, program, round_, step, _ = self._header(whole, 0)
            frame = Frame(kind, program, round_, step, bytes(whole[HEADER_BYTES:]))
        self._partial = bytearray()
        self._frame_size = 0
        self._allowed = self._kinds
        return frame

    def _header(self, data: bytes | bytearray | memoryview, at: int) -> tuple[IntEnum, int, int, int, int]:
        """Check the header at `at`; return kind, program, round, step and payload length."""
        opening, program, round_, reserved, step, length = _read_header(data, at)
        allowed = self._allowed.get(opening)
        if allowed is None or reserved or length > allowed[1]:
            raise FrameError(self._complaint(data, at))
        return allowed[0], program, round_, step, length

    def _complaint(self, data: bytes | bytearray | memoryview, at: int) -> str:
        """What is wrong with the header at `at`."""
        magic, version, code, _, _, reserved, _, length = HEADER.unpack_from(data, at)
        if magic != MAGIC:
            return "not a frame: unknown magic"
        if version != VERSION:
            return f"protocol version {version}, this is version {VERSION}"
        if reserved:
            return "reserved header field in use"
        kind = next((kind for kind in self._caps if kind == code), None)
        if kind is None:
            return f"frames of kind {code} are not expected on this link"
        if _opening(kind) not in self._allowed:
            return f"{kind.name} frame before the hello"
        return f"{kind.name} frame of {length} bytes, at most {self._caps[kind]} are allowed"
