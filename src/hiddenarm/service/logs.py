"""What a role writes to standard error: one line per event, for people (text) or for machines (json).

A line has a time, a level, the role and an event, which is a fixed text; what varies are its named values. None of them
is ever a share, a key, a feature or a reward. docs/operations.md lists every event.

`Organisations` are the names of the parties. Machines and messages know parties by number; whoever reads a log, a page
or an error is told "hotel (party 0)". Where the kit names no organisations, it stays "party 0".
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any, Final

import structlog
from structlog.typing import Processor

from hiddenarm.errors import HiddenArmError, InputError
from hiddenarm.net.identity import Identity, Role

_DIGESTS: Final = {
    "names": "a digest of the names of arms, parties and features, in their order",
    "arm_features": "a digest of the table of arms: its numbers, names and columns",
}
"""Fields of the configuration of which roles compare digests only."""
_PARTY: Final = re.compile(r"(?<![\w(-])party (0|[1-9][0-9]{0,5})(?![\w)-])")
"""A party by its number, unless it stands in brackets behind its name."""


class Organisations:
    """The names, by the parties' numbers; there may be none."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._names = tuple(names)

    def name(self, member: Identity) -> str | None:
        """The name of a party's organisation, if it has one."""
        if member.role is not Role.PARTY or member.number >= len(self._names):
            return None
        return self._names[member.number]

    def of(self, member: Identity) -> str:
        """A member, with the name of its organisation."""
        name = self.name(member)
        return str(member) if name is None else f"{name} ({member})"

    def in_text(self, text: str) -> str:
        """A text that knows parties by number, with the names of their organisations."""
        if not self._names:
            return text
        return _PARTY.sub(lambda found: self.of(Identity(Role.PARTY, int(found[1]))), text)

    def put_into(self, error: HiddenArmError) -> None:
        """Have an error's text name organisations, and say what digests are of. One about what the caller gave stays as
        it is: it may quote it."""
        if not isinstance(error, InputError):
            error.args = (with_digests_explained(self.in_text(str(error))),)


def with_digests_explained(text: str) -> str:
    """A text about differing fields; of those that are digests it says what they are of, and what to do."""
    named = [name for name in _DIGESTS if f"field {name!r} differs" in text]
    explained = "".join(f"; {name} is {_DIGESTS[name]}" for name in named if _DIGESTS[name] not in text)
    if not explained:
        return text
    return f"{text}{explained}. Other files made these kits, or an earlier version did: see docs/upgrading.md"


def configure_logs(level: str, form: str, role: str, rename: Callable[[str], str] = str) -> None:
    """Log to standard error from now on, beginning at `level`; `role` is that of this thread. `rename` puts names into
    texts that know members by role and number (`Organisations.in_text`)."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _renaming(rename),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _renderer(form),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.clear_contextvars()
    name_thread(role)


def name_thread(role: str) -> None:
    """Have what this thread logs name a role."""
    structlog.contextvars.bind_contextvars(role=role)


def _renaming(rename: Callable[[str], str]) -> Processor:
    def renamed(value: Any) -> Any:
        if isinstance(value, str):
            return rename(value)
        return [renamed(one) for one in value] if isinstance(value, list) else value

    def process(_: Any, __: str, values: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {name: value if name == "event" else renamed(value) for name, value in values.items()}

    return process


def _renderer(form: str) -> Processor:
    if form == "json":
        return structlog.processors.JSONRenderer()
    return structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
