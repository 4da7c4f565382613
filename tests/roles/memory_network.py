"""A federation of the real machines in one process: links that keep their own order and nothing else.

Every link is a queue. A seeded scheduler picks which link delivers next, so every run sees another interleaving, and
the same seed the same one. A machine may send to a peer once it knows that the peer is ready, as on a real transport.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from handouts import HandOuts
from hiddenarm.bandit.answers import eligible_words
from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.catalogue import STEP_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, decision_number, split_number
from hiddenarm.bandit.features import checked_features
from hiddenarm.bandit.federation import FastNumbers, Federation
from hiddenarm.bandit.interactions import Interaction
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import coins_at
from hiddenarm.bandit.subsets import subset_of
from hiddenarm.errors import DecisionIdError, FeatureError, PeerLost
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import decode, encode
from hiddenarm.roles.actor import Actor, ActorEpoch, Ticket
from hiddenarm.roles.client_records import (
    ActorRecords,
    MemoryActorRecords,
    MemoryRewarderRecords,
    RewarderRecords,
)
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.epochs.attempts import PeerLoss
from hiddenarm.roles.joint_rewards import JointRewarder
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER, Kind, program_and_step, read_decide
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_epoch import PartyEpoch
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.runs import Send
from hiddenarm.service.features import words_by_key
from hiddenarm.store.journal import DirectJournal
from hiddenarm.store.memory import MemoryStore

EPOCH_KEY = bytes(range(32))
KEYS = tuple(f"user {number}" for number in range(40))
Machine = Party | Dealer | Actor | JointRewarder
Link = tuple[Identity, Identity]


def party(number: int) -> Identity:
    return Identity(Role.PARTY, number)


def small_federation(parties: int, arms: int = 3, epsilon: float = 0.25, **numbers: Unpack[FastNumbers]) -> Federation:
    return Federation(arms=arms, features=(2,) * parties, epsilon=epsilon, **numbers)


def small_paper_federation(parties: int, arms: int = 3, epsilon: float = 0.25) -> Federation:
    return Federation(suite="paper", arms=arms, features=(2,) * parties, epsilon=epsilon)


def user_contexts(federation: Federation) -> dict[str, np.ndarray]:
    """A fixed context of norm 1 for every key."""
    rows = np.random.default_rng(federation.parties).standard_normal((len(KEYS), federation.dimension))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    bits = federation.context_bits  # the twin gets them as they are entered
    return dict(zip(KEYS, decode(encode(rows, bits), bits), strict=True))


def slices(federation: Federation, context: np.ndarray) -> list[np.ndarray]:
    return np.split(context, np.cumsum(federation.features)[:-1])


class Table:
    """A party's features by key."""

    def __init__(self, rows: dict[str, ArrayLike]) -> None:
        self.rows = rows

    def lookup(self, key: str) -> ArrayLike:
        if key not in self.rows:
            raise FeatureError("no features are stored under this key")
        return self.rows[key]


@dataclass
class Taught:
    """A reward that was sent: the lesson's number, and what it was about."""

    lesson: int
    decision: int
    reward: float


