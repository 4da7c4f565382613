"""Lets every test folder import `support`, and makes hypothesis repeat the same cases on every run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
