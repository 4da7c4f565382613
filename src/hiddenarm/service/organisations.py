"""What the parties' organisations are called. Machines and messages know parties by number; whoever reads a log, a page
or an error is told "hotel (party 0)". Where the kit names no organisations, it stays "party 0"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from hiddenarm.errors import HiddenArmError, InputError
from hiddenarm.net.identity import Identity, Role

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
        """Have an error's text name organisations. One about what the caller gave stays as it is: it may quote it."""
        if not isinstance(error, InputError):
            error.args = (self.in_text(str(error)),)
