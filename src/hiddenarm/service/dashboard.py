"""The page of a role, for people on its machine: how it is doing now, and how it was doing for the last half hour.

The role's loop takes a sample every few seconds and keeps the newest; a page that is opened later shows the past, too.
A role's page has what that role may know, and nothing else:

    party      throughput, latency by program, stock, peers, pending decisions, rounds of the last run, privacy spent
    actor      besides links and requests, how often each arm was chosen
    rewarder   besides links and requests, the mean of the rewards that it was given, with a band of 95 %
    dealer     links

No feature, key or share is part of it. Means and counts are taken every few seconds: where traffic is slow, single
rewards and arms follow from them, at the role that knows them. The page is one file without anything from elsewhere;
it fetches `DATA_PATH` from where it came, and nothing else. `docs/dashboard.md` has a picture.
"""

from __future__ import annotations

import json
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from hiddenarm.bandit.catalogue import DECIDE_ONE, program_text
from hiddenarm.bandit.federation import Federation
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.monitor import Page
from hiddenarm.privacy.ledger import PrivacyLedger, statement
from hiddenarm.roles.health import Health, LastRun, RewardSums
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import Endpoint

if TYPE_CHECKING:
    from hiddenarm.service.metrics import Readiness

PAGE_PATH: Final = "/dashboard"
DATA_PATH: Final = "/dashboard.json"
SAMPLE_SECONDS: Final = 2.0
MOST_SAMPLES: Final = 900
"""Half an hour of them."""
ALL_SHOWN: Final = 64
"""Arms of which each is counted in a sample."""
MOST_SHOWN: Final = 20
"""Of more arms, so many that were chosen most."""
_BAND: Final = 1.96
_KIND: Final = "text/html; charset=utf-8"
_SHARE: Final = 0.05
"""Of the time, for computing what releases mean for privacy: in between, what was computed last is shown again."""

Sample = dict[str, Any]


class Dashboard:
    """Looks at a role from its loop, and remembers. `readiness` says how things look; `members` are all the others."""

    def __init__(self, endpoint: Endpoint, readiness: Callable[[], Readiness], members: Sequence[Identity]) -> None:
        self._endpoint = endpoint
        self._readiness = readiness
        self._members = members
        self._began = time.monotonic()
        self._samples: deque[Sample] = deque(maxlen=MOST_SAMPLES)
        self._privacy = _Privacy(endpoint.kit)

    def sample(self) -> None:
        """Note how the role is doing."""
        self._samples.append(self._sample(self._endpoint.machine.health()))

    def page(self) -> Page:
        return Page(page_text(), kind=_KIND)

    def data(self) -> Page:
        """Everything, as JSON. What takes long is computed outside the loop."""
        health = self._endpoint.machine.health()
        role = self._role(health)
        role["samples"] = [*self._samples, self._sample(health)]
        ledger = health.ledger

        def complete() -> str:
            return json.dumps({"roles": [role | {"privacy": self._privacy.of(ledger)}]})

        return Page("", kind="application/json", complete=complete)

    def _sample(self, health: Health) -> Sample:
        runs = {name: [times.runs, times.interactions, round(times.seconds, 6)] for name, times in health.runs.items()}
        sample: Sample = {"t": round(time.time(), 3), "waiting": health.waiting, "ready": self._readiness().ready}
        if self._endpoint.kit.identity.role is Role.PARTY:
            sample |= {"runs": runs, "pending": health.pending, "version": health.version, "stock": dict(health.stock)}
        if self._endpoint.kit.identity.role is Role.ACTOR:
            sample |= {"decisions": sum(health.arms.values()), "arms": shown_arms(self._arms, health.arms)}
        if health.rewards is not None:
            sample["reward"] = mean_with_band(health.rewards)
        return sample

    def _role(self, health: Health) -> dict[str, Any]:
        kit, found = self._endpoint.kit, self._readiness()
        return {
            "role": str(kit.identity),
            "kind": kit.identity.role.value,
            "name": str(kit.organisations.of(kit.identity)),
            "federation": kit.file.name,
            "up": round(time.monotonic() - self._began, 1),
            "ready": found.ready,
            "reasons": found.reasons,
            "notes": found.notes,
            "peers": self._peers(),
            "arm_names": self._arm_names(health.arms) if kit.identity.role is Role.ACTOR else [],
            "last_runs": {name: _shown_run(run) for name, run in health.last_runs.items()},
            "decide_rounds": self._privacy.decide_rounds if health.last_runs else 0,
        }

    @property
    def _arms(self) -> int:
        return self._endpoint.kit.federation.arms

    def _arm_names(self, chosen: Mapping[int, int]) -> list[str] | dict[int, str]:
        """The names of all arms, or of those that are shown."""
        names = self._endpoint.kit.file.names_of_arms
        shown = shown_arms(self._arms, chosen)
        return list(names) if isinstance(shown, list) else {arm: names[arm] for arm in shown if names}

    def _peers(self) -> list[dict[str, Any]]:
        silences, machine = self._endpoint.transport.silences, self._endpoint.machine
        named = self._endpoint.kit.organisations.of
        return [
            {"name": str(named(peer)), "silence": round(silences[peer], 1) if peer in silences else None}
            for peer in self._members
            if machine.expects(peer)
        ]


