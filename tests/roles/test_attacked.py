"""Live roles under attack, with a peer that is stopped, and with secrets that must not show.

`HIDDENARM_SOAK=1` makes it a million fuzzed frames and a stop of 60 seconds, with the bars on time.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fuzzing import attack_a_party

from deployment import ROLES, Deployment, provision, running
from hiddenarm.cli.status import parse_metrics
from hiddenarm.net.transport import Limits

SOAK = bool(os.environ.get("HIDDENARM_SOAK"))
FRAMES = 1_000_000 if SOAK else 20_000
STOPPED_SECONDS = 60 if SOAK else 0
SLACK_SECONDS = 5 if SOAK else 60
"""For a machine that is busy with other things."""
MEGABYTE = 2**20


def test_fuzzed_frames_against_a_live_party(tmp_path: Path) -> None:
    with Deployment(provision(tmp_path)) as deployment:
        deployment.start("dealer", "hotel", "airline", "actor", options=("--log-format", "json"))
        observed = attack_a_party(deployment, FRAMES)
        print(observed)
        assert observed.frames >= FRAMES
        assert observed.grown_bytes < 20 * MEGABYTE
        if SOAK:
            assert observed.attacked_ms < 2 * observed.calm_ms
        refused = [line for line in deployment.log("hotel") if line["event"] == "refused"]
        assert len(refused) > observed.connections / 2
        assert {line["event"] for line in deployment.log("hotel")} <= {
            "serving",
            "peer ready",
            "epoch opened",
            "refused",
        }
        assert "Traceback" not in deployment.log_path("hotel").read_text()
        deployment.start("rewarder")
        deployment.step()


def test_a_stopped_peer_is_noticed_named_and_taken_back(tmp_path: Path) -> None:
    with running(tmp_path, durable=True) as deployment:
        hotel, airline = deployment.processes["hotel"], deployment.processes["airline"]
        before = resident(deployment, "hotel")
        airline.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            lost = deployment.until("hotel", "peer lost")
            noticed = time.monotonic() - began
            reasons = deployment.ready("hotel")["reasons"]
            time.sleep(max(0.0, STOPPED_SECONDS - noticed))
            grown = resident(deployment, "hotel") - before
        finally:
            airline.send_signal(signal.SIGCONT)
        print(f"noticed after {noticed:.1f} s, memory grew by {grown / MEGABYTE:.1f} MB")
        assert noticed <= Limits().silence_seconds + SLACK_SECONDS
        assert lost["peer"] == "airline (party 1)"
        assert "said nothing for" in lost["reason"]
        assert reasons == ["no epoch is open: airline (party 1) not connected"]
        assert grown < 50 * MEGABYTE
        deployment.step()
        assert hotel.poll() is airline.poll() is None


def resident(deployment: Deployment, role: str) -> float:
    return parse_metrics(deployment.get(role, "/metrics")[1])["hiddenarm_resident_memory_bytes"][0][1]


CANARY, REWARD, USER = "0.318309886", 0.271828182, "canary-user-4711"


def test_a_canary_shows_nowhere(tmp_path: Path) -> None:
    """A feature, a reward, a key of a user, and every private key, in logs, pages, answers and files that others may
    read; after decisions, refusals, a damaged table, a death and an unexpected end."""
    kits = provision(tmp_path, durable=True)
    for party, columns in (("hotel", "nights,stars,spend"), ("airline", "miles,delay")):
        count = columns.count(",") + 1
        rows = [
            f"{USER},{','.join([CANARY] * count)}",
            f"user 17,{','.join(['0.1'] * count)}",
            f"bad,{',' * (count - 1)}",
        ]
        (kits / party / "features.csv").write_text("\n".join([f"key,{columns}", *rows, ""]))
    seen: list[str] = []
    with Deployment(kits) as deployment:
        deployment.start(*ROLES, options=("--log-format", "json", "--log-level", "debug"))
        decision = deployment.ask("actor", key=USER)
        for key in ("bad", "nobody"):
            seen.append(str(deployment.ask("actor", key=key)))
        seen.append(str(deployment.ask("rewarder", id=decision["id"], reward=REWARD)))
        seen.append(str(deployment.ask("rewarder", id=decision["id"], reward=-REWARD)))
        seen += [deployment.get(role, page)[1] for role in ROLES for page in ("/metrics", "/livez", "/readyz")]
        deployment.processes["airline"].kill()
        deployment.until("hotel", "peer lost")
        deployment.processes["hotel"].send_signal(signal.SIGABRT)
        deployment.ends("hotel", "airline")
    seen += [deployment.log_path(role).read_text() for role in ROLES]
    secrets = [CANARY, CANARY[2:], str(REWARD), str(REWARD)[2:], USER]
    for path in kits.rglob("key.pem"):
        secrets += path.read_text().splitlines()[1:-1]
    assert len(secrets) > 15
    for text in seen:
        assert not [secret for secret in secrets if secret in text], text
    assert any("refused a decision" in text for text in seen)
    for path in kits.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, f"{path} is open to others"
