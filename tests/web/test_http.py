"""What actor and rewarder serve by HTTP: the contract, ids of events, errors with names, tokens and restarts."""

from __future__ import annotations

import json
import signal
import socket
import stat
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from http_roles import Answer, Http, token_of, url_of

from deployment import PATIENCE, ROLES, Deployment, provision
from federation_files import TRAVEL
from hiddenarm.errors import ConfigError
from hiddenarm.service.federation_file import FederationFile
from hiddenarm.service.kit import Kit
from hiddenarm.web.problems import CODES

ARMS = {"beach", "city", "mountains", "cruise"}
TOGETHER = ("hotel", "actor", "rewarder")
MADE_UP = "3f9c02d17ab4-000017-5d0e9a71c2b84f36"


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """All roles, each a process of its own."""
    with Deployment(provision(tmp_path_factory.mktemp("http"), durable=True, http=True)) as deployment:
        deployment.start(*ROLES)
        yield deployment


@pytest.fixture(scope="module")
def http(deployment: Deployment) -> Http:
    http = Http(deployment)
    http.rank("first")
    return http


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The hotel runs actor and rewarder in one process."""
    with Deployment(provision(tmp_path_factory.mktemp("together"), durable=True, http=True)) as deployment:
        deployment.start("dealer", "airline")
        deployment.start_together(*TOGETHER)
        Http(deployment).rank("first")
        yield deployment


def check_problem(answer: Answer, status: int, code: str, *words: str) -> None:
    """A refusal with its name, in the form that all have."""
    assert (answer.status, answer.body.get("code")) == (status, code), answer
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.body.keys() == {"code", "status", "title", "detail"}
    assert (code, status) in {(known.name, known.status) for known in CODES}
    for word in words:
        assert word in answer.body["detail"], answer


# ------------------------------------------------------------------ rank and reward


def test_an_action_is_ranked_and_its_reward_learned(http: Http) -> None:
    ranked = http.rank("order-1")
    assert ranked.keys() == {"eventId", "rewardActionId", "decisionId"}
    assert ranked["eventId"] == "order-1"
    assert ranked["rewardActionId"] in ARMS
    answer = http.reward("order-1", 1, decisionId=ranked["decisionId"])
    assert answer.status == 200
    assert answer.body.keys() == {"eventId", "version"}


def test_an_event_without_a_name_is_called_by_its_decision(http: Http) -> None:
    ranked = http.insist("actor", "/rank", {"key": "user 17"}).body
    assert ranked["eventId"] == ranked["decisionId"]
    assert http.reward(ranked["eventId"], 0.5).status == 200


def test_the_answers_hold_only_what_the_role_may_know(http: Http) -> None:
    ranked = http.rank("knows", actions=["city"])
    rewarded = http.reward("knows", 0.828125, decisionId=ranked["decisionId"])
    assert "city" not in json.dumps([rewarded.body, rewarded.headers])
    assert http.rank("knows", actions=["city"]) == ranked
    assert "0.828125" not in json.dumps(http.rank("knows", actions=["city"]))


def test_the_same_event_gets_the_same_answer_and_other_content_is_refused(http: Http) -> None:
    ranked = http.rank("again")
    assert http.rank("again") == ranked
    for change in ({"key": "user 18"}, {"excludedActions": ["beach"]}, {"deferActivation": True}):
        answer = http.post("actor", "/rank", {"eventId": "again", "key": "user 17", **change})
        check_problem(answer, 409, "event_conflict", "'again' was made before")
    decision = ranked["decisionId"]
    rewarded = http.reward("again", 1, decisionId=decision)
    assert http.reward("again", 1, decisionId=decision).body == rewarded.body
    check_problem(http.reward("again", 0, decisionId=decision), 409, "event_conflict")
    check_problem(http.reward("other-name", 1, decisionId=decision), 409, "already_rewarded")


@pytest.mark.parametrize(
    ("limits", "allowed"),
    [
        ({"actions": ["city", "cruise"]}, {"city", "cruise"}),
        ({"actions": [{"id": "city"}, "beach"], "excludedActions": ["beach"]}, {"city"}),
        ({"excludedActions": ["beach", "city", "cruise"]}, {"mountains"}),
        ({"actions": sorted(ARMS)}, ARMS),
    ],
    ids=["some", "one is excluded", "all but one", "all"],
)
def test_only_eligible_actions_are_chosen(http: Http, limits: dict[str, Any], allowed: set[str]) -> None:
    chosen = {http.rank(f"limited-{len(str(limits))}-{number}", **limits)["rewardActionId"] for number in range(12)}
    assert chosen <= allowed


def test_a_deferred_event_can_be_rewarded_once_it_is_activated(http: Http) -> None:
    """Without its id nobody can reward the decision, and nobody can make up the id."""
    ranked = http.rank("deferred", deferActivation=True)
    assert ranked.keys() == {"eventId", "rewardActionId"}
    assert http.rank("deferred", deferActivation=True) == ranked
    check_problem(http.reward("deferred", 1), 404, "unknown_event", "decisionId")
    activated = http.insist("actor", "/events/deferred/activate").body
    assert activated.keys() == {"eventId", "decisionId"}
    assert http.insist("actor", "/events/deferred/activate").body == activated
    assert http.reward("deferred", 1, decisionId=activated["decisionId"]).status == 200


def test_what_was_learned_is_unlearned_once(http: Http) -> None:
    ranked = http.rank("unlearn-1")
    named = {"decisionId": ranked["decisionId"]}
    learned = http.reward("unlearn-1", 1, **named).body["version"]
    for _ in range(2):
        answer = http.insist("rewarder", "/events/unlearn-1/unlearn", named)
        assert (answer.status, answer.body) == (200, {"eventId": "unlearn-1", "version": learned + 1})
    by_path = http.insist("rewarder", f"/events/{ranked['decisionId']}/unlearn")
    assert by_path.body == {"eventId": ranked["decisionId"], "version": learned + 1}
    check_problem(http.reward("unlearn-1", 0.5, **named), 404, "unknown_decision", "was unlearned")


def test_what_was_not_rewarded_is_dropped(http: Http) -> None:
    decision = http.rank("unlearn-2")["decisionId"]
    assert http.insist("rewarder", "/events/unlearn-2/unlearn", {"decisionId": decision}).status == 200
    check_problem(http.reward("unlearn-2", 1, decisionId=decision), 404, "unknown_decision", "was unlearned")


@pytest.mark.parametrize(
    ("event", "body", "status", "code"),
    [
        ("unlearn-3", None, 404, "unknown_event"),
        ("unlearn-3", {"decisionId": MADE_UP}, 404, "unknown_decision"),
        ("unlearn-3", {"decisionId": "x"}, 422, "invalid_request"),
        ("unlearn-3", {"decisionId": MADE_UP, "value": 1}, 422, "invalid_request"),
        ("unlearn-3", {"decisionId": MADE_UP, "timeout": 0}, 422, "invalid_request"),
    ],
)
def test_an_unlearning_that_is_wrong_is_refused_by_name(
    http: Http, event: str, body: Any, status: int, code: str
) -> None:
    check_problem(http.insist("rewarder", f"/events/{event}/unlearn", body), status, code)


def test_activating_what_was_not_deferred_changes_nothing(http: Http) -> None:
    ranked = http.rank("plain")
    assert http.insist("actor", "/events/plain/activate").body["decisionId"] == ranked["decisionId"]
    check_problem(http.post("actor", "/events/nobody/activate"), 404, "unknown_event")


def test_a_rewarder_beside_the_actor_knows_its_events(together: Deployment) -> None:
    http = Http(together)
    http.rank("visit-1")
    http.rank("visit-2", deferActivation=True)
    assert http.reward("visit-1", 1).status == 200
    check_problem(http.reward("visit-2", 1), 409, "not_activated")
    http.insist("actor", "/events/visit-2/activate")
    assert http.reward("visit-2", 1).status == 200
    check_problem(http.reward("visit-3", 1), 404, "unknown_event")


def test_lines_and_http_share_the_names_of_requests(together: Deployment) -> None:
    ranked = Http(together).rank("by-both")
    line = together.ask("actor", request="by-both", key="user 17")
    assert (line["id"], line["name"]) == (ranked["decisionId"], ranked["rewardActionId"])


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"eventId": "x1"}, 422, "invalid_request"),
        ({"eventId": "x/activate#", "key": "user 17"}, 422, "invalid_request"),
        ({"eventId": "..", "key": "user 17"}, 422, "invalid_request"),
        ({"eventId": "x" * 101, "key": "user 17"}, 422, "invalid_request"),
        ({"eventId": "x\n", "key": "user 17"}, 422, "invalid_request"),
        ({"eventId": MADE_UP, "key": "user 17"}, 422, "invalid_request"),
        ({"eventId": "x2", "key": 17}, 422, "invalid_request"),
        ({"eventId": "x3", "key": "user 17", "features": [1, 2]}, 422, "invalid_request"),
        ({"eventId": "x4", "key": "user 17", "actions": [{"id": "city", "features": []}]}, 422, "invalid_request"),
        ({"eventId": "x5", "key": "user 17", "timeout": 0}, 422, "invalid_request"),
        (b"{", 422, "invalid_request"),
        (b'{"key": "\\ud800"}', 422, "invalid_request"),
        (b"[" * 200_000, 422, "invalid_request"),
        (b" " * 300_000, 413, "too_large"),
        ({"eventId": "x6", "key": "nobody"}, 404, "unknown_key"),
        ({"eventId": "x7", "key": "é" * 512}, 404, "unknown_key"),
        ({"eventId": "x8", "key": "user 17", "actions": ["moon"]}, 404, "unknown_action"),
        (
            {"eventId": "x9", "key": "user 17", "actions": ["city"], "excludedActions": ["city"]},
            409,
            "no_eligible_action",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_rank_that_is_wrong_is_refused_by_name(http: Http, body: Any, status: int, code: str) -> None:
    check_problem(http.post("actor", "/rank", body), status, code)


@pytest.mark.parametrize(
    ("event", "body", "status", "code"),
    [
        ("y1", {}, 422, "invalid_request"),
        ("y1", {"value": 1.5, "decisionId": MADE_UP}, 422, "invalid_request"),
        ("y1", b'{"value": NaN}', 422, "invalid_request"),
        ("y1", {"value": True}, 422, "invalid_request"),
        ("y1", {"value": 1, "decisionId": "x"}, 422, "invalid_request"),
        ("..%2Fy1", {"value": 1}, 404, "not_found"),
        ("y1%23", {"value": 1}, 422, "invalid_request"),
        ("y1", {"value": 1, "decisionId": MADE_UP}, 404, "unknown_decision"),
        (MADE_UP, {"value": 1}, 404, "unknown_decision"),
        ("y1", {"value": 1}, 404, "unknown_event"),
    ],
    ids=str,
)
def test_a_reward_that_is_wrong_is_refused_by_name(http: Http, event: str, body: Any, status: int, code: str) -> None:
    check_problem(http.post("rewarder", f"/events/{event}/reward", body), status, code)


@pytest.mark.parametrize("shown", ["", "Bearer", "Bearer x", "Basic {token}", "Bearer {other}", "Bearer {token}x"])
def test_without_the_token_nothing_is_answered(http: Http, shown: str) -> None:
    """The token of one role does not open another, and a request is not read before its token."""
    other = token_of(http.kits, "rewarder")
    header = shown.format(token=token_of(http.kits, "actor"), other=other)
    for body in ({"eventId": "closed", "key": "user 17"}, b"{"):
        answer = http.post("actor", "/rank", body, Authorization=header)
        check_problem(answer, 401, "unauthorized")
        assert answer.headers["www-authenticate"] == "Bearer"
    assert "closed" not in http.get("actor", "/openapi.json").body


def test_each_token_is_made_once_for_its_owner_alone(http: Http) -> None:
    tokens = {role: http.kits / role / "http.token" for role in ("actor", "rewarder", "airline")}
    assert len({path.read_text() for path in tokens.values()}) == 3
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in tokens.values())
    tokens["airline"].chmod(0o644)
    with pytest.raises(ConfigError, match=r"http\.token is open to group or others"):
        Kit.read(http.kits / "airline")
    tokens["airline"].chmod(0o600)


def test_other_paths_and_methods_are_refused_by_name(http: Http) -> None:
    check_problem(http.get("actor", "/elsewhere"), 404, "not_found")
    wrong = http.get("actor", "/rank")
    check_problem(wrong, 405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    check_problem(http.post("actor", "/events/order-1/reward", {"value": 1}), 404, "not_found")
    check_problem(http.post("rewarder", "/rank", {"key": "user 17"}), 404, "not_found")
    for path in ("/docs", "/redoc"):
        check_problem(http.get("actor", path), 404, "not_found")


# ------------------------------------------------------------------ health, restarts


def test_every_role_that_serves_http_says_how_it_is(http: Http) -> None:
    for role in ("actor", "rewarder", "airline"):
        assert http.get(role, "/livez").body == {"live": True}
        assert http.get(role, "/readyz").body["ready"] is True
    assert http.get("airline", "/openapi.json").body["paths"].keys() == {"/livez", "/readyz"}


def test_many_callers_are_answered_at_once(http: Http) -> None:
    """Each its own event, and all of the same user's as good as others'."""

    def one(number: int) -> tuple[str, int]:
        ranked = http.rank(f"many-{number % 40}", key=f"user {17 + number % 2}")
        return ranked["decisionId"], http.reward(f"many-{number % 40}", 1, decisionId=ranked["decisionId"]).status

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(80)))
    assert {status for _, status in answers} == {200}
    assert len({decision for decision, _ in answers}) == 40
    assert answers[:40] == answers[40:]


def test_a_peer_that_is_gone_is_named_at_once_and_a_killed_role_answers_as_before(deployment: Deployment) -> None:
    """Last, as it restarts roles."""
    http = Http(deployment)
    ranked = http.rank("before")
    deferred = http.rank("before-deferred", deferActivation=True)
    rewarded = http.reward("before", 1, decisionId=ranked["decisionId"])
    deployment.processes["airline"].kill()
    deployment.processes["airline"].wait()
    deployment.until_ready("actor", ready=False)
    for _ in range(200):
        refused = http.post("actor", "/rank", {"eventId": "while-gone", "key": "user 17"})
        if refused.status == 503:
            break
    check_problem(refused, 503, "unavailable", "airline")
    assert int(refused.headers["retry-after"]) >= 1
    for role in ("actor", "rewarder"):
        deployment.processes[role].send_signal(signal.SIGKILL)
        deployment.processes[role].wait()
    deployment.start("airline", "actor", "rewarder")
    assert http.rank("before") == ranked
    assert http.rank("before-deferred", deferActivation=True) == deferred
    assert http.reward("before", 1, decisionId=ranked["decisionId"]).body == rewarded.body
    check_problem(http.reward("before", 0, decisionId=ranked["decisionId"]), 409, "event_conflict")
    check_problem(http.post("actor", "/rank", {"eventId": "before", "key": "user 18"}), 409, "event_conflict")
    late = http.rank("while-gone")
    assert http.reward("while-gone", 1, decisionId=late["decisionId"]).body["version"] > rewarded.body["version"]


def test_an_activation_survives_a_kill(together: Deployment) -> None:
    """Last, as it restarts the hotel's process."""
    http = Http(together)
    http.rank("active", deferActivation=True)
    http.rank("asleep", deferActivation=True)
    http.insist("actor", "/events/active/activate")
    together.processes["actor"].send_signal(signal.SIGKILL)
    together.processes["actor"].wait()
    together.start_together(*TOGETHER)
    assert http.reward("active", 1).status == 200
    check_problem(http.reward("asleep", 1), 409, "not_activated")


