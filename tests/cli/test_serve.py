"""`hiddenarm serve` of actor and rewarder: a line of JSON in, a line of JSON out, and no line that ends them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import check_error, hiddenarm

from deployment import PATIENCE, provision
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.request_lines import max_line_bytes
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.roles.messages import ACTOR, MAX_KEY_BYTES, REWARDER
from hiddenarm.service.kit import KitFile

Ask = Callable[[Identity, bytes], dict[str, Any]]

MAX_BATCH: int = KitFile.model_fields["max_batch"].default
LONGEST_LINE = max_line_bytes(MAX_BATCH)
LONGEST_KEY = "\x01" * MAX_KEY_BYTES
"""No key is longer, and none takes more bytes in JSON."""

NO_REQUESTS = [
    b"",
    b"   ",
    b"hello",
    b"{",
    b"[]",
    b"null",
    b"17",
    b'"text"',
    b"\xff\xfe\x00",
    b"\x00",
    b"{}",
    b"[" * 50_000,
    b'{"a":' * 20_000,
    b"9" * 5000,
    b'{"key": "' + b"k" * 70_000 + b'"}',
    b'{"key": "' + b"k" * LONGEST_LINE + b'"}',
    b"x" * (5 * LONGEST_LINE),
]
NO_DECISIONS = [
    b'{"key": 17}',
    b'{"key": null}',
    b'{"key": ""}',
    b'{"key": ["user 0"]}',
    b'{"key": "nobody"}',
    b'{"key": "\\ud800"}',
    json.dumps({"key": "k" * 513}).encode(),
    b'{"KEY": "user 0"}',
    b'{"key": "user 0", "after": -1}',
    b'{"key": "user 0", "after": 1.5}',
    b'{"key": "user 0", "after": "1"}',
    b'{"key": "user 0", "after": true}',
    b'{"key": "user 0", "after": null}',
    b'{"key": "user 0", "after": 9999}',
    b'{"key": "user 0", "after": 9223372036854775807}',
    b'{"key": "user 0", "after": 99999999999999999999999}',
    b'{"key": "user 0", "after": NaN}',
    b'{"key": "user 0", "after": ' + b"9" * 5000 + b"}",
    b'{"key": "user 0", "eligible": []}',
    b'{"key": "user 0", "eligible": [3]}',
    b'{"key": "user 0", "eligible": [1, 1]}',
    b'{"key": "user 0", "eligible": [true]}',
    b'{"key": "user 0", "eligible": 1}',
    b'{"key": "user 0", "eligible": ' + b"[" * 400 + b"]" * 400 + b"}",
]


def no_rewards(identifier: str) -> list[bytes]:
    name = json.dumps(identifier).encode()
    epoch, _, tag = identifier.split("-")
    values = [b"NaN", b"Infinity", b"-0.1", b"1.1", b'"1"', b"null", b"[]", b"{}", b"1e999", b"9" * 400, b"9" * 5000]
    return [
        *(b'{"id": ' + name + b', "reward": ' + value + b"}" for value in values),
        b'{"id": ' + name + b"}",
        b'{"reward": 1}',
        b'{"id": 17, "reward": 1}',
        b'{"id": "", "reward": 1}',
        b'{"id": "user 0", "reward": 1}',
        b'{"id": "\\ud800", "reward": 1}',
        json.dumps({"id": "0" * 12 + identifier[12:], "reward": 1}).encode(),
        json.dumps({"id": "-".join([epoch, "000999", tag]), "reward": 1}).encode(),
    ]


@pytest.fixture(scope="module")
def roles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRoles]:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.1)
    contexts = np.random.default_rng(0).uniform(-0.5, 0.5, (21, 4))
    keys = [*(f"user {number}" for number in range(20)), LONGEST_KEY]
    with LocalRoles(tmp_path_factory.mktemp("serve") / "kits", federation, keys, contexts, bytes(32)) as roles:
        watchdog = threading.Timer(3 * PATIENCE, lambda: roles.process(Identity(Role.PARTY, 0)).kill())
        watchdog.start()
        yield roles
        watchdog.cancel()
        roles.stop()


@pytest.fixture
def ask(roles: LocalRoles) -> Ask:
    def send(role: Identity, line: bytes) -> dict[str, Any]:
        process = roles.process(role)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.buffer.write(line + b"\n")  # type: ignore[attr-defined]
        process.stdin.flush()
        answer: dict[str, Any] = json.loads(process.stdout.readline())
        return answer

    return send


def check_refused(answer: dict[str, Any]) -> None:
    assert answer.keys() == {"error"}
    assert answer["error"].isprintable()
    assert 5 < len(answer["error"]) < 300


def test_only_eligible_arms_are_chosen(ask: Ask) -> None:
    for arm in range(3):
        assert ask(ACTOR, json.dumps({"key": "user 1", "eligible": [arm]}).encode())["arm"] == arm
        many = ask(ACTOR, json.dumps({"keys": ["user 1", "user 2"], "eligible": [arm]}).encode())
        assert [decision["arm"] for decision in many["decisions"]] == [arm, arm]


def check_step(ask: Ask, key: str = "user 1") -> str:
    """A decision and its reward are answered as they should be."""
    decision = ask(ACTOR, json.dumps({"key": key}).encode())
    assert decision.keys() == {"id", "arm"}
    assert decision["arm"] in range(3)
    learned = ask(REWARDER, json.dumps({"id": decision["id"], "reward": 1}).encode())
    assert learned.keys() == {"id", "version"}
    assert learned["id"] == decision["id"]
    later = ask(ACTOR, json.dumps({"key": key, "after": learned["version"]}).encode())
    assert later.keys() == {"id", "arm"}
    return str(later["id"])


def test_lines_that_are_no_requests_are_answered_with_an_error(ask: Ask) -> None:
    for line in NO_REQUESTS:
        for role in (ACTOR, REWARDER):
            check_refused(ask(role, line))
    check_step(ask)


def test_requests_for_decisions_that_cannot_be(ask: Ask) -> None:
    for line in NO_DECISIONS:
        check_refused(ask(ACTOR, line))
        check_step(ask)


def test_a_decision_whose_lesson_does_not_come_may_be_asked_for_again(ask: Ask) -> None:
    answer = ask(ACTOR, b'{"key": "user 0", "after": 99}')
    assert answer.keys() == {"error", "retry_after"}
    assert "the lesson it needs has not been taught" in answer["error"]
    check_step(ask)


def test_rewards_that_cannot_be(ask: Ask) -> None:
    identifier = check_step(ask)
    for line in no_rewards(identifier):
        check_refused(ask(REWARDER, line))
    reward = json.dumps({"id": identifier, "reward": 0.5}).encode()
    assert ask(REWARDER, reward).keys() == {"id", "version"}
    check_refused(ask(REWARDER, reward))
    check_step(ask)


def test_many_requests_in_one_write_are_answered_in_order(roles: LocalRoles) -> None:
    process = roles.process(ACTOR)
    assert process.stdin is not None
    assert process.stdout is not None
    lines = [json.dumps({"key": f"user {number}"}) for number in range(10)]
    process.stdin.write("\n".join([*lines, "oops", lines[0]]) + "\n")
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(12)]
    numbers = [int(answer["id"].split("-")[1]) for answer in answers if "id" in answer]
    assert numbers == list(range(numbers[0], numbers[0] + 11))
    assert ["error" in answer for answer in answers].index(True) == 10


def test_a_line_may_come_in_pieces(roles: LocalRoles) -> None:
    process = roles.process(ACTOR)
    assert process.stdin is not None
    assert process.stdout is not None
    for piece in ('{"key"', ': "us', 'er 3"}', "\n"):
        process.stdin.write(piece)
        process.stdin.flush()
    assert "arm" in json.loads(process.stdout.readline())


def test_a_folder_that_is_no_kit(tmp_path: Path) -> None:
    check_error(hiddenarm("serve", tmp_path / "nothing", folder=tmp_path), 2, "nothing")
    check_error(hiddenarm("serve", tmp_path, folder=tmp_path), 2, "kit.json cannot be read")


def test_many_requests_in_one_line(ask: Ask) -> None:
    decisions = ask(ACTOR, b'{"keys": ["user 1", "user 2", "user 3"]}')["decisions"]
    assert len({decision["id"] for decision in decisions}) == 3
    assert all(decision["arm"] in range(3) for decision in decisions)
    rewards = [{"id": decision["id"], "reward": 1} for decision in decisions]
    version = ask(REWARDER, json.dumps({"rewards": rewards}).encode())["version"]
    assert ask(ACTOR, json.dumps({"keys": ["user 4"], "after": version}).encode())["decisions"][0]["arm"] in range(3)


def test_a_key_that_a_party_has_not_is_refused_by_itself(ask: Ask) -> None:
    for unknown in ("nobody", "é" * 256, "\x1b[2J"):
        answer = ask(ACTOR, json.dumps({"keys": ["user 1", unknown, "user 2"]}).encode())
        first, refused, last = answer["decisions"]
        assert first.keys() == last.keys() == {"id", "arm"}
        assert refused["key"] == unknown
        check_refused({"error": refused["error"]})
        check_refused(ask(ACTOR, json.dumps({"key": unknown}).encode()))
        rewards = [{"id": one["id"], "reward": 1} for one in (first, last)]
        assert ask(REWARDER, json.dumps({"rewards": rewards}).encode()).keys() == {"version"}
    assert "refused key 'nobody'" in ask(ACTOR, b'{"key": "nobody"}')["error"]


@pytest.mark.parametrize(
    ("role", "line"),
    [
        (ACTOR, b'{"keys": []}'),
        (ACTOR, b'{"keys": "user 1"}'),
        (ACTOR, b'{"keys": ["user 1", 2]}'),
        (ACTOR, json.dumps({"keys": ["user 1"] * 257}).encode()),
        (REWARDER, b'{"rewards": []}'),
        (REWARDER, b'{"rewards": {"id": "x", "reward": 1}}'),
        (REWARDER, b'{"rewards": [1]}'),
        (REWARDER, b'{"rewards": [{"id": "x", "reward": 1}]}'),
        (REWARDER, b'{"rewards": [{"id": "x"}]}'),
    ],
)
def test_many_requests_that_are_none(ask: Ask, role: Identity, line: bytes) -> None:
    check_refused(ask(role, line))
    test_many_requests_in_one_line(ask)


def test_a_line_has_room_for_the_largest_batch_of_the_longest_keys(ask: Ask) -> None:
    line = json.dumps({"keys": [LONGEST_KEY] * MAX_BATCH, "after": 0}).encode()
    assert len(line) > 2 * 64 * 1024
    decisions = ask(ACTOR, line)["decisions"]
    assert len(decisions) == MAX_BATCH
    rewards = [{"id": decision["id"], "reward": 0.12345678901234567} for decision in decisions]
    assert ask(REWARDER, json.dumps({"rewards": rewards}).encode()).keys() == {"version"}


@pytest.mark.parametrize("role", [ACTOR, REWARDER])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(ask: Ask, role: Identity) -> None:
    request = {ACTOR: {"key": "user 1"}, REWARDER: {"id": "", "reward": 1}}[role]
    longest = json.dumps(request).encode().ljust(LONGEST_LINE)
    assert "a line may have" not in ask(role, longest).get("error", "")
    refused = ask(role, longest + b" ")
    check_refused(refused)
    for word in (f"{LONGEST_LINE:,} bytes", f"`max_batch` = {MAX_BATCH}", "kit.json", "several lines"):
        assert word in refused["error"]
    check_step(ask)


def test_what_follows_a_line_that_is_too_long_is_read(roles: LocalRoles) -> None:
    process = roles.process(ACTOR)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("x" * (LONGEST_LINE + 1) + '\n{"key": "user 1"}\n' + "x" * (3 * LONGEST_LINE) + "\n\n")
    process.stdin.write('{"key": "user 2"}\n')
    process.stdin.flush()
    answers = [json.loads(process.stdout.readline()) for _ in range(5)]
    assert ["arm" in answer for answer in answers] == [False, True, False, False, True]
    assert ["error" in answer for answer in answers] == [True, False, True, True, False]


@pytest.mark.parametrize(("role", "example"), [("actor", "key"), ("rewarder", "reward")])
def test_a_role_that_is_given_no_request_says_what_to_pipe_in(tmp_path: Path, role: str, example: str) -> None:
    kits = provision(tmp_path, durable=True)
    ended = hiddenarm("serve", kits / role, "--log-format", "json", folder=tmp_path)
    assert (ended.code, ended.stdout) == (0, "")
    [line] = [line for line in map(json.loads, ended.stderr.splitlines()) if line["event"] == "no requests"]
    assert line["level"] == "warning"
    assert "standard input ended at once: pipe in one request per line" in line["hint"]
    assert f'"{example}": ' in line["hint"]
    ended = hiddenarm("serve", kits / role, folder=tmp_path, stdin="hello\n")
    assert "no requests" not in ended.stderr


@pytest.mark.parametrize("batch", [1, 2, 256, 4095])
@pytest.mark.parametrize("letter", ["\x01", "k", '"', "\\", "é", "€", "🙂"])
def test_the_limit_fits_every_batch(batch: int, letter: str) -> None:
    key = letter * (MAX_KEY_BYTES // len(letter.encode()))
    identifier = f"{'f' * 12}-{2**63 - 1}-{'f' * 16}"
    for request in (
        {"keys": [key] * batch, "after": 2**48},
        {"rewards": [{"id": identifier, "reward": 1.2345678901234567e-300}] * batch},
    ):
        for ascii_only in (False, True):
            line = json.dumps(request, ensure_ascii=ascii_only).encode()
            assert len(line) <= max_line_bytes(batch)
    assert max_line_bytes(batch) <= max(64 * 1024, 7 * MAX_KEY_BYTES * (batch + 1))
