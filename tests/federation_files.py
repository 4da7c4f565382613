"""A federation file to provision from, and ways to change it."""

from __future__ import annotations

from pathlib import Path

ARMS = 'arms = ["beach", "city", "mountains", "cruise"]'
TRAVEL = """\
name = "travel"
arms = ["beach", "city", "mountains", "cruise"]
epsilon = 0.1
durable = false

[[party]]
name = "hotel"
features = ["nights", "stars", "spend"]
host = "127.0.0.1"
port = 7400

[[party]]
name = "airline"
features = ["miles", "delay"]
norm = 0.5
host = "127.0.0.1"
port = 7401

[dealer]
host = "127.0.0.1"
port = 7402
"""


def write_federation_file(folder: Path, old: str = "", new: str = "") -> Path:
    """The federation file in a folder, with one thing changed."""
    assert old in TRAVEL
    path = folder / "federation.toml"
    path.write_text(TRAVEL.replace(old, new, 1) if old else TRAVEL)
    return path
