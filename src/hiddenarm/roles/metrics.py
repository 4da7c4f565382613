"""The state of a role as numbers with names: for Prometheus, for `hiddenarm status`, and for health checks.

All of it is counted elsewhere (`net.meter`, `vitals`) and only read here, when somebody asks. docs/operations.md lists
every metric.
"""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509

from hiddenarm.errors import ConfigError
from hiddenarm.net.frames import Kind
from hiddenarm.net.identity import Identity, Role
from hiddenarm.net.meter import Meter
from hiddenarm.net.monitor import HOST, Monitor, Page
from hiddenarm.roles.kit import Kit
from hiddenarm.roles.messages import DEALER, PROGRAM_NAMES
from hiddenarm.roles.process import Endpoint
from hiddenarm.roles.readiness import Readiness, readiness_of
from hiddenarm.roles.vitals import BOUNDS, RunTimes, Vitals

Labels = tuple[tuple[str, str], ...]
"""Names and values."""


class Family(NamedTuple):
    """A metric: its name, its type, and what it means."""

    name: str
    kind: str
    help: str


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
EXPIRES: Final = Family("hiddenarm_certificate_expires_timestamp_seconds", "gauge", "When the certificate expires")
MEMORY: Final = Family("hiddenarm_resident_memory_bytes", "gauge", "Memory that the process holds now")
PEAK_MEMORY: Final = Family("hiddenarm_peak_memory_bytes", "gauge", "The most memory that the process ever held")
PROCESSOR: Final = Family("hiddenarm_cpu_seconds_total", "counter", "Processor time used")
FAMILIES: Final = (
    *(INFO, READY, UP, PEER_READY, PEER_SILENCE, FRAMES, BYTES, ROUNDS, RUNS, INTERACTIONS, VERSION, PENDING),
    *(WAITING, STOCK, EXPIRES, MEMORY, PEAK_MEMORY, PROCESSOR),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a family; a histogram has several, told apart by `suffix`."""

    family: Family
    value: float
    labels: Labels = ()
    suffix: str = ""


class Observer:
    """Looks at a role from outside, when asked."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._kit = endpoint.kit
        self._began = time.monotonic()

    def readiness(self) -> Readiness:
        found, named = readiness_of(self._endpoint, all_members(self._kit)), self._kit.organisations.in_text
        return Readiness([named(reason) for reason in found.reasons], [named(note) for note in found.notes])

    def samples(self) -> Iterator[Sample]:
        """Everything, in the order of `FAMILIES`."""
        kit, vitals = self._kit, self._endpoint.machine.vitals()
        about = (("federation", kit.file.name), ("version", version("hiddenarm")))
        yield Sample(INFO, 1, (*self._labels("role", kit.identity), *about))
        yield Sample(READY, float(self.readiness().ready))
        yield Sample(UP, time.monotonic() - self._began)
        yield from self._of_peers()
        yield from _of_links(self._endpoint.meter, {str(peer): self._labels("peer", peer) for peer in all_members(kit)})
        yield from _of_runs(vitals.runs)
        yield from _of_state(vitals)
        yield Sample(EXPIRES, certificate_expiry(kit.tls.certificate))
        yield from _of_process()

    def _of_peers(self) -> Iterator[Sample]:
        silences = self._endpoint.switchboard.silences
        peers = [peer for peer in all_members(self._kit) if self._endpoint.machine.expects(peer)]
        yield from (Sample(PEER_READY, float(peer in silences), self._labels("peer", peer)) for peer in peers)
        for peer, seconds in sorted(silences.items()):
            yield Sample(PEER_SILENCE, seconds, self._labels("peer", peer))

    def _labels(self, label: str, member: Identity) -> Labels:
        """A member, and its organisation if that has a name."""
        organisation = self._kit.organisations.name(member)
        named = () if organisation is None else (("organisation", organisation),)
        return ((label, str(member)), *named)


def start_monitor(endpoint: Endpoint) -> Monitor | None:
    """Serve health and metrics where the kit says, if it does."""
    port = endpoint.kit.file.monitor_port
    if port is None:
        return None
    observer = Observer(endpoint)
    pages = {
        "/livez": live_page,
        "/readyz": lambda: ready_page(observer),
        "/metrics": lambda: metrics_page(observer),
    }
    try:
        return Monitor(endpoint.switchboard, port, pages)
    except OSError as error:
        raise ConfigError(
            f"cannot serve health and metrics at {HOST}:{port}: {error.strerror}; set another monitor_port in kit.json"
        ) from None


def live_page() -> Page:
    """The loop runs: otherwise nobody would answer."""
    return Page(json.dumps({"live": True}) + "\n", kind="application/json")


def ready_page(observer: Observer) -> Page:
    found = observer.readiness()
    body = {"ready": found.ready, "reasons": found.reasons, "notes": found.notes}
    return Page(json.dumps(body) + "\n", 200 if found.ready else 503, "application/json")


def metrics_page(observer: Observer) -> Page:
    return Page(prometheus_text(observer.samples()), kind="text/plain; version=0.0.4; charset=utf-8")


def prometheus_text(samples: Iterable[Sample]) -> str:
    """The text format of Prometheus; the samples of a family must follow each other."""
    lines: list[str] = []
    family = None
    for sample in samples:
        if sample.family != family:
            family = sample.family
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels)
        lines.append(f"{sample.family.name}{sample.suffix}{f'{{{labels}}}' if labels else ''} {sample.value:.17g}")
    return "\n".join(lines) + "\n"


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


