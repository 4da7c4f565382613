"""Actor and rewarder inside one application, with parties and dealer as processes: what can be asked ahead."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from unittest.mock import Mock

import pytest
import structlog

from deployment import PATIENCE, provision
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import (
    ConfigError,
    DecisionIdError,
    FeatureError,
    InputError,
    NoArmError,
    PeerLost,
    RefusedKeyError,
    StoreLostError,
    UnavailableError,
)
from hiddenarm.net.identity import Identity, Role
from hiddenarm.research.bench.session import Session, make_federation
from hiddenarm.service.application import MAX_SUBMITTED, READ_EVERY, STALE_SECONDS, ActorClient
from hiddenarm.service.kit import Kit

REWARDS = READ_EVERY + 3
ERRORS_NOT_TOLD = (
    RefusedKeyError("user 17", 0, "no"),
    NoArmError("user 17", ambiguous=False),
    UnavailableError("the reward of decision 0001 is still to be sent, with its slot"),
    KeyError("user 17"),
)
"""They name a user's key, or a decision by its id."""


@pytest.fixture(params=[False, True], ids=["in memory", "durable"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    with Session(make_federation(2, 3, 4), durable=request.param) as session:
        yield session


def decide(session: Session, after: int = 0) -> Decision:
    return session.actor.decide(session.next_context()[0], after)


def test_a_reward_need_not_be_waited_for(session: Session) -> None:
    """The next decision is asked for at once, by the model that will hold the reward."""
    for step in range(REWARDS):
        version = session.rewarder.submit(decide(session, step).id, 1.0)
        assert version == step + 1
    session.rewarder.settle()
    assert session.rewarder.reward(decide(session, REWARDS).id, 0.0) == REWARDS + 1


def test_a_request_with_a_name_is_answered_once(session: Session) -> None:
    """In either mode, while the process lives."""
    first, second = session.next_context()[0], session.next_context()[0]
    decision = session.actor.decide(first, request="one")
    assert session.actor.decide(first, request="one") == decision
    with pytest.raises(InputError, match="'one' was made before, with other keys"):
        session.actor.decide(second, request="one")
    assert session.actor.decide(first).id != decision.id
    assert session.rewarder.reward(decision.id, 1.0, request="two") == 1
    assert session.rewarder.reward(decision.id, 1.0, request="two") == 1
    with pytest.raises(InputError, match="'two' was made before, with other decisions or other rewards"):
        session.rewarder.reward(decision.id, 0.0, request="two")
    with pytest.raises(DecisionIdError, match="rewarded before"):
        session.rewarder.reward(decision.id, 1.0, request="three")


@pytest.fixture
def unconfigured_logs() -> Iterator[None]:
    """As in an application that has not configured structlog, whatever tests before this one did."""
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("unconfigured_logs")
@pytest.mark.parametrize("durable", [False, True], ids=["in memory", "durable"])
def test_clients_write_nothing_to_standard_output(capfd: pytest.CaptureFixture[str], durable: bool) -> None:
    with Session(make_federation(2, 3, 4), durable=durable) as session:
        session.rewarder.reward(decide(session).id, 1.0)
    written = capfd.readouterr()
    assert written.out == ""
    assert "peer ready" in written.err


def test_a_decision_can_be_asked_for_before_its_lesson(session: Session) -> None:
    session.make_steps(REWARDS)
    assert session.version == REWARDS


def test_answers_come_in_any_order(session: Session) -> None:
    first, second = (session.actor.ask([session.next_context()[0]]) for _ in range(2))
    [later] = session.actor.answer(second)
    [earlier] = session.actor.answer(first)
    assert isinstance(later, Decision)
    assert isinstance(earlier, Decision)
    assert session.rewarder.reward_many([(earlier.id, 1.0), (later.id, 0.0)]) == 1


def test_a_key_nobody_has_is_told_when_the_answer_is_asked_for(session: Session) -> None:
    [answer] = session.actor.answer(session.actor.ask(["nobody"]))
    assert isinstance(answer, RefusedKeyError)
    with pytest.raises(FeatureError, match="refused key 'nobody'"):
        session.actor.decide("nobody")
    assert decide(session).arm in range(3)


def test_a_reward_that_cannot_be_is_told_at_once(session: Session) -> None:
    decision = decide(session)
    session.rewarder.submit(decision.id, 1.0)
    with pytest.raises((DecisionIdError, InputError), match="before"):
        session.rewarder.submit(decision.id, 0.5)
    session.rewarder.settle()
    assert session.rewarder.reward(decide(session, 1).id, 1.0) == 2


def test_what_the_parties_refuse_is_told_when_it_is_settled() -> None:
    """Ids are numbered: that of a decision which was asked for and refused is a good one, but nobody learns it."""
    with Session(make_federation(2, 3, 4)) as session:
        with pytest.raises(FeatureError):
            session.actor.decide("nobody")
        identifier = _next_id_after_refusal(session)
        assert session.rewarder.submit(identifier, 1.0) == 1
        with pytest.raises(DecisionIdError, match="refused by party"):
            session.rewarder.settle()
        session.rewarder.settle()
        assert session.rewarder.reward(decide(session, 1).id, 1.0) == 2


def test_a_refusal_is_told_before_anything_else_is_submitted() -> None:
    """And what was submitted then is not: the same reward can be submitted again."""
    with Session(make_federation(2, 3, 4)) as session:
        with pytest.raises(FeatureError):
            session.actor.decide("nobody")
        session.rewarder.submit(_next_id_after_refusal(session), 1.0)
        decisions = [decide(session) for _ in range(READ_EVERY)]
        for decision in decisions[: READ_EVERY - 2]:
            session.rewarder.submit(decision.id, 1.0)
        decide(session, READ_EVERY - 1)  # all of these were learned or refused
        time.sleep(0.5)  # for the answers to come
        session.rewarder.submit(decisions[-2].id, 1.0)  # and reads them when it has left
        with pytest.raises(DecisionIdError, match="refused by party"):
            session.rewarder.submit(decisions[-1].id, 1.0)
        assert session.rewarder.submit(decisions[-1].id, 1.0) == READ_EVERY + 1


def test_what_is_not_settled_in_time_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(make_federation(2, 3, 4), durable=True) as session:
        decision = decide(session)
        monkeypatch.setattr("hiddenarm.service.application.ANSWER_SECONDS", 0.3)
        party = session._roles.process(Identity(Role.PARTY, 1))
        party.send_signal(signal.SIGSTOP)
        try:
            session.rewarder.submit(decision.id, 1.0)
            for _ in range(2):
                with pytest.raises(UnavailableError):
                    session.rewarder.settle()
        finally:
            party.send_signal(signal.SIGCONT)
        monkeypatch.setattr("hiddenarm.service.application.ANSWER_SECONDS", PATIENCE)
        session.rewarder.settle()
        assert not session.rewarder._submitted


def test_a_client_that_is_seldom_used_finds_out_that_a_party_is_back() -> None:
    """Its links are served only while it waits for an answer: what it knew of who is gone may be old."""
    with Session(make_federation(2, 3, 4), durable=True) as session, ExitStack() as stack:
        idler = threading.Thread(target=session.rewarder.idle)
        idler.start()
        stack.callback(idler.join)
        stack.callback(session.rewarder.wake)
        decide(session)
        party = session._roles.process(Identity(Role.PARTY, 1))
        party.kill()
        party.wait()
        with pytest.raises(UnavailableError, match="not now: party 1 cannot be reached"):
            decide(session)
        with pytest.raises(UnavailableError, match="not now: party 1 cannot be reached"):
            decide(session)
        kit = session._roles.kit(Identity(Role.PARTY, 1))
        back = subprocess.Popen([sys.executable, "-m", "hiddenarm", "serve", str(kit)], stderr=subprocess.DEVNULL)
        stack.callback(back.wait)
        stack.callback(back.kill)
        for _ in range(100):
            time.sleep(1.5 * STALE_SECONDS)
            with suppress(UnavailableError):
                decide(session)
                break
        else:
            raise AssertionError("the party is back, and the client does not find out")


def test_a_question_has_one_answer(session: Session) -> None:
    question = session.actor.ask([session.next_context()[0]])
    session.actor.answer(question)
    with pytest.raises(InputError, match="answered before"):
        session.actor.answer(question)


def test_rewards_are_settled_on_the_way_out() -> None:
    with Session(make_federation(2, 3, 4)) as session:
        with pytest.raises(FeatureError):
            session.actor.decide("nobody")
        session.rewarder.submit(_next_id_after_refusal(session), 1.0)
        with pytest.raises(DecisionIdError, match="refused by party"):
            session.finish()


def test_two_rewards_are_submitted_and_then_a_decision_is_asked_for(session: Session) -> None:
    """Whichever link is quicker."""
    for _ in range(10):
        first, second = decide(session), decide(session)
        session.rewarder.submit(first.id, 1.0)
        decide(session, session.rewarder.submit(second.id, 0.0))


def test_nobody_runs_far_ahead_of_the_parties() -> None:
    """Beyond so many rewards, `submit` waits for the first of them."""
    with Session(make_federation(2, 3, 4)) as session:
        decisions = [decide(session) for _ in range(MAX_SUBMITTED + 2 * READ_EVERY)]
        for decision in decisions:
            session.rewarder.submit(decision.id, 1.0)
            assert len(session.rewarder._submitted) <= MAX_SUBMITTED + READ_EVERY
        session.rewarder.settle()
        assert not session.rewarder._submitted


def _next_id_after_refusal(session: Session) -> str:
    """The id of decision 0, which was refused."""
    machine = session.rewarder.endpoint.machine
    *_, epoch = machine._records.epochs.values()  # type: ignore[union-attr]
    return epoch.ids.id_of(0)


def check_last_words(folder: Path) -> None:
    """An error that ends a client is in everybody's log: it names no user, no decision, and tells of no score."""
    kit = Kit.read(provision(folder) / "actor")
    told: list[str] = []
    for error in (*ERRORS_NOT_TOLD, PeerLost("dealer is gone"), StoreLostError("the store is gone")):
        client = ActorClient(kit)
        client.endpoint.abort = told.append  # type: ignore[method-assign, assignment]
        client.__exit__(type(error), error, None)
    assert told == ["actor failed"] * len(ERRORS_NOT_TOLD) + ["dealer is gone", "the store is gone"]


def test_an_error_about_a_key_is_not_told_to_the_parties(tmp_path: Path) -> None:
    check_last_words(tmp_path)


def test_an_error_while_a_client_connects_is_told_by_the_same_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ActorClient(Kit.read(provision(tmp_path) / "actor"))
    told: list[str] = []
    monkeypatch.setattr(client.endpoint, "abort", told.append)
    for error in (ConfigError("of decision 0001"), PeerLost("dealer is gone")):
        monkeypatch.setattr(client.endpoint, "connect", Mock(side_effect=error))
        with pytest.raises(type(error)):
            client.__enter__()
    assert told == ["actor failed", "dealer is gone"]
