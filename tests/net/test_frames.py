"""The codec: round trips in pieces of any size, and every refusal."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hiddenarm.errors import FrameError
from hiddenarm.net.frames import HEADER, Frame, FrameReader, Kind, encode, notice, notice_text

CAPS = dict.fromkeys(Kind, 2000)
frames = st.builds(
    Frame,
    st.sampled_from(Kind),
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=2000),
)


def header(magic: bytes = b"HA", version: int = 1, kind: int = Kind.ROUND, reserved: int = 0, length: int = 0) -> bytes:
    return HEADER.pack(magic, version, kind, 0, 0, reserved, 0, length)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces = []
    while data:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(data[:size])
        data = data[size:]
    return pieces


def feed_all(reader: FrameReader, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in reader.feed(piece)]


def test_the_header_is_what_the_protocol_says() -> None:
    frame = Frame(Kind.ROUND, program=2, round=3, step=4, payload=b"xyz")
    assert encode(frame) == b"HA\x01\x09\x02\x03\x00\x00\x04\0\0\0\0\0\0\0\x03\0\0\0xyz"
    assert frame.size == len(encode(frame)) == 23


@given(st.lists(frames, max_size=6), st.lists(st.integers(1, 3000), min_size=1, max_size=6))
def test_what_is_encoded_comes_back_however_it_is_cut(sent: list[Frame], sizes: list[int]) -> None:
    reader = FrameReader(CAPS)
    received: list[Frame] = []
    for piece in cut(b"".join(map(encode, sent)), sizes):
        received += reader.feed(memoryview(bytearray(piece)))
    assert received == sent


@given(frames, st.data())
def test_a_truncated_frame_is_not_a_frame(frame: Frame, data: st.DataObject) -> None:
    encoded = encode(frame)
    reader = FrameReader(CAPS)
    end = data.draw(st.integers(1, len(encoded) - 1))
    assert reader.feed(encoded[:end]) == []
    assert reader.feed(encoded[end:]) == [frame]


@given(st.binary(min_size=HEADER.size, max_size=200), st.integers(1, 50))
def test_garbage_is_refused_or_understood(garbage: bytes, size: int) -> None:
    reader = FrameReader(CAPS)
    try:
        received = feed_all(reader, cut(garbage, [size]))
    except FrameError:
        return
    assert garbage.startswith(b"".join(map(encode, received)))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (header(magic=b"GE"), "not a frame: unknown magic"),
        (header(version=2), "protocol version 2, this is version 1"),
        (header(kind=0), "unknown frame kind 0"),
        (header(kind=255), "unknown frame kind 255"),
        (header(reserved=1), "reserved header field in use"),
        (header(kind=Kind.OPEN), "OPEN frames are not expected on this link"),
        (header(length=101), "ROUND frame of 101 bytes, at most 100 are allowed"),
        (header(kind=Kind.HELLO, length=65537), "HELLO frame of 65537 bytes, at most 65536 are allowed"),
        (header(kind=Kind.ABORT, length=1025), "ABORT frame of 1025 bytes, at most 1024 are allowed"),
        (header(kind=Kind.BYE, length=1025), "BYE frame of 1025 bytes, at most 1024 are allowed"),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 20, 100])
def test_each_refusal_says_what_was_wrong(data: bytes, words: str, size: int) -> None:
    reader = FrameReader({Kind.ROUND: 100})
    with pytest.raises(FrameError) as raised:
        feed_all(reader, cut(data + b"secret", [size]))
    assert str(raised.value) == words


def test_only_the_first_frame_must_be_of_the_first_kinds() -> None:
    hello, later = Frame(Kind.HELLO), Frame(Kind.ROUND, payload=b"x")
    reader = FrameReader(CAPS, first=[Kind.HELLO])
    assert reader.feed(encode(hello) + encode(later)) == [hello, later]
    with pytest.raises(FrameError, match="ROUND frame before the hello"):
        FrameReader(CAPS, first=[Kind.HELLO]).feed(encode(later))


def test_a_huge_length_is_refused_before_anything_is_allocated() -> None:
    reader = FrameReader({Kind.ROUND: 4096})
    data = header(length=2**32 - 1) + bytes(1000)
    tracemalloc.start()
    with pytest.raises(FrameError, match="4294967295 bytes"):
        reader.feed(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_memory_follows_what_arrived_and_not_what_was_announced() -> None:
    reader = FrameReader({Kind.ROUND: 2**30})
    tracemalloc.start()
    assert reader.feed(header(length=2**30) + bytes(100)) == []
    for _ in range(1000):
        assert reader.feed(b"xy") == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_a_frame_shows_no_payload() -> None:
    assert "secret" not in repr(Frame(Kind.ROUND, payload=b"secret"))


@given(st.text())
def test_notices_are_short_and_printable(text: str) -> None:
    frame = notice(Kind.ABORT, text)
    (received,) = FrameReader({}).feed(encode(frame))
    shown = notice_text(received)
    assert shown.isprintable()
    assert shown.isascii()
    assert len(shown) == min(len(text), 400)


def test_a_notice_of_another_make_is_sanitised() -> None:
    assert notice_text(Frame(Kind.ABORT, payload=b"\xff\x1b[31mred\n")) == "??[31mred?"
