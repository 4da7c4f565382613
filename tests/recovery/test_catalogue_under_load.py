"""A catalogue that changes while callers go on asking by HTTP, with real processes: roles adopt the next version of the
table and are started anew, one after the other. Every request gets its decision, none made with a version names an arm
that it has retired, and the model is that of the plain twin, which learns with the features of each decision's version.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, NamedTuple

import numpy as np
import pytest
from click.testing import CliRunner

from deployment import ROLES, Deployment, provision
from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.cli.main import commands
from hiddenarm.ring.words import Floats, decode
from hiddenarm.roles.epochs.plan import CheckpointName
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.service.arm_tables import read_arm_file
from hiddenarm.service.kit import Kit, read_kit_file
from hiddenarm.service.state import STATE_FOLDER, State, export, restore

pytest.importorskip("fastapi", reason="the extra http is not installed")

SOAK = os.environ.get("HIDDENARM_SOAK") == "1"
PARTIES = ("hotel", "airline")
PATIENCE = 400.0
"""Seconds for something that takes a few: only a hang exceeds it."""
DECISIONS = 25
"""By each version, at least."""
UNIT = 2.0**-16
"""How far two honest runs of a lesson may be apart: the largest error of a reciprocal that is looked up."""


@dataclass(frozen=True)
class Version:
    """A version of the catalogue: its rows, and who is retired."""

    number: int
    rows: dict[str, tuple[float, float, float]]
    retired: tuple[str, ...] = ()

    def write(self, folder: Path) -> Path:
        path = folder / f"items-{self.number}.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerow(("name", "constant", "price", "far"))
            csv.writer(file).writerows((name, *row) for name, row in self.rows.items())
        return path

    def table(self, folder: Path) -> ArmTable:
        return read_arm_file(self.write(folder)).table


ITEMS = {
    "beach": (0.5, 0.4, 0.1),
    "city": (0.5, -0.6, 0.2),
    "lake": (0.5, 0.1, 0.7),
    "forest": (0.5, -0.1, -0.6),
}
LATER = {**ITEMS, "lake": (0.5, 0.2, -0.4), "river": (0.5, 0.3, 0.3)}
ALWAYS = ("lake", "forest")
"""Eligible in some requests; in use in all versions."""
VERSIONS = (
    Version(1, ITEMS),
    Version(2, LATER, ("city",)),
    *([Version(3, {**LATER, "river": (0.4, 0.6, 0.3), "sea": (0.5, 0.0, 0.8)}, ("city", "beach"))] if SOAK else []),
)


class Caller:
    """Makes requests as an application would: again, while the answer is that this is no time for it."""

    def __init__(self, kits: Path) -> None:
        self._kits = kits

    def rank(self, event: str, key: str, actions: Sequence[str] = ()) -> dict[str, Any]:
        named = {"actions": list(actions)} if actions else {}
        return self._insist("actor", "/rank", {"eventId": event, "key": key, **named})

    def reward(self, event: str, value: float, decision: str) -> None:
        self._insist("rewarder", f"/events/{event}/reward", {"value": value, "decisionId": decision})

    def _insist(self, role: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                return self._post(role, path, body)
            except urllib.error.HTTPError as error:
                if error.code not in (503, 504):
                    raise AssertionError(f"{path}: {error.code} {error.read().decode()}") from None
            except OSError:  # it does not listen now
                pass
            time.sleep(0.05)
        raise AssertionError(f"{path} of {body} is not answered")

    def _post(self, role: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        kit = self._kits / role
        token = (kit / "http.token").read_text().strip()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
        url = f"http://{read_kit_file(kit).http}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers, method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found


class Told(NamedTuple):
    """What a caller was told, and has rewarded."""

    action: str
    key: str
    reward: float
    began: float


class Load:
    """Callers that ask and reward without a pause, and all that they were told."""

    def __init__(self, kits: Path, callers: int) -> None:
        self.told: dict[str, Told] = {}
        """By the ids of decisions."""
        self.failed: list[str] = []
        self._lock, self._stop = Lock(), Event()
        self._threads = [Thread(target=self._call, args=(kits, number)) for number in range(callers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        assert not any(thread.is_alive() for thread in self._threads)

    def _call(self, kits: Path, number: int) -> None:
        caller, turn = Caller(kits), 0
        while not self._stop.is_set():
            event, turn = f"caller-{number}-{turn}", turn + 1
            try:
                self._step(caller, event, ("user 17", "user 18")[turn % 2], ALWAYS if turn % 3 == 0 else ())
            except Exception as error:
                self.failed.append(f"{event}: {error}")
                return

    def _step(self, caller: Caller, event: str, key: str, actions: Sequence[str]) -> None:
        began, ranked = time.monotonic(), caller.rank(event, key, actions)
        assert not actions or ranked["rewardActionId"] in actions
        reward = round(len(ranked["rewardActionId"]) / 8, 3)
        again = caller.rank(event, key, actions)
        assert again == ranked, "a request that is repeated gets the same answer"
        caller.reward(event, reward, ranked["decisionId"])
        told = Told(ranked["rewardActionId"], key, reward, began)
        with self._lock:
            self.told[ranked["decisionId"]] = told

    def begun_since(self, moment: float) -> int:
        """How many requests were begun after a moment, and are decided and rewarded."""
        with self._lock:
            return sum(told.began > moment for told in self.told.values())


def wait_for_decisions(deployment: Deployment, load: Load) -> None:
    """Until some requests that are begun from now on are decided; roles that end meanwhile, as they have met one of
    another version, are started again, as a service manager would."""
    now, deadline = time.monotonic(), time.monotonic() + PATIENCE
    while load.begun_since(now) < DECISIONS:
        assert not load.failed, load.failed
        assert time.monotonic() < deadline, "decisions are not made any more"
        restart_ended(deployment)
        time.sleep(0.1)


def stop(deployment: Deployment, *roles: str) -> None:
    for role in roles:
        deployment.processes[role].send_signal(signal.SIGTERM)
    for role in roles:
        deployment.processes[role].wait(PATIENCE)


def restart_ended(deployment: Deployment) -> None:
    for role in ROLES:
        if deployment.processes[role].poll() is not None:
            deployment.start(role)


def last_epoch(deployment: Deployment) -> int:
    return max(int(line["epoch"]) for line in deployment.log("hotel") if line["event"] == "epoch opened")


def adopt(kits: Path, version: Version) -> None:
    table = version.write(kits.parent)
    text = (kits.parent / "federation.toml").read_text().replace("items-1.csv", table.name)
    retired = ", ".join(f'"{name}"' for name in version.retired)
    path = kits.parent / f"version-{version.number}.toml"
    path.write_text(f"version = {version.number}\nretired = [{retired}]\n{text}")
    change = kits.parent / f"change-{version.number}.json"
    for words in (
        ["change", str(kits / "authority"), str(path), "--out", str(change)],
        *(["adopt", str(kits / role), str(change), "--yes"] for role in ROLES),
    ):
        done = CliRunner().invoke(commands, words)
        assert done.exit_code == 0, (done.output, done.exception)


def test_arms_are_added_changed_and_retired_while_callers_go_on_asking(tmp_path: Path) -> None:
    VERSIONS[0].write(tmp_path)
    kits = provision(tmp_path, durable=True, more="checkpoint_every = 2", http=True, arm_table="items-1.csv")
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        load = Load(kits, callers=3)
        load.start()
        ends: list[int] = []
        try:
            wait_for_decisions(deployment, load)
            for version in VERSIONS[1:]:
                adopt(kits, version)
                stop(deployment, "dealer", "hotel")  # without them no epoch of the version before can open
                ends.append(last_epoch(deployment))
                restart_ended(deployment)
                for role in ("airline", "actor", "rewarder"):
                    stop(deployment, role)
                    restart_ended(deployment)
                wait_for_decisions(deployment, load)
        finally:
            load.stop()
        stop(deployment, "actor", "rewarder")
        stop(deployment, *PARTIES, "dealer")
    assert not load.failed, load.failed
    for party in PARTIES:  # a copy of the state is the state
        export(kits / party, tmp_path / f"{party}.copy")
        shutil.rmtree(kits / party / STATE_FOLDER)
        restore(kits / party, tmp_path / f"{party}.copy")
    with opened_states(kits) as records:
        versions = versions_by_epoch(records, ends)
        check_names(load, versions)
        check_model(load, kits, records, versions)


@contextmanager
def opened_states(kits: Path) -> Iterator[list[PartyRecords]]:
    """The records of both parties: only a test may read them together."""
    states = [State(Kit.read(kits / party)) for party in PARTIES]
    try:
        yield [state.party() for state in states]
    finally:
        for state in states:
            state.close()


def versions_by_epoch(records: list[PartyRecords], ends: list[int]) -> dict[str, Version]:
    """The version by which each epoch was opened, by its name; `ends` are the last ones of the versions before."""
    return {
        plan.name.hex(): VERSIONS[sum(number > end for end in ends)] for number, plan in records[0].opened().items()
    }


def check_names(load: Load, versions: dict[str, Version]) -> None:
    used = set()
    for identifier, told in load.told.items():
        version = versions[identifier.split("-")[0]]
        used.add(version.number)
        assert told.action in version.rows
        assert told.action not in version.retired, f"{identifier} was made with version {version.number}"
    assert used == {version.number for version in VERSIONS}


def check_model(load: Load, kits: Path, records: list[PartyRecords], versions: dict[str, Version]) -> None:
    """The newest common checkpoint is what the twin has learned from the same lessons, in their order, each with the
    features that its arm had when it was chosen; and these are what the parties kept."""
    federation = Kit.read(kits / PARTIES[0]).federation
    contexts = {key: entered_context(kits, key) for key in ("user 17", "user 18")}
    tables = {version.number: version.table(kits.parent) for version in VERSIONS}
    by_name = {_name_of(identifier): identifier for identifier in load.told}
    checkpoint = max(set.intersection(*(one.checkpoints for one in records)), default=CheckpointName(0, 0))
    assert checkpoint.version > DECISIONS
    twin, learned = PlainBandit(1, federation.model_size, federation.ridge), 0
    for lesson in records[0].lessons(0, checkpoint.version):
        for name, _ in lesson.rewards:
            told = load.told[by_name[name]]
            table = tables[versions[by_name[name].split("-")[0]].number]
            arm = table.names.index(told.action)
            kept = [one.interaction(name) for one in records]
            shares = [one.arm_share(party == 0)[0] for party, one in enumerate(kept) if one is not None]
            np.testing.assert_array_equal(np.add.reduce(shares), table.words[arm])
            twin.learn(np.outer(contexts[told.key], table.features[arm]).ravel(), 0, told.reward)
            learned += 1
    weights = federation.learner.reveal([one.state(checkpoint).arrays for one in records])[1][0]
    assert np.abs(weights - twin.weights).max() <= UNIT * learned
    assert np.abs(twin.weights).max() > 0.01


def entered_context(kits: Path, key: str) -> Floats:
    """A context as the parties enter it."""
    read = [Kit.read(kits / party) for party in PARTIES]
    words = [kit.features().encoded(kit.federation, number).words(key) for number, kit in enumerate(read)]
    return decode(np.concatenate([np.ravel(own) for own in words]), read[0].federation.context_bits)


def _name_of(identifier: str) -> int:
    epoch, number, _ = identifier.split("-")
    return decision_name(int(epoch, 16), int(number))
