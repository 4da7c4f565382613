"""The tiers of the tests, and what all of them share.

`make check` runs the tests without processes, network and long computations; `make test` all but those of `make soak`.
Which test is in which tier follows from its file, or from a fixture that it uses: see the lists below. A single test of
a file that is not listed is marked by hand. That the marks are right is checked after every test (`stays_alone`).

Hypothesis repeats the same cases on every run, however slow.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from stations import Office

    from postgres_server import PostgresServer

TESTS = Path(__file__).parent

PROCESSES = (
    "cli/test_attack_commands.py",
    "cli/test_check.py",
    "cli/test_dashboard.py",
    "cli/test_demo.py",
    "cli/test_running.py",
    "cli/test_serve.py",
    "cli/test_simulate.py",
    "cli/test_together.py",
    "docs/test_deploying.py",
    "examples",
    "docs/test_http_page.py",
    "docs/test_site.py",
    "net/test_monitor.py",
    "net/test_poller.py",
    "net/test_wire.py",
    "recovery",
    "research/experiments/test_cluster.py",
    "research/experiments/test_machine_load.py",
    "research/experiments/test_pool.py",
    "research/experiments/test_reproduce.py",
    "research/test_bench.py",
    "research/test_interrupts.py",
    "roles/test_attacked.py",
    "roles/test_client_mistakes.py",
    "roles/test_clients.py",
    "service/test_kits.py",
    "service/test_state_owner.py",
    "store/test_postgresql_store.py",
    "roles/test_paper_roles.py",
    "roles/test_processes.py",
    "roles/test_replaced_features.py",
    "roles/test_secrets.py",
    "roles/test_threads.py",
    "test_peers.py",
    "test_versus.py",
    "test_wheel.py",
    "web",
)
"""Files and folders whose tests start processes or use network sockets."""
PROCESS_FIXTURES = frozenset({"office", "postgres"})
LONG = (
    "bandit/test_budget.py",
    "bandit/test_hard_data.py",
    "bandit/test_joint_views.py",
    "bandit/test_released_arm.py",
    "bandit/test_trials.py",
    "bandit/test_views.py",
    "mutants",
    "paper/test_paper_learner.py",
    "research/attacks",
    "research/experiments/test_beyond_the_paper.py",
    "privacy/test_actions.py",
    "roles/test_steps.py",
    "roles/test_interleavings.py",
    "simulator",
)
"""Files and folders whose tests compute for a second or more each."""
TIMED = ("net/test_heartbeat.py", "net/test_strangers.py")
"""Files whose tests say how long something may take at most: they run after the others, with nothing beside them."""
BEGIN_WITH = ("bandit/test_hard_data.py", "recovery", "research/test_bench.py", "simulator", "mutants")
"""The files that take longest. Where files are spread over workers, these come first, so that none is left over at the
end with all other workers idle."""
NETWORK_EVENTS = frozenset({"socket.bind", "socket.connect", "socket.getaddrinfo"})
ASKS_THE_MACHINE = frozenset({"lscpu", "fc-list"})
"""What libraries start once: joblib counts cores, matplotlib lists fonts where it has kept no list of them."""
PROCESS_EVENTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})

settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")


class Witness:
    """Sees that processes were started or network sockets used since it was last asked.

    The interpreter reports most of it. A process that was started past it is seen when it is waited for: the page
    faults of children go up. That says nothing where an earlier test left a child behind, which may be waited for at
    any time. Not counted are the children of libraries that ask the machine something once, in whichever test is first
    (`ASKS_THE_MACHINE`).
    """

    def __init__(self) -> None:
        self._events: set[str] = set()
        self._asks_the_machine = False
        self._faults = _faults_of_children()
        self._left_behind = False

    def begin(self) -> None:
        """Forget what happened between two tests."""
        self.seen()
        self._left_behind = _has_children()

    def on_event(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen" and ASKS_THE_MACHINE & set(arguments[1]):
            self._asks_the_machine = True
        elif event in NETWORK_EVENTS or event in PROCESS_EVENTS:
            self._events.add(event)

    def seen(self) -> list[str]:
        events, self._events = self._events, set()
        excused, self._asks_the_machine = self._asks_the_machine or self._left_behind, False
        faults, self._faults = self._faults, _faults_of_children()
        return sorted(events | ({"a child was waited for"} if self._faults != faults and not excused else set()))


def _faults_of_children() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt


def _has_children() -> bool:
    """Whether a child runs, or has ended and was not waited for. Waits for none."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


WITNESS = pytest.StashKey[Witness]()


def pytest_configure(config: pytest.Config) -> None:
    witness = config.stash[WITNESS] = Witness()
    sys.addaudithook(witness.on_event)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell; tests interrupt processes
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    session.config.stash[WITNESS].seen()  # what libraries did when they were imported is no test's


def is_under(path: Path, names: tuple[str, ...]) -> bool:
    """Whether a file is one of these, or in one of these folders."""
    return any(path == TESTS / name or TESTS / name in path.parents for name in names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if is_under(item.path, PROCESSES) or PROCESS_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.processes)
        if is_under(item.path, LONG):
            item.add_marker(pytest.mark.long)
        if is_under(item.path, TIMED):
            item.add_marker(pytest.mark.timed)
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not is_under(item.path, BEGIN_WITH))


@pytest.fixture(autouse=True)
def stays_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts processes or uses the network and is not marked with it: it would be in `make check`."""
    request.config.stash[WITNESS].begin()
    yield
    seen = request.config.stash[WITNESS].seen()
    marked = request.node.get_closest_marker("processes") is not None
    assert marked or not seen, f"{', '.join(seen)}: mark this test with `processes`, or list its file in conftest.py"


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    """The office that issues certificates and builds stations, one for each test."""
    from stations import Office

    office = Office(tmp_path)
    yield office
    for station in office.stations:
        station.end()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server of PostgreSQL at a socket of its own, one for each worker. Each test makes a database of its own."""
    from postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server
