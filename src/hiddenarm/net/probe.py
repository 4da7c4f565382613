"""Ask a role whether it would take us, without becoming its peer.

1. connect, TLS 1.3 with both certificates, and the identity in its certificate must be the one expected
2. it sends its hello, we send ours as a PROBE
3. it answers BYE if nothing speaks against us, ABORT with the reason if something does, and closes

Blocking, with one deadline for all of it: for a person who checks an installation.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hiddenarm.errors import FrameError, HelloError, HiddenArmError, IdentityError, PeerLost
from hiddenarm.net.connection import reason_of
from hiddenarm.net.frames import Frame, FrameReader, LinkKind, encode, notice_text
from hiddenarm.net.hello import Value, differences, hello_payload, parse_hello
from hiddenarm.net.identity import Identity, identity_of
from hiddenarm.net.tls import TlsFiles, client_context

_READ_BYTES: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Welcome:
    """A role that takes us. `note` is what it said; `expires` is the end of its certificate."""

    expires: datetime
    note: str


def probe(
    me: Identity, tls: TlsFiles, hello: Mapping[str, Value], peer: Identity, address: tuple[str, int], seconds: float
) -> Welcome:
    """Whether `peer`, at `address`, takes us. Raises PeerLost, IdentityError or HelloError if it does not."""
    deadline = time.monotonic() + seconds
    context = client_context(tls)
    try:
        with socket.create_connection(address, timeout=seconds) as plain, context.wrap_socket(plain) as sock:
            return _ask(sock, me, dict(hello), peer, deadline)
    except ssl.SSLError as error:
        raise IdentityError(reason_of(error)) from None
    except TimeoutError:
        raise PeerLost(f"no answer within {seconds:g} seconds") from None
    except OSError as error:
        raise PeerLost(reason_of(error)) from None


def _ask(sock: ssl.SSLSocket, me: Identity, hello: dict[str, Value], peer: Identity, deadline: float) -> Welcome:
    found = identity_of(sock)
    if found != peer:
        raise IdentityError(f"this is {found}, not {peer}")
    sock.sendall(encode(Frame(LinkKind.PROBE, payload=hello_payload(hello))))
    reader = FrameReader({}, first=(LinkKind.HELLO, LinkKind.ABORT))
    while True:
        for frame in _received(sock, reader, deadline):
            if frame.kind is LinkKind.HELLO:
                _compare(hello, parse_hello(frame.payload), me, peer)
            else:
                return Welcome(_expiry(sock), _last_words(frame))


def _received(sock: ssl.SSLSocket, reader: FrameReader, deadline: float) -> list[Frame]:
    sock.settimeout(max(0.001, deadline - time.monotonic()))
    data = sock.recv(_READ_BYTES)
    if not data:
        raise PeerLost("it ended the connection without a word")
    try:
        return reader.feed(data)
    except FrameError as error:
        raise PeerLost(f"it does not speak our protocol: {error}") from None


def _compare(ours: dict[str, Value], theirs: dict[str, Value], me: Identity, peer: Identity) -> None:
    if found := differences(ours, theirs, str(me), str(peer)):
        raise HelloError("; ".join(found))


def _last_words(frame: Frame) -> str:
    """What it said at the end. An ABORT that would pass (round = 1), as that it has too many callers, is no refusal."""
    words = notice_text(frame)
    if frame.kind is LinkKind.ABORT and not frame.round:
        refusal: type[HiddenArmError] = HelloError if "differs" in words else IdentityError
        raise refusal(f"it refuses us: {words}")
    return words


def _expiry(sock: ssl.SSLSocket) -> datetime:
    certificate = sock.getpeercert() or {}
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), UTC)
