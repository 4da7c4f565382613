"""Ids of events: what an application calls a decision before it has one.

An id is part of a path, so it has only letters that mean themselves there. It begins with a letter or a digit: `.` and
`..` are no ids, as whoever normalises a path would take them away.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from hiddenarm.errors import InputError

EVENT_ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,99}$"
_EVENT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._~-]{0,99}", re.ASCII)


def check_event_id(identifier: str) -> str:
    """Refuse what cannot be the id of an event."""
    if not isinstance(identifier, str) or not _EVENT_ID.fullmatch(identifier):
        raise InputError(
            "the id of an event must be 1 to 100 of the letters A-Z, a-z, 0-9, '.', '_', '~' and '-', and begin with a "
            "letter or a digit"
        )
    return identifier


def event_path(identifier: str, action: str) -> str:
    """The path of an action on an event."""
    return f"/events/{quote(check_event_id(identifier), safe='')}/{action}"