def test_a_client_that_serves_http_outlives_its_standard_input_and_stops_when_told(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path, http=True)) as deployment:
        deployment.start(*ROLES)
        http = Http(deployment)
        ranked = http.rank("one")
        for role in ("actor", "rewarder"):
            stdin = deployment.processes[role].stdin
            assert stdin is not None
            stdin.close()
        assert http.rank("two")["rewardActionId"] in ARMS
        assert http.reward("one", 1, decisionId=ranked["decisionId"]).body["version"] == 1
        for role in ROLES:
            deployment.processes[role].send_signal(signal.SIGTERM)
        assert deployment.ends(*ROLES) == dict.fromkeys(ROLES, 0)


# ------------------------------------------------------------------ where it listens


@pytest.mark.parametrize("address", ["0.0.0.0:8411", "203.0.113.7:8411", "[::]:8411", "hotel.example:8411"])
def test_plain_http_is_refused_on_an_address_that_others_reach(tmp_path: Path, address: str) -> None:
    kits = provision(tmp_path)
    change_kit(kits / "actor", http=address)
    with pytest.raises(ConfigError, match="served by TLS only"):
        Kit.read(kits / "actor")
    change_kit(kits / "actor", http=address, http_certificate="web.pem")
    with pytest.raises(ConfigError, match="go together"):
        Kit.read(kits / "actor")
    change_kit(kits / "actor", http=address, http_certificate="web.pem", http_key="web.key")
    assert Kit.read(kits / "actor").http_tls == (kits / "actor" / "web.pem", kits / "actor" / "web.key")


