"""Who may read a role's files: its owner, and nobody else. Anything else is refused by name, with the remedy."""

from __future__ import annotations

from pathlib import Path
from stat import S_IMODE, S_IRWXG, S_IRWXO, S_ISDIR
from typing import Final

from hiddenarm.errors import ConfigError

SECRET_FILES: Final = ("key.pem", "features.csv", "features.npz", "epoch.key", "next/key.pem")
"""Besides these, whatever in the folder is secret is inside a folder that only its owner may enter."""


def check_private(folder: Path) -> None:
    """Refuse a kit whose folder, or a secret file in it, is open to others."""
    for path in (folder, *(folder / name for name in SECRET_FILES)):
        refuse_open(path)


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
