"""The user's cache folder: what can be fetched or computed again, kept because that takes time.

It is `hiddenarm` inside `$XDG_CACHE_HOME`, or inside `~/.cache` where that is not set. A file appears there whole
or not at all, so that several processes may fill the cache at once.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hiddenarm.errors import DataError


def cache_folder() -> Path:
    """Where the cache is, or will be once something is kept in it."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if os.path.isabs(named) else _home() / ".cache") / "hiddenarm"


def write_whole(path: Path, content: bytes) -> None:
    """Write `path` so that a reader finds what was there before or all of `content`, even after a crash."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        _fill_and_rename(descriptor, Path(name), path, content)
    except OSError as error:
        hint = "Free some space, or set XDG_CACHE_HOME to a folder that can be written to."
        raise DataError(f"cannot write {path}: {error.strerror}. {hint}") from error


def _fill_and_rename(descriptor: int, draft: Path, path: Path, content: bytes) -> None:
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        raise DataError("there is no home folder to keep a cache in: set XDG_CACHE_HOME to a folder") from None
