"""Many threads share one actor client and one rewarder client: no error, nothing lost, nothing twice.

`HIDDENARM_SOAK=1` makes it 5,000 decisions and rewards.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest

from deployment import PATIENCE
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import HiddenArmError, InputError, PeerLost, RefusedKeyError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.roles.actor import all_decided
from hiddenarm.roles.messages import DEALER
from hiddenarm.service.state import State

THREADS = 8
STEPS = 5000 if os.environ.get("HIDDENARM_SOAK") else 1000


@pytest.fixture(params=[False, True], ids=["in memory", "durable"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(make_federation(2, 3, 4), durable=request.param) as session:
        yield session


def in_threads(count: int, work: Callable[[int], list[int]]) -> list[list[int]]:
    """Do some work in so many threads that begin together; what each of them returned, or the first error."""
    begin = threading.Barrier(count)

    def run(number: int) -> list[int]:
        begin.wait(PATIENCE)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_threads_share_both_clients(session: Session) -> None:
    """Each in its own way: singly, in batches, asked ahead, submitted and settled."""
    ids: list[str] = []

    def singly(key: str) -> list[int]:
        decision = session.actor.decide(key)
        ids.append(decision.id)
        return [session.rewarder.reward(decision.id, 1.0)]

    def submitted(key: str) -> list[int]:
        [decision] = session.actor.answer(session.actor.ask([key]))
        assert isinstance(decision, Decision)
        ids.append(decision.id)
        version = session.rewarder.submit(decision.id, 0.0)
        if version % 10 == 0:
            session.rewarder.settle()
        return [version]

    def work(number: int) -> list[int]:
        one_step = submitted if number % 2 else singly
        versions = [one_step(f"user {step % 512}") for step in range(number, STEPS, THREADS)]
        return [version for made in versions for version in made]

    by_thread = in_threads(THREADS, work)
    session.rewarder.settle()
    assert len(ids) == len(set(ids)) == STEPS
    assert all(former < later for versions in by_thread for former, later in pairwise(versions))
    assert Counter(version for versions in by_thread for version in versions) == Counter(range(1, STEPS + 1))
    # The parties count the same: the next lesson has the next number, and no decision can be rewarded again.
    decision = session.actor.decide("user 0", after=STEPS)
    assert session.rewarder.reward(decision.id, 1.0) == STEPS + 1
    for identifier in (ids[0], ids[-1], decision.id):
        with pytest.raises(InputError, match="before"):
            session.rewarder.reward(identifier, 0.5)
    session._clients.close()
    counted = lessons_in_store(session) if session._durable else lessons_by_meter(session)
    assert counted == [STEPS + 1] * 2


def lessons_by_meter(session: Session) -> list[int]:
    """How many lessons each party told of; of decisions as many."""
    counts = []
    for meter in session._roles.stop():
        sent: Counter[tuple[str, str]] = Counter()
        for row in meter["sent"]:
            sent[row["peer"], row["kind"]] += row["frames"]
        assert sent["actor", "PAYLOADS"] == sent["rewarder", "LEARNED"]
        counts.append(sent["rewarder", "LEARNED"])
    return counts


def lessons_in_store(session: Session) -> list[int]:
    """How many lessons each party has learned, of different decisions."""
    counts = []
    for kit in session.party_kits():
        party = session._roles.process(kit.identity)
        party.terminate()
        assert party.wait(PATIENCE) == 0
        state = State(kit)
        learned = [lesson for lesson in state.party().lessons(0, 2 * STEPS) if not lesson.refused]
        state.close()
        counts.append(len({name for lesson in learned for name, _ in lesson.rewards}))
        assert counts[-1] == len(learned)
    return counts


def test_threads_share_batches_and_refusals(session: Session) -> None:
    """A key that nobody has is refused to the thread that asked for it, and to no other."""

    def work(number: int) -> list[int]:
        versions = []
        for step in range(5):
            if number % 4 == 3:
                with pytest.raises(RefusedKeyError, match="no usable features"):
                    session.actor.decide(f"nobody {number} {step}")
                continue
            decisions = session.actor.decide_many([f"user {number}", f"user {step}"])
            versions.append(session.rewarder.reward_many([(one.id, 1.0) for one in all_decided(decisions)]))
        return versions

    by_thread = in_threads(THREADS, work)
    assert sorted(version for versions in by_thread for version in versions) == list(range(1, 31))


def test_a_question_is_answered_to_one_of_two_threads(session: Session) -> None:
    question = session.actor.ask(["user 1"])

    def work(number: int) -> list[int]:
        try:
            return [decision.arm for decision in all_decided(session.actor.answer(question))]
        except InputError:
            return []

    assert sorted(map(len, in_threads(2, work))) == [0, 1]


def test_the_links_are_served_while_one_thread_idles_and_another_asks(session: Session) -> None:
    idler = threading.Thread(target=session.actor.idle)
    idler.start()
    for step in range(20):
        session.actor.decide(f"user {step}")
    assert idler.is_alive()
    session.actor.wake()
    idler.join(PATIENCE)
    assert not idler.is_alive()


def test_a_lost_peer_is_told_to_every_thread() -> None:
    """In memory: all that wait, and whatever is asked afterwards."""
    with Session(make_federation(2, 3, 4)) as session:
        told = []

        def work(number: int) -> list[int]:
            try:
                while True:
                    session.actor.decide(f"user {number}")
                    if number == 0:
                        session._roles.process(DEALER).kill()
            except PeerLost as error:
                told.append(str(error))
            return []

        in_threads(4, work)
        assert len(told) == 4
        assert len(set(told)) == 1, told
        assert "dealer" in told[0]
        with pytest.raises(PeerLost, match="dealer"):
            session.actor.decide("user 1")


def test_a_client_that_is_closed_tells_who_still_waits() -> None:
    """A thread waits for an answer that does not come, while another leaves the `with` block."""
    with Session(make_federation(2, 3, 4), durable=True) as session:
        party = session._roles.process(Identity(Role.PARTY, 1))
        party.send_signal(signal.SIGSTOP)
        question = session.actor.ask(["user 1"])
        told: list[HiddenArmError] = []

        def wait() -> None:
            try:
                session.actor.answer(question)
            except HiddenArmError as error:
                told.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        while not session.actor._loop._running:
            time.sleep(0.001)
        session._clients.close()
        waiting.join(PATIENCE)
        party.send_signal(signal.SIGCONT)
        # The rewarder has left before: on a slow machine, the thread hears of that.
        assert len(told) == 1
        assert re.match("the client was closed|not now: rewarder cannot be reached", str(told[0]))
        with pytest.raises(PeerLost, match="was closed"):
            session.actor.decide("user 1")
