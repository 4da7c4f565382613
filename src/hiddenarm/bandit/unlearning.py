"""Taking one interaction out of the model, exactly: the program `unlearn`, and what cannot be unlearned.

`unlearn`, for an interaction of context x, one-hot o of the arm and reward r that the parties have kept:

    1. the parties bring shares of the sums [W], [b], of [o] and [r], and each its own part of x
    2. round 1 masks x, o and r, round 2 masks o x: as in `gather`, under masks that are dealt for this run alone
    3. [W] <- [W] - [o x x'],  [b] <- [b] - [o r x]

Nothing is truncated, so the sums afterwards are, word for word, the sums of all other interactions. What was learned
singly and is not in the sums is then added to them (`repair`), the interaction itself included where it is one of
these: words are subtracted and added in any order. Then M and w are solved from the sums alone, from a public start, in
the runs of a repair. So whatever the model was before is gone: it equals the one that never saw the interaction, but
for the rounding of one solution. (`RidgeSchedule.unlearning` has the plan.)

Security. What is opened is what `gather` opens: x, o, r and o x, each plus a mask that is uniform and used once. That
the same x, o and r were masked before, in the run that learned them, tells nothing: the masks are independent. All runs
and their addresses follow from public counters. What roles learn beside: which decision is unlearned, and when.

Where sums are noisy, an interaction is not unlearned: models that held it were released, and the noise of its refresh
stays in the sums. Taking it out would make two refreshes differ by this row, with the same noise in both, and the bound
over time counts on one. In the paper's suite there are no sums to take it out of.
"""

from __future__ import annotations

from hiddenarm.bandit.batches import Sums
from hiddenarm.mpc.run import Rounds


def ungather(sums: Sums, gains: Rounds[Sums]) -> Rounds[Sums]:
    """Take out of the sums what interactions are in them; returns `Sums`."""
    gained = yield from gains
    return Sums(sums.grams - gained.grams, sums.moments - gained.moments)
