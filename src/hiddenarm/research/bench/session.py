"""A federation of real processes on this machine, with TLS, whose actor and rewarder live inside this process.

A step is strictly online: the actor asks for a decision and gets the arm, the rewarder gives the reward, and the next
decision is made by a model that holds it. That is asked for before, and waits at the parties until they have learned.

`measure` and its like time one federation beside its plain twin.
"""

from __future__ import annotations

import tempfile
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from types import TracebackType
from typing import Any, Self, TypeVar

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import coins_at
from hiddenarm.errors import PeerError, PeerLost
from hiddenarm.mpc.material import Seeds
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.breakdown import Breakdown, break_down
from hiddenarm.research.bench.relay import Relay
from hiddenarm.research.bench.timing import Effort, Spread, Work, alternate
from hiddenarm.research.data.load import cluster_world
from hiddenarm.research.data.worlds import LabelWorld, split_features
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.research.results import Traffic, count_traffic
from hiddenarm.ring.streams import fresh_key
from hiddenarm.roles.actor import all_decided
from hiddenarm.roles.messages import ACTOR, REWARDER
from hiddenarm.service.application import CONNECT_SECONDS, ActorClient, RewarderClient
from hiddenarm.service.kit import Kit

Client = TypeVar("Client", ActorClient, RewarderClient)

_EPSILON = 0.1
_ROWS = 512
"""Contexts of the world; a longer run meets them again."""
_STEP_KINDS = ("ROUND", "PAYLOADS", "ONE_HOT", "ARMS_KEPT", "LEARNED")
"""What a party sends because of a step; greetings and orders of material are left out."""
_PLAIN_STEPS = 200
"""Least steps in a block of the plain twin: a few would be timed with cold caches and make it look slow."""
_STRETCH = 50
"""Steps that can be made from stock, without new orders."""
_PAUSE_SECONDS = 0.05
_WARM_UP = 5
_COIN_WORDS = 1 << 22
"""Most words of coins that are kept for the plain twin."""


def make_federation(
    parties: int, arms: int, features: int, suite: str = "fast", newton_iterations: int | None = None
) -> Federation:
    """A federation whose features are split evenly, to be run by the suite of this name."""
    split = tuple(split_features(features, parties))
    return Federation(arms, split, suite=suite, epsilon=_EPSILON, newton_iterations=newton_iterations)


