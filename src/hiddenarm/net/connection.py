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

import errno
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto

from hiddenarm.net._wire import Wire, receive
from hiddenarm.net.frames import AnyKind, Frame, FrameReader, LinkKind, encode
from hiddenarm.net.identity import Identity
from hiddenarm.net.meter import LinkMeter
from hiddenarm.net.timing import Heartbeat, Progress


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

    TLS works on memory, not on the socket: whatever its records, a frame leaves in one system call and arrives in one.
    `target` is the identity we dialled, None when the peer called us. `peer` is what the certificate says, None
    until the handshake is over.
    """

    def __init__(
        self, sock: socket.socket, address: str, caps: Mapping[AnyKind, int], target: Identity | None = None
    ) -> None:
        self.socket = sock
        self._number = sock.fileno()
        self.address = address
        self.target = target
        self.peer: Identity | None = None
        self.meter = LinkMeter()
        self.phase = Phase.HANDSHAKE if target is None else Phase.CONNECTING
        self.interest = 0  # the events the poller watches for us; kept by the transport
        self.fault = ""  # why writing failed, told when reading finds the end
        self.backlog = 0  # encrypted bytes that wait to be sent
        self.heartbeat = Heartbeat(0.0, 0.0)  # of a peer that is ready; kept by the transport
        self._reader = FrameReader(caps, first=(LinkKind.HELLO, LinkKind.PROBE, LinkKind.ABORT))
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._held = b""  # frames in the clear that can wait
        self._outgoing: deque[memoryview] = deque()
        self._tls: ssl.SSLObject | None = None
        self._wire: Wire | None = None

    def __str__(self) -> str:
        return str(self.peer or self.target or self.address)

    @property
    def tls(self) -> ssl.SSLObject:
        """The TLS state; there is none before the TCP connection stands."""
        if self._tls is None:
            raise ValueError("TLS has not begun")
        return self._tls

    @property
    def wire(self) -> Wire:
        """The socket with its TLS, likewise."""
        if self._wire is None:
            raise ValueError("TLS has not begun")
        return self._wire

    @property
    def progress(self) -> Progress:
        """What has come so far."""
        return self.meter.frames_received, self._reader.partial

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Begin TLS: as a client when we dialled, as a server when we were called."""
        self._tls = tls = context.wrap_bio(self._arrived, self._leaving, server_side=self.target is None)
        self._wire = Wire(self._number, self._arrived, self._leaving, getattr(tls, "_sslobj", tls))
        self.phase = Phase.HANDSHAKE

    def handshake(self, buffer: memoryview) -> bool:
        """Take the handshake as far as it goes; True when it is over. `buffer` is scratch space. Raises OSError."""
        count = receive(self._number, buffer, 0.0)
        if count > 0:
            self._arrived.write(buffer[:count])
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            if count == 0:
                raise ConnectionAbortedError(errno.ECONNABORTED, "the peer left during the handshake") from None
            return False
        finally:
            self._push()
        return True

    def send(self, frame: Frame) -> None:
        """Write a frame now as far as the kernel takes it, the rest when `flush` is called.

        A failure to write is not raised: the peer's last words may still wait to be read, and say why. Reading finds
        the end of the stream, and `fault` then tells what went wrong.
        """
        self.send_encoded(frame, encode(frame))

    def send_encoded(self, frame: Frame, data: bytes) -> None:
        """The same, of a frame whose bytes are at hand."""
        self.meter.count_sent(frame)
        if self._held:
            data, self._held = self._held + data, b""
        self._write(data)

    def hold(self, frame: Frame) -> None:
        """Keep a frame until the next one is sent, or `release` is called."""
        self.meter.count_sent(frame)
        self._held += encode(frame)

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return len(self._held)

    def release(self) -> None:
        """Write what is held."""
        data, self._held = self._held, b""
        if data:
            self._write(data)

    def _write(self, data: bytes) -> None:
        try:
            if self._outgoing:
                self.tls.write(data)
                self._keep(self._leaving.read())
            elif rest := self.wire.send(data):
                self._keep(rest)
        except OSError as error:
            self.break_off(reason_of(error))

    def _push(self) -> None:
        """Hand the socket what TLS has."""
        try:
            if self._outgoing:
                self._keep(self._leaving.read())
            elif rest := self.wire.push():
                self._keep(rest)
        except OSError as error:
            self.break_off(reason_of(error))

    def _keep(self, encrypted: bytes) -> None:
        """Keep what the socket does not take now."""
        if encrypted:
            self._outgoing.append(memoryview(encrypted))
            self.backlog += len(encrypted)

    def flush(self) -> None:
        """Write as much of the backlog as the kernel takes."""
        outgoing = self._outgoing
        try:
            while outgoing:
                data = outgoing[0]
                taken = self.socket.send(data)
                self.backlog -= taken
                if taken < len(data):
                    outgoing[0] = data[taken:]
                else:
                    outgoing.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            self.break_off(reason_of(error))

    def break_off(self, fault: str) -> None:
        """Give up writing; whoever reads next finds the end of the stream and `fault`."""
        self.fault = self.fault or fault
        self._outgoing.clear()
        self.backlog = 0
        self.half_close()

    def receive(self, buffer: memoryview, seconds: float = 0.0) -> list[Frame] | None:
        """The frames that have arrived; None at the end of the stream. `buffer` is scratch space.

        Looks once, or for so many seconds until something is there. Takes what one read of the socket gives and
        decrypts all of it: nothing is left of which the poller does not know, and a fast sender cannot keep the loop
        from its other peers. Raises FrameError or OSError.
        """
        return self._frames(buffer, self.wire.read(buffer, seconds))

    def answer(self, asked: bytes, buffer: memoryview, seconds: float) -> bytes | list[Frame] | None:
        """The payload of the next frame, if it comes within so many seconds, with the header of the frame `asked` but
        for its length, and nothing comes with it; otherwise what has come, as `receive` gives it."""
        wire = self.wire
        if self._reader.partial:
            return self.receive(buffer, seconds)
        answer = wire.answer(asked, buffer, seconds)
        if isinstance(answer, int):
            return self._frames(buffer, answer)
        if self._leaving.pending:
            self._push()
        return answer

    def _frames(self, buffer: memoryview, filled: int) -> list[Frame] | None:
        """The frames in what was decrypted into `buffer`; None if there is none, and never will be."""
        if self._leaving.pending:  # TLS itself may have to answer
            self._push()
        frames = self._reader.feed(buffer[:filled]) if filled else []
        return frames if frames or not self.wire.ended else None

    def half_close(self) -> None:
        """Tell the peer that nothing more will come; what it still sends can be read."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def cut(self, fault: str) -> None:
        """Give up reading too: the end of the stream is found at once."""
        self.break_off(fault)
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    def discard(self, buffer: memoryview) -> bool:
        """Throw away what has arrived, undecrypted; True once the stream is at its end."""
        try:
            return receive(self._number, buffer, 0.0) == 0
        except OSError:
            return True

    def close(self) -> None:
        """Let go of the socket."""
        self.phase = Phase.CLOSED
        self._outgoing.clear()
        self.backlog = 0
        self._number = -1  # the old one may soon be somebody else's
        if self._wire is not None:
            self._wire.close()
        with suppress(OSError):
            self.socket.close()


def reason_of(error: OSError) -> str:
    """What an operating system or TLS error means, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {(error.reason or 'connection cut').lower().replace('_', ' ')}"
    return error.strerror or type(error).__name__
