"""`hiddenarm serve KIT...`: party, actor and rewarder of one organisation in one process, and what is refused."""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from deployment import PATIENCE, ROLES, Deployment, provision
from hiddenarm.cli.main import commands
from hiddenarm.cli.status import parse_metrics
from hiddenarm.errors import ConfigError, PeerLost, StoreError
from hiddenarm.service.kit import Kit, read_kit_file
from hiddenarm.service.process import check_together
from hiddenarm.store.sqlite import FILE

TOGETHER = ("hotel", "actor", "rewarder")
IDENTITIES = dict(zip(TOGETHER, ("hotel (party 0)", "actor", "rewarder"), strict=True))


def start(deployment: Deployment) -> None:
    """The hotel runs all its roles as one process; one step is made."""
    deployment.start("dealer", "airline")
    deployment.start_together(*TOGETHER)
    deployment.step()


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with Deployment(provision(tmp_path_factory.mktemp("together"), durable=True)) as deployment:
        start(deployment)
        yield deployment


def events(deployment: Deployment, role: str) -> list[str]:
    """What a role of the shared process logged."""
    return [line["event"] for line in deployment.log(role) if line["role"] == IDENTITIES[role]]


# ------------------------------------------------------------------ serving


def test_each_role_has_its_own_health_metrics_and_log(deployment: Deployment) -> None:
    for role, identity in IDENTITIES.items():
        assert deployment.until_ready(role)["reasons"] == []
        [(labels, _)] = parse_metrics(deployment.get(role, "/metrics")[1])["hiddenarm_info"]
        assert labels["role"] == identity.removeprefix("hotel (").removesuffix(")")
        assert {"serving", "peer ready"} <= set(events(deployment, role))
    assert {line["role"] for line in deployment.log("hotel")} == set(IDENTITIES.values())
    assert (deployment.kits / "hotel" / "state").is_dir()
    assert len({deployment.processes[role].pid for role in TOGETHER}) == 1


def test_a_line_is_for_whom_its_fields_say(deployment: Deployment) -> None:
    decisions = deployment.ask("actor", keys=["user 17", "user 18"])["decisions"]
    first, second = (decision["id"] for decision in decisions)
    assert deployment.ask("rewarder", id=first, reward=1)["id"] == first
    version = deployment.ask("rewarder", rewards=[{"id": second, "reward": 0.5}])["version"]
    assert "arm" in deployment.ask("actor", key="user 17", after=version)


@pytest.mark.parametrize(
    "request_",
    [{}, {"request": "a", "after": 1}, {"key": "user 17", "id": "x", "reward": 1}, {"keys": [], "rewards": []}],
    ids=json.dumps,
)
def test_a_line_that_is_for_nobody_or_for_both_is_refused(deployment: Deployment, request_: dict[str, Any]) -> None:
    answer = deployment.ask("actor", **request_)
    assert answer == {"error": "a request has 'key' or 'keys', for the actor, or 'id' or 'rewards', for the rewarder"}
    deployment.step()


