"""The event loop of a role: one thread, all its peers, mutual TLS, and a hello before anything else.

How two roles meet:

    1. one dials, the other accepts; TLS 1.3, each shows a certificate of the federation's authority
    2. each reads the other's identity from the certificate: the dialler wants the one it dialled, the listener asks
       its handler
    3. each sends HELLO, its public configuration, and compares the other's with its own, field by field; a caller
       that is already connected is compared first and then refused, so the older connection stays
    4. both are ready; frames flow until BYE (a graceful end), ABORT (with a reason) or the end of the stream

A caller that only wants to know whether it would be welcome sends PROBE in place of HELLO. It is told and never ready.

While two roles are ready, PING goes out where nothing has come for a beat, and is answered by PONG. A party or a dealer
that says nothing for `silence_seconds` is lost: their loops always run. A client may live in an application that is
busy elsewhere; its silence is told to the log, once.

Who fails before step 4 is a stranger: it is refused with one warning in the log, and the loop goes on. When
we dialled, a peer that is not there yet is tried again until the deadline, and one that refuses us or is someone
else is raised out of the loop, since trying again would not help.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from threading import Lock
from typing import Final, Protocol

from hiddenarm.errors import ClientError, FrameError, HelloError, IdentityError, PeerError, PeerLost
from hiddenarm.net.answers import Answers
from hiddenarm.net.connection import Connection, Phase, reason_of
from hiddenarm.net.frames import AnyKind, Frame, LinkKind, encode, notice, notice_text
from hiddenarm.net.hello import Value, compare_hello, hello_payload, parse_hello
from hiddenarm.net.identity import Identity, Role, identity_of
from hiddenarm.net.logs import get_logger
from hiddenarm.net.meter import Meter
from hiddenarm.net.poller import READ, WRITE, Poller
from hiddenarm.net.sockets import Address, Dial, Dialler, Listeners, Served, tune
from hiddenarm.net.timing import Heartbeat, Throttle, Timers
from hiddenarm.net.tls import TlsFiles, client_context, server_context

IDLE_SECONDS: Final = 0.002
"""A loop in which nothing happens for this long has time to spare."""
HELD_BYTES: Final = 1024
TURNS_HELD: Final = 8
"""How much, and for how many turns of the loop, frames that can wait do so."""
BUFFER_BYTES: Final = 256 * 1024
_LINK_KINDS: Final = frozenset(LinkKind)
NO_GOODBYE: Final = "the connection ended without a goodbye"
WELCOME: Final = "welcome"
"""What a probe hears when nothing speaks against it."""
_ALWAYS_LISTENING: Final = frozenset((Role.PARTY, Role.DEALER))


class Handler(Protocol):
    """What a role does with its peers. An exception raised in here leaves the loop, which must then be closed; but a
    `ClientError` raised by `on_frame` ends the link of whoever sent the frame, and nothing else."""

    def expects(self, identity: Identity) -> bool:
        """Whether this identity may connect to us at all."""

    def on_ready(self, identity: Identity) -> None:
        """The peer is who it says, has our configuration, and can be sent frames."""

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        """A frame arrived."""

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """A peer that was ready is gone; `graceful` when it said goodbye."""

    def on_idle(self) -> None:
        """Nothing has happened for a while: time for what can wait."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much a transport puts up with."""

    handshake_seconds: float = 10.0  # for TLS and the hello together
    strangers: int = 64  # connections that are not ready; one more and the oldest has to go
    backlog_bytes: int = 32 * 1024 * 1024  # a peer with more than this unsent gets no further frame
    accepts_per_second: float = 200.0  # callers beyond these wait in the kernel's queue: peers who are ready go first
    linger_seconds: float = 1.0  # for last words
    silence_seconds: int = 15  # until a peer that is stopped, or whose machine or cable is gone, counts as lost
    beat_seconds: float = 1.0  # how often links are looked at
    frame_seconds: float = 60.0  # for one frame to come whole


