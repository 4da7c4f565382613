"""Links that fall silent: who is stopped is noticed, who is only quiet is not."""

from __future__ import annotations

import time
from contextlib import closing

import pytest
from stations import PARTY0, PARTY1, Kind, Office, Recorder, Station, captured_warnings

from deployment import PATIENCE
from hiddenarm.net.frames import HEADER, MAGIC, VERSION, Frame, LinkKind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.timing import Heartbeat
from hiddenarm.net.transport import Limits

BRISK = Limits(silence_seconds=1, beat_seconds=0.05, linger_seconds=0.05)
ACTOR = Identity(Role.ACTOR)


def meeting(office: Office, limits: Limits = BRISK, client: Identity = PARTY1) -> tuple[Station, Station]:
    server = office.station(PARTY0, limits=limits, recorder=Recorder(frozenset({client})))
    server.start()
    caller = office.station(client, limits=limits)
    caller.meet(server)
    return server, caller


def test_the_limits_promise_15_seconds() -> None:
    """The last byte may come just after a look, and the limit may pass just after one: a beat each."""
    limits = Limits()
    assert limits.silence_seconds == 15
    patience = limits.silence_seconds - 2 * limits.beat_seconds
    heartbeat = Heartbeat(0.0, 0.0)
    assert heartbeat.look((1, 0), limits.beat_seconds)  # it came at 0
    looks = (limits.beat_seconds * look for look in range(2, 100))
    noticed = next(now for now in looks if not heartbeat.look((1, 0), now) and heartbeat.silence(now) >= patience)
    assert noticed <= limits.silence_seconds


def test_quiet_peers_stay_ready(office: Office) -> None:
    limits = Limits(silence_seconds=3, beat_seconds=0.05, linger_seconds=0.05)
    server, caller = meeting(office, limits)
    caller.transport.run_until(lambda: False, 1.5 * limits.silence_seconds)
    assert server.recorder.lost == caller.recorder.lost == []
    assert server.recorder.frames == []  # PING and PONG are the links' own affair
    assert server.transport.meter.frames_received(PARTY1, LinkKind.PONG) > 2


def test_a_stopped_party_is_lost_and_named(office: Office) -> None:
    server, _ = meeting(office)
    began = time.monotonic()
    with captured_warnings() as logs:
        server.until(lambda: bool(server.recorder.lost))  # nobody runs the caller's loop
    assert time.monotonic() - began <= BRISK.silence_seconds + 5
    assert server.recorder.lost == [(PARTY1, "it has said nothing for 1 seconds", False)]
    assert [(line["event"], line["peer"]) for line in logs] == [("peer lost", "party 1")]


def test_an_application_that_does_not_run_its_client_is_warned_of_once_and_kept(office: Office) -> None:
    server, caller = meeting(office, client=ACTOR)
    with captured_warnings() as logs:
        server.until(lambda: bool(logs))
        time.sleep(0.5)
        assert server.transport.silences[ACTOR] >= 0.9
        caller.until(lambda: server.transport.silences[ACTOR] < 0.5)
    assert [(line["event"], line["peer"]) for line in logs] == [("peer silent", "actor")]
    assert server.recorder.lost == caller.recorder.lost == []


def test_who_was_away_itself_does_not_blame_others(office: Office) -> None:
    _, caller = meeting(office, client=ACTOR)
    time.sleep(1.5)  # longer than the patience of the caller with its party
    caller.transport.run_until(lambda: False, 0.3)
    assert caller.recorder.lost == []


def test_a_frame_must_come_whole_in_time(office: Office) -> None:
    """A peer that sends a byte now and then is never silent, and still found out."""
    limits = Limits(silence_seconds=20, beat_seconds=0.05, frame_seconds=0.5, linger_seconds=0.05)
    server, caller = meeting(office, limits)
    link = caller.transport._peers[PARTY0]
    drops = iter(HEADER.pack(MAGIC, VERSION, Kind.ROUND, 0, 0, 0, 0, 1000) + bytes(1000))
    deadline = time.monotonic() + PATIENCE
    while not server.recorder.lost:
        assert time.monotonic() < deadline
        link.tls.write(bytes([next(drops)]))
        link._push()
        time.sleep(0.02)
    assert server.recorder.lost == [(PARTY1, "a frame did not come whole in 0.5 seconds", False)]


def test_a_long_frame_that_moves_is_no_silence() -> None:
    heartbeat = Heartbeat(0.0, 0.0)
    for second in range(1, 50):
        assert heartbeat.look((0, 1000 * second), float(second))
    assert (heartbeat.silence(49.0), heartbeat.slowness(49.0)) == (0.0, 49.0)
    assert heartbeat.look((1, 0), 50.0)
    assert heartbeat.slowness(50.0) == 0.0


@pytest.mark.parametrize("kind", [LinkKind.PING, LinkKind.PONG])
def test_heartbeats_carry_nothing(office: Office, kind: Kind) -> None:
    server, caller = meeting(office)
    with closing(caller.transport):
        caller.transport.send(PARTY0, Frame(kind, payload=b"x"))
        server.until(lambda: bool(server.recorder.lost))
    assert server.recorder.lost[0][1] == f"{kind.name} frame of 1 bytes, at most 0 are allowed"
