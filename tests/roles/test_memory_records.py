"""Records of roles whose state ends with them: what they know again, and that nothing grows without bound."""

from __future__ import annotations

from memory_network import KEYS, MemoryNetwork, small_federation

from hiddenarm.bandit.decisions import decision_name
from hiddenarm.bandit.local import Decision
from hiddenarm.errors import RefusedKeyError
from hiddenarm.roles.client_records import MadeLesson, MemoryActorRecords, MemoryRewarderRecords, Reply


def nothing() -> None:
    return


def test_the_actor_gives_the_same_answers_again_and_makes_errors_anew() -> None:
    records = MemoryActorRecords()
    records.ask("one", b"digest", nothing)
    assert (records.asked("one"), records.reply("one", ["a", "b"])) == (b"digest", None)
    answers: list[Decision | RefusedKeyError] = [Decision("id", 3), RefusedKeyError("b", 1, "no features")]
    records.answer([Reply("one", b"digest", answers)], nothing)
    again = records.reply("one", ["a", "b"])
    assert again is not None
    assert again[0] == answers[0]
    assert (str(again[1]), again[1] is answers[1]) == (str(answers[1]), False)
    assert records.asked("two") is None


def test_the_actor_keeps_the_newest_requests() -> None:
    records = MemoryActorRecords(most=30)
    for number in range(1000):
        records.ask(f"request {number}", bytes([number % 7]), nothing)
        records.answer([Reply(f"request {number}", bytes([number % 7]), [Decision("id", 1)] * 2)], nothing)
        assert records._size == sum(1 + len(answers) for _, answers in records._kept.values()) <= 30
    assert list(records._kept) == [f"request {number}" for number in range(990, 1000)]
    assert records.reply("request 989", ["a", "b"]) is None


def lesson(number: int, request: str) -> MadeLesson:
    return MadeLesson(request, [(decision_name(7, number), number)])


def test_the_rewarder_keeps_the_newest_lessons_with_a_name_and_forgets_no_mask() -> None:
    records = MemoryRewarderRecords(most=10)
    for number in range(100):
        assert records.make(lesson(number, f"r{number}" if number % 2 else ""), nothing) == number
        assert records.ending(number) is None
        records.end(number, "no" if number % 5 == 0 else "", nothing)
    assert len(records._lessons) == len(records._numbers) == len(records._refused) == 10
    assert (records.made, records.kept) == (100, 100)
    assert records.lesson_of("r99") == 99
    assert records.lesson(99) == lesson(99, "r99")
    assert records.lesson_of("r1") is None
    assert (records.ending(95), records.ending(96)) == ("no", "")
    assert all(records.is_spent(decision_name(7, number)) for number in range(100))
    assert not records.is_spent(decision_name(7, 100))


def test_a_party_keeps_nothing_of_lessons_but_their_number() -> None:
    """And what the repair of its model needs."""
    network = MemoryNetwork(small_federation(2)).start()
    for step in range(12):
        network.reward(network.decide(KEYS[step], after=step).id, 1.0)
    for machine in network.parties:
        assert machine.records.committed.lessons == 12
        assert machine.records.lessons(0, 12) == []
        assert machine.health().pending == 0
    for epoch in network.epochs:
        assert not epoch._interactions._at_hand
        assert not epoch._interactions._begun
    assert not network.rewarder._records._lessons
    assert not network.rewarder._endings
    assert not network.rewarder._told
    assert not network.actor.outcomes
