"""All roles of a federation as processes on this machine, with certificates made on the spot."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import BudgetSpentError, FeatureError, PeerLost
from hiddenarm.net.certificates import Authority, write_private
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import Floats
from hiddenarm.roles.messages import ACTOR, DEALER, REWARDER
from hiddenarm.service.kit import EPOCH_KEY_FILE, Address, KitFederation, KitFile, write_features, write_kit

_HOST = "127.0.0.1"
_STOP_SECONDS = 60.0
_BEHIND_OTHERS = 19
"""The dealer works ahead of need: where times are measured, it gets what the other roles leave of this machine's
cores."""


class LocalRoles:
    """Kits and processes of all roles, in a folder. A context manager: on exit nothing keeps running; nor if this
    process is killed, as the roles then see the end of their standard input.

    Without `clients`, actor and rewarder get kits but no processes: the caller runs them, from `kit`. With `durable`
    their state lasts, and the dealer makes its keys itself. With `monitored` each has health, metrics and a page at one
    of `monitor_ports`. `route` gives the address at which the others dial a role
    that listens at a given one.
    """

    def __init__(
        self,
        folder: Path,
        federation: Federation,
        keys: list[str],
        contexts: Floats,
        epoch_key: bytes,
        *,
        clients: bool = True,
        durable: bool = False,
        monitored: bool = False,
        route: Callable[[Address], Address] = lambda address: address,
    ) -> None:
        self._folder = folder
        self._federation = federation
        self._clients = (ACTOR, REWARDER) if clients else ()
        self._durable = durable
        self._route = route
        self._parties = [Identity(Role.PARTY, number) for number in range(federation.parties)]
        self._listeners = {identity: socket.create_server((_HOST, 0)) for identity in (*self._parties, DEALER)}
        self._processes: dict[Identity, subprocess.Popen[str]] = {}
        members = (*self._parties, ACTOR, REWARDER, DEALER) if monitored else ()
        self._reserved = {identity: _reserved_port() for identity in members}
        self.monitor_ports = {identity: int(one.getsockname()[1]) for identity, one in self._reserved.items()}
        self._write_kits(keys, contexts, epoch_key)

    def __enter__(self) -> Self:
        for identity in (DEALER, *self._parties, *self._clients):
            self._processes[identity] = self._start(identity)
        for listener in self._listeners.values():
            listener.close()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for one in self._reserved.values():
            one.close()

    def put_dealer_behind(self) -> None:
        """Have the dealer get what the others leave of the cores, from now on: it has dealt ahead. Not before it is
        there: on a busy machine it would hardly start."""
        os.setpriority(os.PRIO_PROCESS, self._processes[DEALER].pid, _BEHIND_OTHERS)

    def decide(self, key: str, after: int) -> tuple[str, int]:
        """Ask the actor for a decision: its id and the arm."""
        answer = self._ask(ACTOR, {"key": key, "after": after})
        return answer["id"], answer["arm"]

    def reward(self, decision: str, reward: float) -> int:
        """Give the rewarder a reward; returns the version of the model that holds it."""
        version: int = self._ask(REWARDER, {"id": decision, "reward": reward})["version"]
        return version

    def stop(self) -> list[dict[str, Any]]:
        """End the federation in good order, or await the end if the clients are not ours; return each party's meter,
        with its privacy ledger."""
        for identity in reversed(self._clients):
            stdin = self._processes[identity].stdin
            assert stdin is not None
            stdin.close()
            self._finish(identity)
        with suppress(PermissionError):  # not everybody may: then it takes longer on a busy machine
            os.setpriority(os.PRIO_PROCESS, self._processes[DEALER].pid, 0)
        for identity in (*self._parties, DEALER):
            self._finish(identity)
        return [json.loads(self._report(identity).read_text()) for identity in self._parties]

    def kit(self, identity: Identity) -> Path:
        """The folder from which a role runs."""
        return self._folder / str(identity).replace(" ", "-")

    def process(self, identity: Identity) -> subprocess.Popen[str]:
        """The process of a role."""
        return self._processes[identity]

    def explain_failure(self) -> str:
        """What the roles that ended said last, for the error message."""
        lines, deadline = [], time.monotonic() + _STOP_SECONDS
        for identity, process in self._processes.items():
            try:
                code = process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                lines.append(f"{identity} is still running")
                continue
            said = self._log(identity).read_text().strip().splitlines()
            lines.append(f"{identity} ended with code {code}" + (f": {said[-1]}" if said else ""))
        return "\n".join(lines)

    def _ask(self, identity: Identity, request: dict[str, Any]) -> dict[str, Any]:
        process = self._processes[identity]
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerLost(f"the {identity} has ended before its time\n{self.explain_failure()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise (BudgetSpentError if answer.get("budget_spent") else FeatureError)(answer["error"])
        return answer

    def _finish(self, identity: Identity) -> None:
        try:
            code = self._processes[identity].wait(timeout=_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise PeerLost(f"{identity} does not end") from None
        if code:
            raise PeerLost(f"{identity} ended with code {code}\n{self.explain_failure()}")

    def _start(self, identity: Identity) -> subprocess.Popen[str]:
        listener = self._listeners.get(identity)
        command = [sys.executable, "-m", "hiddenarm", "serve", str(self.kit(identity)), "--until-eof"]
        command += ["--log-level", "warning"]
        descriptors: tuple[int, ...] = ()
        if listener is not None:
            descriptors = (listener.fileno(),)
            command += ["--listen-fd", str(listener.fileno()), "--report", str(self._report(identity))]
        with self._log(identity).open("w") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                pass_fds=descriptors,
                start_new_session=True,
                env=_single_threaded(),
            )

    def _write_kits(self, keys: list[str], contexts: Floats, epoch_key: bytes) -> None:
        authority = Authority.create("demo")
        addresses = {
            str(identity): self._route(Address(host=_HOST, port=listener.getsockname()[1]))
            for identity, listener in self._listeners.items()
        }
        public = KitFederation.of(self._federation)
        for identity in (*self._parties, DEALER, ACTOR, REWARDER):
            file = KitFile(
                name="demo",
                role=identity.role,
                number=identity.number,
                federation=public,
                addresses=addresses,
                durable=self._durable,
                monitor_port=self.monitor_ports.get(identity),
                **self._spinning(),
            )
            write_kit(self.kit(identity), file, authority)
        start = 0
        for identity, count in zip(self._parties, self._federation.features, strict=True):
            write_features(self.kit(identity), keys, contexts[:, start : start + count])
            start += count
        if not self._durable:
            write_private(self.kit(DEALER) / EPOCH_KEY_FILE, epoch_key)

    def _spinning(self) -> dict[str, Any]:
        """Parties that share cores would only take them from each other by polling."""
        return {} if len(self._parties) <= (os.cpu_count() or 1) else {"spin_microseconds": 0}

    def _report(self, identity: Identity) -> Path:
        return self.kit(identity) / "report.json"

    def _log(self, identity: Identity) -> Path:
        return self.kit(identity) / "log.txt"


def _reserved_port() -> socket.socket:
    """A socket that holds a port and does not listen: the system gives it to nobody who asks for any, and a server that
    names it, and may reuse addresses, can listen there."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind((_HOST, 0))
    return one


def _single_threaded() -> dict[str, str]:
    """The roles share few cores: linear algebra threads would only be in each other's way."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
