"""Tokens of a kit: made or read, for the owner only, and compared as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from hiddenarm.errors import ConfigError
from hiddenarm.service.tokens import HTTP_TOKEN, MONITOR_TOKEN, monitor_token, own_token, shows

TOKEN = "0123456789abcdef" * 4


def put(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def test_the_token_of_http_is_made_once(tmp_path: Path) -> None:
    made = own_token(tmp_path)
    assert len(made) == 64
    assert own_token(tmp_path) == made
    assert (tmp_path / HTTP_TOKEN).stat().st_mode & 0o777 == 0o600
    (tmp_path / HTTP_TOKEN).unlink()
    assert own_token(tmp_path) != made


def test_the_token_of_metrics_is_there_if_it_was_put_there(tmp_path: Path) -> None:
    assert monitor_token(tmp_path) is None
    put(tmp_path / MONITOR_TOKEN, f"{TOKEN}\n")
    assert monitor_token(tmp_path) == TOKEN


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("short", 0o600, "at least 32 letters"),
        ("two words " * 8, 0o600, "at least 32 letters"),
        ("ä" * 40, 0o600, "must hold a token"),
        (TOKEN, 0o644, "open to group or others"),
    ],
)
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, text: str, mode: int, why: str) -> None:
    for name, read in ((HTTP_TOKEN, own_token), (MONITOR_TOKEN, monitor_token)):
        put(tmp_path / name, text, mode)
        with pytest.raises(ConfigError, match=why) as refused:
            read(tmp_path)
        assert text not in str(refused.value)


def test_only_the_whole_token_is_shown() -> None:
    assert shows(f"Bearer {TOKEN}", TOKEN)
    assert shows(f"bearer  {TOKEN} ", TOKEN)
    for wrong in ("", TOKEN, "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}0", f"Basic {TOKEN}", "Bearer \udcff"):
        assert not shows(wrong, TOKEN)
