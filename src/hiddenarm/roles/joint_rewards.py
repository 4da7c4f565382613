"""Rewards of several requests as one lesson: what waits while lessons are under way is learned in the rounds of one.

    1. each reward is checked by itself: one that is wrong, or was given before, takes no part, and its mask stays
    2. the others are one lesson, which is written down with the names of all their requests, in one commit
    3. the lesson ends like any other (`Rewarder`), for all of them alike
    4. if it is refused, each reward in it becomes a lesson of its own, so that none is lost for the sake of another;
       also of requests that were answered, as a lesson may be refused when it is taught again to parties that went
       back. It is the same masked word, byte for byte: a mask hides one reward, once

A request is known by its name, whatever it was learned with: made again, also in another process after a crash, it gets
the same answer; with another decision or another reward it is refused.

To the parties a joint lesson is one of a request with several rewards. They see which decisions are rewarded together,
as they see when single rewards come; the masked words are uniform, each under a mask of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hiddenarm.bandit.catalogue import GATHER
from hiddenarm.errors import ConflictError, HiddenArmError, RewardedError
from hiddenarm.roles.actor import batch_size
from hiddenarm.roles.client_records import MadeLesson
from hiddenarm.roles.rewarder import Rewarder

MOST_TOGETHER = 64
LEAST_TOGETHER = 16
"""Fewer take less one by one: a lesson of many solves the model from its sums, in some 40 rounds; one of a single
reward takes 5. Where lessons only add to the sums, two are enough."""


class NamedReward(NamedTuple):
    """The reward of a decision, and the name of the request, if it has one."""

    decision: str
    reward: float
    request: str | None = None


class _New(NamedTuple):
    """A reward that is to be learned, and for which of those that were given."""

    name: int
    value: int
    given: NamedReward
    places: list[int]


class JointRewarder(Rewarder):
    """A rewarder that learns rewards of several requests together."""

    def together(self, waiting: int) -> int:
        """How many of those that wait are to be one lesson."""
        count = batch_size(waiting, min(MOST_TOGETHER, self._max_batch))
        return count if self._learns_many and count >= self._least_together else 1

    @property
    def _least_together(self) -> int:
        first = self.federation.learner.schedule().lesson(0, 1).first
        return 2 if first.program.name == GATHER else LEAST_TOGETHER

    def teach_together(self, rewards: Sequence[NamedReward]) -> list[int | HiddenArmError]:
        """Have rewards learned, those that are new as one lesson. For each the number of its lesson, or what is wrong
        with it."""
        outcomes: list[int | HiddenArmError] = [0] * len(rewards)
        new: dict[str, _New] = {}
        for place, given in enumerate(rewards):
            try:
                known = self._known_or_new(given, place, new)
            except HiddenArmError as error:
                outcomes[place] = error
            else:
                outcomes[place] = -1 if known is None else known
        if new:
            number = self._make_joint(new)
            for one in new.values():
                for place in one.places:
                    outcomes[place] = number
        return outcomes

    def _known_or_new(self, given: NamedReward, place: int, new: dict[str, _New]) -> int | None:
        """The number of the lesson that has this reward; None if it is among the new ones now."""
        (name,), (value,), request = self._checked([given[:2]], given.request)
        known = self._lesson_of(request) if request else None
        if known is not None:
            self._check_same(known, request, self._masked([name], [value], {}))
            return known
        if (other := new.get(request)) is not None and request:
            if (other.name, other.value) != (name, value):
                raise ConflictError(f"request {request!r} was made before, with other decisions or other rewards")
            other.places.append(place)
            return None
        self._check_can_make()
        self._check_unspent([name], [given.decision])
        if any(one.name == name for one in new.values()):
            raise RewardedError(f"decision {given.decision} was rewarded before")
        new[request or f"\0{place}"] = _New(name, value, given, [place])
        return None

    def _made_under(self, number: int, request: str) -> list[tuple[int, int]]:
        rewards, joined = self._records.lesson(number).rewards, self._records.joined(number)
        return [rewards[joined.index(request)]] if request in joined else rewards

    def _lesson_refused(self, number: int) -> None:
        """What was refused together is taught one by one, but for what is unlearned. That is written down before the
        refusal is: after a crash in between the lesson ends once more, and what was made again is known."""
        for request, reward in zip(self._records.joined(number), self._records.lesson(number).rewards, strict=False):
            made_again = request and self._lesson_of(request) != number
            if not made_again and self._records.unlearned_by(reward[0]) is None:
                self._make(MadeLesson(request, [reward], again=True))

    def _make_joint(self, new: dict[str, _New]) -> int:
        names, values = [one.name for one in new.values()], [one.value for one in new.values()]
        masked = self._masked(names, values, self._streams)
        self._sums.observe(one.given.reward for one in new.values())
        requests = ["" if request.startswith("\0") else request for request in new]
        if len(new) == 1:
            return self._make(MadeLesson(requests[0], masked))
        return self._make(MadeLesson(self._records.name_of(names), masked, joined=tuple(requests)))

    def _make(self, lesson: MadeLesson) -> int:
        number = super()._make(lesson)
        if number >= self._written:
            self._unwritten.update(dict.fromkeys(filter(None, lesson.joined), number))
        return number

    def _lesson_lasts(self, lesson: MadeLesson) -> None:
        for request in lesson.joined:
            self._unwritten.pop(request, None)
        super()._lesson_lasts(lesson)
