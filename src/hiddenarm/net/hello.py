"""The hello: each end tells the other its public configuration, and both refuse at the first difference.

The payload is canonical JSON: one object, keys sorted, no spaces, values that are scalars or lists of scalars. It holds
public configuration only, so an error may show both values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import NoReturn

from hiddenarm.errors import HelloError

Scalar = str | int | float | bool | None
Value = Scalar | Sequence[Scalar]
_NAMED = 4
"""Fields that an error names."""


def hello_payload(hello: Mapping[str, Value]) -> bytes:
    """The bytes that say `hello`."""
    return _canonical(dict(hello)).encode("utf-8")


def parse_hello(payload: bytes) -> dict[str, Value]:
    """What a peer said; anything but one flat object of scalars and lists of scalars is refused."""
    try:
        parsed = json.loads(payload.decode("utf-8"), object_pairs_hook=_object, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise HelloError("the hello is not strict JSON") from error
    if not isinstance(parsed, dict) or not all(_is_value(value) for value in parsed.values()):
        raise HelloError("the hello is not an object of scalars and lists")
    return parsed


def compare_hello(ours: Mapping[str, Value], theirs: Mapping[str, Value], me: str, peer: str) -> None:
    """Raise HelloError naming the first fields on which `me` and `peer` differ (see `differences`)."""
    if differing := differences(ours, theirs, me, peer):
        more = f"; and {len(differing) - _NAMED} more" if len(differing) > _NAMED else ""
        raise HelloError("; ".join(differing[:_NAMED]) + more)


def differences(ours: Mapping[str, Value], theirs: Mapping[str, Value], me: str, peer: str) -> list[str]:
    """Every field on which `me` and `peer` differ, with both values: in alphabetical order, but first those that both
    have. Where only one of them has a field, that follows from another difference, or from another version."""
    return [
        f"field {_cut(ascii(field))} differs: {_cut(mine)} at {me}, {_cut(other)} at {peer}"
        for field in (*sorted(ours.keys() & theirs.keys()), *sorted(ours.keys() ^ theirs.keys()))
        if (mine := _shown(ours, field)) != (other := _shown(theirs, field))
    ]


def _shown(hello: Mapping[str, Value], field: str) -> str:
    return _canonical(hello[field]) if field in hello else "missing"


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    parsed = dict(pairs)
    if len(parsed) != len(pairs):
        raise ValueError("a key is repeated")
    return parsed


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _is_value(value: object) -> bool:
    return _is_scalar(value) or (isinstance(value, list) and all(_is_scalar(item) for item in value))


def _is_scalar(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str | int | bool)
