"""The office that issues certificates and builds stations, one for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stations import Office


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    yield office
    for station in office.stations:
        station.end()
