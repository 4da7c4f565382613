"""Real roles whose features change, wait or fail: no epoch ends, and decisions use what is there."""

from __future__ import annotations

import json
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deployment import ROLES, Deployment, provision
from hiddenarm.roles.party_epoch import NO_SOURCE

HEADER = "key,nights,stars,spend\n"


def put(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.chmod(0o600)
    partial.replace(path)


def rows(sign: int) -> str:
    return "".join(f"u{number},{sign * 0.9},0,0\n" for number in range(20))


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    kits = provision(tmp_path, durable=True, airline='missing_key = "zeros"')
    for path in (tmp_path / "kits").glob("*/kit.json"):
        content = json.loads(path.read_text())
        content["federation"]["epsilon"] = 0.0
        path.write_text(json.dumps(content))
    return kits


def decide(deployment: Deployment, count: int, first: int) -> list[dict[str, Any]]:
    """Many requests under way at once."""
    actor = deployment.processes["actor"]
    assert actor.stdin is not None
    assert actor.stdout is not None
    actor.stdin.writelines(f"{json.dumps({'key': f'u{(first + n) % 20}'})}\n" for n in range(count))
    actor.stdin.flush()
    return [json.loads(actor.stdout.readline()) for _ in range(count)]


def until_chosen(deployment: Deployment, arm: int) -> None:
    """Until the actor has heard of the lesson, it asks by the model of before, in which all arms tie."""
    for _ in range(200):
        if {answer["arm"] for answer in decide(deployment, 40, 0)} == {arm}:
            return
    pytest.fail("what was taught is not chosen")


def epochs(deployment: Deployment) -> tuple[int, int]:
    """How many were opened and have ended, at both parties together. While roles start, one may be opened again."""
    events = Counter(line["event"] for role in ("hotel", "airline") for line in deployment.log(role))
    assert events["epoch opened"] >= 2
    return events["epoch opened"], events["epoch ended"]


@pytest.mark.parametrize("by_signal", [False, True])
def test_a_feature_file_replaced_under_load(kits: Path, by_signal: bool) -> None:
    """Nothing explores. An arm that was rewarded under a context is chosen for it, and never for the opposite one."""
    table = kits / "hotel" / "features.csv"
    put(table, HEADER + rows(1))
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        taught = deployment.ask("actor", key="u0")
        assert "version" in deployment.ask("rewarder", id=taught["id"], reward=1)
        until_chosen(deployment, taught["arm"])
        before = epochs(deployment)
        put(table, HEADER + rows(-1) + "new,0.1,0,0\n")
        if by_signal:
            deployment.processes["hotel"].send_signal(signal.SIGHUP)
        answers: list[dict[str, Any]] = []
        while "features reloaded" not in {line["event"] for line in deployment.log("hotel")}:
            answers += decide(deployment, 20, len(answers))
            assert len(answers) < 20_000
        later = decide(deployment, 40, 0)
        assert all("arm" in answer for answer in answers + later)  # no decision fails
        assert answers[0]["arm"] == taught["arm"] or by_signal
        assert taught["arm"] not in {answer["arm"] for answer in later}
        assert "arm" in deployment.ask("actor", key="new")
        put(table, "key,nights\n")
        deployment.processes["hotel"].send_signal(signal.SIGHUP)
        deployment.until("hotel", "features not reloaded")
        assert all("arm" in answer for answer in decide(deployment, 20, 0))
        assert epochs(deployment) == before


def test_a_party_that_asks_a_database(kits: Path) -> None:
    """The database is read as it is at every decision; while it fails the actor is told so, and no epoch ends."""
    hotel = kits / "hotel"
    database = hotel / "users.db"
    (hotel / "features.csv").unlink()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE users (id TEXT, nights REAL, stars REAL, spend REAL)")
        connection.executemany("INSERT INTO users VALUES (?, 0.9, 0, 0)", [(f"u{n}",) for n in range(20)])
    database.chmod(0o600)
    query = "SELECT nights, stars, spend FROM users WHERE id = :key"
    put(hotel / "features.toml", f'source = "sqlite"\nfile = "users.db"\nquery = "{query}"\n')
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        taught = deployment.ask("actor", key="u0")
        assert "version" in deployment.ask("rewarder", id=taught["id"], reward=1)
        until_chosen(deployment, taught["arm"])
        before = epochs(deployment)
        with connection:
            connection.execute("UPDATE users SET nights = -0.9")
        assert taught["arm"] not in {answer["arm"] for answer in decide(deployment, 40, 0)}
        with connection:
            connection.execute("ALTER TABLE users RENAME TO hidden")
        answer = deployment.ask_once("actor", key="u1")
        assert "arm" not in answer
        assert "retry_after" in answer
        assert NO_SOURCE in answer["error"]
        failed = deployment.until("hotel", "features not found")
        assert "OperationalError" in failed["reason"]
        with connection:
            connection.execute("ALTER TABLE hidden RENAME TO users")
        assert all("arm" in answer for answer in decide(deployment, 20, 0))
        assert epochs(deployment) == before
    connection.close()
