"""Tokens in a kit: what a caller must show, in a file that only its owner may read.

http.token      for the HTTP server of the role; made when that is first started
monitor.token   for metrics, to callers on other machines; there if the operator puts it there
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import Final

from hiddenarm.errors import ConfigError
from hiddenarm.net.certificates import write_private
from hiddenarm.ring.streams import fresh_key
from hiddenarm.service.modes import refuse_open

HTTP_TOKEN: Final = "http.token"
MONITOR_TOKEN: Final = "monitor.token"
MIN_TOKEN_LETTERS: Final = 32
_BEARER: Final = "bearer "


def own_token(folder: Path) -> str:
    """The token of a kit's HTTP server, which is made if there is none."""
    path = folder / HTTP_TOKEN
    if not path.exists():
        write_private(path, f"{fresh_key().hex()}\n".encode())
    return read_token(path)


def monitor_token(folder: Path) -> str | None:
    """The token for the metrics of a kit's role, if there is one."""
    path = folder / MONITOR_TOKEN
    return read_token(path) if path.exists() else None


def read_token(path: Path) -> str:
    """The token in a file, which must not be open to others."""
    refuse_open(path)
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"{path} cannot be read: it must hold a token") from None
    if len(token) < MIN_TOKEN_LETTERS or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{path} must hold a token of at least {MIN_TOKEN_LETTERS} letters, such as openssl rand -hex 32 prints"
        )
    return token


def shows(authorization: str, token: str) -> bool:
    """Whether a header `Authorization` shows the token; in a time that does not depend on what was shown."""
    shown = authorization[len(_BEARER) :] if authorization.lower().startswith(_BEARER) else ""
    return hmac.compare_digest(shown.strip().encode("utf-8", "surrogateescape"), token.encode())