@dataclass
class MemoryNetwork:
    """All machines of a federation, and the links between them. With `lasting`, each role encodes its records and
    commits them to a store, as on disk."""

    federation: Federation
    seed: int = 0
    stock: int = 8
    lasting: bool = False
    epoch_key: bytes = EPOCH_KEY
    now: float = 0.0
    links: dict[Link, deque[Frame | None]] = field(default_factory=dict)
    machines: dict[Identity, Machine] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    collecting: bool = True
    versions: dict[int, int] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    eligible: dict[int, list[int]] = field(default_factory=dict)
    """The arms that single decisions were asked for among, where it was not all."""
    decisions: dict[int, Decision] = field(default_factory=dict)
    refused: dict[int, Exception] = field(default_factory=dict)
    asked: dict[Ticket, int] = field(default_factory=dict)
    """Single decisions that were asked for by `ask`, by their tickets. A decision is known by its number, which says by
    what program it was made; `versions` has them in the order of the actor's requests."""
    taught: list[Taught] = field(default_factory=list)
    lessons: dict[int, Exception | None] = field(default_factory=dict)
    handouts: HandOuts = field(default_factory=HandOuts)
    """No word is handed out twice by these machines."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._ready: set[Link] = set()
        count = self.federation.parties
        loss = PeerLoss.ENDS_EPOCH if self.lasting else PeerLoss.ENDS_FEDERATION
        contexts = user_contexts(self.federation)
        by_party = zip(*(slices(self.federation, context) for context in contexts.values()), strict=True)
        self.tables = [Table(dict(zip(contexts, own, strict=True))) for own in by_party]
        for number in range(count):
            me = party(number)
            self.machines[me] = Party(
                self.federation,
                number,
                words_by_key(self.tables[number], self.federation, number),
                self._sender(me),
                records=self._party_records(number),
                peer_loss=loss,
                stock=self.stock,
                expand_ahead=4,
                clock=lambda: self.now,
            )
        federation, sender = self.federation, self._sender
        self.machines[DEALER] = Dealer(federation, sender(DEALER), peer_loss=loss, make_key=lambda: self.epoch_key)
        actor_records = ActorRecords(*_journaled()) if self.lasting else MemoryActorRecords()
        rewarder_records = RewarderRecords(*_journaled()) if self.lasting else MemoryRewarderRecords()
        self.machines[ACTOR] = Actor(federation, sender(ACTOR), records=actor_records, peer_loss=loss)
        self.machines[REWARDER] = JointRewarder(federation, sender(REWARDER), records=rewarder_records, peer_loss=loss)
        for one, other in permutations(self.machines, 2):
            if {one, other} != {ACTOR, REWARDER}:
                assert self.machines[other].expects(one)
                self.links[one, other] = deque([None])

    def _party_records(self, number: int) -> PartyRecords | MemoryPartyRecords:
        if self.lasting:
            return PartyRecords(*_journaled(), self.federation, number)
        return MemoryPartyRecords(self.federation, number)

    @property
    def actor(self) -> Actor:
        machine = self.machines[ACTOR]
        assert isinstance(machine, Actor)
        return machine

    @property
    def rewarder(self) -> JointRewarder:
        machine = self.machines[REWARDER]
        assert isinstance(machine, JointRewarder)
        return machine

    @property
    def dealer(self) -> Dealer:
        machine = self.machines[DEALER]
        assert isinstance(machine, Dealer)
        return machine

    def party(self, number: int) -> Party:
        machine = self.machines[party(number)]
        assert isinstance(machine, Party)
        return machine

    @property
    def parties(self) -> list[Party]:
        return [self.party(number) for number in range(self.federation.parties)]

    def epoch(self, number: int) -> PartyEpoch:
        """The work of a party in the open epoch."""
        epoch = self.party(number)._epoch
        assert epoch is not None
        return epoch

    @property
    def epochs(self) -> list[PartyEpoch]:
        return [self.epoch(number) for number in range(self.federation.parties)]

    @property
    def asking(self) -> ActorEpoch:
        """The work of the actor in the open epoch."""
        assert self.actor._epoch is not None
        return self.actor._epoch

    def _sender(self, me: Identity) -> Send:
        def send(to: Identity, frame: Frame) -> None:
            if (me, to) not in self._ready:
                raise PeerLost(f"{to} is not connected")
            if frame.kind is Kind.DECIDE:
                number = decision_number(*program_and_step(frame))
                self.versions[number], (self.keys[number], *_), _ = read_decide(frame, self.federation.arms)
            self.links[me, to].append(frame)

        return send

    # Delivering

    def deliver(self, *links: Link) -> bool:
        """Deliver the next frame of a link, one of these or any, chosen at random; False when they are empty."""
        waiting = [link for link in links or self.links if self.links[link]]
        if not waiting:
            return False
        sender, receiver = link = self._random.choice(waiting)
        frame = self.links[link].popleft()
        with self.handouts:
            if frame is None:
                self._ready.add((receiver, sender))
                self.machines[receiver].on_ready(sender)
            else:
                self.machines[receiver].on_frame(sender, frame)
        if self.collecting:
            self._collect()
        return True

    def settle(self) -> None:
        """Deliver until nothing is under way."""
        while self.deliver():
            pass

    def wait(self, seconds: float) -> None:
        """Let time pass in which nothing happens but what the machines do by themselves."""
        self.now += seconds
        with self.handouts:
            for machine in self.machines.values():
                machine.on_idle()
        self.settle()

    def start(self) -> MemoryNetwork:
        """Let everybody meet."""
        self.settle()
        assert self.actor.active
        assert self.rewarder.active
        return self

    def inject(self, sender: Identity, receiver: Identity, frame: Frame) -> None:
        """Hand a machine a frame that nobody sent."""
        with self.handouts:
            self.machines[receiver].on_frame(sender, frame)

    def part(self, number: int, client: Identity) -> None:
        """A client says goodbye to a party."""
        self._ready.discard((party(number), client))
        self.party(number).on_lost(client, "done", True)

    def lose(self, machine: Identity, client: Identity) -> None:
        """A client's link to a role ends without a goodbye, with all that is under way on it."""
        self._ready.discard((machine, client))
        self.links[client, machine].clear()
        self.machines[machine].on_lost(client, "cut off", False)

    def _collect(self) -> None:
        """Take what came of single decisions, and of lessons."""
        for ticket in [ticket for ticket in self.asked if ticket in self.actor.outcomes]:
            number, outcome = self.asked.pop(ticket), self.actor.outcomes.pop(ticket)
            (answer,) = outcome if isinstance(outcome, list) else [outcome]
            if isinstance(answer, Decision):
                self.decisions[int(answer.id.split("-")[1])] = self.decisions[number] = answer
            else:
                self.refused[number] = answer
        for lesson in range(len(self.lessons), self.rewarder._records.kept):
            refused = self.rewarder.ending(lesson)
            self.lessons[lesson] = DecisionIdError(refused) if refused else None

    # Clients

    def ask(self, key: str, after: int = 0, eligible: Sequence[int] | None = None) -> int:
        """Ask for a single decision; its number, unless the parties cannot make it as it was asked for."""
        with self.handouts:
            ticket = self.actor.ask(key, after=after, eligible=eligible)
        number = self.asked[ticket] = decision_number(*next(reversed(self.asking._runs)))
        if eligible is not None:
            self.eligible[number] = list(eligible)
        return number

    def teach(self, identifier: str, reward: float) -> int:
        with self.handouts:
            lesson = self.rewarder.teach((identifier, reward))
        self.taught.append(Taught(lesson, int(identifier.split("-")[1]), reward))
        return lesson

    def id_of(self, number: int) -> str:
        """The id that a decision has or would have."""
        return self.asking._ids.id_of(number)

    def name_of(self, identifier: str) -> int:
        """The name of a decision at the parties."""
        epoch, number, _ = identifier.split("-")
        return decision_name(int(epoch, 16), int(number))

    def decide(self, key: str, after: int = 0, eligible: Sequence[int] | None = None) -> Decision:
        """One decision, by itself."""
        number = self.ask(key, after, eligible)
        self.settle()
        return self.decisions[number]

    def reward(self, identifier: str, reward: float) -> int:
        """One lesson, by itself; the version of the model that holds it."""
        lesson = self.teach(identifier, reward)
        self.settle()
        error = self.lessons[lesson]
        if error is not None:
            raise error
        return lesson + 1

    # Looking inside: the only place that knows how the machines keep what they keep

    def version_at(self, number: int) -> int:
        """How many lessons a party's model holds."""
        return self.epoch(number)._updater.version

    def round_at(self, number: int, decision: int) -> int | None:
        """The round a decision has come to at a party; None when it is not under way."""
        program, step, _ = split_number(decision)
        active = self.epoch(number)._runs._runs.get((program, step))
        return None if active is None else active.evaluation.round

    def waiting_at(self, number: int) -> list[int]:
        """How much a party keeps for things to come: runs, early frames, requests, lessons, refusals."""
        machine = self.epoch(number)
        runs, updater = machine._runs, machine._updater
        kept = (runs._early, machine._requests, updater._lessons)
        return [len(runs) - updater.runs_beside, *map(len, kept), len(machine._refused_by_peer) + len(updater._refused)]

    def shared_model(self) -> tuple[np.ndarray, np.ndarray]:
        """The model in the clear: inverses and weights, all parties' shares added up."""
        return self.federation.learner.reveal([machine._updater.state for machine in self.epochs])

    # Checking

    def learned(self) -> list[Taught]:
        """The lessons that were learned, in order."""
        return [taught for taught in self.taught if taught.lesson in self.lessons and not self.lessons[taught.lesson]]

    def check_nothing_is_left(self) -> None:
        """Nobody waits, nobody keeps frames that no run will take, and all count alike."""
        assert self.actor.idle
        assert not self.asking._runs
        assert not self.rewarder.busy
        numbers = range(self.federation.parties)
        for number in numbers:
            assert not any(self.waiting_at(number)), f"party {number} keeps {self.waiting_at(number)}"
        assert len({self.version_at(number) for number in numbers}) == 1
        assert len({frozenset(machine._interactions._at_hand) for machine in self.epochs}) == 1

    def check_against_references(self) -> None:
        """Arms and model are those of the plain twin, and bit for bit those of the lockstep federation.

        The lockstep federation cannot skip the number of a refused lesson: after one, the twin judges alone.
        """
        self.check_nothing_is_left()
        self.check_against_twin()
        if len(self.learned()) == len(self.taught):
            self.check_against_lockstep()

    def check_against_twin(self) -> None:
        twin = _Twin(self)
        replay(self, twin.follow, twin.learn)
        assert np.abs(self.shared_model()[1][0] - twin.bandit.weights).max() < 1e-4

    def check_against_lockstep(self) -> None:
        lockstep = _LockstepTwin(self)
        replay(self, lockstep.follow, lockstep.learn)
        for found, expected in zip(self.shared_model(), lockstep.federation.reveal_model(), strict=True):
            assert np.array_equal(found, expected)