class _Privacy:
    """What a party has released, and what that means: computed now and then, by whoever asks."""

    def __init__(self, kit: Kit) -> None:
        self._federation = kit.federation
        self._ledger: PrivacyLedger | None = None
        self._known: dict[str, Any] = {}
        self._next = 0.0
        self.decide_rounds = rounds_of_a_decision(kit.federation) if kit.identity.role is Role.PARTY else 0

    def of(self, ledger: PrivacyLedger | None) -> dict[str, Any] | None:
        if ledger is None:
            return None
        began = time.monotonic()
        if began >= self._next and ledger != self._ledger:
            self._ledger, self._known = ledger, self._computed(ledger)
            ended = time.monotonic()
            self._next = ended + (ended - began) / _SHARE
        return self._known

    def _computed(self, ledger: PrivacyLedger) -> dict[str, Any]:
        federation = self._federation
        released = statement(ledger, federation.arms, federation.privacy).to_dict()
        shown = {name: _finite(released[name]) for name in ("epsilon_total", "epsilon_own_action")}
        budget = federation.budget
        left = None if budget is None else max(0, budget.decisions - ledger.telling)
        return {"decisions": ledger.count, "delta": released["delta"], "budget_left": left, **shown}


def page_text() -> str:
    """The page, for one role or for several."""
    return files("hiddenarm.service").joinpath("dashboard.html").read_text("utf-8")


def shown_arms(arms: int, chosen: Mapping[int, int]) -> list[int] | dict[int, int]:
    """How often each arm was chosen; of many arms, the ones that were chosen most, by number."""
    if arms <= ALL_SHOWN:
        return [chosen.get(arm, 0) for arm in range(arms)]
    most = sorted(chosen, key=lambda arm: (-chosen[arm], arm))[:MOST_SHOWN]
    return {arm: chosen[arm] for arm in most}


def mean_with_band(sums: RewardSums) -> list[float]:
    """How many rewards, their mean, and half the width of its band of 95 %."""
    if not sums.count:
        return [0, 0.0, 0.0]
    mean = sums.total / sums.count
    variance = max(0.0, sums.squares / sums.count - mean * mean)
    return [sums.count, round(mean, 6), round(_BAND * math.sqrt(variance / sums.count), 6)]


def rounds_of_a_decision(federation: Federation) -> int:
    """After so many rounds of a step the actor hears of the arm."""
    layout = layout_of(program_text(federation, DECIDE_ONE), federation.parties, 1)
    return len(layout.round_bytes)


def _shown_run(run: LastRun) -> dict[str, Any]:
    milliseconds = [round(1000 * seconds, 3) for seconds in run.sent]
    return {"interactions": run.interactions, "sent": milliseconds, "bytes": list(run.bytes), "ended": 1000 * run.ended}


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
