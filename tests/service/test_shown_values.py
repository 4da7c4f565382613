"""Values of policies and openings as metrics, and what `hiddenarm status` makes of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hiddenarm.bandit.evaluation import PolicyValues, estimated
from hiddenarm.bandit.federation import Federation
from hiddenarm.cli.status import _value_rows, parse_metrics, released_in, value_at
from hiddenarm.errors import ConfigError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.privacy.ledger import PrivacyLedger, statement
from hiddenarm.privacy.mechanisms import NoisySums
from hiddenarm.ring.words import encode
from hiddenarm.service.dashboard import _Privacy
from hiddenarm.service.metrics import _of_privacy, _of_values


class Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return [metric for metric in self._metrics if metric.samples]


def text_of(metrics: list[Metric]) -> str:
    registry = CollectorRegistry()
    registry.register(Collected(metrics))
    return generate_latest(registry).decode()


def test_the_receiver_shows_what_policies_earn() -> None:
    values = PolicyValues(0.5, "actor", window=10)
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25, evaluation=values)
    opened = estimated(federation, 4, encode(np.array([15.0, 2.0, 30.0]), federation.fraction_bits))
    rows = dict(_value_rows(parse_metrics(text_of(list(_of_values(opened))))))
    assert rows["value of the greedy policy"].startswith("0.5000 a decision (ratio 0.5000, noise 0.2309)")
    assert rows["value of the uniform policy"].startswith("0.2000 a decision (ratio 0.2000, noise 0.6928)")
    assert rows["decisions evaluated"] == "40"
    assert _value_rows(parse_metrics(text_of(list(_of_values(None))))) == []
    shown = parse_metrics(text_of(list(_of_values(opened))))
    assert value_at(shown, 0.1) == pytest.approx(opened.at_epsilon(0.1)) == pytest.approx(0.47)
    assert dict(_value_rows(shown, 0.1))["value of the policy at epsilon 0.1"] == "0.4700 a decision"


def test_the_value_at_another_epsilon_takes_both_values() -> None:
    with pytest.raises(ConfigError, match="takes those of greedy and uniform; here is none"):
        value_at({}, 0.1)


@pytest.mark.parametrize("bare", [False, True])
def test_status_states_what_the_ledger_of_a_party_means_with_its_openings(bare: bool) -> None:
    privacy = NoisySums(1.0)
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25, privacy=privacy)
    ledger = PrivacyLedger({2**61: 9}, 1).opened_with(0.2).opened_with(0.2)
    if bare:
        ledger = ledger.opened_with(None)
    released = released_in(parse_metrics(text_of(list(_of_privacy(ledger, None)))), federation)
    assert released == statement(ledger, 3, privacy)
    assert released is not None
    assert released.headline.vacuous == bare


@pytest.mark.parametrize("left", [0, 1])
def test_status_states_that_a_decision_left_its_range(left: int) -> None:
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25)
    ledger = PrivacyLedger({2**61: 1}).left_range(left)
    released = released_in(parse_metrics(text_of(list(_of_privacy(ledger, None)))), federation)
    assert released == statement(ledger, 3, federation.privacy)
    assert released is not None
    assert released.headline.vacuous == bool(left)


def test_a_page_never_shows_decisions_with_the_privacy_of_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was released and what it means are of one ledger, also where it was computed a while ago."""
    federation = Federation(arms=3, features=(2, 2), epsilon=0.25)
    kit: Any = SimpleNamespace(federation=federation, identity=Identity(Role.PARTY, 0))
    privacy, now = _Privacy(kit), [100.0]
    monkeypatch.setattr("hiddenarm.service.dashboard.time", SimpleNamespace(monotonic=lambda: now[0]))
    honest = privacy._computed

    def slow(ledger: PrivacyLedger) -> dict[str, Any]:
        now[0] += 1.0
        return honest(ledger)

    monkeypatch.setattr(privacy, "_computed", slow)
    few, many = (PrivacyLedger({2**61: count}) for count in (3, 300))
    first = privacy.of(few)
    assert first is not None
    assert first["decisions"] == 3
    assert privacy.of(many) == first, "it was computed just now, and took long"
    now[0] += 20.0
    later = privacy.of(many)
    assert later is not None
    assert later["decisions"] == 300
    assert later["epsilon_total"] > 50 * first["epsilon_total"]
    began = now[0]
    assert privacy.of(many) == later
    assert now[0] == began, "nothing has changed"
    assert privacy.of(None) is None
