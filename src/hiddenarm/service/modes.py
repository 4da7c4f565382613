"""Files and folders that are for their owner only."""

from __future__ import annotations

from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISDIR

from hiddenarm.errors import ConfigError


def is_open(path: Path) -> bool:
    """Whether a file or folder is open to group or others; one that is not there is not."""
    try:
        return bool(path.stat().st_mode & (S_IRWXG | S_IRWXO))
    except OSError:
        return False


def refuse_open(path: Path) -> None:
    """Refuse a file or folder that is open to group or others."""
    if is_open(path):
        mode = path.stat().st_mode
        what, wanted = ("folder", "700") if S_ISDIR(mode) else ("file", "600")
        raise ConfigError(
            f"the {what} {path} is open to group or others (mode {S_IMODE(mode):o}): chmod {wanted} {path}"
        )
