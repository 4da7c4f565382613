"""An actor that lasts: requests by name, asked again in the next epoch if theirs ended before they were answered.

A request that the application has named is answered once: its decisions are written down before they are given, and
given again whenever the request is repeated, with the refusals of single keys among them. The same name with other
content is refused. A request of which every key was refused has no answer to keep: made again, it is asked anew. A
request asked again in another epoch is another draw for the same key; only the last one is given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, InputError, UnavailableError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity
from hiddenarm.roles.actor import MAX_ASKED, Actor, KeyAnswer, RunName, check_request
from hiddenarm.roles.arms import arm_reports
from hiddenarm.roles.client_records import ActorRecords
from hiddenarm.roles.durable_client import MAX_REQUEST_BYTES, DurableClient
from hiddenarm.roles.messages import DEALER, program_and_step
from hiddenarm.roles.openings import Heard, Plan, decode_members
from hiddenarm.roles.runs import Send
from hiddenarm.roles.vitals import Vitals

Ticket = int
"""Names a request that waits, in this process."""


@dataclass(slots=True, repr=False)
class _Waiting:
    """A request that was not answered yet: its name, if the application gave one, and what is asked."""

    request: str | None
    digest: bytes
    keys: tuple[str, ...]
    after: int
    tickets: list[Ticket]
    answered: bool = False
    """Whether the answer is only being written down."""


class DurableActor(DurableClient):
    """Asks the parties; `outcomes` holds what came of it, by ticket: an answer for each key, or the error to raise for
    all."""

    def __init__(
        self,
        federation: Federation,
        send: Send,
        *,
        records: ActorRecords,
        max_batch: int = 256,
        name_of: Callable[[Identity], str] = str,
    ) -> None:
        super().__init__(federation, send, max_batch=max_batch, name_of=name_of)
        self.outcomes: dict[Ticket, list[KeyAnswer] | HiddenArmError] = {}
        self._records = records
        self._tickets = count()
        self._waiting: list[_Waiting] = []
        self._asked: dict[RunName, _Waiting] = {}
        self._actor: Actor | None = None
        self._epoch = 0
        self._reported = arm_reports(federation).kind

    def vitals(self) -> Vitals:
        """How it is doing."""
        stranded = self._actor is not None and self._actor.vitals().stranded
        return Vitals(waiting=len(self._waiting), stranded=stranded)

    def ask(self, *keys: str, after: int = 0, request: str | None = None) -> Ticket:
        """Ask for decisions, now or when an epoch is open."""
        check_request(keys, after, self._max_batch)
        ticket = next(self._tickets)
        digest = _digest(keys, after)
        if request is not None and (reply := self._known(check_name(request), digest, keys)) is not None:
            self.outcomes[ticket] = reply
            return ticket
        for waiting in self._waiting:
            if request is not None and waiting.request == request:
                waiting.tickets.append(ticket)
                return ticket
        if len(self._waiting) >= MAX_ASKED or (self._actor is not None and self._actor.full):
            raise UnavailableError(f"{MAX_ASKED} requests wait already; make this one again later")
        waiting = _Waiting(request, digest, keys, after, [ticket])
        self._waiting.append(waiting)
        if request is not None:
            self._records.ask(request, digest, lambda: None)
        if self._actor is not None:
            self._pass_on(self._actor, waiting)
        return ticket

    def expected(self, ticket: Ticket) -> bool:
        """Whether an answer is awaited, or there."""
        return ticket in self.outcomes or any(ticket in waiting.tickets for waiting in self._waiting)

    def give_up(self, ticket: Ticket) -> None:
        """Nobody waits for this answer any longer. What has a name is answered all the same, for when it is asked for
        again."""
        self.outcomes.pop(ticket, None)
        for waiting in self._waiting:
            if ticket in waiting.tickets:
                waiting.tickets.remove(ticket)
        self._waiting = [waiting for waiting in self._waiting if waiting.tickets or waiting.request]

    def _known(self, request: str, digest: bytes, keys: Sequence[str]) -> list[KeyAnswer] | None:
        """The reply that was given under this name."""
        asked = self._records.asked(request)
        waiting = [one.digest for one in self._waiting if one.request == request]
        for other in (asked, *waiting):
            if other is not None and other != digest:
                raise InputError(f"request {request!r} was made before, with other keys or another `after`")
        return self._records.reply(request, keys, self._party_name)

    def _missing_at(self, said: bytes) -> Sequence[Identity]:
        return decode_members(said)

    def _say(self, identity: Identity) -> bytes:
        heard = self._records.heard.get(identity.number) if identity in self.parties else None
        return b"" if heard is None else heard.encode()

    def _start(self, plan: Plan, seed: Frame) -> None:
        self._epoch = plan.named
        actor = Actor(
            self.federation, self._send, max_batch=self._max_batch, version=plan.length, name_of=self._party_name
        )
        for party in self.parties:
            actor.on_ready(party)
        actor.on_frame(DEALER, seed)
        self._actor = actor
        for waiting in self._waiting:
            if not waiting.answered:
                self._pass_on(actor, waiting)

    def _pass_on(self, actor: Actor, waiting: _Waiting) -> None:
        self._asked[actor.ask(*waiting.keys, after=waiting.after)] = waiting

    def _stop(self) -> None:
        self._actor = None
        self._asked = {}

    def _on_epoch_frame(self, identity: Identity, frame: Frame) -> None:
        if self._actor is None:
            return  # told before all parties are active: a new lesson, or the end of a run nobody asked for
        self._actor.on_frame(identity, frame)
        if frame.kind is self._reported:
            program, step = program_and_step(frame)
            self._records.heard[identity.number] = Heard(self._epoch, program.count, step)
        for name in list(self._actor.outcomes):
            self._settle(self._asked.pop(name), self._actor.outcomes.pop(name))

    def _settle(self, waiting: _Waiting, outcome: list[KeyAnswer] | HiddenArmError) -> None:
        """Give an answer; one that must be the same when the request is repeated lasts before."""
        waiting.answered = True

        def give() -> None:
            self._waiting = [other for other in self._waiting if other is not waiting]
            self.outcomes.update(dict.fromkeys(waiting.tickets, outcome))

        lasts = not isinstance(outcome, HiddenArmError) and any(isinstance(answer, Decision) for answer in outcome)
        if waiting.request is None or not lasts:
            give()
        else:
            assert isinstance(outcome, list)
            self._records.answer(waiting.request, waiting.digest, outcome, give)


def check_name(request: str) -> str:
    """Refuse what cannot name a request."""
    if not isinstance(request, str) or not request.isprintable() or not 0 < len(request.encode()) <= MAX_REQUEST_BYTES:
        raise InputError(f"the name of a request must be printable text of 1 to {MAX_REQUEST_BYTES} bytes")
    return request


def _digest(keys: Sequence[str], after: int) -> bytes:
    digest = hashlib.blake2b(after.to_bytes(8, "big"), digest_size=32, person=b"hiddenarm ask")
    for key in keys:
        encoded = key.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()
