"""Fixed-point products: a Beaver product, then a public division by 2^L that takes the factor's scale away again.

Two rounds: this is the paper's multiplication. A factor that is a bit has no fractional bits and needs no division; for
that, `beaver.product` alone is enough.
"""

from __future__ import annotations

from dataclasses import dataclass

from hiddenarm.mpc.parallel import SharedLater
from hiddenarm.mpc.run import Run
from hiddenarm.mpc.values import Shared
from hiddenarm.paper.beaver import entry_by_entry, product, product_with_itself
from hiddenarm.paper.division import divide
from hiddenarm.paper.sharing import plus


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Numbers with `bits` fractional bits, shared among so many parties."""

    parties: int
    bits: int

    def product(self, run: Run, spec: str, x: Shared, y: Shared) -> SharedLater:
        """A bilinear form. Two rounds."""
        wide = yield from product(run, spec, x, y)
        return (yield from self.divide(run, wide, self.bits))

    def product_with_itself(self, run: Run, spec: str, x: Shared) -> SharedLater:
        """A bilinear form of a value with itself. Two rounds."""
        wide = yield from product_with_itself(run, spec, x)
        return (yield from self.divide(run, wide, self.bits))

    def square(self, run: Run, x: Shared) -> SharedLater:
        """Every entry times itself. Two rounds."""
        return self.product_with_itself(run, entry_by_entry(x.shape), x)

    def divide(self, run: Run, x: Shared, bits: int) -> SharedLater:
        """Divide by 2^bits. One round."""
        return divide(run, self.parties, x, bits)

    def plus(self, run: Run, x: Shared, number: float) -> Shared:
        """Add a public real number. No round."""
        return plus(run, x, round(number * 2**self.bits))
