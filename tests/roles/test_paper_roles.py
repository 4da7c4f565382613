"""The roles in the paper's suite: they do what the federation in lockstep does, only the actor gets shares of the
one-hot, and what this suite does not have is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import role_processes
from memory_network import KEYS, MemoryNetwork, party, slices, small_federation, small_paper_federation, user_contexts
from role_processes import (
    EPOCH_KEY,
    check_meter,
    contexts_of,
    kit_of,
    local_roles,
    log_of,
    members,
    paper_federation_of,
)

from hiddenarm.bandit.catalogue import DECIDE_ONE, GATHER, INVERT_LAST, SOLVE, ProgramId
from hiddenarm.bandit.local import Decision
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.plain import PlainBandit, coins_at
from hiddenarm.errors import FeatureError, FrameError, InputError, PeerError, ProtocolError
from hiddenarm.net.frames import Frame
from hiddenarm.net.identity import Identity, Role
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import (
    ACTOR,
    DEALER,
    REWARDER,
    Kind,
    one_hot_frame,
    payloads_frame,
    read_one_hots,
    reward_frame,
    run_frame,
    want_frame,
)
from hiddenarm.service.kit import Kit
from hiddenarm.service.process import frame_caps
from support import SIGNIFICANCE, uniformity

STEPS = 12


@pytest.fixture
def network() -> MemoryNetwork:
    return MemoryNetwork(small_paper_federation(2)).start()


# Real processes


@pytest.mark.parametrize("parties", [2, 3])
def test_processes_choose_the_arms_of_the_federation_in_lockstep(tmp_path: Path, parties: int) -> None:
    """With the same coins and rewards: the arms of lockstep, and of the plain twin where rounding breaks no ties; and
    the meters count what is declared."""
    federation, contexts = paper_federation_of(parties), contexts_of(paper_federation_of(parties))
    lockstep = Lockstep(federation, EPOCH_KEY)
    twin, coins = PlainBandit(federation.arms, federation.dimension, federation.ridge), lockstep.coins(0, STEPS)
    version = 0
    with local_roles(tmp_path, federation) as roles:
        for step in range(STEPS):
            identifier, arm = roles.decide(role_processes.KEYS[step], version)
            number, arms = lockstep.decide([part[None] for part in slices(federation, contexts[step])])
            assert arm == arms[0]
            if parties == 2:
                assert arm == twin.decide(contexts[step], *coins_at(coins, step))
            reward = float(arm == step % federation.arms)
            version = roles.reward(identifier, reward)
            lockstep.learn(number, reward)
            twin.learn(contexts[step], arm, reward)
        meters = roles.stop()
    assert all(roles.process(member).returncode == 0 for member in members(federation))
    assert all("Traceback" not in log_of(tmp_path, member) for member in members(federation))
    for number, meter in enumerate(meters):
        check_meter(Kit.read(kit_of(tmp_path, Identity(Role.PARTY, number))), meter["sent"], STEPS)


def test_processes_refuse_many_rewards_and_go_on(tmp_path: Path) -> None:
    federation = paper_federation_of(2)
    with local_roles(tmp_path, federation) as roles:
        first, second = (roles.decide(key, 0)[0] for key in role_processes.KEYS[:2])
        rewarder = roles.process(REWARDER)
        assert rewarder.stdin is not None
        assert rewarder.stdout is not None
        both = [{"id": first, "reward": 1}, {"id": second, "reward": 0}]
        rewarder.stdin.write(json.dumps({"rewards": both}) + "\n")
        rewarder.stdin.flush()
        assert "one reward at a time" in json.loads(rewarder.stdout.readline())["error"]
        with pytest.raises(FeatureError, match="refused key 'nobody'"):
            roles.decide("nobody", 0)
        assert [roles.reward(identifier, 1.0) for identifier in (first, second)] == [1, 2]
        roles.stop()


# Who sees what


class Watched:
    """A network whose frames are all kept, by receiver and sender."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.network = network
        self.received: dict[Identity, list[tuple[Identity, Frame]]] = {member: [] for member in network.machines}
        for member, machine in network.machines.items():
            self._watch(member, machine.on_frame, machine)

    def _watch(self, member: Identity, on_frame, machine) -> None:  # type: ignore[no-untyped-def]
        def keep(sender: Identity, frame: Frame) -> None:
            self.received[member].append((sender, frame))
            on_frame(sender, frame)

        machine.on_frame = keep

    def kinds(self, member: Identity) -> set[Kind]:
        return {Kind(frame.kind) for _, frame in self.received[member]}

    def shares(self, number: int) -> Words:
        """Party `number`'s shares of the one-hots, decision by decision."""
        arms = self.network.federation.arms
        frames = [f for sender, f in self.received[ACTOR] if sender == party(number) and f.kind is Kind.ONE_HOT]
        return np.concatenate([read_one_hots(frame, arms) for frame in frames])


