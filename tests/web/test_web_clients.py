"""Clients of the HTTP of actor and rewarder: ours, one in Node, one that makes up requests, and many at once.

`HIDDENARM_SOAK=1` makes the load 50 clients for 60 seconds; with `pytest -s` it prints throughput and latency.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from http_roles import Http, token_of, url_of

import hiddenarm
from deployment import PATIENCE, ROLES, Deployment, provision, require
from hiddenarm.errors import (
    ConfigError,
    ConflictError,
    DecisionIdError,
    EventError,
    FeatureError,
    InputError,
    RewardedError,
    UnavailableError,
)
from hiddenarm.roles.joint_rewards import MOST_TOGETHER
from hiddenarm.service.kit import read_kit_file
from hiddenarm.web import clients
from hiddenarm.web.event_ids import event_path

ROOT = Path(__file__).parents[2]
ARMS = {"beach", "city", "mountains", "cruise"}
SOAK = bool(os.environ.get("HIDDENARM_SOAK"))
CALLERS, SECONDS = (50, 60.0) if SOAK else (10, 3.0)
BAD_IDS = ["", ".", "..", "order-1/activate#", "a/b", "a%2Fb", "a b", "-a", "é", "a\n", "a" * 101, "a?b", "a\\b"]


@pytest.fixture(scope="module")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with Deployment(provision(tmp_path_factory.mktemp("clients"), durable=True, http=True)) as deployment:
        deployment.start(*ROLES)
        first = Http(deployment).rank("first")
        Http(deployment).reward("first", 1, decisionId=first["decisionId"])
        yield deployment.kits


@pytest.fixture(scope="module")
def actor(kits: Path) -> Iterator[hiddenarm.Actor]:
    with hiddenarm.Actor(url_of(kits, "actor"), token_file=kits / "actor" / "http.token") as actor:
        yield actor


@pytest.fixture(scope="module")
def rewarder(kits: Path) -> Iterator[hiddenarm.Rewarder]:
    with hiddenarm.Rewarder(url_of(kits, "rewarder"), token=token_of(kits, "rewarder")) as rewarder:
        yield rewarder


# ------------------------------------------------------------------ our clients


def test_rank_reward_and_activate(actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder) -> None:
    ranked = actor.rank("user 17", event_id="client-1", excluded=["beach"])
    assert ranked.event_id == "client-1"
    assert ranked.action in ARMS - {"beach"}
    assert actor.rank("user 17", event_id="client-1", excluded=["beach"]) == ranked
    version = rewarder.reward(ranked, 1.0)
    assert version is not None
    assert rewarder.reward("client-1", 1.0, decision_id=ranked.decision_id) == version
    waiting = actor.rank("user 18", actions=["city"], deferred=True)
    assert (waiting.action, waiting.decision_id) == ("city", None)
    assert rewarder.reward(waiting, 0.0, decision_id=actor.activate(waiting)) == version + 1


def test_unlearn(kits: Path, actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder) -> None:
    ranked = actor.rank("user 17", event_id="client-unlearn")
    version = rewarder.reward(ranked, 1.0)
    assert version is not None
    assert rewarder.unlearn(ranked) == version + 1
    assert rewarder.unlearn("client-unlearn", decision_id=ranked.decision_id) == version + 1
    with pytest.raises(EventError, match="send the decisionId"):
        rewarder.unlearn("client-unlearn")

    async def run() -> int:
        token = kits / "rewarder" / "http.token"
        async with hiddenarm.AsyncRewarder(url_of(kits, "rewarder"), token_file=token) as asynchronous:
            return await asynchronous.unlearn(ranked)

    assert asyncio.run(run()) == version + 1


class Scripted(BaseHTTPRequestHandler):
    """Answers by the script of its server, and keeps what was asked."""

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.path, asked))  # type: ignore[attr-defined]
        status, body = self.server.script.pop(0)  # type: ignore[attr-defined]
        answer = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        return


NOT_NOW = [(503, {"code": "unavailable", "detail": "party 1 is gone"}), (504, {"code": "timeout", "detail": "late"})]
RANKED = {"eventId": "visit-1", "rewardActionId": "city", "decisionId": "d"}


@pytest.fixture
def scripted() -> Iterator[HTTPServer]:
    server = HTTPServer(("127.0.0.1", 0), Scripted)
    server.asked, server.script = [], []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def paused(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """For how long the clients have paused, which they do not do."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(clients, "sleep", pauses.append)
    monkeypatch.setattr(clients, "sleep_async", pause)
    return pauses


