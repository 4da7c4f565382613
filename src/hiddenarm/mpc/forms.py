"""Products of masked values: every bilinear and trilinear form, with no communication.

With x = dx - lx and y = dy - ly, linear in each factor,

    [x y] = dx dy - dx [ly] - [lx] dy + [lx ly]

so the parties need shares of the products of masks, which the dealer knows. Three factors expand the same way into four
products of masks. A form is written like an Einstein sum, "a,aij,j->i". What the dealer shares for a product of masks
is summed over every index that neither the output nor an opened factor of that term mentions, so that it is as small
as it can be: one word per output for a bilinear form.

A factor that comes from `truncate` has a mask of two parts, one with a public sign per entry that the dealer does not
know. Products with this part are dealt per entry of that factor, and the parties apply the signs. They are multiples of
a power of two, so only their top bits are dealt, several in a word.

Where of a matrix only the sum with its transpose is wanted, as one triangle, what is dealt an output is dealt for that
triangle. A quadratic form has one vector twice, and needs half of what three factors would.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import combinations
from itertools import product as choices
from math import prod
from typing import NamedTuple

import numpy as np

from hiddenarm.mpc.masking import triangle_indices, triangle_to_square
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.tracing import contract
from hiddenarm.mpc.values import Masked, MaskedKind, Shared
from hiddenarm.ring.contraction import ContractionPlan, Factor, Term
from hiddenarm.ring.words import WORD_BITS, Words

_PURPOSE = "products of masks"
_Parts = tuple[tuple[int, int], ...]
"""A part of the mask of some factors: (factor, part) each."""


def form(run: Run, spec: str, *factors: Masked, label: str = "a product") -> Shared:
    """The multilinear form `spec` of masked factors, as an additive sharing."""
    plan = _plan(spec, tuple([factor.kind for factor in factors]), folded=False)
    products = _deal_products(run, plan, factors)
    run.note(f'{label}: einsum "{spec}" on shares')
    return _evaluated(run, plan, factors, products)


def folded_form(run: Run, spec: str, *factors: Masked, label: str = "a product") -> Shared:
    """The form of square matrices plus its transpose, as upper triangles: [..., size (size + 1) / 2].

    For matrices that are symmetric but for rounding it is twice the matrix. One triangle of them mirrored would keep
    the part of the rounding that is not symmetric."""
    plan = _plan(spec, tuple([factor.kind for factor in factors]), folded=True)
    products, folded = _deal_products(run, plan, factors), _deal_folded(run, plan, factors)
    run.note(f'{label}: einsum "{spec}" on shares, and its transpose')
    return fold(_evaluated(run, plan, factors, products)) + folded


def public_form(run: Run, spec: str, shared: Shared, public: Words | None, shape: tuple[int, ...]) -> Shared:
    """A form "bj,aj->ba" of a sharing and of public words of this shape, which every party brings: each party computes
    it of its own share, nothing is dealt or sent."""
    inputs, out = spec.split("->")
    first, second = inputs.split(",")
    sizes = dict(zip(first, shared.shape, strict=True)) | dict(zip(second, shape, strict=True))
    result = tuple(sizes[index] for index in out)
    run.note(f'a public linear map of shares: einsum "{spec}"')
    if shared.share is None or public is None:
        return Shared(result, None)
    lengths = [prod(shared.shape), prod(shape)]
    plan = ContractionPlan(sizes, prod(result), lengths, [Term((Factor(0, first), Factor(1, second)), out)])
    return Shared(result, contract(plan, prod(run.batch), [shared.share, public]).reshape(*run.batch, *result))


def fold(matrices: Shared) -> Shared:
    """Square matrices plus their transposes, as upper triangles."""
    *lead, size, _ = matrices.shape
    rows, columns = triangle_indices(size)
    shape = (*lead, len(rows))
    if matrices.share is None:
        return Shared(shape, None)
    flat = matrices.share.reshape(*matrices.share.shape[:-2], size * size)
    return Shared(shape, flat.take(size * rows + columns, axis=-1) + flat.take(size * columns + rows, axis=-1))


def quadratic_form(run: Run, matrices: Masked, vectors: Masked, label: str = "a quadratic form") -> Shared:
    """x'Mx of every vector [count, size] with every symmetric matrix [matrices, size, size]: [count, matrices].

    With M = dM - lM and x = dx - lx, both masks of one part:

        [x'Mx] = dx'dM dx - dx'[lM] dx - 2 dx'dM [lx] + dx'[2 lM lx] + sum of dM [lx lx'] - [lx'lM lx]

    so a vector takes size words for each matrix, size (size + 1) / 2 and one for each matrix.
    """
    ((mask_m,), (mask_x,)) = matrices.parts, vectors.parts
    many, size, _ = matrices.shape
    (count, _) = vectors.shape
    plans = _quadratic_plans(count, many, size)

    @cache
    def halves() -> Words:
        masks = np.ascontiguousarray(mask_m.mask), np.ascontiguousarray(mask_x.mask)
        return plans.product.run(prod(run.batch), masks)

    def doubled() -> Words:
        return halves() << np.uint64(1)

    def squares() -> Words:
        rows, columns = triangle_indices(size)
        return mask_x.mask[..., rows] * mask_x.mask[..., columns]

    def whole() -> Words:
        return plans.whole.run(prod(run.batch), (halves(), np.ascontiguousarray(mask_x.mask)))

    products = run.deal((count * many * size,), doubled, purpose=_PURPOSE)
    outer = run.deal((count, size * (size + 1) // 2), squares, purpose=_PURPOSE)
    constant = run.deal((count * many,), whole, purpose=_PURPOSE)
    run.note(f'{label}: einsum "aij,bi,bj->ba" on shares')
    shape = (count, many)
    if run.dealing:
        return Shared(shape, None)
    assert matrices.delta is not None
    assert vectors.delta is not None
    own = mask_m.mask - matrices.delta if run.adds_constants else mask_m.mask
    outer = outer.take(triangle_to_square(size), axis=-1)
    known = [matrices.delta, vectors.delta, own, mask_x.mask + mask_x.mask, products, outer, constant]
    return Shared(shape, contract(plans.evaluation, prod(run.batch), known).reshape(*run.batch, *shape))


class _QuadraticPlans(NamedTuple):
    """lM lx, what lx'lM lx is made of with it, and how a party evaluates the form."""

    product: ContractionPlan
    whole: ContractionPlan
    evaluation: ContractionPlan


@lru_cache(maxsize=64)
def _quadratic_plans(count: int, many: int, size: int) -> _QuadraticPlans:
    sizes = {"b": count, "a": many, "i": size, "j": size}
    matrices, vectors, products = many * size * size, count * size, count * many * size
    product = Term((Factor(0, "aij"), Factor(1, "bj")), "bai")
    whole = Term((Factor(0, "bai"), Factor(1, "bi")), "ba")
    terms = (
        Term((Factor(1, "bi"), Factor(1, "bj"), Factor(2, "aij")), "ba", negative=True),
        Term((Factor(0, "aij"), Factor(1, "bi"), Factor(3, "bj")), "ba", negative=True),
        Term((Factor(1, "bi"), Factor(4, "bai")), "ba"),
        Term((Factor(0, "aij"), Factor(5, "bij")), "ba"),
        Term((Factor(6, "ba"),), "ba", negative=True),
    )
    lengths = [matrices, vectors, matrices, vectors, products, vectors * size, count * many]
    return _QuadraticPlans(
        ContractionPlan(sizes, products, [matrices, vectors], [product]),
        ContractionPlan(sizes, count * many, [products, vectors], [whole]),
        ContractionPlan(sizes, count * many, lengths, terms),
    )


def _evaluated(run: Run, plan: _Plan, factors: tuple[Masked, ...], products: list[Words]) -> Shared:
    """What a party makes of deltas, masks and dealt products."""
    if run.dealing:
        return Shared(plan.shape, None)
    known = _known_words(factors, run.adds_constants and plan.has_constant)
    total = contract(plan.evaluation, prod(run.batch), [*known, *products])
    return Shared(plan.shape, total.reshape(*run.batch, *plan.shape))


class _FactorKind:
    """A factor in the form: its indices beside what is public about it."""

    def __init__(self, indices: str, kind: MaskedKind) -> None:
        self.indices = indices
        self.shape, self.signed, self.low_zeros, self.opened, self.symmetric = kind


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of masks to be dealt: which part of which factor, and the indices it keeps."""

    parts: _Parts
    indices: str
    shape: tuple[int, ...]
    symmetric: bool
    top_bits: int
    """How many bits of its words are not zero."""
    per_output: bool
    """Whether nothing but itself enters its term: no delta, no sign."""

    @property
    def length(self) -> int:
        return prod(self.shape)

    @property
    def packed(self) -> bool:
        """Whether several fit in a word."""
        return 2 * self.top_bits <= WORD_BITS


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to deal a form's products of masks, and how a party evaluates it.

    Products are dealt side by side in one block; those that are symmetric matrices follow, a triangle each; then those
    that are packed; then, of a folded form, the triangles that are added to the result.
    """

    shape: tuple[int, ...]
    block: ContractionPlan
    symmetric: tuple[tuple[tuple[int, ...], ContractionPlan], ...]
    packed: tuple[tuple[int, ContractionPlan], ...]
    folded: ContractionPlan
    evaluation: ContractionPlan
    has_constant: bool


def _deal_products(run: Run, plan: _Plan, factors: tuple[Masked, ...]) -> list[Words]:
    """Shares of all products of masks: the block, then each symmetric matrix, then each packed one."""

    def triangles(shape: tuple[int, ...], plan: ContractionPlan) -> Words:
        rows, columns = triangle_indices(shape[-1])
        return _products_of_masks(run, plan, factors).reshape(-1, *shape)[..., rows, columns]

    dealt = [run.deal((plan.block.out_length,), lambda: _products_of_masks(run, plan.block, factors), purpose=_PURPOSE)]
    for shape, matrices in plan.symmetric:
        size = shape[-1]
        packed = run.deal((*shape[:-2], size * (size + 1) // 2), partial(triangles, shape, matrices), purpose=_PURPOSE)
        dealt.append(packed.take(triangle_to_square(size), axis=-1))
    for bits, values in plan.packed:
        make = partial(_products_of_masks, run, values, factors)
        dealt.append(run.deal_top_bits(values.out_length, bits, make, purpose=_PURPOSE))
    return dealt


def _deal_folded(run: Run, plan: _Plan, factors: tuple[Masked, ...]) -> Shared:
    """Shares of the products that are added to the output as they are, folded."""
    *lead, size, _ = plan.shape
    shape = (*lead, size * (size + 1) // 2)

    def triangles() -> Words:
        square = _products_of_masks(run, plan.folded, factors).reshape(-1, *plan.shape)
        rows, columns = triangle_indices(size)
        return square[..., rows, columns] + square[..., columns, rows]

    words = run.deal(shape, triangles, purpose=_PURPOSE)
    return Shared(shape, None if run.dealing else words)


def _products_of_masks(run: Run, plan: ContractionPlan, factors: tuple[Masked, ...]) -> Words:
    masks = [np.ascontiguousarray(part.mask) for factor in factors for part in factor.parts]
    return plan.run(prod(run.batch), tuple(masks))


def _known_words(factors: tuple[Masked, ...], constant: bool) -> list[Words]:
    """What a party knows of each factor: its delta, its share of the whole mask, and the signs of parts that have any.

    The product of all deltas belongs to one party, that of the `constant`. In its hands the last factor's mask [l]
    becomes [l] - delta: the term - d d [l] becomes d d delta - d d [l], at no cost."""
    words = []
    for place, factor in enumerate(factors):
        words += [factor.delta] if factor.delta is not None else []
        whole = factor.parts[0].mask
        if constant and place == len(factors) - 1:
            assert factor.delta is not None
            whole = whole - factor.delta
        for part in factor.parts[1:]:
            whole = whole + (part.mask if part.sign is None else part.sign * part.mask)
        words += [whole, *(part.sign for part in factor.parts if part.sign is not None)]
    return words


@lru_cache(maxsize=256)
def _plan(spec: str, factor_kinds: tuple[MaskedKind, ...], folded: bool) -> _Plan:
    """Expand the form: every factor is taken by its delta or by its mask."""
    inputs, output = spec.split("->")
    kinds = tuple(_FactorKind(*pair) for pair in zip(inputs.split(","), factor_kinds, strict=True))
    sizes = _index_sizes(kinds)
    products = _products(kinds, output, sizes)
    added = [product for product in products if folded and product.per_output and product.indices == output]
    products = [product for product in products if product not in added]
    plain = [product for product in products if not product.symmetric and not product.packed]
    symmetric = [product for product in products if product.symmetric]
    packed = [product for product in products if product.packed and not product.symmetric]
    operands = _Operands(kinds)
    homes = _homes(plain, symmetric + packed, first_operand=len(operands.lengths))
    lengths = [*operands.lengths, sum(product.length for product in plain)]
    lengths += [product.length for product in symmetric + packed]
    evaluated = [operands.known_term(output, factor) for factor in range(len(kinds))]
    evaluated += [operands.dealt_term(output, product, *homes[product]) for product in products]
    shape = tuple(sizes[index] for index in output)
    return _Plan(
        shape,
        _dealing_plan(kinds, plain, sizes),
        tuple((product.shape, _dealing_plan(kinds, [product], sizes)) for product in symmetric),
        tuple((product.top_bits, _dealing_plan(kinds, [product], sizes)) for product in packed),
        _dealing_plan(kinds, added, sizes, together=True),
        ContractionPlan(sizes, prod(shape), lengths, [term for term in evaluated if term is not None]),
        all(kind.opened for kind in kinds),
    )


class _Operands:
    """Where the delta, the whole mask and the signs of each factor stand among the operands."""

    def __init__(self, kinds: tuple[_FactorKind, ...]) -> None:
        self._kinds = kinds
        self.lengths: list[int] = []
        self._deltas: dict[int, int] = {}
        self._masks: dict[int, int] = {}
        self._signs: dict[tuple[int, int], int] = {}
        for f, kind in enumerate(kinds):
            if kind.opened:
                self._deltas[f] = self._place(kind)
            self._masks[f] = self._place(kind)
            for part, signed in enumerate(kind.signed):
                if signed:
                    self._signs[f, part] = self._place(kind)

    def _place(self, kind: _FactorKind) -> int:
        self.lengths.append(prod(kind.shape))
        return len(self.lengths) - 1

    def known_term(self, output: str, masked: int) -> Term | None:
        """One factor by its mask, all others by their delta; None if one of them has none."""
        others = [f for f in range(len(self._kinds)) if f != masked]
        if not all(self._kinds[f].opened for f in others):
            return None
        factors = [Factor(self._deltas[f], self._kinds[f].indices) for f in others]
        factors.append(Factor(self._masks[masked], self._kinds[masked].indices))
        return Term(tuple(factors), output, negative=True)

    def dealt_term(self, output: str, product: _Product, operand: int, offset: int) -> Term:
        """A dealt product of masks with the deltas of the other factors, and the signs."""
        masked = {f for f, _ in product.parts}
        factors = [Factor(self._deltas[f], kind.indices) for f, kind in enumerate(self._kinds) if f not in masked]
        factors += [
            Factor(self._signs[f, part], self._kinds[f].indices)
            for f, part in product.parts
            if self._kinds[f].signed[part]
        ]
        factors.append(Factor(operand, product.indices, offset))
        return Term(tuple(factors), output, negative=len(product.parts) % 2 == 1)


def _products(kinds: tuple[_FactorKind, ...], output: str, sizes: dict[str, int]) -> list[_Product]:
    """All products of two and more masks that must be dealt: those that are not zero by their low bits."""
    products = []
    for size in range(2, len(kinds) + 1):
        for masked in combinations(range(len(kinds)), size):
            if not all(kind.opened for f, kind in enumerate(kinds) if f not in masked):
                continue
            for chosen in choices(*(range(len(kinds[f].signed)) for f in masked)):
                product = _product_of(kinds, output, sizes, tuple(zip(masked, chosen, strict=True)))
                if product.top_bits > 0:
                    products.append(product)
    return products


def _product_of(kinds: tuple[_FactorKind, ...], output: str, sizes: dict[str, int], parts: _Parts) -> _Product:
    """The product of these parts."""
    top_bits = WORD_BITS - sum(kinds[f].low_zeros[part] for f, part in parts)
    others = [f for f in range(len(kinds)) if f not in {f for f, _ in parts}]
    public = [*others, *(f for f, part in parts if kinds[f].signed[part])]
    needed = set(output).union(*(kinds[f].indices for f in public))
    indices = "".join(dict.fromkeys(i for f, _ in parts for i in kinds[f].indices if i in needed))
    shape = tuple(sizes[index] for index in indices)
    symmetric = _stays_symmetric(kinds, parts, indices)
    return _Product(parts, indices, shape, symmetric, top_bits, per_output=not public)


def _homes(plain: list[_Product], others: list[_Product], first_operand: int) -> dict[_Product, tuple[int, int]]:
    """Operand and offset of each product: side by side in the block, or an operand of its own."""
    homes, offset = {}, 0
    for product in plain:
        homes[product] = (first_operand, offset)
        offset += product.length
    for place, product in enumerate(others):
        homes[product] = (first_operand + 1 + place, 0)
    return homes


def _dealing_plan(
    kinds: tuple[_FactorKind, ...], products: list[_Product], sizes: dict[str, int], *, together: bool = False
) -> ContractionPlan:
    """Compute products side by side, or added `together`, with their signs; the operands are all parts of all masks."""
    all_parts = [(f, part) for f, kind in enumerate(kinds) for part in range(len(kind.signed))]
    terms, offset = [], 0
    for product in products:
        factors = [Factor(all_parts.index(pick), kinds[pick[0]].indices) for pick in product.parts]
        negative = together and len(product.parts) % 2 == 1
        terms.append(Term(tuple(factors), product.indices, 0 if together else offset, negative=negative))
        offset += product.length
    out_length = max((product.length for product in products), default=0) if together else offset
    return ContractionPlan(sizes, out_length, [prod(kinds[f].shape) for f, _ in all_parts], terms)


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
