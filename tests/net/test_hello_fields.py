"""Every field of the real hello, changed once: both sides refuse at the hello, and name the field."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from stations import PARTY0, PARTY1, Office, captured_warnings

from deployment import PATIENCE
from federation_files import write_federation_file
from hiddenarm.errors import HelloError
from hiddenarm.net.transport import Limits
from hiddenarm.service.kit import Kit
from hiddenarm.service.provision import provision


def real_hello() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kits = provision(write_federation_file(folder), folder / "kits", keys_on_site=False, valid_days=1)
        return Kit.read(kits[PARTY0]).hello


HELLO = real_hello()
PATIENT = Limits(handshake_seconds=10 * PATIENCE, linger_seconds=0.05)
"""No deadline refuses anybody before the test gives up."""


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
    server, client = office.station(PARTY0, HELLO, limits=PATIENT), office.station(PARTY1, theirs, limits=PATIENT)
    server.start()
    with captured_warnings() as logs:
        client.transport.dial(PARTY0, "127.0.0.1", server.port)
        with pytest.raises(HelloError, match=f"field '{field}' differs"):
            client.transport.run()
        server.until(lambda: bool(logs))
    assert [line["event"] for line in logs] == ["refused"]
    assert f"field '{field}' differs" in logs[0]["reason"]
    assert server.recorder.ready == client.recorder.ready == []
