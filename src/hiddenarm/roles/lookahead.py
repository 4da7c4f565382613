"""Which decision will be rewarded next, so that its lesson can be begun before the reward is there.

In strictly online use a decision is made by the newest model, rewarded, learned; then comes the next. While the reward
is on its way, the parties can run what does not depend on it: three of five rounds (`bandit.programs.learn_ahead`).

Which randomness a lesson uses may not depend on who began what when. So all parties follow one rule on what the clients
have sent:

    A single decision is *fresh* if it names a newer version of the model than every request before it. If the lesson
    that follows this version is the reward of this decision alone, it is run as `learn ahead`, at the step of the
    decision. Every other lesson is run as `learn` or `gather`, at a step of its own.

To begin before the reward is a party's own affair: one that has not begun keeps what its peers send until it does.
What was begun for a decision that is not rewarded next is dropped, and its randomness is spent. So a party begins only
where the lesson before was run ahead too.
"""

from __future__ import annotations


class Lookahead:
    """The fresh decisions, by the version that they name, until the lesson that follows it has ended."""

    def __init__(self, *, enabled: bool) -> None:
        self.hopeful = False
        """Whether the last lesson was run ahead."""
        self._enabled = enabled
        self._newest_named = -1
        self._fresh: dict[int, int] = {}
        self._made: set[int] = set()

    def note_request(self, version: int, decision: int | None) -> None:
        """A request names a version; in the actor's order. `decision` is the name of a single one."""
        if version > self._newest_named:
            self._newest_named = version
            if decision is not None and self._enabled:
                self._fresh[version] = decision

    def note_decision(self, version: int, decision: int) -> None:
        """A decision was made, and waits for its reward."""
        if self.fresh_decision(version) == decision:
            self._made.add(decision)

    def fresh_decision(self, version: int) -> int | None:
        """The fresh decision of a version."""
        return self._fresh.get(version)

    def promising_decision(self, version: int) -> int | None:
        """The fresh decision of a version, if it was made and its lesson should be begun before the reward is there."""
        decision = self._fresh.get(version)
        return decision if self.hopeful and decision in self._made else None

    def forget(self, version: int) -> None:
        """The lesson that follows a version has ended."""
        decision = self._fresh.pop(version, None)
        if decision is not None:
            self._made.discard(decision)
