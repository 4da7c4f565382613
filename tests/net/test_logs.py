"""Where a role inside an application logs: to standard error, unless the application says otherwise."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog

from hiddenarm.net.logs import get_logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_standard_output_belongs_to_the_application(capsys: pytest.CaptureFixture[str]) -> None:
    get_logger("hiddenarm.net").info("peer ready", peer="party 0")
    written = capsys.readouterr()
    assert written.out == ""
    assert "peer ready" in written.err


def test_an_application_that_configures_structlog_gets_the_events() -> None:
    events = structlog.testing.LogCapture()
    structlog.configure(processors=[events])
    get_logger("hiddenarm.net").info("peer ready", peer="party 0")
    assert events.entries == [{"event": "peer ready", "log_level": "info", "peer": "party 0"}]
