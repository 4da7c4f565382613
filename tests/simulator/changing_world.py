"""Worlds whose federation changes: each role adopts a version at its own time, and some put back the kit they had."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from application import Application
from world import Faults, Machine, Node, Violation, World, _compiled

from hiddenarm.bandit.decisions import parts_of
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import StoreError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.messages import ACTOR
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.service.state import Owner
from hiddenarm.store.contract import Change


class ChangingWorld(World):
    """Roles have kits of their own version, and connect to those of the same."""

    def __init__(self, seed: int, faults: Faults, versions: list[Federation]) -> None:
        self.versions = versions
        self.issued = 1
        self.kits: dict[Identity, int] = {}
        self.opened: dict[int, int] = {}
        """By the name of an epoch, the version with which the actor was in it."""
        self.went_back = 0
        super().__init__(seed, faults, versions[0])

    def owner(self, node: Node, version: int) -> Owner:
        nowhere = Path("/nowhere")
        return Owner(str(node.identity), self.versions[version - 1].terms, {}, {}, nowhere, str(nowhere), version)

    def _machine(self, node: Node) -> Machine:
        version = self.kits.setdefault(node.identity, 1)
        self.federation = self.versions[version - 1]
        self._programs = [_compiled(self.federation, number) for number in range(2)]
        assert node.disk is not None
        written: list[Change] = self.owner(node, version).claim(node.disk.store)
        machine = super()._machine(node)
        if isinstance(machine, Party):
            assert isinstance(machine.records, PartyRecords)
            machine.records._with_activation = written
        self.federation = self.versions[self.issued - 1]
        return machine

    def _connectable(self) -> list[tuple[Identity, Identity]]:
        return [(one, other) for one, other in super()._connectable() if self.kits[one] == self.kits[other]]

    @property
    def changed(self) -> bool:
        """Whether all roles have the last version."""
        return all(version == len(self.versions) for version in self.kits.values())

    def step(self) -> None:
        super().step()
        machine = self.nodes[ACTOR].machine
        if isinstance(machine, Actor) and machine._epoch is not None:
            self.opened[machine._epoch.name] = self.kits[ACTOR]
        chance = self.random.random()
        if chance < 0.002 and self.issued < len(self.versions):
            self.issued += 1
            self.federation = self.versions[self.issued - 1]
        elif chance < 0.02:
            self._adopt(self.random.choice(list(self.nodes.values())))
        elif chance < 0.03 and not self.calm:
            self._go_back(self.random.choice(list(self.nodes.values())))

    def _adopt(self, node: Node) -> None:
        """A kit is replaced, by one version more or by the newest, and the role is started anew."""
        if self.kits[node.identity] < self.issued:
            later = self.random.choice([self.kits[node.identity] + 1, self.issued])
            self.kits[node.identity] = later
            self._stop(node)

    def _go_back(self, node: Node) -> None:
        """An operator puts back a kit: a role that keeps nothing of the later version takes it, a party whose state is
        that of the later one refuses it."""
        version = self.kits[node.identity]
        if version == 1 or node.identity.role is not Role.PARTY:
            return
        assert node.disk is not None
        kept = node.disk.store.get("me", b"")
        assert kept is not None
        try:
            self.owner(node, version - 1).check(kept)
        except StoreError:
            return
        self.went_back += 1
        self.kits[node.identity] = version - 1
        self._stop(node)

    def _stop(self, node: Node) -> None:
        if node.up:
            self.crash(node)


@dataclass
class Changed(Application):
    """An application of such a world."""

    def _at_rest(self) -> bool:
        assert isinstance(self.world, ChangingWorld)
        return self.world.changed and super()._at_rest()

    def check(self) -> None:
        super().check()
        for job in self.jobs:
            for decision in job.decisions or []:
                if decision.arm in self._made_with(decision).retired:
                    raise Violation(f"{job.name} was told arm {decision.arm}, which is retired")

    def _made_with(self, decision: Decision) -> Federation:
        world = self.world
        assert isinstance(world, ChangingWorld)
        return world.versions[world.opened[int(parts_of(decision.id)[0], 16)] - 1]