@pytest.mark.parametrize("address", ["127.0.0.1", "8411", "127.0.0.1:0", "127.0.0.1:70000", "unix:", "http://x:1", ""])
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    kits = provision(tmp_path)
    change_kit(kits / "actor", http=address)
    with pytest.raises(ConfigError, match="http"):
        Kit.read(kits / "actor")


def test_a_federation_file_with_plain_http_in_public_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "federation.toml"
    path.write_text(TRAVEL + '\n[actor]\nhttp = "0.0.0.0:8411"\n')
    with pytest.raises(ConfigError, match=r"line 2\d: actor: http: 0.0.0.0:8411 can be reached"):
        FederationFile.read(path)


def change_kit(kit: Path, **fields: Any) -> None:
    path = kit / "kit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def connected(path: Path) -> socket.socket:
    """A connection to a socket file, as soon as somebody listens there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        caller = socket.socket(socket.AF_UNIX)
        try:
            caller.connect(str(path))
            return caller
        except ConnectionRefusedError:
            caller.close()
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_socket_file_serves_its_owner(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path)) as deployment:
        change_kit(deployment.kits / "actor", http="unix:http.sock")
        deployment.start(*ROLES)
        path = deployment.kits / "actor" / "http.sock"
        deployment.until("actor", "serving")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with connected(path) as caller:
            caller.sendall(b"GET /livez HTTP/1.1\r\nHost: actor\r\nConnection: close\r\n\r\n")
            answer = b""
            while chunk := caller.recv(4096):
                answer += chunk
        assert b'{"live": true}' in answer


def test_tokens_do_not_reach_logs(http: Http, deployment: Deployment) -> None:
    for role in ("actor", "rewarder", "airline"):
        log = deployment.log_path(role).read_text()
        assert token_of(http.kits, role) not in log
        assert "order-1" not in log
        assert url_of(http.kits, role).removeprefix("http://") in log
