"""Which lessons a party keeps the interactions of."""

from __future__ import annotations

import random

from hiddenarm.roles.retention import CheckpointNeeds, Retention


def counted(most: int, lessons: list[int]) -> Retention:
    retention = Retention(most)
    for interactions in lessons:
        retention.ended(interactions)
    return retention


def test_the_newest_are_kept_by_lessons() -> None:
    retention = counted(3, [1, 1, 2, 0, 1, 1])
    assert [retention.keeps(lesson) for lesson in range(6)] == [False, False, True, True, True, True]
    assert all(counted(0, [1, 1]).keeps(lesson) for lesson in range(2))


def test_nothing_is_pruned_that_a_checkpoint_may_need() -> None:
    retention = counted(1, [1] * 10)
    assert retention.prunable(0, []) == range(0)
    assert retention.prunable(0, [CheckpointNeeds(8, 8)]) == range(0, 7)
    assert retention.prunable(2, [CheckpointNeeds(8, 3), CheckpointNeeds(5, 5)]) == range(2, 3)
    assert counted(0, [1] * 10).prunable(0, [CheckpointNeeds(8, 8)]) == range(0)


def test_what_is_pruned_could_not_be_unlearned_at_any_lesson_behind_the_checkpoint() -> None:
    for seed in range(200):
        draw = random.Random(seed)
        lessons = [draw.choice((0, 1, 1, 4)) for _ in range(20)]
        most, version = draw.randint(1, 6), draw.randint(0, 20)
        needs = CheckpointNeeds(version, draw.randint(0, version))
        pruned = counted(most, lessons).prunable(0, [needs])
        for end in range(version, 21):
            assert not any(counted(most, lessons[:end]).keeps(lesson) for lesson in pruned)
        assert pruned.stop <= needs.ungathered