class Transport:
    """Connects one role with its peers; see the module's docstring. Not thread-safe, but for `stop`, `wake` and `call`.

    With a `lock`, several threads may use it, each while it holds the lock; one at a time may run the loop, which lets
    go of the lock while it sleeps.

    `spin_seconds` is how long to poll before sleeping, after something came and in `exchange`: to be woken up costs
    more than a short wait. Meanwhile the core is left to others who want it. 0 turns it off. Without
    `uses_idle_time` the handler is never told that nothing happens, and the loop not woken up for it.
    """

    def __init__(
        self,
        me: Identity,
        tls: TlsFiles,
        hello: Mapping[str, Value],
        caps: Mapping[AnyKind, int],
        handler: Handler,
        clock: Callable[[], float] = time.monotonic,
        spin_seconds: float = 0.0,
        limits: Limits | None = None,
        uses_idle_time: bool = True,
        lock: Lock | None = None,
    ) -> None:
        self.me = me
        self.meter = Meter()
        self._hello = dict(hello)
        self._hello_frame = Frame(LinkKind.HELLO, payload=hello_payload(hello))
        self._caps: dict[IntEnum, int] = {}
        self._caps.update(caps.items())
        self._handler = handler
        self._clock = clock
        self._spin = spin_seconds
        self._uses_idle_time = uses_idle_time
        self._lock = lock
        self._limits = limits or Limits()
        self._server_context = server_context(tls)
        self._client_context = client_context(tls)
        self._log = get_logger("hiddenarm.net")
        self._poller: Poller[Served] = Poller()
        self._timers = Timers()
        throttle = Throttle(self._limits.accepts_per_second, self._limits.strangers, clock())
        self._listeners = Listeners(self._poller, self._timers, clock, throttle, self._log, self._accept)
        self._dialler = Dialler(self._timers, clock, self._connect)
        self._peers: dict[Identity, Connection] = {}  # in phase HELLO or READY
        self._calls: deque[Callable[[], None]] = deque()
        self._holding: dict[Connection, None] = {}  # those with frames that can wait
        self._turns_held = 0
        self._connections: dict[Connection, None] = {}  # all that are open, oldest first
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._answers = Answers(self._buffer, spin_seconds)
        self._stopping = False
        self._closed = False
        self._waker, self._wakes = socket.socketpair()
        self._waker.setblocking(False)
        self._wakes.setblocking(False)
        self._poller.register(self._wakes, READ, self._drain_wakes)
        self._beat_due = clock() + self._limits.beat_seconds
        self._timers.at(self._beat_due, self._beat)

    # ---------------------------------------------------------------- what a role calls

    @property
    def ready(self) -> frozenset[Identity]:
        """The peers that can be sent frames."""
        return frozenset(peer for peer, link in self._peers.items() if link.phase is Phase.READY)

    @property
    def silences(self) -> dict[Identity, float]:
        """The peers that can be sent frames, and for how many seconds each of them has said nothing, to a beat."""
        now = self._clock()
        return {peer: link.heartbeat.silence(now) for peer, link in self._peers.items() if link.phase is Phase.READY}

    def renew(self, tls: TlsFiles) -> None:
        """Show another certificate from now on. Connections that stand go on under the old one."""
        self._server_context, self._client_context = server_context(tls), client_context(tls)

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Have the loop call back later."""
        self._timers.at(self._clock() + seconds, callback)

    def listen(self, host: str, port: int) -> int:
        """Accept peers at this address; return the port, which the system chooses when it is 0."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return self.listen_on(socket.create_server((host, port), family=family, backlog=128))

    def listen_on(self, listener: socket.socket) -> int:
        """Accept peers on a listening socket that was handed to us; return its port."""
        return self._listeners.add(listener)

    def dial(
        self, identity: Identity, host: str, port: int, deadline_seconds: float = 30.0, *, lasting: bool = False
    ) -> None:
        """Connect to `identity`, unless that is done or under way.

        The loop raises PeerLost when it has not come about by the deadline, and IdentityError or HelloError as soon as
        it is clear that it never will. A peer that is lost later is not dialled again by itself; but with `lasting` it
        is, and there is no deadline.
        """
        if identity not in self._peers and identity not in self._dialler:
            self._dialler.dial(identity, host, port, deadline_seconds, lasting=lasting)

    def send(self, identity: Identity, frame: Frame) -> None:
        """Send a frame to a peer that is ready. What goes wrong on the way is told by `on_lost`, from the loop."""
        connection = self._ready_link(identity)
        connection.send(frame)
        if connection.backlog:
            self._watch_backlog(connection)

    def _ready_link(self, identity: Identity) -> Connection:
        """The connection to a peer that is ready; cut off if it does not read."""
        connection = self._peers.get(identity)
        if connection is None or connection.phase is not Phase.READY:
            raise PeerLost(f"{identity} is not connected")
        if connection.backlog > self._limits.backlog_bytes:
            connection.cut("the peer does not read what it is sent")
        return connection

    def send_later(self, identity: Identity, frame: Frame) -> None:
        """Send a frame that can wait: together with the next one to this peer, or when there is nothing to read."""
        connection = self._ready_link(identity)
        connection.hold(frame)
        self._holding[connection] = None
        if connection.held > HELD_BYTES:
            self._release()

    def exchange(self, peers: Sequence[Identity], frame: Frame) -> list[bytes] | None:
        """Send a frame to some peers, and stay on the line for a moment for the same frame from each of them.

        Returns their payloads if all have come, else None: what comes later, or is something else, is told by
        `on_frame`, from the loop.
        """
        data = encode(frame)
        links = []
        for peer in peers:
            link = self._ready_link(peer)
            link.send_encoded(frame, data)
            if link.backlog:
                self._watch_backlog(link)
            links.append(link)
        return self._answers.await_all(links, frame, data)

    def drop(self, identity: Identity, reason: str) -> None:
        """Break with a peer: ABORT with a reason, then close. `on_lost` is not called."""
        connection = self._peers.get(identity)
        if connection is not None:
            self._part(connection, notice(LinkKind.ABORT, reason))

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Serve until `stop`, or until `until` holds, which is looked at between two events."""
        while not self._stopping and not self._closed and not until():
            self.run_once(None)
        self._stopping = False

    def run_until(self, predicate: Callable[[], bool], timeout: float) -> bool:
        """Serve until `predicate` holds, `stop` or `timeout` seconds have passed; return whether it holds."""
        deadline = self._clock() + timeout
        while not predicate():
            left = deadline - self._clock()
            if left <= 0 or self._stopping or self._closed:
                return predicate()
            self.run_once(left)
        return True

    def run_once(self, timeout: float | None = 0.0) -> None:
        """One turn of the loop: wait for something to happen, at most `timeout` seconds, and see to it."""
        answers = self._answers
        if answers.frames or answers.troubles:
            self._catch_up()
            timeout = 0.0
        for served, events in self._poll(timeout):
            if isinstance(served, Connection):
                if answers.frames or answers.troubles:  # what was served before has read ahead of this connection
                    self._catch_up()
                if events == READ and served.phase is Phase.READY:
                    self._read(served)
                else:
                    self._serve(served, events)
            else:
                served()
        self._timers.run(self._clock())

    def stop(self) -> None:
        """Make `run` return. May be called from a handler, another thread or a signal handler."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """End a wait for events. May be called from a handler, another thread or a signal handler."""
        with suppress(OSError):
            self._waker.send(b"\0")

    def call(self, callback: Callable[[], None]) -> None:
        """Have the loop call back at once. May be called from another thread."""
        self._calls.append(callback)
        self.wake()

    def close(self, reason: str = "") -> None:
        """Say BYE to every peer, wait at most a second for it to leave, close everything."""
        self._end(LinkKind.BYE, reason)

    def abort(self, reason: str) -> None:
        """Say ABORT to every peer, wait at most a second for it to leave, close everything."""
        self._end(LinkKind.ABORT, reason)

    # ---------------------------------------------------------------- waiting

    def _poll(self, timeout: float | None) -> list[tuple[Served, int]]:
        """What is ready. First poll for a moment; when nothing has come for a while, tell the handler, once."""
        if self._spin:
            os.sched_yield()  # what was sent may have woken somebody who waits for this very core
        poll, longest = self._poller.poll, self._timers.wait(self._clock(), timeout)
        if self._holding:
            ready = poll(0)
            self._turns_held += 1
            if not ready or self._turns_held > TURNS_HELD:
                self._release()
            if ready:
                return ready
        if longest == 0:
            return poll(0)
        if self._spin and (ready := self._spin_for_events()):
            return ready
        if self._lock is not None:
            return self._poller.poll_unlocked(longest, self._lock)
        if not self._uses_idle_time:
            return poll(longest)
        ready = poll(IDLE_SECONDS if longest is None else min(longest, IDLE_SECONDS))
        if ready or (longest is not None and longest <= IDLE_SECONDS):
            return ready
        if not self._closed:
            self._handler.on_idle()
        return poll(self._timers.wait(self._clock(), timeout))

    def _spin_for_events(self) -> list[tuple[Served, int]]:
        end = time.monotonic() + self._spin
        while time.monotonic() < end:
            if ready := self._poller.poll(0):
                return ready
            os.sched_yield()
        return []

    def _release(self) -> None:
        """Send what is held back."""
        for connection in self._holding:
            if connection.phase is Phase.READY:
                connection.release()
                if connection.backlog:
                    self._watch_backlog(connection)
        self._holding.clear()
        self._turns_held = 0

    def _catch_up(self) -> None:
        """See to what `exchange` found and was not waiting for."""
        answers = self._answers
        while answers.frames:
            self._deliver(*answers.frames.popleft())
        while answers.troubles:
            connection, error = answers.troubles.popleft()
            if connection.phase is Phase.READY:
                self._fail(connection, error or PeerLost(connection.fault or NO_GOODBYE))

    def _drain_wakes(self) -> None:
        with suppress(OSError):
            self._wakes.recv(1024)
        while self._calls:
            self._calls.popleft()()

    def _watch(self, connection: Connection, events: int) -> None:
        """Have the poller watch for `events`, if it does not yet."""
        if connection.interest == events:
            return
        if connection.interest:
            self._poller.modify(connection.socket, events)
        else:
            self._poller.register(connection.socket, events, connection)
        connection.interest = events

    def _watch_backlog(self, connection: Connection) -> None:
        """Learn when the kernel takes more, as long as there is more."""
        self._watch(connection, READ | WRITE if connection.backlog else READ)

    # ---------------------------------------------------------------- making connections

    def _accept(self, sock: socket.socket, address: str) -> None:
        """Somebody calls."""
        connection = self._adopt(sock, address, None)
        self._evict_strangers()
        self._start_tls(connection, self._server_context)

    def _evict_strangers(self) -> None:
        """Make room by dropping who has been a stranger longest: an honest peer is one for milliseconds only."""
        strangers = [link for link in self._connections if link.target is None and link.phase is not Phase.READY]
        for connection in strangers[: -self._limits.strangers]:
            self._refuse(connection, PeerLost("too many connections that are not ready"))
            self._forget(connection)

    def _connect(self, sock: socket.socket, address: Address, dial: Dial) -> None:
        """Begin one connection to the peer we want."""
        connection = self._adopt(sock, f"{dial.host}:{dial.port}", dial.identity)
        code = sock.connect_ex(address)
        if code in (0, errno.EINPROGRESS):
            self._watch(connection, WRITE)
        else:
            self._retry(connection, OSError(code, errno.errorcode.get(code, "connect failed")))

    def _adopt(self, sock: socket.socket, address: str, target: Identity | None) -> Connection:
        sock.setblocking(False)
        tune(sock, self._limits.silence_seconds)
        connection = Connection(sock, address, self._caps, target)
        self._connections[connection] = None
        self._later(self._limits.handshake_seconds, self._overdue, connection)
        return connection

    def _later(self, seconds: float, action: Callable[[Connection], None], connection: Connection) -> None:
        """Do something to a connection if it is still there: the timer does not keep it in memory."""
        reference = weakref.ref(connection)

        def act() -> None:
            if (alive := reference()) is not None:
                action(alive)

        self._timers.at(self._clock() + seconds, act)

    def _overdue(self, connection: Connection) -> None:
        if connection.phase in (Phase.CONNECTING, Phase.HANDSHAKE, Phase.HELLO):
            self._fail(connection, TimeoutError(errno.ETIMEDOUT, "handshake and hello took too long"))

    def _start_tls(self, connection: Connection, context: ssl.SSLContext) -> None:
        connection.start_tls(context)
        self._handshake(connection)

    def _handshake(self, connection: Connection) -> None:
        try:
            done = connection.handshake(self._buffer)
        except OSError as error:
            self._fail(connection, error)
            return
        self._watch_backlog(connection)
        if done:
            self._identify(connection)

    def _identify(self, connection: Connection) -> None:
        """TLS stands: find out who this is, and send our hello to whom we want to know."""
        try:
            peer = connection.peer = identity_of(connection.tls)
            if connection.target is not None and peer != connection.target:
                raise IdentityError(f"{connection.address} is {peer}, not {connection.target}")
            if connection.target is None and not self._handler.expects(peer):
                raise IdentityError(f"{peer} may not connect to {self.me}")
        except IdentityError as error:
            self._fail(connection, error)
            return
        connection.phase = Phase.HELLO
        if peer not in self._peers:
            self._peers[peer] = connection
            connection.meter = self.meter.link(peer)
            connection.send(self._hello_frame)
        elif connection.target is not None:
            self._fail(connection, _connected_before(peer))
            return
        self._watch_backlog(connection)
        self._read(connection)  # its hello may have come along with the end of its handshake

    # ---------------------------------------------------------------- serving connections

    def _serve(self, connection: Connection, events: int) -> None:
        phase = connection.phase
        if phase is Phase.READY or phase is Phase.HELLO:
            if events != READ:
                self._flush(connection)
            self._read(connection)
        elif phase is Phase.HANDSHAKE:
            if events != READ:
                self._flush(connection)
            self._handshake(connection)
        elif phase is Phase.CONNECTING:
            self._connected(connection)
        elif phase is Phase.LINGERING:
            self._linger(connection)

    def _flush(self, connection: Connection) -> None:
        connection.flush()
        self._watch_backlog(connection)

    def _connected(self, connection: Connection) -> None:
        code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._retry(connection, OSError(code, errno.errorcode.get(code, "connect failed")))
        else:
            self._start_tls(connection, self._client_context)

    def _read(self, connection: Connection) -> None:
        try:
            frames = connection.receive(self._buffer)
        except (FrameError, OSError) as error:
            self._fail(connection, error)
            return
        if frames is None:
            self._fail(connection, PeerLost(connection.fault or NO_GOODBYE))
            return
        for frame in frames:
            self._deliver(connection, frame)

    def _deliver(self, connection: Connection, frame: Frame) -> None:
        if connection.phase is Phase.READY:
            connection.meter.count_received(frame)
            if frame.kind in _LINK_KINDS:
                self._take(connection, frame)
            else:
                try:
                    self._handler.on_frame(connection.peer, frame)  # type: ignore[arg-type]  # it has one if it is ready
                except ClientError as error:
                    self._fail(connection, error)
                except FrameError as error:
                    raise _blamed(connection, error) from error
        elif connection.phase is Phase.HELLO:
            self._greet(connection, frame)

    def _take(self, connection: Connection, frame: Frame) -> None:
        """A frame about the link itself, of a peer that is ready."""
        peer, kind = connection.peer, frame.kind
        assert peer is not None
        if kind is LinkKind.PING:
            self.send(peer, Frame(LinkKind.PONG))
        elif kind is LinkKind.HELLO or kind is LinkKind.PROBE:
            self._fail(connection, FrameError("a second hello"))
        elif kind is not LinkKind.PONG:
            self._part(connection, None)
            self._lose(peer, notice_text(frame), graceful=kind is LinkKind.BYE)

    def _greet(self, connection: Connection, frame: Frame) -> None:
        """The first frame of a peer: its hello, or why it does not want us."""
        connection.meter.count_received(frame)
        if frame.kind is LinkKind.ABORT:
            words = f"{connection} refused us: {notice_text(frame)}"
            self._fail(connection, PeerLost(words) if frame.round else HelloError(words), silently=True)
            return
        peer = connection.peer
        assert peer is not None
        is_second = self._peers.get(peer) is not connection
        if is_second and frame.kind is LinkKind.PROBE:
            connection.send(self._hello_frame)  # a dialler must not get one: it would take itself to be ready
        try:
            theirs = parse_hello(frame.payload)
            compare_hello(self._hello, theirs, str(self.me), str(connection))
        except HelloError as error:
            self._fail(connection, error)
            return
        if frame.kind is LinkKind.PROBE:
            self._log.info("probed", peer=str(connection), address=connection.address)
            self._part(connection, notice(LinkKind.BYE, str(_connected_before(peer)) if is_second else WELCOME))
            return
        if is_second:
            self._fail(connection, _connected_before(peer))
            return
        connection.phase = Phase.READY
        connection.heartbeat = Heartbeat(self._clock(), self._clock(), connection.progress)
        self._dialler.end(peer)
        self._log.info("peer ready", peer=str(peer), address=connection.address)
        self._handler.on_ready(peer)

    # ---------------------------------------------------------------- watching over connections

    def _beat(self) -> None:
        """Look at every link: greet who is quiet, part with who is silent or does not get a frame to its end."""
        if self._closed:
            return
        now, late = self._clock(), self._clock() - self._beat_due
        self._beat_due = now + self._limits.beat_seconds
        self._timers.at(self._beat_due, self._beat)
        for connection in [link for link in self._peers.values() if link.phase is Phase.READY]:
            if late > self._limits.beat_seconds:
                connection.heartbeat.forgive(now)
            self._check_heartbeat(connection, now)

    def _check_heartbeat(self, connection: Connection, now: float) -> None:
        heartbeat, limits = connection.heartbeat, self._limits
        if heartbeat.look(connection.progress, now):
            self._note_voice(connection)
        elif not connection.backlog:
            connection.send(Frame(LinkKind.PING))
            self._watch_backlog(connection)
        silence = heartbeat.silence(now)
        if heartbeat.slowness(now) > limits.frame_seconds:
            self._fail(connection, PeerLost(f"a frame did not come whole in {limits.frame_seconds:g} seconds"))
        elif silence >= limits.silence_seconds - 2 * limits.beat_seconds:  # looks are up to a beat late, twice
            self._note_silence(connection, silence)

    def _note_voice(self, connection: Connection) -> None:
        if connection.heartbeat.warned:
            connection.heartbeat.warned = False
            self._log.info("peer answers again", peer=str(connection))

    def _note_silence(self, connection: Connection, silence: float) -> None:
        assert connection.peer is not None
        if connection.peer.role in _ALWAYS_LISTENING:
            self._fail(connection, PeerLost(f"it has said nothing for {silence:.0f} seconds"))
        elif not connection.heartbeat.warned:
            connection.heartbeat.warned = True
            self._log.warning("peer silent", peer=str(connection), seconds=round(silence))

    # ---------------------------------------------------------------- ending connections

    def _fail(self, connection: Connection, error: PeerError | OSError, silently: bool = False) -> None:
        """A connection cannot go on: tell the peer why if it can hear us, and whoever on our side must know.

        A peer that was ready is lost to the handler. A caller is refused with a warning. When we dialled, what may pass
        is tried again and what will not is raised.
        """
        last_words = None
        if connection.phase in (Phase.HANDSHAKE, Phase.HELLO, Phase.READY) and isinstance(error, PeerError):
            again = isinstance(error, PeerLost)
            last_words = None if silently or connection.fault else notice(LinkKind.ABORT, str(error), retry=again)
        if connection.phase is Phase.READY:
            peer = connection.peer
            assert peer is not None
            self._part(connection, last_words)
            self._lose(peer, _reason(error), graceful=False)
        elif connection.target is None:
            self._refuse(connection, error, last_words)
        elif _may_pass(error):
            self._retry(connection, error)
        else:
            self._part(connection, last_words)
            self._dialler.end(connection.target)
            raise error if isinstance(error, PeerError) else IdentityError(f"{connection.target}: {_reason(error)}")

    def _lose(self, peer: Identity, reason: str, graceful: bool) -> None:
        if graceful:
            self._log.info("peer left", peer=str(peer), reason=reason)
        else:
            self._log.warning("peer lost", peer=str(peer), reason=reason)
        self._handler.on_lost(peer, reason, graceful)
        if peer in self._dialler.lasting and not self._closed:
            self.dial(peer, *self._dialler.lasting[peer], lasting=True)

    def _refuse(self, connection: Connection, error: PeerError | OSError, last_words: Frame | None = None) -> None:
        """Turn a caller away, with the one line in the log that says why; lingering callers have had theirs."""
        if connection.phase is not Phase.LINGERING:
            claimed = str(connection.peer) if connection.peer else "unknown"
            self._log.warning("refused", address=connection.address, peer=claimed, reason=_reason(error))
        self._part(connection, last_words)

    def _retry(self, connection: Connection, error: PeerError | OSError) -> None:
        self._part(connection, None)
        if connection.target is not None:
            self._dialler.try_again(connection.target, _reason(error))

    def _part(self, connection: Connection, last_words: Frame | None) -> None:
        """Stop listening to a connection; close it when our last words have left."""
        if connection.phase is Phase.CLOSED:
            return
        if connection.peer is not None and self._peers.get(connection.peer) is connection:
            del self._peers[connection.peer]
        begun = connection.phase is not Phase.CONNECTING
        connection.phase = Phase.LINGERING
        if last_words is not None:
            connection.send(last_words)
        if not begun:
            self._forget(connection)
            return
        self._later(self._limits.linger_seconds, self._forget, connection)
        self._linger(connection)

    def _linger(self, connection: Connection) -> None:
        """Send the rest, then wait for the peer to close: closing with unread data would cut off our last words."""
        if connection.backlog:
            connection.flush()
        if not connection.backlog:
            connection.half_close()
        if connection.discard(self._buffer):
            self._forget(connection)
        else:
            self._watch(connection, READ | WRITE if connection.backlog else READ)

    def _unwatch(self, connection: Connection) -> None:
        if connection.interest:
            self._poller.unregister(connection.socket)
            connection.interest = 0

    def _forget(self, connection: Connection) -> None:
        if connection.phase is not Phase.CLOSED:
            self._unwatch(connection)
            connection.close()
            self._connections.pop(connection, None)

    def _end(self, kind: LinkKind, reason: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._dialler.close()
        self._listeners.close()
        for connection in list(self._connections):
            ready = connection.phase is Phase.READY
            self._part(connection, notice(kind, reason) if ready else None)
        deadline = self._clock() + self._limits.linger_seconds
        while self._connections and self._clock() < deadline:
            self.run_once(deadline - self._clock())
        for connection in list(self._connections):
            self._forget(connection)
        self._poller.close()
        self._waker.close()
        self._wakes.close()


def _blamed(connection: Connection, error: FrameError) -> FrameError:
    """The same complaint, with the name of whoever sent the frame."""
    return error if str(connection) in str(error) else FrameError(f"{connection} sent a frame that is refused: {error}")


def _connected_before(peer: Identity) -> PeerLost:
    """Why a second connection of a peer is refused. It may try again: the first one may be about to end."""
    return PeerLost(f"{peer} is already connected")


def _may_pass(error: PeerError | OSError) -> bool:
    """Whether dialling again may help: not when TLS, the identity or the hello was refused."""
    if isinstance(error, PeerError):
        return isinstance(error, PeerLost)
    return not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError)


def _reason(error: PeerError | OSError) -> str:
    return str(error) if isinstance(error, PeerError) else reason_of(error)
