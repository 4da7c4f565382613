"""The hello: canonical, strictly parsed, compared field by field."""

from __future__ import annotations

import pytest

from hiddenarm.errors import HelloError
from hiddenarm.net.hello import Value, compare_hello, hello_payload, parse_hello

OURS: dict[str, Value] = {
    "arms": 10,
    "epsilon": 0.1,
    "federation": "clinic",
    "private": True,
    "norms": [1.0, 2],
    "none": None,
}


def test_the_payload_is_canonical() -> None:
    assert hello_payload({"b": 1, "a": [1, "x"]}) == b'{"a":[1,"x"],"b":1}'


def test_what_is_said_is_understood() -> None:
    assert parse_hello(hello_payload(OURS)) == OURS
    compare_hello(OURS, parse_hello(hello_payload(OURS)), "party 0", "party 1")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"1",
        b"{",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',
        b'{"a":{}}',
        b'{"a":[[1]]}',
        b'{"a":1,"a":1}',
        b'{"a":[NaN]}',
        b"\xff",
        b"[" * 60_000,
        b'{"a":' + b"9" * 5000 + b"}",
    ],
)
def test_anything_but_a_flat_strict_object_is_refused(payload: bytes) -> None:
    with pytest.raises(HelloError):
        parse_hello(payload)


@pytest.mark.parametrize("field", list(OURS))
def test_every_field_counts(field: str) -> None:
    for theirs in (OURS | {field: "other"}, {k: v for k, v in OURS.items() if k != field}):
        with pytest.raises(HelloError, match=f"field '{field}' differs: .* at party 0, .* at party 1"):
            compare_hello(OURS, theirs, "party 0", "party 1")


def test_types_count() -> None:
    with pytest.raises(HelloError, match="true at party 0, 1 at party 1"):
        compare_hello({"a": True}, {"a": 1}, "party 0", "party 1")


def test_a_nan_of_our_own_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        hello_payload({"a": float("nan")})