def _journaled() -> tuple[MemoryStore, DirectJournal]:
    """A store in memory, and the journal that commits to it."""
    store = MemoryStore()
    return store, DirectJournal(store)


def replay(network: MemoryNetwork, follow: Callable[[int], None], learn: Callable[[Taught], None]) -> None:
    """Repeat what happened, one thing after another: every decision with the version it asked for."""
    lessons = deque(network.learned())
    made = [number for number in network.versions if number in network.decisions]
    assert all(former <= later for former, later in pairwise(network.versions[number] for number in made))
    for number in made:
        while lessons and lessons[0].lesson < network.versions[number]:
            learn(lessons.popleft())
        follow(number)
    for taught in lessons:
        learn(taught)


class _Twin:
    """The plain twin beside a network."""

    def __init__(self, network: MemoryNetwork) -> None:
        federation = network.federation
        self.bandit = federation.policy.twin(federation)
        self._network = network
        self._contexts = user_contexts(federation)
        steps: dict[ProgramId, int] = {}
        for number in network.versions:
            program, step, _ = split_number(number)
            steps[program] = max(step + 1, steps.get(program, 0))
        seeds = Seeds(network.epoch_key)
        self._coins = {
            program: audit_coins(seeds, federation, 0, count, program=program) for program, count in steps.items()
        }

    def follow(self, number: int) -> None:
        context = self._contexts[self._network.keys[number]]
        program, step, _ = split_number(number)
        explore, tags = coins_at(self._coins[program], step)
        may_win = eligible_words(self._network.federation.arms, self._network.eligible.get(number))
        subset = subset_of(self._network.federation, may_win)
        if subset is not None:
            tags = subset.spread(tags.astype(np.uint64)).astype(np.int64)
        best = self.bandit.decide(context, explore, tags, eligible=may_win != 0)
        made = self._network.decisions[number].arm
        assert best == made or (not explore and self._tie(context, best, made)), f"decision {number}"

    def _tie(self, context: np.ndarray, best: int, other: int) -> bool:
        """Whether two arms are as good as each other within the rounding of keys and model."""
        federation, scores = self._network.federation, self.bandit.scores(context)
        return bool(scores[best] - scores[other] <= federation.score_rounding + 2.0**-14)

    def learn(self, taught: Taught) -> None:
        context = self._contexts[self._network.keys[taught.decision]]
        self.bandit.learn(context, self._network.decisions[taught.decision].arm, taught.reward)


