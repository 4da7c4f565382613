"""Every field of the real hello, changed once: both sides refuse at the hello, and name the field."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from stations import PARTY0, PARTY1, Office, captured_warnings

from federation_files import write_federation_file
from hiddenarm.errors import HelloError
from hiddenarm.service.kit import Kit
from hiddenarm.service.provision import provision


def real_hello() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kits = provision(write_federation_file(folder), folder / "kits", keys_on_site=False, valid_days=1)
        return Kit.read(kits[PARTY0]).hello


HELLO = real_hello()


def other(value: Any) -> Any:
    """A value of the same type that differs a little."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case list() | tuple():
            return [*value[:-1], other(value[-1])]
    raise AssertionError(f"what would differ from {value!r}?")


def test_the_hello_has_versions_numbers_and_names() -> None:
    assert {"protocol_version", "federation", "arms", "features", "norms", "epsilon", "names", "suite"} <= HELLO.keys()
    assert HELLO["missing_keys"] == ("refuse", "refuse")


@pytest.mark.parametrize("field", sorted(HELLO))
@pytest.mark.parametrize("how", ["changed", "missing", "added"])
def test_a_field_that_differs_is_named_by_both(office: Office, field: str, how: str) -> None:
    theirs = dict(HELLO)
    match how:
        case "changed":
            theirs[field] = other(theirs[field])
        case "missing":
            del theirs[field]
        case "added":
            field = f"{field}_too"
            theirs[field] = 1
    server, client = office.station(PARTY0, hello=HELLO), office.station(PARTY1, hello=theirs)
    server.start()
    began = time.monotonic()
    with captured_warnings() as logs:
        client.transport.dial(PARTY0, "127.0.0.1", server.port)
        with pytest.raises(HelloError, match=f"field '{field}' differs"):
            client.transport.run()
        server.until(lambda: bool(logs))
    assert time.monotonic() - began < 5
    assert [line["event"] for line in logs] == ["refused"]
    assert f"field '{field}' differs" in logs[0]["reason"]
    assert server.recorder.ready == client.recorder.ready == []
