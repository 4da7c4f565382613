"""How far the private model drifts from the true one in a long strictly online run, with repairs and without.

Two runs of the same learner on the same contexts, arms and rewards: one repairs its model every 10,000 interactions,
the other never. At some steps both inverses and weights are compared with those of the exact sums.

    python -m benchmarks.stability [--steps 1000000]

A million steps take some minutes; the two runs share two cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
from time import perf_counter

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.mpc.masking import triangle_to_square
from hiddenarm.ring.streams import derive
from hiddenarm.ring.words import Floats

ARMS = 4
FEATURES = (4, 4)
REPAIR_EVERY = 10_000
NEVER = 1_000_000
MOST_WITHOUT = 200_000
"""Steps of the run that is never repaired: it keeps all its interactions in memory."""
ROWS = 4096
Row = tuple[int, float, float, float]
"""Step, largest relative error of an inverse, largest error of a weight, smallest eigenvalue of an inverse."""


class ExactSums:
    """What the model should be: W and b of every arm in double precision."""

    def __init__(self, federation: Federation) -> None:
        dimension = federation.dimension
        self.grams = np.repeat(federation.ridge * np.eye(dimension)[None], federation.arms, axis=0)
        self.moments = np.zeros((federation.arms, dimension))

    def add(self, arm: int, context: Floats, reward: float) -> None:
        self.grams[arm] += np.outer(context, context)
        self.moments[arm] += reward * context

    def compare(self, step: int, inverses: Floats, weights: Floats) -> Row:
        exact = np.linalg.inv(self.grams)
        errors = np.linalg.norm(inverses - exact, axis=(1, 2)) / np.linalg.norm(exact, axis=(1, 2))
        drift = np.abs(weights - np.einsum("aij,aj->ai", exact, self.moments)).max()
        smallest = np.linalg.eigvalsh((inverses + inverses.transpose(0, 2, 1)) / 2).min()
        return step, float(errors.max()), float(drift), float(smallest)


def contexts(bits: int) -> Floats:
    """Unit vectors, rounded to fixed point: what both the private and the exact learner see."""
    normal = np.random.default_rng(1).normal(size=(ROWS, sum(FEATURES)))
    unit = normal / np.linalg.norm(normal, axis=1, keepdims=True)
    return np.asarray(np.rint(unit * 2**bits) / 2**bits, np.float64)


def checkpoints(steps: int) -> list[int]:
    """1, 2 and 5 times each power of ten from a thousand on."""
    marks = [factor * 10**power for power in range(3, 10) for factor in (1, 2, 5)]
    return [mark for mark in marks if mark < steps] + [steps]


def run(repair_every: int, steps: int) -> list[Row]:
    """Decide and learn so many times; the errors at the checkpoints."""
    federation = Federation(
        arms=ARMS, features=FEATURES, epsilon=0.1, repair_every=repair_every, max_interactions=steps
    )
    learner, exact = Lockstep(federation, derive(bytes(32), "stability")), ExactSums(federation)
    rows, square = contexts(federation.fraction_bits), triangle_to_square(federation.dimension)
    wanted = np.random.default_rng(2).normal(size=(ARMS, federation.dimension))
    found: list[Row] = []
    marks = set(checkpoints(steps))
    for step in range(1, steps + 1):
        context = rows[step % ROWS]
        number, arms = learner.decide([context[None, : FEATURES[0]], context[None, FEATURES[0] :]])
        reward = float(np.argmax(wanted @ context) == arms[0])
        learner.learn(number, [reward])
        exact.add(int(arms[0]), context, reward)
        if step in marks:
            inverses, weights = learner.reveal_model()
            found.append(exact.compare(step, inverses[0][:, square], weights[0]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    steps = parser.parse_args().steps
    start = perf_counter()
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        repaired, left = pool.starmap(run, [(REPAIR_EVERY, steps), (NEVER, min(steps, MOST_WITHOUT))])
    print(f"{ARMS} arms, {sum(FEATURES)} features, {steps:,} steps, {perf_counter() - start:.0f} s")
    print("           repaired every 10,000 steps            never repaired")
    print("    steps  inverse   weights   smallest eig.    inverse   weights   smallest eig.")
    without = {step: _figures(values) for step, *values in left}
    for step, *values in repaired:
        print(f"{step:9,}  {_figures(values)}    {without.get(step, '')}")


def _figures(values: list[float]) -> str:
    inverse, weights, smallest = values
    return f"{inverse:.1e}   {weights:.1e}   {smallest:13.1e}"


if __name__ == "__main__":
    main()