class _LockstepTwin:
    """The lockstep federation beside a network, with the same words dealt; it fills refused numbers with decisions."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.federation = Lockstep(network.federation, network.epoch_key)
        self._network = network
        self._contexts = user_contexts(network.federation)
        self._kept: dict[int, list[list[Interaction]]] = {}

    def follow(self, number: int) -> None:
        program, step, _ = split_number(number)
        while self.federation._supply(program).next_step < step:
            self._decide(program, KEYS[0])
        arm = self._decide(program, self._network.keys[number], self._network.eligible.get(number))
        assert self._network.decisions[number].arm == arm, f"decision {number}"

    def learn(self, taught: Taught) -> None:
        """The parties go on with the run of `step` that made the decision if it was the model of this lesson's number
        by which it was made, and otherwise run `learn`."""
        program, step, _ = split_number(taught.decision)
        goes_on = program == STEP_ONE and taught.lesson == self._network.versions[taught.decision]
        kept = self._kept.pop(taught.decision)
        goes_on_at = step if goes_on else None
        self.federation._learn([taught.decision], kept, program, step, [[taught.reward]], goes_on_at)

    def _decide(self, program: ProgramId, key: str, eligible: list[int] | None = None) -> int:
        own = [
            checked_features(part[None], self._network.federation, number)[:, None]
            for number, part in enumerate(slices(self._network.federation, self._contexts[key]))
        ]
        program, step, arms, kept = self.federation._decide(program, own, eligible)
        self._kept[decision_number(program, step)] = kept
        return int(arms[0, 0])