class PlainTwin:
    """The same learner in the clear, on the same contexts, with its coins at hand before the clock starts."""

    def __init__(self, federation: Federation, world: LabelWorld, epoch_key: bytes) -> None:
        rows = len(world.contexts)
        count = max(1, min(rows, _COIN_WORDS // federation.arms))
        coins = audit_coins(Seeds(epoch_key), federation, 0, count)
        self._bandit = federation.policy.twin(federation)
        self._steps = [
            (world.contexts[row], coins_at(coins, row % count), int(world.labels[row])) for row in range(rows)
        ]
        self._next = 0

    def work(self, steps: int) -> float:
        """Seconds for so many steps: decide, reward, learn. Not counted is a pause before, in which the dealer works
        ahead."""
        sleep(_PAUSE_SECONDS)
        made = max(steps, _PLAIN_STEPS)
        todo = [self._steps[(self._next + step) % len(self._steps)] for step in range(made)]
        self._next += made
        bandit = self._bandit
        start = perf_counter()
        for context, coins, label in todo:
            arm = bandit.decide(context, *coins)
            bandit.learn(context, arm, 1.0 if arm == label else 0.0)
        return (perf_counter() - start) * steps / made


class Session:
    """A running federation. With `delay_seconds` every link between any two roles is delayed so long, each way; with
    `durable` its state lasts."""

    def __init__(self, federation: Federation, delay_seconds: float | None = None, *, durable: bool = False) -> None:
        self.federation = federation
        self.steps = 0
        self.version = 0
        self.epoch_key = fresh_key()
        self.world = cluster_world(arms=federation.arms, features=federation.dimension, seed=1, rows=_ROWS)
        self._delay = delay_seconds
        self._durable = durable
        self._stack = ExitStack()
        self._clients = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hiddenarm-bench-")))
            self._roles = self._start_roles(stack, folder / "kits")
            stack.push(self._clients)
            self.actor = self._enter(ActorClient(Kit.read(self._roles.kit(ACTOR))))
            self.rewarder = self._enter(RewarderClient(Kit.read(self._roles.kit(REWARDER))))
            self._meet()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, PeerError):
            error.add_note(self._roles.explain_failure())
        self._stack.__exit__(kind, error, trace)

    def work(self, steps: int) -> float:
        """Seconds for so many strictly online steps.

        Not counted is what comes before each stretch of them: a pause in which the dealer works ahead, and a few steps
        until the processor is awake again.
        """
        seconds, left = 0.0, steps
        while left:
            stretch = min(left, _STRETCH)
            self._pause()
            self.make_steps(_WARM_UP)
            start = perf_counter()
            self.make_steps(stretch)
            seconds += perf_counter() - start
            left -= stretch
        return seconds

    def work_singly(self, steps: int) -> float:
        """The same, but nothing is asked for before the step before has ended."""
        self._pause()
        self.make_steps(_WARM_UP)
        start = perf_counter()
        for _ in range(steps):
            self.make_steps(1)
        return perf_counter() - start

    def make_steps(self, steps: int) -> None:
        """Decide, reward, learn, so many times. The next decision but one is asked for when a reward has left."""
        contexts = [self.next_context() for _ in range(steps)]
        asked = deque(self.actor.ask([key], self.version + ahead) for ahead, (key, _) in enumerate(contexts[:2]))
        for step, (_, label) in enumerate(contexts, start=2):
            [decision] = all_decided(self.actor.answer(asked.popleft()))
            self.version = self.rewarder.submit(decision.id, 1.0 if decision.arm == label else 0.0)
            if step < steps:
                asked.append(self.actor.ask([contexts[step][0]], self.version + 1))
        self.rewarder.settle()

    def work_at_once(self, interactions: int) -> float:
        """Seconds for so many interactions, decided and learned as one batch; the pause as in `work`."""
        contexts = [self.next_context() for _ in range(interactions)]
        self._pause()
        start = perf_counter()
        decisions = all_decided(self.actor.decide_many([key for key, _ in contexts], self.version))
        earned = [float(decision.arm == label) for decision, (_, label) in zip(decisions, contexts, strict=True)]
        rewards = [(decision.id, reward) for decision, reward in zip(decisions, earned, strict=True)]
        self.version = self.rewarder.reward_many(rewards)
        return perf_counter() - start

    def next_context(self) -> tuple[str, int]:
        """The key of the next context, and the arm that earns there."""
        row = self.steps % len(self.world.contexts)
        self.steps += 1
        return _key(row), int(self.world.labels[row])

    def plain_twin(self) -> PlainTwin:
        """A learner in the clear that meets the same contexts."""
        return PlainTwin(self.federation, self.world, self.epoch_key)

    def process(self, role: Identity) -> int:
        """The number of the process of a role, other than the clients, which run in this one."""
        return self._roles.process(role).pid

    def party_kits(self) -> list[Kit]:
        """The kits of all parties."""
        return [Kit.read(self._roles.kit(Identity(Role.PARTY, p))) for p in range(self.federation.parties)]

    def finish(self) -> Traffic:
        """End the federation in good order; what a party sent in a step."""
        self._clients.close()
        return count_traffic(self.federation, self._roles.stop(), self.steps, _STEP_KINDS)

    def _pause(self) -> None:
        """The dealer works ahead; then it is not to keep the others from their cores."""
        self._roles.put_dealer_behind()
        sleep(_PAUSE_SECONDS)

    def _start_roles(self, stack: ExitStack, folder: Path) -> LocalRoles:
        keys = [_key(row) for row in range(_ROWS)]
        given = (folder, self.federation, keys, self.world.contexts, self.epoch_key)
        start = partial(LocalRoles, *given, clients=False, durable=self._durable)
        if self._delay is None:
            return stack.enter_context(start())
        relay = Relay(self._delay)
        roles = start(route=relay.route)
        stack.enter_context(relay)
        return stack.enter_context(roles)

    def _meet(self) -> None:
        """Two clients in one thread: serve both until an epoch is open. Those whose state does not last have waited."""
        deadline = perf_counter() + CONNECT_SECONDS
        while not (self.actor.ready and self.rewarder.ready):
            if perf_counter() > deadline:
                raise PeerLost("not all parties and the dealer could be reached")
            for client in (self.actor, self.rewarder):
                client.idle(seconds=0.01)

    def _enter(self, client: Client) -> Client:
        return self._clients.enter_context(client)


def _key(row: int) -> str:
    return f"user {row}"


@dataclass(frozen=True, slots=True)
class Measured:
    """Microseconds a step of both learners, and what a party sent."""

    federation: Federation
    steps: int
    private: Spread
    plain: Spread
    traffic: Traffic

    @property
    def ratio(self) -> float:
        """How many plain steps one private step takes."""
        return self.private.median / self.plain.median

    def as_dict(self) -> dict[str, Any]:
        """The keys of `--json`."""
        return {
            "suite": self.federation.suite,
            "parties": self.federation.parties,
            "arms": self.federation.arms,
            "features": self.federation.dimension,
            "steps": self.steps,
            "us_per_step": self.private.median,
            "us_per_step_quartiles": [self.private.lower, self.private.upper],
            "plain_us_per_step": self.plain.median,
            "plain_us_per_step_quartiles": [self.plain.lower, self.plain.upper],
            "ratio": self.ratio,
            "rounds_per_step": self.traffic.rounds_per_step,
            "rounds_per_decision": self.traffic.rounds_per_decision,
            "bytes_per_step_per_party": self.traffic.bytes_per_step_per_party,
        }


def measure_step(
    suite: str,
    *,
    parties: int,
    arms: int,
    features: int = 20,
    steps: int = 400,
    seconds: float = 30.0,
    newton_iterations: int | None = None,
) -> Measured:
    """Time a strictly online step of a suite over real processes with TLS, beside that of its plain twin.

    About `steps` steps are made, but fewer if they take longer than `seconds`.
    """
    return measure(make_federation(parties, arms, features, suite, newton_iterations), Effort.of(steps, seconds))


def measure(federation: Federation, effort: Effort) -> Measured:
    """Time both learners."""
    return measure_beside(federation, effort)[0]


def measure_beside(federation: Federation, effort: Effort, *others: Work) -> tuple[Measured, list[Spread]]:
    """Time both learners, and other work in turn with them."""
    with Session(federation) as session:
        private, plain, *rest = alternate(effort, [session.work, session.plain_twin().work, *others])
        traffic = session.finish()
        return Measured(federation, session.steps, private, plain, traffic), rest


def measure_and_break_down(federation: Federation, effort: Effort, steps: int) -> tuple[Measured, Spread, Breakdown]:
    """Time both learners, and private steps one by one; then the parts of a step while the federation is idle."""
    with Session(federation) as session:
        private, plain, singly = alternate(effort, [session.work, session.plain_twin().work, session.work_singly])
        first, second, *_ = session.party_kits()
        breakdown = break_down(federation, session.world, private.median, steps, (first, second))
        traffic = session.finish()
        return Measured(federation, session.steps, private, plain, traffic), singly, breakdown
