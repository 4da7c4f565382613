"""What a role writes to standard error: one line per event, for people (text) or for machines (json).

A line has a time, a level, the role and an event, which is a fixed text; what varies are its named values. None of them
is ever a share, a key, a feature or a reward. docs/operations.md lists every event.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog
from structlog.typing import Processor


def configure_logs(level: str, form: str, role: str, rename: Callable[[str], str] = str) -> None:
    """Log to standard error from now on, beginning at `level`. `rename` puts names into texts that know members by role
    and number (`Organisations.in_text`)."""
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