def _of_links(meter: Meter, of_peer: Mapping[str, Labels]) -> Iterator[Sample]:
    rows = [(direction, row) for direction, of_one in meter.as_dict().items() for row in of_one]
    for family, column in ((FRAMES, "frames"), (BYTES, "bytes")):
        totals: dict[Labels, int] = {}
        for direction, row in rows:
            labels = (*of_peer[str(row["peer"])], ("direction", direction), ("kind", str(row["kind"])))
            totals[labels] = totals.get(labels, 0) + int(row[column])
        yield from (Sample(family, total, labels) for labels, total in totals.items())
    programs = {
        int(row["program"]) for direction, row in rows if direction == "sent" and row["kind"] == Kind.ROUND.name
    }
    for program in sorted(programs):
        yield Sample(ROUNDS, meter.rounds(program), (("program", PROGRAM_NAMES[program]),))


def _of_runs(runs: dict[str, RunTimes]) -> Iterator[Sample]:
    for program, times in runs.items():
        total = 0
        for bound, count in zip((*BOUNDS, "+Inf"), times.buckets, strict=True):
            total += count
            le = bound if isinstance(bound, str) else f"{bound:g}"
            yield Sample(RUNS, total, (("program", program), ("le", le)), "_bucket")
        yield Sample(RUNS, times.seconds, (("program", program),), "_sum")
        yield Sample(RUNS, total, (("program", program),), "_count")
    for program, times in runs.items():
        yield Sample(INTERACTIONS, times.interactions, (("program", program),))


def _of_state(vitals: Vitals) -> Iterator[Sample]:
    if vitals.version is not None:
        yield Sample(VERSION, vitals.version)
    if vitals.pending is not None:
        yield Sample(PENDING, vitals.pending)
    yield Sample(WAITING, vitals.waiting)
    yield from (Sample(STOCK, steps, (("program", program),)) for program, steps in vitals.stock.items())


def _of_process() -> Iterator[Sample]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    if (resident := _resident_bytes()) is not None:
        yield Sample(MEMORY, resident)
    yield Sample(PEAK_MEMORY, usage.ru_maxrss * 1024)
    yield Sample(PROCESSOR, usage.ru_utime + usage.ru_stime)


def _resident_bytes() -> int | None:
    """Where the system tells."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGESIZE")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
