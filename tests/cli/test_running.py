"""Roles as they are run for months: health, metrics, status, logs, a graceful stop, a certificate renewed under way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from deployment import PATIENCE, ROLES, SERVERS, Deployment, provision, running
from hiddenarm.bandit.accounting import Budget
from hiddenarm.cli.main import commands
from hiddenarm.cli.status import parse_metrics
from hiddenarm.errors import ConfigError, PeerLost
from hiddenarm.privacy.actions import epsilon_total
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger
from hiddenarm.service.kit import Kit, read_kit_file
from hiddenarm.service.metrics import BUDGET, EVALUATED, FAMILIES, VALUE, VALUE_NOISE, _of_privacy, start_monitor
from hiddenarm.service.process import DRAIN_SECONDS, Endpoint

OF_VALUES = (VALUE, VALUE_NOISE, EVALUATED)
SUFFIXES = ("_bucket", "_sum", "_count", "")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with running(tmp_path_factory.mktemp("running")) as deployment:
        yield deployment


def hiddenarm(*arguments: object) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def test_a_role_with_all_its_peers_is_alive_and_ready(deployment: Deployment) -> None:
    for role in ROLES:
        assert deployment.get(role, "/livez") == (200, '{"live": true}\n')
        assert deployment.ready(role) == {"ready": True, "reasons": [], "notes": []}, role


def test_metrics_and_logs_name_organisations(deployment: Deployment) -> None:
    metrics = parse_metrics(deployment.get("hotel", "/metrics")[1])
    assert metrics["hiddenarm_info"][0][0]["organisation"] == "hotel"
    for name in ("hiddenarm_peer_ready", "hiddenarm_peer_silence_seconds", "hiddenarm_bytes_total"):
        named = {labels["peer"]: labels.get("organisation") for labels, _ in metrics[name]}
        assert (named["party 1"], named["dealer"]) == ("airline", None)
    peers = {line["peer"] for line in deployment.log("actor") if line["event"] == "peer ready"}
    assert peers == {"dealer", "hotel (party 0)", "airline (party 1)"}


def test_metrics_count_what_happened(deployment: Deployment) -> None:
    before = parse_metrics(deployment.get("hotel", "/metrics")[1])
    for _ in range(3):
        deployment.step()
    after = parse_metrics(deployment.get("hotel", "/metrics")[1])

    def grown(name: str, **labels: str) -> float:
        then, now = (sum(value for found, value in page[name] if found == labels) for page in (before, after))
        return now - then

    # A decision that is asked for before the actor has heard of the last lesson is no `step`.
    steps, decided, learned = (
        grown("hiddenarm_run_seconds_count", program=program) for program in ("step", "decide", "learn")
    )
    assert decided == learned
    assert steps + decided == 3
    for program, runs, rounds in (("step", steps, 7), ("decide", decided, 3), ("learn", learned, 5)):
        assert grown("hiddenarm_interactions_total", program=program) == runs
        assert grown("hiddenarm_rounds_total", program=program) == runs * rounds
        assert (grown("hiddenarm_run_seconds_sum", program=program) > 0) == (runs > 0)
        assert grown("hiddenarm_run_seconds_bucket", program=program, le="+Inf") == runs
    arms = Kit.read(deployment.kits / "hotel").federation.arms
    assert grown("hiddenarm_frames_total", peer="actor", direction="sent", kind="PAYLOADS") == 3
    assert grown("hiddenarm_bytes_total", peer="actor", direction="sent", kind="PAYLOADS") == 3 * (20 + 4 * arms)
    assert grown("hiddenarm_frames_total", peer="actor", direction="received", kind="ARMS") == 3
    assert after["hiddenarm_model_version"][0][1] - before["hiddenarm_model_version"][0][1] == 3
    assert after["hiddenarm_pending_decisions"] == [({}, 0.0)]
    assert {labels["peer"]: value for labels, value in after["hiddenarm_peer_ready"]} == {
        "party 1": 1,
        "dealer": 1,
        "actor": 1,
        "rewarder": 1,
    }


def test_every_family_is_shown_by_some_role_and_no_other(deployment: Deployment) -> None:
    families = {family.name: family for family in FAMILIES}
    seen = set()
    for role in ROLES:
        text = deployment.get(role, "/metrics")[1]
        for line in text.splitlines():
            if line.startswith("# TYPE"):
                _, _, name, kind = line.split()
                assert families[name].kind == kind
                seen.add(name)
        assert all(any(name.removesuffix(suffix) in families for suffix in SUFFIXES) for name in parse_metrics(text))
    assert seen == set(families) - {BUDGET.name, *(family.name for family in OF_VALUES)}  # there are none here


def test_the_budget_is_a_metric_where_there_is_one() -> None:
    ledger = PrivacyLedger({COIN_UNITS // 4: 3, COIN_UNITS: 2}, refreshes=1)
    shown = {metric.name: metric.samples for metric in _of_privacy(ledger, Budget(5, explores=True))}
    assert [(sample.labels, sample.value) for sample in shown["hiddenarm_privacy_decisions"]] == [
        ({"epsilon": "0.25"}, 3),
        ({"epsilon": "1.0"}, 2),
    ]
    assert [sample.value for sample in shown["hiddenarm_privacy_refreshes"]] == [1]
    assert [sample.value for sample in shown[BUDGET.name]] == [2]
    assert not list(_of_privacy(None, None))


def test_only_the_last_party_has_a_stock(deployment: Deployment) -> None:
    stocks = {role: parse_metrics(deployment.get(role, "/metrics")[1]).get("hiddenarm_stock_steps") for role in ROLES}
    assert {role for role, stock in stocks.items() if stock} == {"airline"}
    assert all(0 < steps <= 256 for _, steps in stocks["airline"] or [])


def test_status_prints_a_table(deployment: Deployment) -> None:
    result = hiddenarm("status", deployment.kits / "hotel")
    assert result.exit_code == 0
    for words in (
        "hotel (party 0): ready",
        "airline (party 1)",
        "connected, last heard",
        "lessons in the model",
        "requests waiting",
        "decisions in the privacy ledger",
        "what they tell about one row",
    ):
        assert words in result.output
    counted = parse_metrics(deployment.get("hotel", "/metrics")[1])["hiddenarm_privacy_decisions_total"]
    federation = Kit.read(deployment.kits / "hotel").federation
    told = json.loads(hiddenarm("status", deployment.kits / "hotel", "--json").output)["privacy"]
    assert told["decisions"] == sum(count for _, count in counted)
    levels = {float(labels["epsilon"]): int(count) for labels, count in counted}
    assert told["epsilon_total"] == pytest.approx(epsilon_total(federation.arms, levels, 1e-6))
    report = json.loads(hiddenarm("status", deployment.kits / "actor", "--json").output)
    assert report["ready"] is True
    assert report["reasons"] == report["notes"] == []
    assert report["metrics"]["hiddenarm_requests_waiting"] == 0


def test_a_certificate_is_renewed_without_losing_a_step(deployment: Deployment, tmp_path: Path) -> None:
    """Every role in turn, while steps go on; old and new certificates are valid side by side."""
    for role in ROLES:
        kit = deployment.kits / role
        assert hiddenarm("request", kit).exit_code == 0
        request, new = kit / "next" / "request.pem", tmp_path / f"{role}.pem"
        fingerprint = hiddenarm("approve", deployment.kits / "authority", request, "--out", new, "--fingerprint", "x")
        told = next(line for line in fingerprint.output.splitlines() if line.startswith("fingerprint:"))
        arguments = ("--out", new, "--fingerprint", told.partition(":")[2])
        assert hiddenarm("approve", deployment.kits / "authority", request, *arguments).exit_code == 0
        assert hiddenarm("install", kit, new).exit_code == 0
        deployment.processes[role].send_signal(signal.SIGHUP)
        deployment.until(role, "certificate renewed")
        deployment.step()
    assert hiddenarm("check", deployment.kits / "actor").exit_code == 0  # a new connection, under the new ones


def test_a_certificate_that_cannot_be_used_is_told_and_the_old_one_kept(deployment: Deployment) -> None:
    path = deployment.kits / "hotel" / "certificate.pem"
    good = path.read_bytes()
    path.write_bytes(b"none")
    try:
        deployment.processes["hotel"].send_signal(signal.SIGHUP)
        assert "certificate.pem" in deployment.until("hotel", "certificate not renewed")["reason"]
    finally:
        path.write_bytes(good)
    deployment.step()


def test_lines_of_the_log_are_json_with_time_level_and_role(deployment: Deployment) -> None:
    for role, identity in zip(
        ROLES, ("dealer", "hotel (party 0)", "airline (party 1)", "actor", "rewarder"), strict=True
    ):
        text = deployment.log_path(role).read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        assert {line["role"] for line in lines} == {identity}
        assert all({"timestamp", "level", "event"} <= line.keys() for line in lines)
        assert "serving" in {line["event"] for line in lines}


def test_a_monitor_port_that_is_taken(deployment: Deployment) -> None:
    kit = deployment.kits / "actor"
    command = [sys.executable, "-m", "hiddenarm", "serve", str(kit)]
    ended = subprocess.run(command, input="", capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == ConfigError.exit_code
    assert "set another monitor_port in kit.json" in ended.stderr


def test_metrics_at_another_address_of_the_machine(tmp_path: Path) -> None:
    """For a scraper that is let in: at the address that the file names only, and `status` finds it there."""
    kits = provision(tmp_path, airline='monitor_listen = "127.0.0.2"')
    port = read_kit_file(kits / "airline").monitor_port
    with Deployment(kits) as roles:
        roles.start("airline")
        roles.until("airline", "serving")
        assert hiddenarm("status", kits / "airline", "--live").exit_code == 0
        with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=PATIENCE) as answer:
            assert b"hiddenarm_info" in answer.read()
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE)


def test_metrics_at_all_addresses_of_the_machine(tmp_path: Path) -> None:
    kits = provision(tmp_path, airline='monitor_listen = "0.0.0.0"')
    port = read_kit_file(kits / "airline").monitor_port
    with Deployment(kits) as roles:
        roles.start("airline")
        roles.until("airline", "serving")
        assert hiddenarm("status", kits / "airline", "--live").exit_code == 0
        for address in ("127.0.0.1", "127.0.0.2"):
            with urllib.request.urlopen(f"http://{address}:{port}/livez", timeout=PATIENCE) as answer:
                assert answer.status == 200


def test_a_stopped_federation_ends_with_0_and_a_missing_peer_is_named(deployment: Deployment) -> None:
    """SIGTERM at the clients: goodbyes all around. Last, as nothing runs afterwards."""
    deployment.processes["rewarder"].send_signal(signal.SIGTERM)
    assert deployment.ends("rewarder") == {"rewarder": 0}
    deployment.until("hotel", "peer left")
    note = "rewarder not connected: decisions are served, rewards are not learned"
    assert deployment.ready("hotel") == {"ready": True, "reasons": [], "notes": [note]}
    assert "arm" in deployment.ask("actor", key="user 17")
    deployment.processes["actor"].send_signal(signal.SIGTERM)
    assert deployment.ends("actor", *SERVERS) == dict.fromkeys(("actor", *SERVERS), 0)
    assert "SIGTERM" in str(deployment.until("actor", "stopping"))
    assert {deployment.log(role)[-1]["event"] for role in ("actor", *SERVERS)} == {"stopped"}
    result = hiddenarm("status", deployment.kits / "hotel")
    assert isinstance(result.exception, PeerLost)
    assert "does not answer" in str(result.exception)


def test_a_lonely_role_is_alive_and_says_who_is_missing(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path)) as deployment:
        deployment.start("dealer", "hotel")
        deployment.until("hotel", "peer ready")
        deployment.until_not_ready("hotel", "no epoch is open: airline (party 1) not connected", "actor not connected")
        result = hiddenarm("status", deployment.kits / "hotel")
        assert "hotel (party 0): not ready" in result.output
        assert "airline (party 1) not connected" in str(result.exception)
        assert hiddenarm("status", deployment.kits / "hotel", "--live").exit_code == 0
        for role in ("dealer", "hotel"):
            deployment.processes[role].send_signal(signal.SIGINT)
        assert deployment.ends("dealer", "hotel") == {"dealer": 0, "hotel": 0}


def test_what_is_under_way_is_finished_before_a_party_stops(tmp_path: Path) -> None:
    """A request that waits for the dealer, which was stopped; SIGTERM; the dealer goes on: the decisions are made."""
    with running(tmp_path) as deployment:
        actor, dealer = deployment.processes["actor"], deployment.processes["dealer"]
        assert actor.stdin is not None
        assert actor.stdout is not None
        dealer.send_signal(signal.SIGSTOP)
        actor.stdin.write(json.dumps({"keys": ["user 17"] * 256}) + "\n")
        actor.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while waiting(deployment, "hotel") == 0:
            assert time.monotonic() < deadline
        deployment.processes["hotel"].send_signal(signal.SIGTERM)
        deployment.until("hotel", "stopping")
        assert deployment.processes["hotel"].poll() is None
        dealer.send_signal(signal.SIGCONT)
        assert len(json.loads(actor.stdout.readline())["decisions"]) == 256
        assert deployment.ends("hotel") == {"hotel": 0}
    assert DRAIN_SECONDS == 10


def waiting(deployment: Deployment, role: str) -> float:
    return parse_metrics(deployment.get(role, "/metrics")[1])["hiddenarm_requests_waiting"][0][1]


def test_where_state_lasts_a_role_that_was_stopped_is_awaited_and_comes_back(tmp_path: Path) -> None:
    with running(tmp_path, durable=True) as deployment:
        deployment.step()
        deployment.processes["hotel"].send_signal(signal.SIGTERM)
        assert deployment.ends("hotel") == {"hotel": 0}
        deployment.until("airline", "peer left")
        deployment.until_not_ready("airline", "no epoch is open: hotel (party 0) not connected")
        deployment.start("hotel")
        deployment.step()
        assert deployment.ready("airline")["ready"]
        versions = parse_metrics(deployment.get("hotel", "/metrics")[1])["hiddenarm_model_version"]
        assert versions == [({}, 3.0)]


@pytest.mark.parametrize("client", ["actor", "rewarder"])
def test_where_state_lasts_nobody_is_ready_without_a_client_and_all_name_it(tmp_path: Path, client: str) -> None:
    """The dealer and the parties see it themselves, the other client hears of it from the parties. All are alive."""
    others = [role for role in ROLES if role != client]
    with running(tmp_path, durable=True) as deployment:
        deployment.processes[client].kill()
        for role in others:
            deployment.until_not_ready(role, f"no epoch is open: {client} not connected")
            assert deployment.get(role, "/livez")[0] == 200
            assert hiddenarm("status", deployment.kits / role, "--live").exit_code == 0
            result = hiddenarm("status", deployment.kits / role)
            assert isinstance(result.exception, PeerLost)
            assert f"{client} not connected" in str(result.exception)
        deployment.start(client)
        deployment.step()
        assert all(deployment.until_ready(role)["notes"] == [] for role in ROLES)


def test_without_the_dealer_a_party_is_ready_as_long_as_it_has_stock(tmp_path: Path) -> None:
    kits = provision(tmp_path, durable=True)
    for kit in kits.glob("*/kit.json"):
        kit.write_text(json.dumps({**json.loads(kit.read_text()), "stock": 8}))
    with Deployment(kits) as deployment:
        deployment.start(*ROLES)
        deployment.step()
        deployment.ask_once("actor", key="user 17")  # by `step`; what follows by the same model is by `decide`
        deployment.processes["dealer"].kill()
        deployment.until_noted("airline", "dealer not connected")  # all that it had dealt has come by then
        stock = parse_metrics(deployment.get("airline", "/metrics")[1])["hiddenarm_stock_steps"]
        left = next(int(steps) for labels, steps in stock if labels == {"program": "decide"})
        assert left > 0
        while (found := deployment.ready("airline"))["ready"]:
            assert found["notes"] == [f"dealer not connected: {left} steps of single decisions are left in stock"]
            note = "dealer not connected: decisions go on from what the last party has in stock"
            assert deployment.ready("hotel")["notes"] == deployment.ready("actor")["notes"] == [note]
            assert "arm" in deployment.ask_once("actor", key="user 17")
            left -= 1
        assert left == 0
        assert found["reasons"] == ["dealer not connected, and what it dealt is used up"]
        refusal = deployment.ask_once("actor", key="user 17")
        assert "what it dealt is used up" in refusal["error"]
        for role in ("hotel", "airline", "actor"):  # the others know from the refusal
            assert deployment.ready(role)["reasons"] == found["reasons"], role
        deployment.start("dealer")
        deployment.step()
        assert deployment.ready("airline") == {"ready": True, "reasons": [], "notes": []}


def test_who_is_gone_is_told_at_once_and_by_name(tmp_path: Path) -> None:
    """Also to requests that wait in a queue. How soon: `test_absence`."""
    with running(tmp_path, durable=True) as deployment:
        decision = deployment.ask("actor", key="user 17")
        for victim, client, request in (
            ("rewarder", "actor", {"key": "user 17"}),
            ("actor", "rewarder", {"id": decision["id"], "reward": 1}),
        ):
            deployment.processes[victim].kill()
            deployment.until_ready(client, ready=False)
            process = deployment.processes[client]
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(20 * (json.dumps(request) + "\n"))
            process.stdin.flush()
            answers = [json.loads(process.stdout.readline()) for _ in range(20)]
            assert {answer["retry_after"] for answer in answers} == {5}
            assert all(f"not now: {victim} cannot be reached" in answer["error"] for answer in answers)
            deployment.start(victim)
            assert "error" not in deployment.ask(client, **request)


@pytest.mark.parametrize("arguments", [(), ("--live",)], ids=str)
def test_a_role_whose_loop_does_not_run_is_not_alive(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    kits = provision(tmp_path)
    endpoint = Endpoint(Kit.read(kits / "hotel"))
    monitor = start_monitor(endpoint)
    assert monitor is not None
    try:
        result = hiddenarm("status", kits / "hotel", *arguments)
    finally:
        monitor.close()
        endpoint.close("")
    assert isinstance(result.exception, PeerLost)
    assert "hotel (party 0) runs, but does not answer" in str(result.exception)
    assert "503" in str(result.exception)


def test_a_kit_without_a_monitor_has_no_status(tmp_path: Path) -> None:
    kit = provision(tmp_path) / "hotel"
    content = json.loads((kit / "kit.json").read_text())
    del content["monitor_port"]
    (kit / "kit.json").write_text(json.dumps(content))
    assert "has no monitor_port" in str(hiddenarm("status", kit).exception)


def test_what_a_missing_key_means_is_each_partys_own(tmp_path: Path) -> None:
    """The airline takes zeros and nobody notices; the hotel refuses, and is named. Keys are in no party's log."""
    with Deployment(provision(tmp_path, airline='missing_key = "zeros"')) as deployment:
        hotel = deployment.kits / "hotel" / "features.csv"
        hotel.write_text(hotel.read_text() + "only hotel,0.1,0.2,0.3\n")
        airline = deployment.kits / "airline" / "features.csv"
        airline.write_text(airline.read_text() + "only airline,0.1,0.2\nempty,0.1,\n")
        hotel.write_text(hotel.read_text() + "empty,0.1,0.2,0.3\n")
        deployment.start(*ROLES)
        assert deployment.ask("actor", key="only hotel").keys() == {"id", "arm", "name"}
        words = "hotel (party 0) refused key 'only airline': it has no usable features under this key"
        assert deployment.ask("actor", key="only airline") == {"error": words}
        answers = deployment.ask("actor", keys=["user 17", "only airline", "only hotel", "empty"])["decisions"]
        assert [answer.keys() for answer in answers[::2]] == [{"id", "arm", "name"}] * 2
        assert answers[1] == {"key": "only airline", "error": words}
        assert "airline (party 1) refused key 'empty'" in answers[3]["error"]
        deployment.step()
        for role in ("hotel", "airline", "dealer"):
            assert "only" not in deployment.log_path(role).read_text()
        assert deployment.until("hotel", "refused a decision")["refused"] == 1


def test_a_lost_party_is_named_by_its_organisation_in_the_error(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        deployment.processes["airline"].kill()
        assert deployment.ends("actor", "hotel") == {"actor": PeerLost.exit_code, "hotel": PeerLost.exit_code}
        for role in ("actor", "hotel"):
            last = deployment.log_path(role).read_text().splitlines()[-1]
            assert last.startswith("error: "), last
            assert "airline (party 1) is gone" in last, last
