"""`hiddenarm status KIT`: ask the role that runs on this machine how it is doing, and print it as a table."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from hiddenarm.bandit.evaluation import mixed_value
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.privacy import shown_epsilon
from hiddenarm.errors import ConfigError, PeerLost
from hiddenarm.net.identity import Identity
from hiddenarm.net.monitor import EVERYWHERE, HOST
from hiddenarm.privacy.ledger import COIN_UNITS, PrivacyLedger, Statement, statement
from hiddenarm.service.kit import read_kit_file
from hiddenarm.service.logs import Organisations
from hiddenarm.service.tokens import monitor_token

_SECONDS: Final = 5.0
"""More than the role takes to say that its loop does not run."""

Labels = dict[str, str]
Metrics = dict[str, list[tuple[Labels, float]]]


def check_alive(kit: Path) -> None:
    """Raise PeerLost if the role of a kit is not running, or its loop does not answer."""
    _ask(kit, "/livez")


def show_status(kit: Path, as_json: bool, at_epsilon: float | None = None) -> None:
    """Print how the role of a kit is doing, and what its policy would earn with another chance to explore, if that is
    asked. Raises PeerLost if it is not running or decisions cannot be served."""
    if at_epsilon is not None and not 0 <= at_epsilon <= 1:
        raise ConfigError(f"--at-epsilon must lie in [0, 1], got {at_epsilon}")
    me, ready_text, metrics_text = _ask(kit, "/readyz", "/metrics")
    ready, metrics = json.loads(ready_text), parse_metrics(metrics_text)
    released = released_in(metrics, read_kit_file(kit).build_federation())
    other = (
        {} if at_epsilon is None else {"at_epsilon": {"epsilon": at_epsilon, "value": value_at(metrics, at_epsilon)}}
    )
    if as_json:
        privacy = {} if released is None else {"privacy": released.to_dict()}
        print(json.dumps({"role": me, **ready, "metrics": _flat(metrics), **privacy, **other}, indent=2))
    else:
        values = _value_rows(metrics, at_epsilon)
        _print(Console(), me, ready, [*_rows(metrics), *values, *_privacy_rows(metrics, released)])
    if not ready["ready"]:
        raise PeerLost(f"{me} is not ready: {'; '.join(ready['reasons'])}")


def _ask(kit: Path, *paths: str) -> list[str]:
    """The name of a kit's role, and pages of its monitor."""
    file = read_kit_file(kit)
    if file.monitor_port is None:
        raise ConfigError(f"{kit / 'kit.json'} has no monitor_port, so nobody can ask the role how it is doing")
    where = f"{HOST if file.monitor_listen == EVERYWHERE else file.monitor_listen}:{file.monitor_port}"
    me = Organisations(file.organisations).of(Identity(file.role, file.number))
    try:
        token = monitor_token(kit)
        return [str(me), *(_get(where, path, token) for path in paths)]
    except urllib.error.HTTPError as error:
        raise PeerLost(f"{me} runs, but does not answer at {where}: {error}") from None
    except (OSError, ValueError):
        raise PeerLost(f"{me} does not answer at {where}: start it with hiddenarm serve {kit}") from None


def parse_metrics(text: str) -> Metrics:
    """The samples in Prometheus' text format, by name."""
    metrics: Metrics = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            metrics.setdefault(sample.name, []).append((sample.labels, sample.value))
    return metrics


