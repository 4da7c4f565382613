"""The compiled kernel beside NumPy's einsum, on the products of one learning step. Ratios of one run.

python -m benchmarks.contraction
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from hiddenarm.ring.contraction import ContractionPlan, Factor, Term
from hiddenarm.ring.words import Words

SIZES = {"a": 10, "i": 20, "j": 20, "t": 210}
FORMS = ("a,aij,j->i", "a,ai,i->", "a,i->ai", "at,t->at")
REPEATS = 300


def median_us(work: object) -> float:
    """The median time of one call."""
    assert callable(work)
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        work()
        times.append(perf_counter() - start)
    return 1e6 * float(np.median(times))


def main() -> None:
    """Print a line for each form."""
    for spec in FORMS:
        inputs, output = spec.split("->")
        axes = inputs.split(",")
        shapes = [tuple(SIZES[index] for index in factor) for factor in axes]
        operands: tuple[Words, ...] = tuple(np.ones((1, *shape), np.uint64) for shape in shapes)
        term = Term(tuple(Factor(place, factor) for place, factor in enumerate(axes)), output)
        lengths = [operand.size for operand in operands]
        plan = ContractionPlan(SIZES, int(np.prod([SIZES[index] for index in output], dtype=int)), lengths, [term])
        batched = ",".join("..." + factor for factor in axes) + "->..." + output
        kernel, einsum = (
            median_us(lambda p=plan, o=operands: p.run(1, o)),
            median_us(lambda b=batched, o=operands: np.einsum(b, *o)),
        )
        print(f"{spec:12}  kernel {kernel:6.1f} us   einsum {einsum:6.1f} us   {einsum / kernel:4.1f} times")


if __name__ == "__main__":
    main()
