"""Real processes of all roles with lasting state and real TLS, restarted when they end, as a service manager would; an
application that makes its requests again until they are answered; and what all stores together say in the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Any, Self

import numpy as np

from deployment import PATIENCE, free_ports
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.net.certificates import Authority
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import decode
from hiddenarm.roles.epochs.plan import CheckpointName
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.service.kit import Address, Kit, KitFederation, KitFile, write_features, write_kit
from hiddenarm.service.state import State

KEYS = [f"user {number}" for number in range(40)]
UNIT = 2.0**-16
"""How far two honest runs of a lesson may be apart: the largest error of a reciprocal that is looked up."""


class Unanswered(Exception):
    """A role ended before it answered."""


@dataclass
class Process:
    """A role that runs, and the lines it answers."""

    popen: subprocess.Popen[str]
    lines: SimpleQueue[str | None] = field(default_factory=SimpleQueue)

    def __post_init__(self) -> None:
        Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(json.dumps(request) + "\n")
            self.popen.stdin.flush()
            line = self.lines.get(timeout=seconds)
        except (BrokenPipeError, Empty):
            line = None
        if line is None:
            raise Unanswered
        answer: dict[str, Any] = json.loads(line)
        return answer


class Supervised:
    """All roles of a federation, from kits in a folder; those of `together` share a process, which stands and falls as
    one and logs in the kit of the first. A context manager: on exit nothing keeps running."""

    def __init__(
        self, folder: Path, federation: Federation, together: tuple[Identity, ...] = (), **options: Any
    ) -> None:
        self.folder = folder
        self.federation = federation
        self.parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self.members = [DEALER, *self.parties, ACTOR, REWARDER]
        self._together = together
        self.leaders = [member for member in self.members if self.process_of(member)[0] == member]
        """A role of each process."""
        rows = np.random.default_rng(3).standard_normal((len(KEYS), federation.dimension))
        self.contexts = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.processes: dict[Identity, Process] = {}
        self.kills: dict[Identity, int] = dict.fromkeys(self.leaders, 0)
        self.patience = PATIENCE
        self._write_kits({"checkpoint_every": 16, "spin_microseconds": 0, **options})

    def __enter__(self) -> Self:
        for identity in self.leaders:
            self.start(identity)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes.values():
            process.popen.kill()
            process.popen.wait()

    def kit(self, identity: Identity) -> Path:
        return self.folder / str(identity).replace(" ", "-")

    def process_of(self, identity: Identity) -> tuple[Identity, ...]:
        """The roles that share a process with this one, itself included."""
        return self._together if identity in self._together else (identity,)

    def log(self, identity: Identity) -> str:
        path = self._log_path(identity)
        return path.read_text() if path.exists() else ""

    def _log_path(self, identity: Identity) -> Path:
        return self.kit(self.process_of(identity)[0]) / "log.txt"

    # Processes

    def start(self, identity: Identity) -> None:
        roles = self.process_of(identity)
        with self._log_path(identity).open("a") as log:
            popen = subprocess.Popen(
                [sys.executable, "-m", "hiddenarm", "serve", *(str(self.kit(role)) for role in roles)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            )
        self.processes.update(dict.fromkeys(roles, Process(popen)))

    def kill(self, identity: Identity) -> None:
        """kill -9, and a restart."""
        self.stop([identity])
        self.kills[identity] += 1
        self.start(identity)

    def stop(self, identities: Iterable[Identity], how: signal.Signals = signal.SIGKILL) -> None:
        stopped = list(identities)
        for identity in stopped:
            self.processes[identity].popen.send_signal(how)
        for identity in stopped:
            self.processes[identity].popen.wait()

    def end_of(self, identity: Identity, seconds: float = PATIENCE) -> int:
        """The exit code of a role that must end by itself."""
        return self.processes[identity].popen.wait(seconds)

    # The application

    def ask(self, identity: Identity, request: dict[str, Any]) -> dict[str, Any]:
        """Make a request until it is answered, whoever is killed meanwhile."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline:
            process = self.processes[identity]
            try:
                answer = process.ask(request, max(1.0, deadline - time.monotonic()))
            except Unanswered:
                time.sleep(0.05)
                continue
            if "retry_after" not in answer:
                return answer
            time.sleep(0.05)
        raise AssertionError(f"{identity} has not answered {request} in {self.patience} seconds")

    def decide(self, name: str, *keys: str, after: int = 0) -> list[tuple[str, int]]:
        answer = self.ask(ACTOR, {"request": name, "keys": list(keys), "after": after})
        assert "decisions" in answer, answer
        return [(decision["id"], decision["arm"]) for decision in answer["decisions"]]

    def reward(self, name: str, *rewards: tuple[str, float]) -> int:
        given = [{"id": identifier, "reward": reward} for identifier, reward in rewards]
        answer = self.ask(REWARDER, {"request": name, "rewards": given})
        assert "version" in answer, answer
        version: int = answer["version"]
        return version

    # Kits

    def _write_kits(self, options: dict[str, Any]) -> None:
        listening = (DEALER, *self.parties)
        ports = free_ports(len(listening))
        addresses = {
            str(identity): Address(host="127.0.0.1", port=port) for identity, port in zip(listening, ports, strict=True)
        }
        authority, start = Authority.create("recovery"), 0
        for identity in self.members:
            file = KitFile(
                name="recovery",
                role=identity.role,
                number=identity.number,
                federation=KitFederation.of(self.federation),
                addresses=addresses,
                **{"durable": True, **options},
            )
            write_kit(self.kit(identity), file, authority)
        for identity, count in zip(self.parties, self.federation.features, strict=True):
            write_features(self.kit(identity), KEYS, self.contexts[:, start : start + count])
            start += count


