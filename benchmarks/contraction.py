"""The compiled sums of products beside NumPy's einsum, on the products of a lesson, of a batch of 100 interactions, and
of the steps that solve a model. `plain` is by the loops in plain C, `kernel` by those that this machine has.

python -m benchmarks.contraction
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from hiddenarm.ring._kernels import contract, contract_portably
from hiddenarm.ring.contraction import ContractionPlan, Factor, Term
from hiddenarm.ring.words import Words

SIZES = {"a": 10, "i": 20, "j": 20, "k": 20, "t": 210, "n": 100}
FORMS = (
    "a,aij,j->i",
    "a,ai,i->",
    "a,i->ai",
    "at,t->at",
    "ai,j->aij",
    "j,aij->aij",
    "ni,ai->na",
    "na,ni->nai",
    "nat,nt->at",
    "n,nai->ai",
    "aij,ajk->aik",
    "ajk,aij->aik",
)
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
        out = np.zeros((1, plan.out_length), np.uint64)
        plain, kernel, einsum = (
            median_us(lambda p=plan, o=operands, out=out: contract_portably(p.words, 1, out, o)),
            median_us(lambda p=plan, o=operands, out=out: contract(p.words, 1, out, o)),
            median_us(lambda b=batched, o=operands: np.einsum(b, *o)),
        )
        print(
            f"{spec:12}  plain {plain:6.1f} us   kernel {kernel:6.1f} us   einsum {einsum:6.1f} us"
            f"   {einsum / kernel:4.1f} times"
        )


if __name__ == "__main__":
    main()
