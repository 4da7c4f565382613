"""The meter adds up, by peer, kind and program."""

from __future__ import annotations

import json

from stations import PARTY0, PARTY1, Kind

from hiddenarm.net.frames import HEADER, Frame, LinkKind
from hiddenarm.net.meter import Meter


def filled() -> Meter:
    meter = Meter()
    for size in (10, 20, 30):
        meter.link(PARTY0).count_sent(Frame(Kind.ROUND, program=1, payload=bytes(size)))
    meter.link(PARTY1).count_sent(Frame(Kind.ROUND, program=1))
    meter.link(PARTY1).count_sent(Frame(Kind.ROUND, program=2, payload=bytes(5)))
    meter.link(PARTY1).count_received(Frame(LinkKind.BYE))
    return meter


def test_rounds_are_those_to_one_peer() -> None:
    assert [filled().most_frames_sent(Kind.ROUND, program) for program in (0, 1, 2)] == [0, 3, 1]


def test_bytes_include_the_header() -> None:
    meter = filled()
    assert meter.bytes_sent(PARTY0) == 60 + 3 * HEADER.size
    assert meter.bytes_sent(program=2) == 5 + HEADER.size
    assert meter.bytes_sent(kind=Kind.ROUND) == meter.bytes_sent() == 65 + 5 * HEADER.size
    assert meter.bytes_received() == HEADER.size
    assert meter.frames_sent() == 5
    assert meter.frames_received(PARTY1, LinkKind.BYE, 0) == 1
    assert meter.frames_received(PARTY0) == 0


def test_it_can_be_written_as_json() -> None:
    written = json.loads(json.dumps(filled().as_dict()))
    row = {"peer": "party 0", "kind": "ROUND", "program": 1, "frames": 3, "bytes": 120}
    assert written["sent"][0] == row
    assert [r["program"] for r in written["sent"]] == [1, 1, 2]
    assert written["received"] == [{"peer": "party 1", "kind": "BYE", "program": 0, "frames": 1, "bytes": 20}]
