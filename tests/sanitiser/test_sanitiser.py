"""`make sanitise` finds mistakes in C: those of `broken.c` end the process, and the package's own C is built alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hiddenarm.net import _wire
from hiddenarm.ring import _kernels

FLAGS = os.environ.get("HIDDENARM_SANITISERS", "")
MISTAKES = {
    "read_beyond": "AddressSanitizer: heap-buffer-overflow",
    "write_before": "AddressSanitizer: heap-buffer-overflow",
    "read_after_free": "AddressSanitizer: heap-use-after-free",
    "overflow": "runtime error: signed integer overflow",
    "shift": "runtime error: shift exponent 64 is too large",
    "misaligned": "runtime error: load of misaligned address",
}
pytestmark = [pytest.mark.processes, pytest.mark.skipif(not FLAGS, reason="part of `make sanitise`")]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`broken.c`, compiled with the flags of the package's C."""
    library = tmp_path_factory.mktemp("broken") / "broken.so"
    source = Path(__file__).with_name("broken.c")
    command: list[str | Path] = [
        os.environ.get("CC", "gcc"),
        *FLAGS.split(),
        "-O2",
        "-shared",
        "-fPIC",
        source,
        "-o",
        library,
    ]
    subprocess.run(command, check=True)
    return library


def call(library: Path, function: str) -> subprocess.CompletedProcess[str]:
    program = f"import ctypes; print(ctypes.CDLL({str(library)!r}).{function}(1))"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("function", MISTAKES)
def test_a_mistake_ends_the_process_with_a_report(broken: Path, function: str) -> None:
    ended = call(broken, function)
    assert ended.returncode != 0
    assert ended.stdout == ""
    assert MISTAKES[function] in ended.stderr


def test_what_is_no_mistake_passes(broken: Path) -> None:
    ended = call(broken, "sound")
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr


@pytest.mark.parametrize("module", [_kernels, _wire], ids=lambda module: module.__name__)
def test_the_package_is_the_sanitised_one(module: object) -> None:
    built = Path(str(getattr(module, "__file__", None))).read_bytes()
    assert b"__asan_init" in built
    assert b"__ubsan_handle" in built