CALLS = {
    "rank": lambda client: client.rank("user 17"),
    "activate": lambda client: client.activate("visit-1"),
    "reward": lambda client: client.reward("visit-1", 1.0),
    "unlearn": lambda client: client.unlearn("visit-1"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_patient_client_repeats_the_same_request(
    scripted: Any, paused: list[float], call: str, asynchronous: bool
) -> None:
    scripted.script += [*NOT_NOW, (200, {**RANKED, "version": 3})]
    url, more = f"http://127.0.0.1:{scripted.server_port}", dict[str, Any](token="x", patience=PATIENCE)
    of_actor = call in ("rank", "activate")
    if asynchronous:

        async def run() -> None:
            kind = hiddenarm.AsyncActor if of_actor else hiddenarm.AsyncRewarder
            async with kind(url, **more) as client:
                await CALLS[call](client)

        asyncio.run(run())
    else:
        with (hiddenarm.Actor if of_actor else hiddenarm.Rewarder)(url, **more) as client:
            CALLS[call](client)
    assert len(scripted.asked) == 3
    assert len(set(scripted.asked)) == 1, "under the same event id"
    assert paused == [7.0, 7.0]


def test_a_patient_client_repeats_what_nobody_took(scripted: Any, paused: list[float]) -> None:
    """Nobody listens at first; the server is found by the second attempt."""
    scripted.script.append((200, RANKED))
    with hiddenarm.Actor("http://127.0.0.1:9", token="x", patience=PATIENCE) as actor:
        elsewhere = actor._client.base_url

        def found(seconds: float) -> None:
            paused.append(seconds)
            assert actor._client.base_url == elsewhere
            actor._client.base_url = f"http://127.0.0.1:{scripted.server_port}"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clients, "sleep", found)
            assert actor.rank("user 17").action == "city"
    assert paused == [clients.RETRY_SECONDS]


def test_a_client_without_patience_repeats_nothing_and_no_client_what_was_refused(scripted: Any) -> None:
    url = f"http://127.0.0.1:{scripted.server_port}"
    scripted.script += [NOT_NOW[0], (404, {"code": "unknown_key", "detail": "nobody"})]
    with hiddenarm.Actor(url, token="x") as actor, pytest.raises(UnavailableError) as raised:
        actor.rank("user 17")
    assert raised.value.retry_after == 7
    with hiddenarm.Actor(url, token="x", patience=PATIENCE) as patient, pytest.raises(FeatureError):
        patient.rank("user 17")
    assert len(scripted.asked) == 2


def test_patience_ends(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: the last attempt is made when the time is up."""
    now = [100.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(clients, "monotonic", lambda: now[0])
    monkeypatch.setattr(clients, "sleep", pause)
    scripted.script += NOT_NOW * 2
    url = f"http://127.0.0.1:{scripted.server_port}"
    with hiddenarm.Rewarder(url, token="x", patience=10) as rewarder, pytest.raises(UnavailableError):
        rewarder.reward("visit-1", 1.0)
    assert pauses == [7.0, 3.0]
    assert len(scripted.asked) == 3


def test_what_is_refused_is_raised_by_its_name(actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder) -> None:
    ranked = actor.rank("user 17", event_id="client-2")
    rewarder.reward(ranked, 1.0)
    for wrong, call in (
        (FeatureError, lambda: actor.rank("nobody")),
        (ConflictError, lambda: actor.rank("user 18", event_id="client-2")),
        (InputError, lambda: actor.rank("user 17", actions=["moon"])),
        (EventError, lambda: actor.activate("never-made")),
        (EventError, lambda: rewarder.reward("client-2", 1.0)),
        (RewardedError, lambda: rewarder.reward("client-3", 1.0, decision_id=ranked.decision_id)),
        (DecisionIdError, lambda: rewarder.reward("3f9c02d17ab4-000017-5d0e9a71c2b84f36", 1.0)),
        (InputError, lambda: rewarder.reward(ranked, 2.0)),
    ):
        with pytest.raises(wrong):
            call()
    with pytest.raises(EventError, match="does not know the actor's events: send the decisionId that came with"):
        rewarder.reward("client-2", 1.0)


@pytest.mark.parametrize("identifier", BAD_IDS, ids=repr)
def test_an_id_never_reaches_another_path(
    actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder, identifier: str
) -> None:
    """A client builds no path from an id that could mean something else there."""
    with pytest.raises(InputError, match="the id of an event must be"):
        event_path(identifier, "reward")
    for call in (
        lambda: rewarder.reward(identifier, 1.0),
        lambda: actor.activate(identifier),
        lambda: actor.rank("user 17", event_id=identifier),
    ):
        with pytest.raises(InputError, match="the id of an event must be"):
            call()


def test_wrong_settings_are_refused_before_anything_is_sent(kits: Path) -> None:
    url = url_of(kits, "actor")
    for options in (
        {"url": url},
        {"token": "x"},
        {"url": url, "token": "x", "token_file": "y"},
        {"url": url, "socket": "z", "token": "x"},
        {"url": "ftp://127.0.0.1", "token": "x"},
        {"url": "http://hotel.example:8411", "token": "x"},
        {"url": "http://192.0.2.7:8411", "token": "x"},
        {"url": url, "token_file": kits / "nowhere"},
        {"url": url, "token": "x", "patience": -1},
        {"url": url, "token": "x", "patience": float("nan")},
    ):
        with pytest.raises(ConfigError):
            hiddenarm.Actor(**options)
    with hiddenarm.Actor(url, token="x" * 64) as stranger, pytest.raises(ConfigError, match="Bearer"):
        stranger.rank("user 17")
    with hiddenarm.Actor("http://127.0.0.1:9", token="x") as lost, pytest.raises(UnavailableError):
        lost.rank("user 17")


def test_many_threads_share_a_client(actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder) -> None:
    with ThreadPoolExecutor(8) as pool:
        ranked = list(pool.map(lambda number: actor.rank(f"user {17 + number % 2}"), range(24)))
        versions = list(pool.map(lambda one: rewarder.reward(one, 1.0), ranked))
    assert len({one.event_id for one in ranked}) == len({one.decision_id for one in ranked}) == 24
    assert len(set(versions)) == 24


def test_many_tasks_share_a_client(kits: Path) -> None:
    async def run() -> list[int | None]:
        actor = hiddenarm.AsyncActor(url_of(kits, "actor"), token_file=kits / "actor" / "http.token")
        rewarder = hiddenarm.AsyncRewarder(url_of(kits, "rewarder"), token_file=kits / "rewarder" / "http.token")
        async with actor, rewarder:
            waiting = await actor.rank("user 17", deferred=True)
            decision = await actor.activate(waiting)
            ranked = await asyncio.gather(*(actor.rank("user 17") for _ in range(10)))
            given = [
                rewarder.reward(waiting, 1.0, decision_id=decision),
                *(rewarder.reward(one, 0.5) for one in ranked),
            ]
            return list(await asyncio.gather(*given))

    assert len(set(asyncio.run(run()))) == 11


def test_the_client_in_node_runs(kits: Path) -> None:
    require("node")
    where = [str(kits / "actor"), url_of(kits, "actor"), str(kits / "rewarder"), url_of(kits, "rewarder")]
    command = ["node", str(ROOT / "examples" / "client.mjs"), *where]
    done = subprocess.run([*command, "user 17"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["action"] in ARMS
    assert answer["version"] >= 1
    refused = subprocess.run([*command, "nobody"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert refused.returncode != 0
    assert "unknown_key" in refused.stderr


# ------------------------------------------------------------------ made-up requests


@pytest.mark.parametrize("role", ["actor", "rewarder", "airline"])
def test_schemathesis_finds_nothing(kits: Path, tmp_path: Path, role: str) -> None:
    """Requests that the description allows and requests that it does not, against all of its checks."""
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{url_of(kits, role)}/openapi.json"]
    options = ["--max-examples", "400" if SOAK else "15", "--seed", "1", "--no-color", "--generation-database", "none"]
    header = ["--header", f"Authorization: Bearer {token_of(kits, role)}"]
    done = subprocess.run(
        [*command, *options, *header], capture_output=True, text=True, timeout=600, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr


# ------------------------------------------------------------------ load


def pending_at(kits: Path) -> int:
    """Decisions that wait for their reward, as a party counts them."""
    port = read_kit_file(kits / "hotel").monitor_port
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        found = re.search(r"^hiddenarm_pending_decisions (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_many_clients_at_once_lose_no_reward_and_double_none(
    kits: Path, actor: hiddenarm.Actor, rewarder: hiddenarm.Rewarder
) -> None:
    """Every event is ranked and rewarded, some of them twice. Each lesson is that of some of these rewards, and no
    decision waits for its reward in the end: a reward that counted twice would leave one less than before."""
    end = time.monotonic() + SECONDS
    ranks: list[float] = []
    rewards: list[float] = []
    versions: list[int] = []
    failures: list[BaseException] = []
    before = rewarder.reward(actor.rank("user 17"), 1.0)
    assert before is not None
    pending = pending_at(kits)

    def call(caller: int) -> None:
        number = 0
        try:
            while time.monotonic() < end:
                event = f"load-{caller}-{number}"
                began = time.perf_counter()
                ranked = actor.rank("user 17", event_id=event, timeout=60)
                between = time.perf_counter()
                version = rewarder.reward(ranked, 1.0, timeout=60)
                assert version is not None
                ranks.append(between - began)
                rewards.append(time.perf_counter() - between)
                versions.append(version)
                if number % 8 == 0:
                    assert actor.rank("user 17", event_id=event, timeout=60) == ranked
                    assert rewarder.reward(ranked, 1.0, timeout=60) == version
                number += 1
        except BaseException as error:
            failures.append(error)

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(CALLERS)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert not failures
    after = rewarder.reward(actor.rank("user 17"), 1.0)
    assert after is not None
    assert set(versions) == set(range(before + 1, after))
    assert max(Counter(versions).values()) <= MOST_TOGETHER
    assert pending_at(kits) == pending
    assert len(versions) >= CALLERS
    for name, times in (("rank", sorted(ranks)), ("reward", sorted(rewards))):
        p50, p95, p99 = (1000 * times[int(len(times) * share)] for share in (0.5, 0.95, 0.99))
        print(
            f"{name}: {len(times)}, {len(times) / SECONDS:.0f}/s, {p50:.0f} ms p50, {p95:.0f} ms p95, {p99:.0f} ms p99"
        )
