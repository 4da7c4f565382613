"""The state of a role as numbers with names: for Prometheus, for `hiddenarm status`, and for health checks.

All of it is counted elsewhere (`net.meter`, `health`) and only read here, when somebody asks. prometheus-client writes
the text. docs/operations.md lists every metric.

`Readiness` is whether decisions can be served now, as a role sees it; if not, why; and what is amiss though they can.
Decisions need an open epoch, and the actor. In memory, the epoch is opened by parties and dealer, and ends with any of
them; clients come to it. Where state lasts it is opened by all roles and ends with any of them but the dealer: without
it, decisions go on from stock, of which only the last party knows how much is left. A rewarder is ready when rewards
can be learned.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest
from prometheus_client.core import Metric, Sample
from prometheus_client.registry import Collector

from hiddenarm.bandit.accounting import Budget
from hiddenarm.bandit.catalogue import DECIDE_ONE
from hiddenarm.bandit.evaluation import OpenedValues
from hiddenarm.errors import ConfigError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.meter import Meter
from hiddenarm.net.monitor import Monitor, Page
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.roles.health import BOUNDS, Health, RunTimes
from hiddenarm.roles.messages import CLIENTS, DEALER, PROGRAM_NAMES, REWARDER, Kind
from hiddenarm.service.dashboard import DATA_PATH, PAGE_PATH, SAMPLE_SECONDS, Dashboard
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import Endpoint
from hiddenarm.service.tokens import monitor_token, shows

_METRICS_PATH: Final = "/metrics"
SILENT_SECONDS: Final = 5.0
"""A peer that has said nothing for this long is called silent: it is asked every second."""

Silences = Mapping[Identity, float]
"""The peers that are connected, and for how many seconds each of them has said nothing."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Why decisions cannot be served now, nothing if they can; and what is to be known besides."""

    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        return not self.reasons


def readiness_of(endpoint: Endpoint, members: Sequence[Identity]) -> Readiness:
    """How things look to a role; `members` are all the others."""
    machine, silences = endpoint.machine, endpoint.transport.silences
    found = Readiness()
    _look_at_epoch(found, machine.active, machine.absent)
    missing = [peer for peer in members if machine.expects(peer) and peer not in silences]
    _look_at_clients(found, [peer for peer in missing if peer in CLIENTS and peer not in machine.absent])
    _look_at_silences(found, silences)
    if found.ready and endpoint.kit.identity != DEALER:
        _look_at_dealer(found, silences, machine.health())
    return found


def _look_at_epoch(found: Readiness, is_open: bool, missing: list[Identity]) -> None:
    if not is_open:
        why = [f"no epoch is open: {peer} not connected" for peer in missing]
        found.reasons.extend(why or ["an epoch is being opened"])


def _look_at_clients(found: Readiness, missing: list[Identity]) -> None:
    """Clients that are not there, though the epoch does not need them."""
    for peer in missing:
        if peer == REWARDER:
            found.notes.append("rewarder not connected: decisions are served, rewards are not learned")
        else:
            found.reasons.append(f"{peer} not connected")


def _look_at_silences(found: Readiness, silences: Silences) -> None:
    for peer, seconds in sorted(silences.items()):
        if peer.role is Role.PARTY and seconds > SILENT_SECONDS:
            found.reasons.append(f"{peer} has said nothing for {seconds:.0f} seconds")


def _look_at_dealer(found: Readiness, silences: Silences, health: Health) -> None:
    """Without the dealer there is what it has dealt."""
    if silences.get(DEALER, SILENT_SECONDS + 1) <= SILENT_SECONDS:
        return
    why = "dealer silent" if DEALER in silences else "dealer not connected"
    left = health.stock.get(DECIDE_ONE.label)
    if health.out_of_stock or left == 0:
        found.reasons.append(f"{why}, and what it dealt is used up")
    elif left is None:
        found.notes.append(f"{why}: decisions go on from what the last party has in stock")
    else:
        found.notes.append(f"{why}: {left} steps of single decisions are left in stock")


Labels = dict[str, str]
"""Names and values."""


class Family(NamedTuple):
    """A metric: its name, its type, and what it means."""

    name: str
    kind: str
    help: str

    def metric(self, samples: Iterable[tuple[Labels, float]]) -> Metric:
        """With its numbers. Not all have the same labels: a peer's organisation may have no name."""
        metric = Metric(self.name.removesuffix("_total"), self.help, self.kind)
        metric.samples.extend(Sample(self.name, labels, value) for labels, value in samples)
        return metric


