"""All roles of a federation as state machines in this process, with a queue for a network; each one is timed."""

from __future__ import annotations

from collections import deque
from functools import partial
from time import perf_counter

from hiddenarm.bandit.federation import Federation
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.data.worlds import World
from hiddenarm.ring.words import Floats
from hiddenarm.roles.actor import Actor, all_decided
from hiddenarm.roles.attempts import PeerLoss
from hiddenarm.roles.client_records import MemoryActorRecords, MemoryRewarderRecords
from hiddenarm.roles.dealer import Dealer
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import MemoryPartyRecords
from hiddenarm.roles.process import Machine
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.runs import Send


class _Slice:
    """One party's features of a world's rows; the key is the row."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def lookup(self, key: str) -> Floats:
        features: Floats = self._values[int(key)]
        return features


class Machines:
    """A federation without a network. `seconds` tells how long each machine has worked."""

    def __init__(self, federation: Federation, world: World) -> None:
        self._world = world
        self._queue: deque[tuple[Identity, Identity, Frame]] = deque()
        self._machines: dict[Identity, Machine] = {}
        self.seconds: dict[Identity, float] = {}
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        loss = PeerLoss.ENDS_FEDERATION
        self._actor = Actor(federation, self._sender(ACTOR), records=MemoryActorRecords(), peer_loss=loss)
        self._rewarder = Rewarder(federation, self._sender(REWARDER), records=MemoryRewarderRecords(), peer_loss=loss)
        self._machines[DEALER] = Dealer(federation, self._sender(DEALER), peer_loss=loss)
        start = 0
        for party, count in zip(self.parties, federation.features, strict=True):
            features = _Slice(world.contexts[:, start : start + count])
            records = MemoryPartyRecords(federation, party.number)
            send = self._sender(party)
            self._machines[party] = Party(federation, party.number, features, send, records=records, peer_loss=loss)
            start += count
        self._machines |= {ACTOR: self._actor, REWARDER: self._rewarder}
        self._introduce()

    def step(self, number: int) -> None:
        """Decide, reward, learn."""
        row = number % len(self._world.contexts)
        asked = self._actor.ask(str(row))
        self._run()
        outcome = self._actor.outcomes.pop(asked)
        assert not isinstance(outcome, Exception)
        [decision] = all_decided(outcome)
        lesson = self._rewarder.teach((decision.id, self._world.reward(row, decision.arm)))
        self._run()
        self._rewarder.check_learned(lesson)

    def _sender(self, source: Identity) -> Send:
        return partial(self._post, source)

    def _post(self, source: Identity, target: Identity, frame: Frame) -> None:
        self._queue.append((source, target, frame))

    def _introduce(self) -> None:
        """Everybody meets everybody it expects."""
        for one, machine in self._machines.items():
            for other in self._machines:
                if other != one and machine.expects(other):
                    machine.on_ready(other)
        self._run()

    def _run(self) -> None:
        """Deliver until nobody has anything to say."""
        while self._queue:
            source, target, frame = self._queue.popleft()
            start = perf_counter()
            self._machines[target].on_frame(source, frame)
            self.seconds[target] = self.seconds.get(target, 0.0) + perf_counter() - start
