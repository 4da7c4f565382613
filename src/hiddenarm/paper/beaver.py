"""Products by Beaver triples (Beaver 1991), and what generalises them: squares, matrix and other bilinear triples.

    dealt: [a], [b] uniform, [c] with c = a b
    1. open alpha = x - a and beta = y - b                    (1 round, a word per entry of each factor)
    2. [x y] = [c] + alpha [b] + beta [a] + alpha beta        (the last term is added by one party)

A bilinear form such as a matrix product takes one triple of matrices. A square, or any form of a value with itself, has
a = b: one opening. The result has the fractional bits of both factors; see `fixed_point` for the division that follows.

`mpc.masking.mask` is step 1 with a = -lambda, `mpc.forms.form` is step 2. Here every product draws new masks, also for
a factor that was masked before: that is the paper's way, and its price.

Security: a and b are uniform and new, so alpha and beta are uniform whatever x and y are.
"""

from __future__ import annotations

from hiddenarm.mpc.forms import form
from hiddenarm.mpc.masking import mask
from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Shared


def product(run: Run, spec: str, x: Shared, y: Shared) -> SharedLater:
    """The bilinear form `spec`, such as "ij,j->i". One round."""
    masked_x, masked_y = yield mask(run, x), mask(run, y)
    return form(run, spec, masked_x, masked_y)


def product_with_itself(run: Run, spec: str, x: Shared) -> SharedLater:
    """The bilinear form `spec` of a value with itself, such as "i,j->ij". One round."""
    (masked,) = yield (mask(run, x),)
    return form(run, spec, masked, masked)


def entry_by_entry(shape: tuple[int, ...]) -> str:
    """The form that multiplies two arrays of this shape word by word."""
    axes = "abcdefgh"[: len(shape)]
    return f"{axes},{axes}->{axes}"