INFO: Final = Family("hiddenarm_info", "gauge", "1; the labels say which role of which federation this is")
READY: Final = Family("hiddenarm_ready", "gauge", "1 if decisions can be served now, as this role sees it")
UP: Final = Family("hiddenarm_up_seconds", "gauge", "Seconds since the role started")
PEER_READY: Final = Family("hiddenarm_peer_ready", "gauge", "1 if the peer is connected")
PEER_SILENCE: Final = Family("hiddenarm_peer_silence_seconds", "gauge", "Seconds for which the peer has said nothing")
FRAMES: Final = Family("hiddenarm_frames_total", "counter", "Frames by peer, direction and kind")
BYTES: Final = Family("hiddenarm_bytes_total", "counter", "Bytes of frames by peer, direction and kind")
ROUNDS: Final = Family("hiddenarm_rounds_total", "counter", "Rounds with the other parties, by program")
RUNS: Final = Family("hiddenarm_run_seconds", "histogram", "Time from the start of a program's run to its end")
INTERACTIONS: Final = Family("hiddenarm_interactions_total", "counter", "Interactions treated, by program")
VERSION: Final = Family("hiddenarm_model_version", "gauge", "Lessons that the model holds")
PENDING: Final = Family("hiddenarm_pending_decisions", "gauge", "Decisions that wait for their reward")
WAITING: Final = Family("hiddenarm_requests_waiting", "gauge", "Requests that are not answered yet")
STOCK: Final = Family("hiddenarm_stock_steps", "gauge", "Dealt steps in stock at the last party, by program")
RELEASED: Final = Family(
    "hiddenarm_privacy_decisions_total", "counter", "Decisions in the privacy ledger, by their chance to be explored"
)
REFRESHES: Final = Family(
    "hiddenarm_privacy_refreshes_total", "counter", "Refreshes of noisy sums, or of a noisy gradient, in the ledger"
)
WENT_BACK: Final = Family(
    "hiddenarm_privacy_went_back_total", "counter", "Times that all parties went back behind a refresh that was used"
)
OPENINGS: Final = Family("hiddenarm_privacy_openings_total", "counter", "Sums that were opened, with noise and without")
OPENED: Final = Family(
    "hiddenarm_privacy_opened_mu_squared", "gauge", "The sum of mu^2 of openings with noise: of all, and of one row"
)
OUT_OF_RANGE: Final = Family(
    "hiddenarm_privacy_out_of_range_total", "counter", "Decisions that ended as scores left their range, seen by all"
)
BUDGET: Final = Family(
    "hiddenarm_privacy_budget_decisions", "gauge", "Decisions that the privacy budget still pays for"
)
VALUE: Final = Family(
    "hiddenarm_policy_value", "gauge", "What a policy earns per decision, estimated, at the role it is opened to"
)
VALUE_NOISE: Final = Family(
    "hiddenarm_policy_value_noise", "gauge", "The deviation that noise adds to the unbiased estimate"
)
EVALUATED: Final = Family("hiddenarm_evaluated_decisions", "gauge", "Decisions in the windows that were opened")
EXPIRES: Final = Family("hiddenarm_certificate_expires_timestamp_seconds", "gauge", "When the certificate expires")
MEMORY: Final = Family("hiddenarm_resident_memory_bytes", "gauge", "Memory that the process holds now")
PEAK_MEMORY: Final = Family("hiddenarm_peak_memory_bytes", "gauge", "The most memory that the process ever held")
PROCESSOR: Final = Family("hiddenarm_cpu_seconds_total", "counter", "Processor time used")
FAMILIES: Final = (
    *(INFO, READY, UP, PEER_READY, PEER_SILENCE, FRAMES, BYTES, ROUNDS, RUNS, INTERACTIONS, VERSION, PENDING),
    *(WAITING, STOCK, RELEASED, REFRESHES, WENT_BACK, OPENINGS, OPENED, OUT_OF_RANGE, BUDGET),
    *(VALUE, VALUE_NOISE, EVALUATED, EXPIRES, MEMORY, PEAK_MEMORY, PROCESSOR),
)


