"""A party, as a state machine without I/O: frames in, frames out. It opens epochs with the others, and works in each
(`party_epoch`) for as long as it lives.

    attempt n is complete -> prepare the plan, say PREPARED -> all have prepared: activate it -> restore, go on
    the attempt is over at any point -> the work of the epoch is dropped, with all that was under way

Nothing of an epoch survives it but what the records hold. Frames of peers that are active before us wait.

Where the loss of a peer ends the federation, there is one epoch: records are in memory, clients may come when it is
open, and what would begin another epoch ends the party.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hiddenarm.bandit.catalogue import LEARN_ONE
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import ClientError, FrameError, PeerError, PeerLost, StaleStateError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.logs import get_logger
from hiddenarm.ring.words import Words
from hiddenarm.roles.epochs.attempts import Attempts, PeerLoss
from hiddenarm.roles.epochs.plan import (
    UNSPENT,
    Behind,
    Committed,
    Heard,
    PartyStatement,
    Plan,
    RewarderStatement,
    Spent,
    Standing,
    agree_on_spent,
    encode_members,
    find_behind,
    make_plan,
)
from hiddenarm.roles.health import Health
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.messages import (
    ACTOR,
    CLIENTS,
    DEALER,
    REWARDER,
    Kind,
    decided_payload,
    learned_frame,
    misuse,
    read_seed,
    refused_frame,
)
from hiddenarm.roles.party_epoch import TAKEN, Links, LookUp, PartyEpoch, Setup
from hiddenarm.roles.party_records import Records
from hiddenarm.roles.runs import Exchange, Send, send_to_all
from hiddenarm.roles.supply import CompiledPrograms
from hiddenarm.roles.updater import Lesson

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
    spent: Spent = UNSPENT
    prepared: dict[int, Plan] = field(default_factory=dict)
    rewarder_prepared: bool = False
    """Whether the rewarder has the epoch's seed written down; where nothing is, it has not to."""
    early: list[tuple[Identity, Frame]] = field(default_factory=list)
    complained: bool = False


