"""How the process keeps its memory.

Dealing and expanding seeds ask for a few megabytes at a time and let go of them at once. The C library would hand such
pieces back to the system every time, and the system would clear each of their pages again: that takes longer than the
arithmetic (`benchmarks/memory.py`).
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 256 * 1024 * 1024


def keep_freed_memory() -> None:
    """Have the C library keep up to 256 MB of freed memory for the next request. Does nothing where it cannot."""
    with suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(option, _KEPT_BYTES)