def watched_run(network: MemoryNetwork, decisions: int) -> tuple[Watched, list[int]]:
    watched, arms = Watched(network), []
    network.start()
    for number in range(decisions):
        decision = network.decide(KEYS[number % len(KEYS)], after=min(number, 3))
        arms.append(decision.arm)
        if number < 3:
            network.reward(decision.id, 1.0)
    return watched, arms


@pytest.mark.parametrize("parties", [2, 3])
def test_only_the_actor_gets_shares_of_the_one_hot(parties: int) -> None:
    network = MemoryNetwork(small_paper_federation(parties))
    watched, arms = watched_run(network, 6)
    assert watched.kinds(ACTOR) == {Kind.OPEN, Kind.ACTIVE, Kind.ONE_HOT, Kind.LEARNED}
    assert watched.kinds(REWARDER) == {Kind.OPEN, Kind.ACTIVE, Kind.LEARNED}
    assert watched.kinds(DEALER) == {Kind.OPEN, Kind.WANT}
    for number in range(parties):
        material = {Kind.CORRECTIONS} if number == parties - 1 else set()
        opening = {Kind.OPEN, Kind.PREPARED}
        assert watched.kinds(party(number)) == material | opening | {Kind.ROUND, Kind.DECIDE, Kind.REWARD}
    total = np.add.reduce([watched.shares(number) for number in range(parties)])
    assert np.array_equal(total, np.eye(network.federation.arms, dtype=np.uint64)[arms])


@pytest.mark.parametrize("arms", [2, 3])
@pytest.mark.parametrize("parties", [2, 3])
def test_shares_of_the_one_hot_are_uniform_and_add_up_to_nothing_but_the_arm(parties: int, arms: int) -> None:
    """All but any one of them: so the actor, who has all, learns their sum and no more. With two arms the one-hot is a
    converted bit, with three a product."""
    federation = small_paper_federation(parties, arms=arms)
    watched, _ = watched_run(MemoryNetwork(federation), 150)
    shares = [watched.shares(number) for number in range(parties)]
    for left_out in range(parties):
        others = [words for number, words in enumerate(shares) if number != left_out]
        for seen in (*others, np.add.reduce(others)):
            assert uniformity(seen, 64) > SIGNIFICANCE


def test_the_fast_suite_sends_no_one_hot() -> None:
    watched, _ = watched_run(MemoryNetwork(small_federation(2)), 4)
    assert watched.kinds(ACTOR) == {Kind.OPEN, Kind.ACTIVE, Kind.PAYLOADS, Kind.LEARNED}


def test_many_are_decided_at_once(network: MemoryNetwork) -> None:
    network.collecting = False
    name = network.actor.ask(*KEYS[:5])
    network.settle()
    outcome = network.actor.outcomes.pop(name)
    assert isinstance(outcome, list)
    decisions = [answer for answer in outcome if isinstance(answer, Decision)]
    assert len(decisions) == 5
    lockstep, contexts = Lockstep(network.federation, network.epoch_key), user_contexts(network.federation)
    rows = np.array([contexts[key] for key in KEYS[:5]])
    _, arms = lockstep.decide_batch([part[None] for part in np.split(rows, 2, axis=1)])
    assert [decision.arm for decision in decisions] == arms[0].tolist()
    for lesson, decision in enumerate(decisions):
        assert network.rewarder.teach((decision.id, 1.0)) == lesson
        network.settle()
    assert network.version_at(0) == 5
    network.check_nothing_is_left()


