"""One TLS connection that never blocks: bytes out with a backlog, frames in. What they mean is decided elsewhere.

A connection goes through its phases in this order, and may skip to LINGERING or CLOSED from any of them:

    CONNECTING   TCP is under way (only when we dialled)
    HANDSHAKE    TLS is under way
    HELLO        the certificate is good, our hello is sent, the peer's is awaited
    READY        frames flow
    LINGERING    our last words are being sent; whatever the peer still says is thrown away
    CLOSED
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto

from hiddenarm.net.frames import Frame, FrameReader, Kind, encode
from hiddenarm.net.identity import Identity
from hiddenarm.net.meter import LinkMeter


class Phase(Enum):
    """How far a connection has come."""

    CONNECTING = auto()
    HANDSHAKE = auto()
    HELLO = auto()
    READY = auto()
    LINGERING = auto()
    CLOSED = auto()


class Connection:
    """A socket, the frames that come out of it and the bytes that wait to go into it.

    `target` is the identity we dialled, None when the peer called us. `peer` is what the certificate says, None
    until the handshake is over.
    """

    def __init__(
        self, sock: socket.socket, address: str, caps: Mapping[Kind, int], target: Identity | None = None
    ) -> None:
        self.socket = sock
        self.descriptor = sock.fileno()
        self.address = address
        self.target = target
        self.peer: Identity | None = None
        self.meter = LinkMeter()
        self.phase = Phase.HANDSHAKE if target is None else Phase.CONNECTING
        self.interest = 0  # the events the selector watches for us; kept by the switchboard
        self.fault = ""  # why writing failed, told when reading finds the end
        self._tls: ssl.SSLSocket | None = None
        self._reader = FrameReader(caps, first=(Kind.HELLO, Kind.ABORT))
        self._outgoing: deque[bytes] = deque()
        self.backlog = 0

    @property
    def tls(self) -> ssl.SSLSocket:
        """The encrypted socket; there is none before the TCP connection stands."""
        if self._tls is None:
            raise ValueError("TLS has not begun")
        return self._tls

    def __str__(self) -> str:
        return str(self.peer or self.target or self.address)

    def wrap(self, context: ssl.SSLContext) -> None:
        """Put TLS over the socket; the handshake is still to be made."""
        server = self.target is None
        self._tls = context.wrap_socket(self.socket, server_side=server, do_handshake_on_connect=False)
        self.socket = self._tls
        self.descriptor = self.socket.fileno()
        self.phase = Phase.HANDSHAKE

    def send(self, frame: Frame) -> None:
        """Write a frame now as far as the kernel takes it, the rest when `flush` is called.

        A failure to write is not raised: the peer's last words may still wait to be read, and say why. Reading finds
        the end of the stream, and `fault` then tells what went wrong.
        """
        self.meter.count_sent(frame)
        data = encode(frame)
        self._outgoing.append(data)
        self.backlog += len(data)
        if len(self._outgoing) == 1:
            self.flush()

    def flush(self) -> None:
        """Write as much of the backlog as the kernel takes.

        TLS wants an interrupted write repeated with the same bytes, so what was not taken stays as it is.
        """
        outgoing = self._outgoing
        try:
            while outgoing:
                data = outgoing[0]
                taken = self.tls.send(data)
                self.backlog -= taken
                if taken == len(data):
                    outgoing.popleft()
                else:
                    outgoing[0] = data[taken:]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self.break_off(reason_of(error))

    def break_off(self, fault: str) -> None:
        """Give up writing; whoever reads next finds the end of the stream and `fault`."""
        self.fault = self.fault or fault
        self._outgoing.clear()
        self.backlog = 0
        with suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def receive(self, buffer: memoryview) -> list[Frame] | None:
        """The frames that have arrived; None at the end of the stream. `buffer` is scratch space.

        Reads on while a frame is incomplete, but not for ever: a fast sender must not keep the loop from its other
        peers. Never stops while TLS holds decrypted bytes, of which the selector knows nothing. Raises
        FrameError or OSError.
        """
        tls, reader = self.tls, self._reader
        frames: list[Frame] = []
        taken = 0
        try:
            while taken < len(buffer) or tls.pending():
                count = tls.recv_into(buffer)
                if not count:
                    return frames or None
                taken += count
                frames += reader.feed(buffer[:count])
                if not reader.midway and not tls.pending():
                    break
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        return frames

    def half_close(self) -> None:
        """Tell the peer that nothing more will come; what it still sends can be read."""
        with suppress(OSError):
            socket.socket.shutdown(self.socket, socket.SHUT_WR)

    def discard(self, buffer: memoryview) -> bool:
        """Throw away what has arrived, unread and undecrypted; True once the stream is at its end."""
        try:
            return socket.socket.recv_into(self.socket, buffer) == 0
        except BlockingIOError:
            return False
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the socket."""
        self.phase = Phase.CLOSED
        self._outgoing.clear()
        self.backlog = 0
        with suppress(OSError):
            self.socket.close()


def reason_of(error: OSError) -> str:
    """What an operating system or TLS error means, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'connection cut').lower().replace('_', ' ')}"
    return error.strerror or type(error).__name__