class Party:
    """Party `number` of a federation. `own_words` gives its features by key, clipped and encoded, or `FeatureError` for
    a key without any; where that takes a while, `look_up` does, and `own_words` is not asked. `send` delivers a frame;
    frames arrive through the `on_` methods. See `party_epoch` for what `exchange` and `send_later` are, if there are
    any."""

    def __init__(
        self,
        federation: Federation,
        number: int,
        own_words: Callable[[str], Words],
        send: Send,
        exchange: Exchange | None = None,
        send_later: Send | None = None,
        *,
        records: Records,
        peer_loss: PeerLoss,
        stock: int = 256,
        expand_ahead: int = 16,
        max_batch: int = 256,
        checkpoint_every: int = CHECKPOINT_EVERY,
        compiled: CompiledPrograms | None = None,
        look_up: LookUp | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.federation = federation
        self.number = number
        self.finished = False
        self.records = records
        self._send = send
        self._links = Links(send, exchange or partial(send_to_all, send), send_later or send)
        self._lasting = peer_loss is PeerLoss.ENDS_EPOCH
        self._setup = Setup(
            federation,
            number,
            own_words,
            stock,
            expand_ahead,
            max_batch,
            lasting=self._lasting,
            checkpoint_every=checkpoint_every if self._lasting else 0,
            compiled=compiled or CompiledPrograms(federation, number),
            clock=clock,
            look_up=look_up,
        )
        self._log = get_logger("hiddenarm.party")
        self._peers = [Identity(Role.PARTY, p) for p in range(federation.parties) if p != number]
        me = Identity(Role.PARTY, number)
        self._attempts = Attempts(me, federation.parties, peer_loss, send, self._begin, self._say)
        self._opening = self._new_opening()
        self._epoch: PartyEpoch | None = None
        self._told = Committed(0, 0)
        self._stocked: set[str] = set()

    @property
    def active(self) -> bool:
        """Whether an epoch is open here."""
        return self._epoch is not None

    @property
    def absent(self) -> list[Identity]:
        """Who is awaited."""
        return self._attempts.missing

    @property
    def busy(self) -> bool:
        """Whether something was asked for that is not done."""
        return self._epoch is not None and self._epoch.busy

    def health(self) -> Health:
        """How it is doing. Between epochs, what lasts and what was counted so far; there is no stock then."""
        if self._epoch is not None:
            return self._epoch.health()
        records = self.records
        return Health(
            pending=records.pending or 0,
            version=records.committed.lessons,
            stock=dict.fromkeys(self._stocked, 0),
            runs=self._setup.run_times,
            ledger=records.ledger,
        )

    # What the transport tells us

    def expects(self, identity: Identity) -> bool:
        return self._attempts.expects(identity)

    def on_ready(self, identity: Identity) -> None:
        self._attempts.on_ready(identity)
        if self._epoch is not None and self._opening.plan is not None:  # a client that comes to an open epoch
            self._send(identity, Frame(Kind.ACTIVE, payload=self._opening.plan.encode()))
            self._epoch.tell_values(identity)

    def on_lost(self, identity: Identity, reason: str, graceful: bool) -> None:
        """The epoch ends with any of its members; but where state lasts, it goes on from stock without the dealer. A
        federation in memory ends in peace when the actor says goodbye, or a party or the dealer that has heard it."""
        if graceful and not self._lasting and identity != REWARDER:
            self._attempts.do_without(identity)
            self.finished = True
        elif identity == DEALER and self._lasting and self._epoch is not None:
            self._attempts.do_without(DEALER)
            self._epoch.on_dealer_away()
        else:
            self._attempts.on_lost(identity, reason)

    def on_idle(self) -> None:
        if self._epoch is not None:
            self._epoch.on_idle()
            if self._lasting:
                self._tell_committed()

    def on_frame(self, identity: Identity, frame: Frame) -> None:
        kind = frame.kind
        if self._epoch is not None and kind not in _OPENING:
            self._epoch.on_frame(identity, frame)
        elif kind is Kind.OPEN:
            if self._lasting:
                _check_statement(identity, frame)
            self._attempts.on_open(identity, frame)
            self._go_on()
        elif self._attempts.is_current(identity):
            self._on_current(identity, frame)

    def _on_current(self, identity: Identity, frame: Frame) -> None:
        """A frame that is meant for this attempt."""
        if frame.kind is Kind.PREPARED and identity.role is Role.PARTY:
            self._on_prepared(identity, Plan.decode(frame.payload))
        elif frame.kind is Kind.PREPARED and identity == REWARDER and self._lasting:
            self._on_rewarder_prepared()
        elif frame.kind is Kind.COMMITTED and identity.role is Role.PARTY and self._lasting:
            if self._epoch is not None:
                self.records.note(identity.number, Committed.decode(frame.payload))
        elif (identity.role, frame.kind) not in TAKEN:
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
        if self._epoch is not None:
            if not self._lasting:
                raise PeerLost("another epoch was begun, and this federation has one")
            self._epoch.end()
            self._stocked.update(self._epoch.health().stock)
            self._log.info("epoch ended", epoch=self.records.activated, missing=[str(peer) for peer in self.absent])
        self._epoch = None
        self._opening = self._new_opening()

    def _new_opening(self) -> _Opening:
        return _Opening(self.records.statement(), rewarder_prepared=not self._lasting)

    def _say(self, identity: Identity) -> bytes:
        match identity.role:
            case Role.PARTY:
                return self._opening.statement.encode()
            case Role.REWARDER:
                statement, missing = self._opening.statement, tuple(self.absent)
                epoch = self.records.epoch if self._lasting else 0  # there is none before this one
                return Standing(*statement.committed, epoch, statement.consents, missing).encode()
            case Role.ACTOR:
                return encode_members(self.absent)
            case _:
                return decided_payload(self._opening.statement.committed.decisions)

    def _go_on(self) -> None:
        """Prepare the plan, once everybody has said what it has."""
        opening = self._opening
        if not self._attempts.complete or opening.plan is not None or opening.complained:
            return
        statements = self._statements()
        behind = find_behind(statements, self._rewarder_statement())
        if not all(statement.consents for statement in statements):
            behind += self._lost_decisions()
            behind += self._used_refreshes(statements) if not behind else []
        if behind:
            opening.complained = True
            self._complain(behind)
            return
        opening.plan = self._plan(statements)
        self._check_pruned(opening.plan)
        opening.spent = agree_on_spent(statements)
        attempt = self._attempts.number
        self.records.prepare(opening.plan, lambda: self._when(attempt, self._when_prepared), opening.spent.ledger)

    def _plan(self, statements: list[PartyStatement]) -> Plan:
        return make_plan(bytes.fromhex(self._seed()[0]), statements)

    def _check_pruned(self, plan: Plan) -> None:
        """End if lessons would have to be learned again whose interactions were pruned."""
        lesson = self.records.lacks_pruned(plan)
        if lesson is not None:
            raise StaleStateError(
                f"a party has lost state, and lessons would have to be learned again from lesson {lesson} on, of which "
                f"interactions are pruned here (keep_interactions is {self.federation.keep_interactions}): bring back "
                "a newer state of the party that lost it"
            )

    def _used_refreshes(self, statements: list[PartyStatement]) -> list[Behind]:
        """All parties, if lessons would be learned again behind which decisions have used noisy sums: noise would be
        drawn a second time for rows that were told once. As a decision uses what all parties hold, somebody has lost
        it."""
        if not self.records.undoes_used(self._plan(statements)):
            return []
        why = "decisions have used noise that would be drawn again, since a party has lost it"
        return [Behind(f"party {self.number}", why)]

    def _statements(self) -> list[PartyStatement]:
        """What all parties have, by number."""
        said = {peer.number: PartyStatement.decode(self._attempts.said[peer]) for peer in self._peers}
        said[self.number] = self._opening.statement
        statements = [said[number] for number in range(self.federation.parties)]
        if any(len(statement.noted) != len(statements) for statement in statements):
            raise FrameError("a party's statement is about another number of parties")
        return statements

    def _rewarder_statement(self) -> RewarderStatement:
        """What the rewarder has made; nothing, if it may come later."""
        said = self._attempts.said.get(REWARDER)
        return RewarderStatement(0, 0) if said is None else RewarderStatement.decode(said)

    def _lost_decisions(self) -> list[Behind]:
        """This party, if the actor has heard from it of a decision that it does not hold."""
        payload = self._attempts.said.get(ACTOR)
        if not payload or not self.records.lacks(Heard.decode(payload)):
            return []
        return [Behind(f"party {self.number}", "it told the actor of a decision, or kept an arm, and does not hold it")]

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
            raise ClientError(f"{REWARDER} prepared twice")
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
        self._epoch = epoch = self._restored(plan)
        self._told = self.records.committed
        self._log.info(
            "epoch opened", epoch=plan.epoch, lessons=plan.length, again=plan.length - plan.checkpoint.version
        )
        self._tell_clients(plan)
        epoch.start(self._seed()[1])
        for identity, frame in early:
            self.on_frame(identity, frame)

    def _restored(self, plan: Plan) -> PartyEpoch:
        """The work of this epoch, from where all parties start."""
        links = self._links_of_this_epoch() if self._lasting else self._links
        ledger = Ledger(self.records, plan, self.federation.policy, self._opening.spent)
        epoch = PartyEpoch(self._setup, links, ledger, named=plan.named, present=self._attempts.present)
        state = self.records.state(plan.checkpoint)
        before = self.records.lessons(state.ungathered, plan.checkpoint.version)
        ungathered = [lesson for lesson in before if lesson.rewards and not lesson.refused]
        again = self.records.lessons(plan.checkpoint.version, plan.length)
        epoch.resume(state, ungathered, again, self._since_refresh(plan))
        if self.federation.evaluation is not None:
            totals = self.records.window_totals()
            first = 0 if totals is None else totals.version - 1
            since = [lesson for lesson in self.records.lessons(first, plan.length) if not lesson.refused]
            epoch.resume_windows(totals, since)
        return epoch

    def _since_refresh(self, plan: Plan) -> list[Lesson]:
        """The lessons of the checkpoint that came after the last refresh."""
        lessons = self.records.lessons(self.records.refreshed, plan.checkpoint.version)
        return [lesson for lesson in lessons if not lesson.refused]

    def _links_of_this_epoch(self) -> Links:
        """What is called back late, when records last, is not said in another epoch."""
        attempt = self._attempts.number

        def in_this_epoch(send: Send) -> Send:
            def guarded(identity: Identity, frame: Frame) -> None:
                if attempt == self._attempts.number and identity in self._attempts.present:
                    send(identity, frame)

            return guarded

        return Links(in_this_epoch(self._links.send), self._links.exchange, in_this_epoch(self._links.send_later))

    def _seed(self) -> tuple[str, bytes]:
        return read_seed(self._attempts.said[DEALER])

    def _tell_clients(self, plan: Plan) -> None:
        """The clients that are there may begin; the rewarder hears again how the lessons ended that it is not sure
        of."""
        clients = [client for client in CLIENTS if client in self._attempts.present]
        send_to_all(self._send, clients, Frame(Kind.ACTIVE, payload=plan.encode()))
        kept = self._rewarder_statement().kept
        for lesson in self.records.lessons(min(kept, plan.length), plan.length):
            self._send(REWARDER, _ending(lesson))

    def _tell_committed(self) -> None:
        """Peers note what lasts here, so that an old backup of it can be told."""
        if self._told != self.records.committed:
            self._told = self.records.committed
            send_to_all(self._send, self._peers, Frame(Kind.COMMITTED, payload=self._told.encode()))


def _check_statement(identity: Identity, frame: Frame) -> None:
    """Refuse a statement of a client that is none when it comes, and not when all have made theirs."""
    try:
        if identity == REWARDER:
            RewarderStatement.decode(frame.payload)
        elif identity == ACTOR and frame.payload:
            Heard.decode(frame.payload)
    except FrameError as error:
        raise ClientError(str(error)) from None


def _ending(lesson: Lesson) -> Frame:
    return refused_frame(LEARN_ONE, lesson.number, lesson.refused) if lesson.refused else learned_frame(lesson.number)