def test_lines_of_both_in_one_write_are_answered_in_their_order(deployment: Deployment) -> None:
    process = deployment.processes["actor"]
    assert process.stdin is not None
    assert process.stdout is not None
    identifier = deployment.ask("actor", key="user 17")["id"]
    version = deployment.ask("rewarder", id=deployment.ask("actor", key="user 18")["id"], reward=0)["version"]
    lines = [
        {"id": identifier, "reward": 1},
        {"key": "user 17", "after": version + 1},
        {"id": identifier, "reward": 0},
        {"key": "nobody"},
        {"key": "user 17"},
    ]
    process.stdin.write("".join(json.dumps(line) + "\n" for line in lines) + "oops\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(6)]
    fields = [{"id", "version"}, {"id", "arm", "name"}, {"error"}, {"error"}, {"id", "arm", "name"}, {"error"}]
    assert [answer.keys() for answer in answers] == fields
    assert answers[0] == {"id": identifier, "version": version + 1}
    assert "one JSON object a line" in answers[5]["error"]


def test_sighup_renews_the_certificates_of_all(deployment: Deployment) -> None:
    deployment.processes["hotel"].send_signal(signal.SIGHUP)
    deadline = time.monotonic() + PATIENCE
    while any("certificate renewed" not in events(deployment, role) for role in TOGETHER):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    deployment.step()


def test_sigterm_ends_all_clients_first_and_they_come_back(deployment: Deployment) -> None:
    """Last, as it restarts them."""
    named = {"request": "once", "key": "user 17"}
    decision = deployment.ask("actor", **named)
    deployment.processes["hotel"].send_signal(signal.SIGTERM)
    assert deployment.ends("hotel") == {"hotel": 0}
    stops = [line["role"] for line in deployment.log("hotel") if line["event"] == "stopped"]
    assert sorted(stops[:2]) == ["actor", "rewarder"]
    assert stops[2:] == ["hotel (party 0)"]
    [stopping] = [line for line in deployment.log("hotel") if line["event"] == "stopping"]
    assert (stopping["role"], stopping["signal"]) == ("hotel (party 0), actor, rewarder", "SIGTERM")
    deployment.start_together(*TOGETHER)
    assert deployment.ask("actor", **named) == decision
    assert "version" in deployment.ask("rewarder", id=decision["id"], reward=1)


# ------------------------------------------------------------------ ends


def test_the_end_of_standard_input_ends_all(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path)) as deployment:
        start(deployment)
        stdin = deployment.processes["hotel"].stdin
        assert stdin is not None
        stdin.close()
        assert deployment.ends("hotel", "airline", "dealer") == {"hotel": 0, "airline": 0, "dealer": 0}
        assert "no requests" not in deployment.log_path("hotel").read_text()


def test_a_process_that_is_given_no_request_says_what_to_pipe_in(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path, durable=True)) as deployment:
        deployment.start_together(*TOGETHER)
        stdin = deployment.processes["hotel"].stdin
        assert stdin is not None
        stdin.close()
        assert deployment.ends("hotel") == {"hotel": 0}
        hint = deployment.until("hotel", "no requests")["hint"]
        assert hint.endswith('such as {"key": "user 17"} or {"id": ID, "reward": 1}')


def test_one_that_fails_ends_all_with_its_code_and_reason(tmp_path: Path) -> None:
    """The party's port is taken: actor and rewarder, which have started, stop."""
    kits = provision(tmp_path, durable=True)
    address = read_kit_file(kits / "hotel").addresses["party 0"]
    with socket.create_server((address.host, address.port)), Deployment(kits) as deployment:
        deployment.start_together(*TOGETHER)
        assert deployment.ends("hotel") == {"hotel": ConfigError.exit_code}
        last = deployment.log_path("hotel").read_text().splitlines()[-1]
        assert last.startswith(f"error: cannot listen at {address.host}:{address.port}")
        failed = deployment.until("hotel", "failed")
        assert (failed["role"], failed["exit_code"]) == ("hotel (party 0)", 2)
        assert events(deployment, "actor")[-1] == events(deployment, "rewarder")[-1] == "stopped"


def test_a_store_that_cannot_be_written_under_way_ends_all(tmp_path: Path) -> None:
    """The rewarder's: somebody else holds it for writing."""
    with Deployment(provision(tmp_path, durable=True)) as deployment:
        start(deployment)
        decision = deployment.ask("actor", key="user 17")
        process = deployment.processes["rewarder"]
        with closing(sqlite3.connect(deployment.kits / "rewarder" / "state" / FILE)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert process.stdin is not None
            process.stdin.write(json.dumps({"id": decision["id"], "reward": 1}) + "\n")
            process.stdin.flush()
            assert deployment.ends("rewarder") == {"rewarder": StoreError.exit_code}
        assert deployment.until("rewarder", "failed")["role"] == "rewarder"
        assert [events(deployment, role)[-1] for role in ("actor", "hotel")] == ["stopped", "stopped"]


def test_in_memory_a_lost_peer_ends_all(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path)) as deployment:
        start(deployment)
        deployment.processes["airline"].kill()
        assert deployment.ends("hotel") == {"hotel": PeerLost.exit_code}
        assert "airline (party 1) is gone" in deployment.log_path("hotel").read_text().splitlines()[-1]