def _get(where: str, path: str, token: str | None) -> str:
    """A page. That a role is not ready is an answer; that its loop does not run is none."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        asked = urllib.request.Request(f"http://{where}{path}", headers=headers)
        with urllib.request.urlopen(asked, timeout=_SECONDS) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        if error.code != 503 or path != "/readyz":
            raise
        return error.read().decode()


def _flat(metrics: Metrics) -> dict[str, Any]:
    """For JSON: a number where a metric has no labels, else a list."""
    return {
        name: samples[0][1] if samples[0][0] == {} else [{**labels, "value": value} for labels, value in samples]
        for name, samples in metrics.items()
    }


def released_in(metrics: Metrics, federation: Federation) -> Statement | None:
    """What a party has released over all epochs, by its metrics, and what that means."""
    counted = metrics.get("hiddenarm_privacy_decisions_total")
    if counted is None:
        return None
    decisions = {int(float(labels["epsilon"]) * COIN_UNITS): int(count) for labels, count in counted}
    refreshes = int(_one(metrics, "hiddenarm_privacy_refreshes_total"))
    repeated = int(_one(metrics, "hiddenarm_privacy_went_back_total"))
    sums = {labels["of"]: value for labels, value in metrics.get("hiddenarm_privacy_opened_mu_squared", [])}
    openings = {labels["noise"]: int(count) for labels, count in metrics.get("hiddenarm_privacy_openings_total", [])}
    ledger = PrivacyLedger(
        decisions,
        refreshes,
        sums.get("all", 0.0),
        repeated,
        sums.get("row", 0.0),
        sum(openings.values()),
        openings.get("no", 0),
        int(_one(metrics, "hiddenarm_privacy_out_of_range_total")),
    )
    return statement(ledger, federation.arms, federation.privacy)


def value_at(metrics: Metrics, epsilon: float) -> float:
    """What the policy would earn with another chance to explore; ConfigError at a role to which not both values that
    it follows from are opened."""
    samples = metrics.get("hiddenarm_policy_value", [])
    found = {labels["policy"]: value for labels, value in samples if labels["estimate"] == "unbiased"}
    return mixed_value(found, epsilon)


def _value_rows(metrics: Metrics, at_epsilon: float | None = None) -> list[tuple[str, str]]:
    """What policies earn, at the role that these values are opened to."""
    rows = []
    for labels, noise in metrics.get("hiddenarm_policy_value_noise", []):
        policy = labels["policy"]
        found = {
            estimate: _one(metrics, "hiddenarm_policy_value", {"policy": policy, "estimate": estimate})
            for estimate in ("unbiased", "ratio")
        }
        told = f"{found['unbiased']:.4f} a decision (ratio {found['ratio']:.4f}, noise {noise:.4f})"
        rows.append((f"value of the {policy} policy", told))
    if at_epsilon is not None:
        shown = f"{value_at(metrics, at_epsilon):.4f} a decision"
        rows.append((f"value of the policy at epsilon {at_epsilon:g}", shown))
    if rows:
        rows.append(("decisions evaluated", f"{_one(metrics, 'hiddenarm_evaluated_decisions'):,.0f}"))
    return rows


def _privacy_rows(metrics: Metrics, released: Statement | None) -> list[tuple[str, str]]:
    rows = []
    if released is not None:
        rows.append(("decisions in the privacy ledger", f"{released.decisions:,}"))
        shown = shown_epsilon(released.headline)
        rows.append(("what they tell about one row", f"epsilon {shown} at delta {released.delta:g}"))
    if "hiddenarm_privacy_budget_decisions" in metrics:
        left = _one(metrics, "hiddenarm_privacy_budget_decisions")
        rows.append(("privacy budget", f"{left:,.0f} decisions left"))
    return rows


def _print(console: Console, role: str, ready: dict[str, Any], rows: list[tuple[str, str]]) -> None:
    table = Table(title=f"{role}: {'ready' if ready['ready'] else 'not ready'}", show_header=False)
    for kind in ("reasons", "notes"):
        for text in ready[kind]:
            table.add_row("why" if kind == "reasons" else "note", text)
    for name, value in rows:
        table.add_row(name, value)
    console.print(table)


def _rows(metrics: Metrics) -> list[tuple[str, str]]:
    rows = [("up", f"{_one(metrics, 'hiddenarm_up_seconds'):.0f} s")]
    silences = {labels["peer"]: value for labels, value in metrics.get("hiddenarm_peer_silence_seconds", [])}
    for labels, ready in metrics.get("hiddenarm_peer_ready", []):
        peer = labels["peer"]
        named = f"{labels['organisation']} ({peer})" if "organisation" in labels else peer
        rows.append((named, f"connected, last heard {silences.get(peer, 0):.0f} s ago" if ready else "not connected"))
    for labels, count in metrics.get("hiddenarm_run_seconds_count", []):
        seconds = _one(metrics, "hiddenarm_run_seconds_sum", labels)
        rows.append((labels["program"], f"{count:.0f} runs, {1000 * seconds / max(count, 1):.2f} ms each"))
    for labels, value in metrics.get("hiddenarm_stock_steps", []):
        rows.append((f"stock of {labels['program']}", f"{value:.0f} steps"))
    for name, label in (("model_version", "lessons in the model"), ("pending_decisions", "decisions without reward")):
        if f"hiddenarm_{name}" in metrics:
            rows.append((label, f"{_one(metrics, f'hiddenarm_{name}'):.0f}"))
    rows.append(("requests waiting", f"{_one(metrics, 'hiddenarm_requests_waiting'):.0f}"))
    for direction in ("sent", "received"):
        rows.append((f"bytes {direction}", f"{_sum(metrics, 'hiddenarm_bytes_total', direction):,.0f}"))
    rows.append(("memory", f"{_one(metrics, 'hiddenarm_resident_memory_bytes') / 2**20:.0f} MB"))
    return rows


def _one(metrics: Metrics, name: str, labels: Labels | None = None) -> float:
    return next((value for found, value in metrics.get(name, []) if labels is None or found == labels), 0.0)


def _sum(metrics: Metrics, name: str, direction: str) -> float:
    return sum(value for labels, value in metrics.get(name, []) if labels["direction"] == direction)
