"""Products of masked values: every bilinear and trilinear form, with no communication.

With x = dx - lx and y = dy - ly, linear in each factor,

    [x y] = dx dy - dx [ly] - [lx] dy + [lx ly]

so the parties need shares of the products of masks, which the dealer knows. Three factors expand the same way into four
products of masks. A form is written like an Einstein sum, "a,aij,j->i". What the dealer shares for a product of masks
is summed over every index that neither the output nor an opened factor of that term mentions, so that it is as small
as it can be: one word per output for a bilinear form.

A factor that comes from `truncate` has a mask of two parts, one with a public sign per entry that the dealer does not
know. Its terms are dealt per entry of that factor, and the parties apply the signs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product as choices
from math import prod

import numpy as np

from hiddenarm.mpc.cells import contract
from hiddenarm.mpc.masking import triangle_indices, triangle_to_square
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Masked, MaskedKind, MaskPart, Shared
from hiddenarm.ring.contraction import ContractionPlan, Factor, Term
from hiddenarm.ring.words import Words

_DELTA = -1


def form(run: Run, spec: str, *factors: Masked) -> Shared:
    """The multilinear form `spec` of masked factors, as an additive sharing."""
    plan = _plan(spec, tuple([factor.kind for factor in factors]))
    products = _deal_products(run, plan, factors)
    if run.dealing:
        return Shared(plan.shape, None)
    if run.adds_constants and plan.has_constant:
        factors = (*factors[:-1], _with_delta_in_mask(factors[-1]))
    known = [words for factor in factors for words in _known_words(factor)]
    total = contract(plan.evaluation, prod(run.batch), [*known, *products])
    return Shared(plan.shape, total.reshape(*run.batch, *plan.shape))


class _FactorKind:
    """A factor in the form: its indices beside what is public about it."""

    def __init__(self, indices: str, kind: MaskedKind) -> None:
        self.indices = indices
        self.shape, self.signed, self.opened, self.symmetric = kind


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of masks to be dealt: which part of which factor, and the indices it keeps."""

    parts: tuple[tuple[int, int], ...]
    indices: str
    shape: tuple[int, ...]
    symmetric: bool

    @property
    def length(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to deal a form's products of masks, and how a party evaluates it.

    Products are dealt side by side in one block; those that are symmetric matrices follow, a triangle each.
    """

    shape: tuple[int, ...]
    block: ContractionPlan
    symmetric: tuple[tuple[tuple[int, ...], ContractionPlan], ...]
    evaluation: ContractionPlan
    has_constant: bool


def _deal_products(run: Run, plan: _Plan, factors: tuple[Masked, ...]) -> list[Words]:
    """Shares of all products of masks: the block, then each symmetric matrix."""

    def products(plan: ContractionPlan) -> Words:
        masks = tuple([np.ascontiguousarray(part.mask) for factor in factors for part in factor.parts])
        return plan.run(prod(run.batch), masks)

    def triangles(shape: tuple[int, ...], plan: ContractionPlan) -> Words:
        rows, columns = triangle_indices(shape[-1])
        return products(plan).reshape(-1, *shape)[..., rows, columns]

    dealt = [run.deal((plan.block.out_length,), lambda: products(plan.block))]
    for shape, matrices in plan.symmetric:
        size = shape[-1]
        packed = run.deal((*shape[:-2], size * (size + 1) // 2), partial(triangles, shape, matrices))
        dealt.append(packed.take(triangle_to_square(size), axis=-1))
    return dealt


def _with_delta_in_mask(factor: Masked) -> Masked:
    """The product of all deltas belongs to one party. In its hands the last factor's mask share [l] becomes [l] - delta
    where it enters alone: the term - d d [l] becomes d d delta - d d [l], at no cost."""
    first, *others = factor.parts
    assert factor.delta is not None
    merged = MaskPart(first.mask - factor.delta)
    return Masked(factor.shape, factor.delta, (merged, *others), opened=factor.opened, symmetric=factor.symmetric)


def _known_words(factor: Masked) -> list[Words]:
    """What a party knows of a factor: its delta, then for each part of the mask its share, and the signs if it has
    any."""
    words = [factor.delta] if factor.delta is not None else []
    for part in factor.parts:
        words += [part.mask] if part.sign is None else [part.mask, part.sign]
    return words


@lru_cache(maxsize=256)
def _plan(spec: str, factor_kinds: tuple[MaskedKind, ...]) -> _Plan:
    """Expand the form into all choices of delta or mask part for each factor."""
    inputs, output = spec.split("->")
    kinds = tuple(_FactorKind(*pair) for pair in zip(inputs.split(","), factor_kinds, strict=True))
    sizes = _index_sizes(kinds)
    choice_list = _choices(kinds)
    products = {masks: _product(kinds, output, masks, deltas, sizes) for deltas, masks in choice_list if len(masks) > 1}
    plain = [product for product in products.values() if not product.symmetric]
    symmetric = [product for product in products.values() if product.symmetric]
    known_places, lengths = _known_places(kinds)
    homes = _homes(plain, symmetric, first_operand=len(lengths))
    lengths += [sum(product.length for product in plain), *(product.length for product in symmetric)]

    def term(deltas: tuple[int, ...], masks: tuple[tuple[int, int], ...]) -> Term:
        known = [Factor(known_places[f, _DELTA, False], kinds[f].indices) for f in deltas]
        known += [Factor(known_places[f, part, True], kinds[f].indices) for f, part in masks if kinds[f].signed[part]]
        if len(masks) == 1:
            ((f, part),) = masks
            known.append(Factor(known_places[f, part, False], kinds[f].indices))
        elif masks:
            operand, offset = homes[masks]
            known.append(Factor(operand, products[masks].indices, offset))
        return Term(tuple(known), output, negative=len(masks) % 2 == 1)

    terms = [term(deltas, masks) for deltas, masks in choice_list if masks]
    shape = tuple(sizes[index] for index in output)
    return _Plan(
        shape,
        _dealing_plan(kinds, plain, sizes),
        tuple((product.shape, _dealing_plan(kinds, [product], sizes)) for product in symmetric),
        ContractionPlan(sizes, prod(shape), lengths, terms),
        all(kind.opened for kind in kinds),
    )


def _choices(kinds: tuple[_FactorKind, ...]) -> list[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """All terms of the expansion: the factors taken by delta, and the part of the mask of each other factor."""
    options = [([_DELTA] if kind.opened else []) + list(range(len(kind.signed))) for kind in kinds]
    return [
        (
            tuple(f for f, part in enumerate(pick) if part == _DELTA),
            tuple((f, part) for f, part in enumerate(pick) if part != _DELTA),
        )
        for pick in choices(*options)
    ]


def _known_places(kinds: tuple[_FactorKind, ...]) -> tuple[dict[tuple[int, int, bool], int], list[int]]:
    """Where the delta, the mask shares and the signs of each factor stand among the operands, and their lengths."""
    places: dict[tuple[int, int, bool], int] = {}
    lengths: list[int] = []
    for f, kind in enumerate(kinds):
        keys = [(f, _DELTA, False)] if kind.opened else []
        for part, signed in enumerate(kind.signed):
            keys += [(f, part, False), (f, part, True)] if signed else [(f, part, False)]
        for key in keys:
            places[key] = len(lengths)
            lengths.append(prod(kind.shape))
    return places, lengths


def _homes(
    plain: list[_Product], symmetric: list[_Product], first_operand: int
) -> dict[tuple[tuple[int, int], ...], tuple[int, int]]:
    """Operand and offset of each product: side by side in the block, or a matrix of its own."""
    homes, offset = {}, 0
    for product in plain:
        homes[product.parts] = (first_operand, offset)
        offset += product.length
    for place, product in enumerate(symmetric):
        homes[product.parts] = (first_operand + 1 + place, 0)
    return homes


def _product(
    kinds: tuple[_FactorKind, ...],
    output: str,
    masks: tuple[tuple[int, int], ...],
    deltas: tuple[int, ...],
    sizes: dict[str, int],
) -> _Product:
    """A product of masks, summed over the indices that neither the output nor an opened factor mentions."""
    public = [*deltas, *(f for f, part in masks if kinds[f].signed[part])]
    needed = set(output).union(*(kinds[f].indices for f in public))
    indices = "".join(dict.fromkeys(i for f, _ in masks for i in kinds[f].indices if i in needed))
    shape = tuple(sizes[index] for index in indices)
    return _Product(masks, indices, shape, _stays_symmetric(kinds, masks, indices))


def _dealing_plan(kinds: tuple[_FactorKind, ...], products: list[_Product], sizes: dict[str, int]) -> ContractionPlan:
    """Compute products side by side; the operands are all parts of all masks."""
    all_parts = [(f, part) for f, kind in enumerate(kinds) for part in range(len(kind.signed))]
    terms, offset = [], 0
    for product in products:
        factors = tuple(Factor(all_parts.index(pick), kinds[pick[0]].indices) for pick in product.parts)
        terms.append(Term(factors, product.indices, offset))
        offset += product.length
    return ContractionPlan(sizes, offset, [prod(kinds[f].shape) for f, _ in all_parts], terms)


def _stays_symmetric(kinds: tuple[_FactorKind, ...], masks: tuple[tuple[int, int], ...], indices: str) -> bool:
    """Whether a symmetric factor's last two indices survive, last, untouched by the other masks."""
    for factor, _ in masks:
        pair = kinds[factor].indices[-2:]
        others = {i for f, _ in masks if f != factor for i in kinds[f].indices}
        if kinds[factor].symmetric and indices.endswith(pair):
            return not set(pair) & others
    return False


def _index_sizes(kinds: tuple[_FactorKind, ...]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for kind in kinds:
        for index, size in zip(kind.indices, kind.shape, strict=True):
            if sizes.setdefault(index, size) != size:
                raise ValueError(f"index {index} has sizes {sizes[index]} and {size}")
    return sizes