@dataclass
class Acknowledged:
    """What the application was told about one step."""

    keys: list[str]
    decisions: list[tuple[str, int]]
    rewards: list[float]
    version: int


class Inspection:
    """All parties' stores, read together: only a test may do that. The roles must have ended."""

    def __init__(self, federation: Supervised) -> None:
        self._federation = federation.federation
        self._contexts = federation.contexts
        self._states = [State(Kit.read(federation.kit(party))) for party in federation.parties]
        self.records: list[PartyRecords] = [state.party() for state in self._states]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for state in self._states:
            state.close()

    def check(self, acknowledged: list[Acknowledged]) -> None:
        """Every acknowledged reward is learned once and was what it was, and the model is the fold of the log."""
        logs = [records.lessons(0, 2**60) for records in self.records]
        shortest = min(logs, key=len)
        for log in logs:
            assert [lesson.rewards for lesson in log[: len(shortest)]] == [lesson.rewards for lesson in shortest]
        learned = {lesson.number + 1: lesson for lesson in shortest if not lesson.refused}
        by_version = {step.version: step for step in acknowledged}
        assert len(by_version) == len(acknowledged)
        assert by_version.keys() == learned.keys()
        for version, step in by_version.items():
            assert len(learned[version].rewards) == len(step.keys)
            for position, (name, masked) in enumerate(learned[version].rewards):
                arm, reward = self._interaction(name, masked)
                assert arm == step.decisions[position][1]
                assert abs(reward - step.rewards[position]) < 2.0**-20
        self._check_model(by_version)

    def _interaction(self, name: int, masked: int) -> tuple[int, float]:
        """Arm and reward of a decision, from all parties' shares."""
        kept = [records.interaction(name) for records in self.records]
        one_hot = np.add.reduce([one.arm_share(party == 0) for party, one in enumerate(kept) if one is not None])[0]
        mask = np.add.reduce([one.reward_mask for one in kept if one is not None])[0]
        assert sorted(one_hot.tolist()) == [0] * (len(one_hot) - 1) + [1]
        word = np.uint64((masked - int(mask)) % 2**64)
        return int(one_hot.argmax()), float(decode(np.array([word]), self._federation.fraction_bits)[0])

    def _check_model(self, by_version: dict[int, Acknowledged]) -> None:
        """The newest common checkpoint is what the plain twin has learned from the same lessons."""
        common = set.intersection(*(records.checkpoints for records in self.records))
        checkpoint = max(common, default=CheckpointName(0, 0))
        twin = PlainBandit(self._federation.arms, self._federation.dimension, self._federation.ridge)
        lessons = 0
        for version in sorted(by_version):
            if version <= checkpoint.version:
                step = by_version[version]
                lessons += len(step.keys)
                for key, (_, arm), reward in zip(step.keys, step.decisions, step.rewards, strict=True):
                    twin.learn(self._contexts[KEYS.index(key)], arm, reward)
        states = [records.state(checkpoint).arrays for records in self.records]
        weights = self._federation.learner.reveal(states)[1][0]
        self.checked = checkpoint.version
        self.error = float(np.abs(weights - twin.weights).max()) / UNIT
        assert self.error <= max(1, lessons), f"off by {self.error:.1f} units after {lessons} lessons"

    def check_epochs(self) -> int:
        """No two epochs have the same name, and all parties opened the same ones under it; how many there were."""
        opened_by = [records.opened() for records in self.records]
        names = [{epoch: plan.name for epoch, plan in plans.items()} for plans in opened_by]
        for one in names:
            assert len(set(one.values())) == len(one)
            for epoch in one.keys() & names[0].keys():
                assert one[epoch] == names[0][epoch]
        return max(len(one) for one in names)
