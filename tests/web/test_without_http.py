"""The package without the extra `http`: everything can be imported, and what needs the extra says so."""

from __future__ import annotations

import subprocess
import sys

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("httpx", "fastapi", "uvicorn", "starlette"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
"""


def run(text: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", BLOCK + text], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_everything_that_is_exported_can_be_imported() -> None:
    found = run(
        "from hiddenarm import *\n"
        "import hiddenarm\n"
        "assert all(name in globals() for name in hiddenarm.__all__)\n"
        "print(Actor.__name__, AsyncRewarder.__name__)\n"
    )
    assert found == "Actor AsyncRewarder\n"


def test_a_client_that_is_made_says_what_is_missing() -> None:
    found = run(
        "import hiddenarm\n"
        "for client in (hiddenarm.Actor, hiddenarm.AsyncRewarder):\n"
        "    try:\n"
        "        client('http://127.0.0.1:9', token='x' * 64)\n"
        "    except hiddenarm.HiddenArmError as error:\n"
        "        print(error)\n"
    )
    assert found == "a client of HTTP needs httpx: pip install 'hiddenarm[http]'\n" * 2


def test_wrong_settings_are_told_first() -> None:
    found = run(
        "import hiddenarm\n"
        "try:\n"
        "    hiddenarm.Actor('http://192.0.2.7:1', token='x')\n"
        "except hiddenarm.HiddenArmError as error:\n"
        "    print(error)\n"
    )
    assert "would show the token" in found