def test_caps_are_those_of_the_suite(tmp_path: Path) -> None:
    for listener in local_roles(tmp_path, paper_federation_of(2))._listeners.values():
        listener.close()
    kit = Kit.read(kit_of(tmp_path, DEALER))
    caps = frame_caps(kit)
    assert caps[Kind.ONE_HOT] == 8 * kit.federation.arms * kit.file.max_batch
    assert Kind.PAYLOADS not in caps


# What this suite does not have


def test_many_rewards_are_refused_before_they_are_sent(network: MemoryNetwork) -> None:
    decisions = [network.decide(key) for key in KEYS[:2]]
    with pytest.raises(InputError, match="one reward at a time, got 2"):
        network.rewarder.teach(*((decision.id, 1.0) for decision in decisions))
    assert [network.reward(decision.id, 1.0) for decision in decisions] == [1, 2]


def test_a_lesson_of_many_rewards(network: MemoryNetwork) -> None:
    with pytest.raises(FrameError, match="the rewarder sent 2 rewards where one is learned at a time"):
        network.inject(REWARDER, party(0), reward_frame(0, (0, 1), (1, 1)))


@pytest.mark.parametrize("program", [ProgramId(GATHER, 2), ProgramId(SOLVE, 2), ProgramId(INVERT_LAST)], ids=str)
def test_programs_of_the_other_suite(network: MemoryNetwork, program: ProgramId) -> None:
    for sender, receiver, frame in (
        (party(1), party(0), run_frame(Kind.ROUND, program, 0, payload=bytes(8))),
        (DEALER, party(1), run_frame(Kind.CORRECTIONS, program, 0, payload=bytes(8))),
        (party(1), DEALER, want_frame(program, 0, 1)),
    ):
        with pytest.raises(ProtocolError, match=f"the paper's suite has no program '{program.name}'"):
            network.inject(sender, receiver, frame)


def test_there_is_no_repair() -> None:
    """Nothing is kept for one, however many lessons there are."""
    network = MemoryNetwork(small_paper_federation(2)).start()
    for key in KEYS[:3]:
        network.reward(network.decide(key).id, 1.0)
    assert not any(machine._updater._singly for machine in network.epochs)
    network.check_against_lockstep()


class TestAnswers:
    def share(self, *words: int) -> Words:
        return np.array([words], np.uint64)

    @pytest.mark.parametrize("words", [(0, 0, 0), (1, 1, 0), (0, 2, 0), (2**64 - 1, 1, 1), (7, 9, 2**63)])
    def test_shares_that_add_up_to_no_one_hot(self, network: MemoryNetwork, words: tuple[int, ...]) -> None:
        number = network.ask(KEYS[0])
        network.inject(party(0), ACTOR, one_hot_frame(DECIDE_ONE, number, self.share(5, 6, 7)))
        with pytest.raises(PeerError, match="do not agree on decision 0"):
            network.inject(party(1), ACTOR, one_hot_frame(DECIDE_ONE, number, self.share(*words) - self.share(5, 6, 7)))

    def test_shares_that_nobody_asked_for_or_that_come_twice(self, network: MemoryNetwork) -> None:
        frame = one_hot_frame(DECIDE_ONE, 0, self.share(1, 0, 0))
        with pytest.raises(FrameError, match="decision 0, which does not wait"):
            network.inject(party(0), ACTOR, frame)
        network.ask(KEYS[0])
        network.inject(party(0), ACTOR, frame)
        with pytest.raises(FrameError, match="party 0 reported decision 0"):
            network.inject(party(0), ACTOR, frame)

    def test_shares_of_the_wrong_length(self, network: MemoryNetwork) -> None:
        number = network.ask(KEYS[0])
        with pytest.raises(FrameError, match="ONE_HOT"):
            network.inject(party(0), ACTOR, one_hot_frame(DECIDE_ONE, number, self.share(1, 0)))

    def test_payloads(self, network: MemoryNetwork) -> None:
        number = network.ask(KEYS[0])
        with pytest.raises(FrameError, match="party 0 may not send PAYLOADS"):
            network.inject(party(0), ACTOR, payloads_frame(DECIDE_ONE, number, self.share(1, 0, 0)))
