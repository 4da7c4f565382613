"""Files that are replaced in one stroke, and are for their owner only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp
from typing import BinaryIO

_NAME_LETTERS = 40
"""Of the file's name, so many letters come back in that of a partial file, which must not become too long."""


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file for its owner only that takes the place of `path` at the end, or is removed if anything fails."""
    descriptor, partial = new_partial(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask made of it
            yield file
            file.flush()
            os.fsync(descriptor)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def new_partial(path: Path) -> tuple[int, Path]:
    """A file that was not there before (O_EXCL), under a name of its own in the same folder; its descriptor is open."""
    prefix = f"{path.name[:_NAME_LETTERS]}."
    descriptor, name = mkstemp(dir=path.parent, prefix=prefix, suffix=".partial")
    return descriptor, Path(name)


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a loss of power, on file systems that can; the file is in place in any case."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