def test_told_together_with_all_others_a_client_ends_with_0_though_they_left_before(tmp_path: Path) -> None:
    """The rewarder sleeps while the actor ends, and with it the federation. It hears of that and of the signal then."""
    with Deployment(provision(tmp_path)) as deployment:
        deployment.start(*ROLES)
        deployment.step()
        rewarder = deployment.processes["rewarder"]
        rewarder.send_signal(signal.SIGSTOP)
        deployment.processes["actor"].send_signal(signal.SIGTERM)
        others = ("actor", "hotel", "airline", "dealer")
        assert deployment.ends(*others) == dict.fromkeys(others, 0)
        rewarder.send_signal(signal.SIGTERM)
        rewarder.send_signal(signal.SIGCONT)
        assert deployment.ends("rewarder") == {"rewarder": 0}


# ------------------------------------------------------------------ refusals


def rewritten(kit: Path, **fields: Any) -> None:
    path = kit / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def other_federation(kits: Path) -> None:
    rewritten(kits / "actor", name="other")


def other_numbers(kits: Path) -> None:
    rewritten(kits / "actor", checkpoint_every=17)


def one_monitor(kits: Path) -> None:
    rewritten(kits / "actor", monitor_port=read_kit_file(kits / "hotel").monitor_port)


def monitor_at_the_partys_port(kits: Path) -> None:
    rewritten(kits / "actor", monitor_port=read_kit_file(kits / "hotel").addresses["party 0"].port)


def one_state(kits: Path) -> None:
    (kits / "hotel" / "state").mkdir(mode=0o700)
    (kits / "actor" / "state").symlink_to(kits / "hotel" / "state")


def as_they_are(_: Path) -> None:
    return


@pytest.mark.parametrize(
    ("change", "roles", "words"),
    [
        (as_they_are, ("hotel", "hotel"), ["both kits of party 0", "give each role once"]),
        (as_they_are, ("actor", "rewarder", "actor"), ["both kits of actor", "give each role once"]),
        (as_they_are, ("hotel", "airline"), ["party 0 and party 1", "each in a process of its own"]),
        (as_they_are, ("hotel", "dealer"), ["the dealer must not be in one hand with party 0", "by itself"]),
        (as_they_are, ("dealer", "rewarder"), ["the dealer must not be in one hand with rewarder", "by itself"]),
        (other_federation, ("hotel", "actor"), ["not kits of one federation", '"travel"', '"other"', "of its own"]),
        (other_numbers, ("rewarder", "actor"), ["checkpoint_every", "256", "17", "provisioned together"]),
        (one_monitor, ("hotel", "rewarder", "actor"), ["both use port", "set another monitor_port"]),
        (monitor_at_the_partys_port, ("actor", "hotel"), ["both use port", "another port of the party"]),
        (one_state, ("hotel", "actor"), ["share the state folder", "of its own"]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(value),
)
def test_kits_that_cannot_be_served_together(
    tmp_path: Path, change: Callable[[Path], None], roles: tuple[str, ...], words: list[str]
) -> None:
    """The message says why and what to do, and nothing was opened."""
    kits = provision(tmp_path, durable=True)
    change(kits)
    before = sorted(kits.rglob("*"))
    folders = [str(kits / role) for role in roles]
    result = CliRunner().invoke(commands, ["serve", *folders])
    assert isinstance(result.exception, ConfigError)
    for word in [*words, *(folder for folder in folders if folder in str(result.exception))]:
        assert word in str(result.exception)
    assert sorted(kits.rglob("*")) == before


def test_kits_that_can(tmp_path: Path) -> None:
    kits = provision(tmp_path)
    for roles in (TOGETHER, TOGETHER[::-1], ("actor", "rewarder"), ("airline", "rewarder"), ("dealer",)):
        check_together([Kit.read(kits / role) for role in roles])
