"""The paper's learner (its Algorithm 1 with the Sherman-Morrison update), as two programs on secret values.

All numbers have L fractional bits, bits have none. For every arm a the parties hold M_a, the inverse of ridge I + sum x
x', and b_a = sum r x. L may be as large as one likes: no budget is checked, and above some 22 bits divisions fail often
enough to spoil the model, see `fixed_point`.

The paper's actor adds up the parties' shares of the one-hot, and shares it again for learning. What the parties hold
already is the same value, so they go on with that. It is one-hot in any case: scores come from a division by 2^L, so
they are below 2^(64-L), and their differences do not wrap, however wrong they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hiddenarm.mpc.masking import dealt, dealt_share
from hiddenarm.mpc.parallel import SharedLater, in_parallel
from hiddenarm.mpc.run import Opening, Rounds, Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.arithmetic import held_segments, product, share_segments
from hiddenarm.paper.comparison import argmax
from hiddenarm.paper.fixed_point import FixedPoint, reciprocal
from hiddenarm.ring.words import Words


@dataclass(frozen=True, slots=True)
class Setting:
    """What the programs need to know: features of each party, fractional bits, Newton iterations."""

    arms: int
    features: tuple[int, ...]
    fraction_bits: int
    iterations: int

    @property
    def numbers(self) -> FixedPoint:
        return FixedPoint(len(self.features), self.fraction_bits)


@dataclass(slots=True, repr=False)
class Samples:
    """The dealer's private samples of some decisions: y [count], 1 to explore; v [count, arms], uniform in [0, 1) with
    L bits; gamma [count, arms], a random permutation of 1 to the number of arms."""

    explore: Words
    uniform: Words
    permutation: Words


def decide(
    run: Run,
    setting: Setting,
    inverses: Shared,
    biases: Shared,
    own_features: Words | None,
    samples: Callable[[], Samples],
    count: int = 1,
) -> SharedLater:
    """The shared one-hots [count, arms] of the arms for some contexts. `samples` is asked at the dealer only.

    w_a = M_a b_a;  s_a = w_a'x;  the scores y v_a + (1 - y) s_a = s_a + y (v_a - s_a);  their argmax
    """
    numbers, shape = setting.numbers, (count, setting.arms)
    y = dealt_share(run, (count,), lambda: samples().explore)
    v = dealt_share(run, shape, lambda: samples().uniform)
    gamma = dealt(run, shape, lambda: samples().permutation)
    x, weights = yield from in_parallel(
        _opened(share_segments(run, (count,), own_features, setting.features)),
        numbers.product(run, "aij,aj->ai", inverses, biases),
    )
    scores = yield from numbers.product(run, "ai,bi->ba", weights, x)
    mixed = scores + (yield from product(run, "b,ba->ba", y, v - scores))
    return (yield from argmax(run, numbers.parties, mixed, gamma))


def learn(
    run: Run,
    setting: Setting,
    inverses: Shared,
    biases: Shared,
    own_features: Words | None,
    arm: Shared,
    reward: Shared,
) -> Rounds[tuple[Shared, Shared]]:
    """The inverses and biases after one interaction, as a pair. All arms are treated alike; the one-hot o chooses.

    M_a -= o_a (M_a x x'M_a) / (1 + x'M_a x);  b_a += o_a r x
    """
    numbers = setting.numbers
    x = held_segments(run, own_features, setting.features)
    u, gained = yield from in_parallel(
        numbers.product(run, "aij,j->ai", inverses, x),
        numbers.product(run, ",i->i", reward, x),
    )
    q, numerator, gained = yield from in_parallel(
        numbers.product(run, "i,ai->a", x, u),
        numbers.product_with_itself(run, "ai,aj->aij", u),
        product(run, "a,i->ai", arm, gained),
    )
    shrink = yield from reciprocal(run, numbers, numbers.plus(run, q, 1.0), setting.iterations)
    update = yield from numbers.product(run, "a,aij->aij", shrink, numerator)
    return inverses - (yield from product(run, "a,aij->aij", arm, update)), biases + gained


def _opened(opening: Opening[Shared]) -> SharedLater:
    (value,) = yield (opening,)
    shared: Shared = value
    return shared
