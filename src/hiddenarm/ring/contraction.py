"""Plans for the compiled kernel that adds up products of arrays of words: many Einstein sums in one call.

NumPy's einsum costs microseconds a call before it multiplies anything, and one private step needs dozens of small
products. A `ContractionPlan` names all terms once; running it is one call into C. `benchmarks/contraction.py` has both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hiddenarm.ring._kernels import contract
from hiddenarm.ring.words import Words

PlanWords: TypeAlias = NDArray[np.int64]

_NO_INDEX = "_"
"""Stands in where a term has no index at all."""


@dataclass(frozen=True, slots=True)
class Factor:
    """An array in a term: which operand, where in its row it starts, its indices in order of its axes."""

    operand: int
    indices: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """sign * product of factors, summed over every index that is not in `output`, added to out from `offset` on."""

    factors: tuple[Factor, ...]
    output: str
    offset: int = 0
    negative: bool = False


class ContractionPlan:
    """Terms over operands of fixed row lengths. `sizes` gives the size of every index."""

    def __init__(
        self, sizes: dict[str, int], out_length: int, operand_lengths: Sequence[int], terms: Sequence[Term]
    ) -> None:
        self.out_length = out_length
        sizes = {**sizes, _NO_INDEX: 1}
        words = [out_length, len(operand_lengths), *operand_lengths, len(terms)]
        for term in terms:
            words += _encoded(term, sizes)
        self.words = np.array(words, np.int64)

    def run(self, batch: int, operands: tuple[Words, ...]) -> Words:
        """The sum of all terms: [batch, out_length]. Operands are contiguous with `batch` rows each."""
        out = np.zeros((batch, self.out_length), np.uint64)
        contract(self.words, batch, out, operands)
        return out


def _encoded(term: Term, sizes: dict[str, int]) -> list[int]:
    indices = _loop_order(term, sizes)
    words = [-1 if term.negative else 1, len(indices), len(term.factors)]
    words += [sizes[index] for index in indices]
    words += [term.offset, *_strides(term.output, indices, sizes)]
    for factor in term.factors:
        words += [factor.operand, factor.offset, *_strides(factor.indices, indices, sizes)]
    return words


def _loop_order(term: Term, sizes: dict[str, int]) -> str:
    """All indices, the inner loop last. It runs along the rows of the output if a factor has the same rows, and what is
    summed over then comes just before it, so that a sum can stay in registers; if not, along the largest factor."""
    by_size = sorted(term.factors, key=lambda factor: prod(sizes[i] for i in factor.indices))
    largest = by_size[-1].indices
    found = "".join(dict.fromkeys("".join(factor.indices for factor in by_size) + term.output))
    inner = term.output[-1:]
    moved = [factor for factor in term.factors if inner and inner in factor.indices]
    if len(moved) == 1 and moved[0].indices.endswith(inner):
        return term.output[:-1] + "".join(index for index in found if index not in term.output) + inner
    return "".join(index for index in found if index not in largest) + largest or _NO_INDEX


def _strides(axes: str, indices: str, sizes: dict[str, int]) -> list[int]:
    """The stride of each loop index in an array with these axes; 0 where it does not occur."""
    return [prod(sizes[axis] for axis in axes[axes.index(i) + 1 :]) if i in axes else 0 for i in indices]
