"""A party that lasts: it opens epochs with the others, and runs a `Party` for as long as each of them lives.

    attempt n is complete -> prepare the plan, say PREPARED -> all have prepared: activate it -> restore, go on
    the attempt is over at any point -> the party of the epoch is dropped, with all that it had under way

Nothing of an epoch survives it but what the records hold. Frames of peers that are active before us wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hiddenarm.bandit.catalogue import LEARN_ONE
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ClientError, FrameError, PeerError, StaleStateError
from hiddenarm.net.frames import Frame, Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.roles.attempts import Attempts
from hiddenarm.roles.durable_ledger import DurableLedger
from hiddenarm.roles.features import EncodedFeatures, FeatureSource
from hiddenarm.roles.messages import (
    ACTOR,
    CLIENTS,
    DEALER,
    REWARDER,
    learned_frame,
    misuse,
    read_seed,
    refused_frame,
)
from hiddenarm.roles.openings import (
    Behind,
    Committed,
    Heard,
    PartyStatement,
    Plan,
    RewarderStatement,
    Standing,
    encode_members,
    find_behind,
    make_plan,
)
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.runs import Exchange, Send, send_to_all
from hiddenarm.roles.supply import Shelf
from hiddenarm.roles.updater import Lesson
from hiddenarm.roles.vitals import RunTimes, Vitals

MAX_EARLY = 4096
"""Frames that may wait until this party is active too."""
CHECKPOINT_EVERY = 256
ADVICE = (
    "this is an old backup or a clone, and is not used. Bring back the newest state, or have all parties agree to go "
    "back to what they have in common: stop them, run `hiddenarm recover KIT` for each, start them"
)
_OPENING = frozenset((Kind.OPEN, Kind.PREPARED, Kind.COMMITTED))


@dataclass(slots=True, repr=False)
class _Opening:
    """How far this attempt has come."""

    statement: PartyStatement
    plan: Plan | None = None
    prepared: dict[int, Plan] = field(default_factory=dict)
    rewarder_prepared: bool = False
    early: list[tuple[Identity, Frame]] = field(default_factory=list)
    complained: bool = False


class DurableParty:
    """Party `number`, over all epochs. See `Party` for the arguments it shares."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        features: FeatureSource | EncodedFeatures,
        send: Send,
        exchange: Exchange | None = None,
        send_later: Send | None = None,
        *,
        records: PartyRecords,
        stock: int = 256,
        expand_ahead: int = 16,
        max_batch: int = 256,
        checkpoint_every: int = CHECKPOINT_EVERY,
        shelf: Shelf | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.federation = federation
        self.number = number
        self.finished = False
        self.records = records
        self._features = features
        self._send = send
        self._exchange = exchange
        self._send_later = send_later or send
        self._clock = clock
        self._stock, self._expand_ahead, self._max_batch = stock, expand_ahead, max_batch
        self._checkpoint_every = checkpoint_every
        self._shelf = shelf or Shelf(federation, number)
        self._log = get_logger("hiddenarm.party")
        self._peers = [Identity(Role.PARTY, p) for p in range(federation.parties) if p != number]
        self._attempts = Attempts((*self._peers, DEALER, ACTOR, REWARDER), send, self._begin, self._say)
        self._opening = _Opening(records.statement())
        self._party: Party | None = None
        self._told = Committed(0, 0)
        self._run_times: dict[str, RunTimes] = {}
        self._stocked: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether an epoch is open here."""
        return self._party is not None

    @property
    def missing(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done."""
        return self._party is not None and self._party.busy

    def vitals(self) -> Vitals:
        """How it is doing. Between epochs, what lasts and what was counted so far; there is no stock then."""
        if self._party is not None:
            return self._party.vitals()
        records = self.records
        return Vitals(
            pending=records.pending,
            version=records.committed.lessons,
            stock=dict.fromkeys(self._stocked, 0),
            runs=self._run_times,
        )

    # What the switchboard tells us

    def expects(self, identity: Identity) -> bool:
        return identity in (DEALER, ACTOR, REWARDER) or identity in self._peers

    def on_ready(self, identity: Identity) -> None:
        self._attempts.on_ready(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """The epoch ends with any of its roles; but without the dealer it goes on from stock."""
        if identity == DEALER and self._party is not None:
            self._attempts.do_without(DEALER)
            self._party.on_dealer_away()
        else:
            self._attempts.on_lost(identity)

    def on_idle(self) -> None:
        if self._party is not None:
            self._party.on_idle()
            self._tell_committed()

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        kind = frame.kind
        if self._party is not None and kind not in _OPENING:
            self._party.on_frame(identity, frame)
        elif kind is Kind.OPEN:
            _check_statement(identity, frame)
            self._attempts.on_open(identity, frame)
            self._go_on()
        elif self._attempts.is_current(identity):
            self._on_current(identity, frame)

    def _on_current(self, identity: Identity, frame: Frame) -> None:
        """A frame that is meant for this attempt."""
        if frame.kind is Kind.PREPARED and identity.role is Role.PARTY:
            self._on_prepared(identity, Plan.decode(frame.payload))
        elif frame.kind is Kind.PREPARED and identity == REWARDER:
            self._on_rewarder_prepared()
        elif frame.kind is Kind.COMMITTED and identity.role is Role.PARTY:
            if self._party is not None:
                self.records.note(identity.number, Committed.decode(frame.payload))
        elif frame.kind in _OPENING:
            raise misuse(identity, f"{identity} may not send {frame.kind.name}")
        elif identity in CLIENTS:
            raise ClientError(f"{identity} sent {frame.kind.name} before this party was active")
        else:
            if len(self._opening.early) >= MAX_EARLY:
                raise FrameError(f"{identity} sent more than {MAX_EARLY} frames before this party was active")
            self._opening.early.append((identity, frame))

    # Opening an epoch

    def _begin(self) -> None:
        """Another attempt: whatever was under way is over."""
        if self._party is not None:
            self._stocked.update(self._party.vitals().stock)
            self._log.info("epoch ended", epoch=self.records.activated, missing=[str(peer) for peer in self.missing])
        self._party = None
        self._opening = _Opening(self.records.statement())

    def _say(self, identity: Identity) -> bytes:
        match identity.role:
            case Role.PARTY:
                return self._opening.statement.encode()
            case Role.REWARDER:
                statement = self._opening.statement
                missing = tuple(self.missing)
                return Standing(*statement.committed, self.records.epoch, statement.consents, missing).encode()
            case Role.ACTOR:
                return encode_members(self.missing)
            case _:
                return b""

    def _go_on(self) -> None:
        """Prepare the plan, once everybody has said what it has."""
        opening = self._opening
        if not self._attempts.complete or opening.plan is not None or opening.complained:
            return
        statements = self._statements()
        rewarder = RewarderStatement.decode(self._attempts.said[REWARDER])
        behind = find_behind(statements, rewarder)
        if not all(statement.consents for statement in statements):
            behind += self._lost_decisions()
        if behind:
            opening.complained = True
            self._complain(behind)
            return
        opening.plan = make_plan(bytes.fromhex(self._seed()[0]), statements)
        attempt = self._attempts.number
        self.records.prepare(opening.plan, lambda: self._when(attempt, self._when_prepared))

    def _statements(self) -> list[PartyStatement]:
        """What all parties have, by number."""
        said = {peer.number: PartyStatement.decode(self._attempts.said[peer]) for peer in self._peers}
        said[self.number] = self._opening.statement
        statements = [said[number] for number in range(self.federation.parties)]
        if any(len(statement.noted) != len(statements) for statement in statements):
            raise FrameError("a party's statement is about another number of parties")
        return statements

    def _lost_decisions(self) -> list[Behind]:
        """This party, if the actor has heard from it of a decision that it does not hold."""
        payload = self._attempts.said[ACTOR]
        if not payload or not self.records.lacks(heard := Heard.decode(payload)):
            return []
        return [Behind(f"party {self.number}", f"it told the actor of decision {heard.step}, and does not hold it")]

    def _complain(self, behind: list[Behind]) -> None:
        """Somebody has lost state. If it is us, end; otherwise wait for it to come back with what it had."""
        for role, why in behind:
            if role == f"party {self.number}":
                raise StaleStateError(f"{role} has lost state: {why}. {ADVICE}")
            self._log.error("stale state refused", peer=role, reason=why)

    def _when(self, attempt: int, act: Callable[[], None]) -> None:
        """Go on after a commit, unless the attempt that asked for it is over."""
        if attempt == self._attempts.number:
            act()

    def _when_prepared(self) -> None:
        plan = self._opening.plan
        assert plan is not None
        send_to_all(self._send, self._peers, Frame(Kind.PREPARED, payload=plan.encode()))
        self._opening.prepared[self.number] = plan
        self._activate_if_all_prepared()

    def _on_prepared(self, identity: Identity, plan: Plan) -> None:
        if identity.number in self._opening.prepared:
            raise FrameError(f"{identity} prepared twice")
        self._opening.prepared[identity.number] = plan
        self._activate_if_all_prepared()

    def _on_rewarder_prepared(self) -> None:
        """An attempt is activated once: again, and this party would use the words of its seed a second time."""
        if self._opening.rewarder_prepared:
            raise FrameError(f"{REWARDER} prepared twice")
        self._opening.rewarder_prepared = True
        self._activate_if_all_prepared()

    def _activate_if_all_prepared(self) -> None:
        plans = self._opening.prepared
        if len(plans) < self.federation.parties or not self._opening.rewarder_prepared:
            return
        plan, attempt = plans[self.number], self._attempts.number
        if any(other != plan for other in plans.values()):
            raise PeerError("the parties do not agree on the epoch to open: they are not in step")
        self.records.activate(plan, lambda: self._when(attempt, self._when_active))

    def _when_active(self) -> None:
        """All parties have prepared, and this is written down: begin."""
        plan, early = self._opening.plan, self._opening.early
        assert plan is not None
        self._party = party = self._restored(plan)
        self._told = self.records.committed
        self._log.info(
            "epoch opened", epoch=plan.epoch, lessons=plan.length, again=plan.length - plan.checkpoint.version
        )
        self._tell_clients(plan)
        for peer in self._attempts.present:
            party.on_ready(peer)
        party.on_frame(DEALER, Frame(Kind.SEED, payload=self._attempts.said[DEALER]))
        for identity, frame in early:
            self.on_frame(identity, frame)

    def _restored(self, plan: Plan) -> Party:
        """The party of this epoch, from where all parties start."""
        records, attempt = self.records, self._attempts.number

        def in_this_epoch(send: Send) -> Send:
            def guarded(identity: Identity, frame: Frame) -> None:
                if attempt == self._attempts.number and identity in self._attempts.present:
                    send(identity, frame)

            return guarded

        party = Party(
            self.federation,
            self.number,
            self._features,
            in_this_epoch(self._send),
            self._exchange,
            in_this_epoch(self._send_later),
            stock=self._stock,
            expand_ahead=self._expand_ahead,
            max_batch=self._max_batch,
            ledger=DurableLedger(records, plan.epoch, plan.named, self._checkpoint_every),
            epoch=plan.named,
            shelf=self._shelf,
            run_times=self._run_times,
            clock=self._clock,
        )
        state = records.state(plan.checkpoint)
        before = records.lessons(state.ungathered, plan.checkpoint.version)
        ungathered = [lesson for lesson in before if not lesson.refused]
        party.resume(state, ungathered, records.lessons(plan.checkpoint.version, plan.length))
        return party

    def _seed(self) -> tuple[str, bytes]:
        return read_seed(Frame(Kind.SEED, payload=self._attempts.said[DEALER]))

    def _tell_clients(self, plan: Plan) -> None:
        """The clients may begin; the rewarder hears again how the lessons ended that it is not sure of."""
        send_to_all(self._send, (ACTOR, REWARDER), Frame(Kind.ACTIVE, payload=plan.encode()))
        kept = RewarderStatement.decode(self._attempts.said[REWARDER]).kept
        for lesson in self.records.lessons(min(kept, plan.length), plan.length):
            self._send(REWARDER, _ending(lesson))

    def _tell_committed(self) -> None:
        """Peers note what lasts here, so that an old backup of it can be told."""
        if self._told != self.records.committed:
            self._told = self.records.committed
            send_to_all(self._send, self._peers, Frame(Kind.COMMITTED, payload=self._told.encode()))


def _check_statement(identity: Identity, frame: Frame) -> None:
    """Refuse a statement of the rewarder that is none when it comes, and not when all have made theirs."""
    if identity == REWARDER:
        try:
            RewarderStatement.decode(frame.payload)
        except FrameError as error:
            raise ClientError(str(error)) from None


def _ending(lesson: Lesson) -> Frame:
    return refused_frame(LEARN_ONE, lesson.number, lesson.refused) if lesson.refused else learned_frame(lesson.number)
