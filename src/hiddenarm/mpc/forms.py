"""Products of masked values: every bilinear and trilinear form, with no communication.

With x = dx - lx and y = dy - ly, linear in each factor,

    [x y] = dx dy - dx [ly] - [lx] dy + [lx ly]

so the parties need shares of the products of masks, which the dealer knows. Three factors expand the same way into four
products of masks. A form is written like an Einstein sum, "a,aij,j->i". What the dealer shares for a product of masks is
summed over every index that neither the output nor an opened factor of that term mentions, so that it is as small as
it can be: one word per output for a bilinear form.

A factor that comes from `truncate` has a mask of two parts, one with a public sign per entry that the dealer does not
know. Its terms are dealt per entry of that factor, and the parties apply the signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product as choices

import numpy as np

from hiddenarm.mpc.masking import triangle_indices, triangle_to_square
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Masked, MaskPart, Shared
from hiddenarm.ring.words import Words

_DELTA = -1


@dataclass(frozen=True, slots=True)
class _FactorKind:
    """What of a factor decides the plan: its indices, its parts (signed or not), whether it has a delta."""

    indices: str
    signed: tuple[bool, ...]
    opened: bool
    symmetric: bool


@dataclass(frozen=True, slots=True)
class _Term:
    """One product in the expansion: some factors by delta, the others by one part of their mask."""

    deltas: tuple[int, ...]
    masks: tuple[tuple[int, int], ...]
    dealt_indices: str
    dealt_spec: str
    party_spec: str
    negative: bool
    symmetric: bool


def form(run: Run, spec: str, *factors: Masked) -> Shared:
    """The multilinear form `spec` of masked factors, as an additive sharing."""
    inputs, output = spec.split("->")
    kinds = tuple(
        _FactorKind(indices, tuple(part.signed for part in factor.parts), factor.opened, factor.symmetric)
        for indices, factor in zip(inputs.split(","), factors, strict=True)
    )
    sizes = _index_sizes(kinds, factors)
    shape = tuple(sizes[index] for index in output)
    total: Words | None = None
    for term in _expansion(kinds, output):
        piece = _mask_product(run, term, sizes, [factors[f].parts[p] for f, p in term.masks])
        if not run.dealing:
            total = _accumulate(total, _evaluate(term, factors, piece), term.negative)
    if run.adds_constants and all(factor.opened for factor in factors):
        deltas = [factor.delta for factor in factors]
        total = _accumulate(total, _einsum(_batched(inputs.split(","), output), *deltas), False)
    return Shared(shape, total)


def _mask_product(run: Run, term: _Term, sizes: dict[str, int], parts: list[MaskPart]) -> Words:
    """Shares of one product of masks: a share already held, or one dealt now."""
    if len(parts) == 1:
        return parts[0].mask
    shape = tuple(sizes[index] for index in term.dealt_indices)
    if not term.symmetric:
        return run.deal(shape, lambda: _einsum(term.dealt_spec, *(part.mask for part in parts)))
    rows, columns = triangle_indices(shape[-1])
    packed = run.deal(
        (*shape[:-2], len(rows)),
        lambda: _einsum(term.dealt_spec, *(part.mask for part in parts))[..., rows, columns],
    )
    return packed[..., triangle_to_square(shape[-1])]


def _evaluate(term: _Term, factors: tuple[Masked, ...], piece: Words) -> Words:
    operands = [factors[f].delta for f in term.deltas]
    operands += [factors[f].parts[p].sign for f, p in term.masks if factors[f].parts[p].signed]
    return _einsum(term.party_spec, *operands, piece)


def _accumulate(total: Words | None, value: Words, negative: bool) -> Words:
    if total is None:
        return np.negative(value) if negative else value
    return np.subtract(total, value) if negative else np.add(total, value)


def _einsum(spec: str, *operands: Words | None) -> Words:
    result: Words = np.asarray(np.einsum(spec, *operands))  # type: ignore[arg-type]
    return result


def _index_sizes(kinds: tuple[_FactorKind, ...], factors: tuple[Masked, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for kind, factor in zip(kinds, factors, strict=True):
        for index, size in zip(kind.indices, factor.shape, strict=True):
            if sizes.setdefault(index, size) != size:
                raise ValueError(f"index {index} has sizes {sizes[index]} and {size}")
    return sizes


@lru_cache(maxsize=256)
def _expansion(kinds: tuple[_FactorKind, ...], output: str) -> tuple[_Term, ...]:
    """All terms with at least one mask, in a fixed order."""
    options = [([_DELTA] if kind.opened else []) + list(range(len(kind.signed))) for kind in kinds]
    picks = choices(*options)
    return tuple(_term(kinds, output, pick) for pick in picks if any(part != _DELTA for part in pick))


def _term(kinds: tuple[_FactorKind, ...], output: str, pick: tuple[int, ...]) -> _Term:
    deltas = tuple(f for f, part in enumerate(pick) if part == _DELTA)
    masks = tuple((f, part) for f, part in enumerate(pick) if part != _DELTA)
    signs = [f for f, part in masks if kinds[f].signed[part]]
    public = [kinds[f].indices for f in (*deltas, *signs)]
    mask_indices = [kinds[f].indices for f, _ in masks]
    if len(masks) == 1:
        dealt_indices = mask_indices[0]
    else:
        needed = set(output).union(*public)
        dealt_indices = "".join(dict.fromkeys(i for indices in mask_indices for i in indices if i in needed))
    return _Term(
        deltas=deltas,
        masks=masks,
        dealt_indices=dealt_indices,
        dealt_spec=_batched(mask_indices, dealt_indices),
        party_spec=_batched([*public, dealt_indices], output),
        negative=len(masks) % 2 == 1,
        symmetric=len(masks) > 1 and _stays_symmetric(kinds, masks, signs, dealt_indices),
    )


def _stays_symmetric(
    kinds: tuple[_FactorKind, ...], masks: tuple[tuple[int, int], ...], signs: list[int], dealt_indices: str
) -> bool:
    """Whether a symmetric factor's last two indices survive, last, untouched by the other masks."""
    for factor, _ in masks:
        pair = kinds[factor].indices[-2:]
        others = "".join(kinds[f].indices for f, _ in masks if f != factor)
        if kinds[factor].symmetric and factor not in signs and dealt_indices.endswith(pair):
            return not set(pair) & set(others)
    return False


def _batched(inputs: list[str], output: str) -> str:
    """An einsum specification with the batch axes in front of every operand."""
    return ",".join("..." + indices for indices in inputs) + "->..." + output