class Observer(Collector):
    """Looks at a role from outside, when asked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._kit = endpoint.kit
        self._began = time.monotonic()

    def readiness(self) -> Readiness:
        found, named = readiness_of(self._endpoint, all_members(self._kit)), self._kit.organisations.in_text
        return Readiness([named(reason) for reason in found.reasons], [named(note) for note in found.notes])

    def collect(self) -> Iterator[Metric]:
        """Everything, in the order of `FAMILIES`; nothing of a family that has no numbers here."""
        return (metric for metric in self._all() if metric.samples)

    def _all(self) -> Iterator[Metric]:
        kit, health = self._kit, self._endpoint.machine.health()
        about = {"federation": kit.file.name, "version": version("hiddenarm")}
        yield INFO.metric([(self._labels("role", kit.identity) | about, 1)])
        yield READY.metric([({}, float(self.readiness().ready))])
        yield UP.metric([({}, time.monotonic() - self._began)])
        yield from self._of_peers()
        yield from _of_links(self._endpoint.meter, {str(peer): self._labels("peer", peer) for peer in all_members(kit)})
        yield from _of_runs(health.runs)
        yield from _of_state(health)
        yield from _of_privacy(health.ledger, kit.federation.budget)
        yield from _of_values(health.values)
        yield EXPIRES.metric([({}, certificate_expiry(kit.tls.certificate))])
        yield from _of_process()

    def _of_peers(self) -> Iterator[Metric]:
        silences = self._endpoint.transport.silences
        peers = [peer for peer in all_members(self._kit) if self._endpoint.machine.expects(peer)]
        yield PEER_READY.metric((self._labels("peer", peer), float(peer in silences)) for peer in peers)
        yield PEER_SILENCE.metric((self._labels("peer", peer), seconds) for peer, seconds in sorted(silences.items()))

    def _labels(self, label: str, member: Identity) -> Labels:
        """A member, and its organisation if that has a name."""
        organisation = self._kit.organisations.name(member)
        return {label: str(member)} | ({} if organisation is None else {"organisation": organisation})


def start_monitor(endpoint: Endpoint) -> Monitor | None:
    """Serve health and metrics where the kit says, if it does."""
    host, port = endpoint.kit.file.monitor_listen, endpoint.kit.file.monitor_port
    if port is None:
        return None
    observer, registry = Observer(endpoint), CollectorRegistry()
    registry.register(observer)
    dashboard = Dashboard(endpoint, observer.readiness, all_members(endpoint.kit))
    pages = {
        "/livez": live_page,
        "/readyz": lambda: ready_page(observer),
        _METRICS_PATH: lambda: metrics_page(registry),
        PAGE_PATH: dashboard.page,
        DATA_PATH: dashboard.data,
    }
    own, ticks = frozenset((PAGE_PATH, DATA_PATH)), (SAMPLE_SECONDS, dashboard.sample)
    token = monitor_token(endpoint.kit.folder)
    guarded = frozenset() if token is None else frozenset((_METRICS_PATH,))
    admitted = partial(shows, token=token or "")
    try:
        monitor = Monitor(
            endpoint.transport, port, pages, host=host, own=own, guarded=guarded, admitted=admitted, ticks=ticks
        )
    except OSError as error:
        raise ConfigError(
            f"cannot serve health and metrics at {host}:{port}: {error.strerror}; set another monitor_port in kit.json"
        ) from None
    endpoint.transport.call(dashboard.sample)  # so that the page shows what happens before the first tick
    return monitor


def live_page() -> Page:
    """The loop runs: otherwise nobody would answer."""
    return Page(json.dumps({"live": True}) + "\n", kind="application/json")


def ready_page(observer: Observer) -> Page:
    found = observer.readiness()
    body = {"ready": found.ready, "reasons": found.reasons, "notes": found.notes}
    return Page(json.dumps(body) + "\n", 200 if found.ready else 503, "application/json")


def metrics_page(registry: CollectorRegistry) -> Page:
    return Page(generate_latest(registry).decode(), kind=CONTENT_TYPE_PLAIN_0_0_4)


def all_members(kit: Kit) -> list[Identity]:
    """Everybody in the federation but this role."""
    parties = [Identity(Role.PARTY, number) for number in range(kit.federation.parties)]
    everybody = [*parties, DEALER, Identity(Role.ACTOR), Identity(Role.REWARDER)]
    return [member for member in everybody if member != kit.identity]


def needed_peers(kit: Kit) -> list[Identity]:
    """Without whom a role cannot work: the parties, and the dealer."""
    return [member for member in all_members(kit) if member.role in (Role.PARTY, Role.DEALER)]


def certificate_expiry(path: Path) -> float:
    """When the certificate in a file expires, in seconds since 1970."""
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def _of_links(meter: Meter, of_peer: Mapping[str, Labels]) -> Iterator[Metric]:
    rows = [(direction, row) for direction, of_one in meter.as_dict().items() for row in of_one]
    for family, column in ((FRAMES, "frames"), (BYTES, "bytes")):
        totals: dict[tuple[str, str, str], int] = {}
        for direction, row in rows:
            link = str(row["peer"]), direction, str(row["kind"])
            totals[link] = totals.get(link, 0) + int(row[column])
        yield family.metric(
            (of_peer[peer] | {"direction": direction, "kind": kind}, total)
            for (peer, direction, kind), total in totals.items()
        )
    programs = {
        int(row["program"]) for direction, row in rows if direction == "sent" and row["kind"] == Kind.ROUND.name
    }
    yield ROUNDS.metric(
        ({"program": PROGRAM_NAMES[program]}, float(meter.most_frames_sent(Kind.ROUND, program)))
        for program in sorted(programs)
    )


def _of_runs(runs: dict[str, RunTimes]) -> Iterator[Metric]:
    times_of_runs = RUNS.metric(())
    samples = times_of_runs.samples
    for program, times in runs.items():
        total = 0
        for bound, count in zip((*BOUNDS, "+Inf"), times.buckets, strict=True):
            total += count
            le = bound if isinstance(bound, str) else f"{bound:g}"
            samples.append(Sample(f"{RUNS.name}_bucket", {"program": program, "le": le}, total))
        samples.append(Sample(f"{RUNS.name}_sum", {"program": program}, times.seconds))
        samples.append(Sample(f"{RUNS.name}_count", {"program": program}, total))
    yield times_of_runs
    yield INTERACTIONS.metric(({"program": program}, float(times.interactions)) for program, times in runs.items())


def _of_state(health: Health) -> Iterator[Metric]:
    yield VERSION.metric([] if health.version is None else [({}, health.version)])
    yield PENDING.metric([] if health.pending is None else [({}, health.pending)])
    yield WAITING.metric([({}, health.waiting)])
    yield STOCK.metric(({"program": program}, float(steps)) for program, steps in health.stock.items())


def _of_privacy(ledger: PrivacyLedger | None, budget: Budget | None) -> Iterator[Metric]:
    """Counts only: what they mean takes long to compute, and a role has no time for it (`hiddenarm status` does)."""
    if ledger is None:
        return
    yield RELEASED.metric(({"epsilon": repr(chance)}, float(count)) for chance, count in ledger.levels.items())
    yield REFRESHES.metric([({}, float(ledger.refreshes))])
    yield WENT_BACK.metric([({}, float(ledger.repeated))])
    yield OPENINGS.metric(
        [({"noise": "yes"}, float(ledger.openings - ledger.bare)), ({"noise": "no"}, float(ledger.bare))]
    )
    yield OPENED.metric([({"of": "all"}, ledger.opened), ({"of": "row"}, ledger.row_opened)])
    yield OUT_OF_RANGE.metric([({}, float(ledger.out_of_range))])
    left: list[tuple[Labels, float]] = (
        [] if budget is None else [({}, float(max(0, budget.decisions - ledger.telling)))]
    )
    yield BUDGET.metric(left)


def _of_values(values: OpenedValues | None) -> Iterator[Metric]:
    found = {} if values is None else values.by_policy
    estimates = [
        ({"policy": name, "estimate": estimate}, getattr(value, estimate))
        for name, value in found.items()
        for estimate in ("unbiased", "ratio")
    ]
    yield VALUE.metric(sample for sample in estimates if isfinite(sample[1]))
    yield VALUE_NOISE.metric(({"policy": name}, value.noise) for name, value in found.items())
    yield EVALUATED.metric([] if values is None else [({}, float(values.decisions))])


def _of_process() -> Iterator[Metric]:
    usage, resident = resource.getrusage(resource.RUSAGE_SELF), _resident_bytes()
    yield MEMORY.metric([] if resident is None else [({}, resident)])
    yield PEAK_MEMORY.metric([({}, usage.ru_maxrss * 1024)])
    yield PROCESSOR.metric([({}, usage.ru_utime + usage.ru_stime)])


def _resident_bytes() -> int | None:
    """Where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGESIZE")
