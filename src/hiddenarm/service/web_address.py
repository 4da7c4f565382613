"""Where a role serves HTTP, as its kit says, and what is refused: plain text anywhere but on this machine.

127.0.0.1:8411       a port of this machine; also localhost:8411 and [::1]:8411
unix:http.sock       a socket in the kit's folder, or anywhere else
203.0.113.7:8411     an address that others reach: only with a certificate and its key (`http_certificate`, `http_key`)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

_UNIX: Final = "unix:"
_MAX_UNIX_BYTES: Final = 100
"""The system takes a few bytes more."""
_NETWORK: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A socket file at `path`, or else a host and a port."""

    host: str = ""
    port: int = 0
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> WebAddress:
        """Raises ValueError for what is no address."""
        if text.startswith(_UNIX):
            path = text.removeprefix(_UNIX)
            if not path or "\0" in path:
                raise ValueError("http: unix: must be followed by the path of a socket")
            return cls(path=Path(path))
        match = _NETWORK.fullmatch(text)
        if match is None or not 1 <= int(match[3]) <= 65535:
            raise ValueError(f"http: {text!r} is no address; write 127.0.0.1:8411, or unix:http.sock")
        return cls(match[1] or match[2], int(match[3]))

    @property
    def local(self) -> bool:
        """Whether only programs on this machine can reach it. A name is not looked up: it may mean something else
        tomorrow."""
        if self.path is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def inside(self, folder: Path) -> WebAddress:
        """With the path of a socket taken from a folder."""
        if self.path is None:
            return self
        path = folder / self.path
        if len(str(path).encode()) > _MAX_UNIX_BYTES:
            raise ValueError(f"http: the path {path} is too long for a socket: at most {_MAX_UNIX_BYTES} bytes")
        return WebAddress(path=path)

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_web(http: str | None, certificate: str | None, key: str | None) -> None:
    """Raise ValueError for an address where HTTP may not be served as the kit says."""
    if (certificate is None) != (key is None):
        raise ValueError("http_certificate and http_key go together: give both, or none")
    if http is None:
        if certificate is not None:
            raise ValueError("http_certificate is given, but not http: where is it to be served?")
        return
    if not WebAddress.parse(http).local and certificate is None:
        raise ValueError(
            f"http: {http} can be reached from other machines, and is served by TLS only: give http_certificate and "
            "http_key, or an address of this machine, such as 127.0.0.1:8411 or unix:http.sock"
        )
