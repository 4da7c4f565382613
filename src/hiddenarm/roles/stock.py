"""How much dealt material travels at once and lies in stock: bounded in bytes, and at least one step."""

from __future__ import annotations

from hiddenarm.mpc.material import Layout

WORD_BYTES = 8
BATCH_BYTES = 4 * 1024 * 1024
BATCHES_IN_STOCK = 4


def step_bytes(layout: Layout) -> int:
    """Bytes of corrections for one step."""
    return layout.correction_words * WORD_BYTES


def batch_steps(layout: Layout, stock: int) -> int:
    """Steps that the last party orders at a time, of a stock of at most `stock` steps."""
    fitting = BATCH_BYTES // max(1, step_bytes(layout))
    return max(1, min(fitting, stock // BATCHES_IN_STOCK))


def stock_steps(layout: Layout, stock: int) -> int:
    """Steps that the last party keeps in stock."""
    return BATCHES_IN_STOCK * batch_steps(layout, stock)


def largest_batch_bytes(layout: Layout) -> int:
    """The most that one order can bring."""
    return max(BATCH_BYTES, step_bytes(layout))


def expanded_steps(words: int, most: int) -> int:
    """Steps of `words` words each that a party expands from its seed at a time, at most `most`."""
    return max(1, min(most, BATCH_BYTES // max(1, words * WORD_BYTES)))
