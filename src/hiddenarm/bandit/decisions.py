"""Ids of decisions: an epoch's public name and a number, such as `3f9c02d17ab4-000017`.

The id travels through the outside world, from the actor by way of whoever pulls the arm to the rewarder. Its number is
the step at which the decision's randomness lies; its epoch keeps numbers of different epochs apart.
"""

from __future__ import annotations

import re
import secrets

from hiddenarm.errors import DecisionIdError

_EPOCH_BYTES = 6
_ID = re.compile(r"([0-9a-f]{12})-([0-9]{6}|[1-9][0-9]{6,17})")


def new_epoch() -> str:
    """A public name for a new epoch."""
    return secrets.token_hex(_EPOCH_BYTES)


def decision_id(epoch: str, number: int) -> str:
    return f"{epoch}-{number:06d}"


def decision_number(identifier: str, epoch: str) -> int:
    """The number in an id of this epoch."""
    match = _ID.fullmatch(identifier) if isinstance(identifier, str) else None
    if match is None:
        raise DecisionIdError("not a decision id: expected the `id` of a decision, such as 3f9c02d17ab4-000017")
    if match[1] != epoch:
        raise DecisionIdError(f"decision {identifier} belongs to epoch {match[1]}, this is epoch {epoch}")
    return int(match[2])
