"""Loggers that leave standard output alone: it belongs to the application that a role runs in, and to its answers."""

from __future__ import annotations

import sys
from typing import Any

import structlog


def get_logger(name: str) -> Any:
    """A logger of structlog. It writes where the application has told structlog to, or else to standard error."""
    if structlog.is_configured():
        return structlog.get_logger(name)
    return structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
