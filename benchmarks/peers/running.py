"""The peers, an environment for each, and their parties as processes on this machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from benchmarks.peers.task import Outcome, Task

from hiddenarm.errors import ConfigError

HERE = Path(__file__).parent
_MARK = "installed.txt"
"""In an environment: the requirements that are installed there."""
_INSTALL_SECONDS = 1200.0
_POLL_SECONDS = 0.05
_TOLD_LETTERS = 300


@dataclass(frozen=True)
class Peer:
    """A way to run the step in another framework."""

    name: str
    framework: str
    """Names the requirements, and the script that runs a party."""
    parties: int
    hides: str
    """Against whom its shares hide anything."""
    lacks: str
    """What it does not do, or leaves to others, that the step of hiddenarm does."""
    options: tuple[str, ...] = ()

    @property
    def script(self) -> Path:
        return HERE / f"{self.framework}_party.py"

    @property
    def requirements(self) -> Path:
        return HERE / f"{self.framework}.txt"

    @property
    def version(self) -> str:
        """Of the framework, as it is pinned."""
        pins = dict(line.split("==") for line in self.requirements.read_text().split())
        return pins[self.framework]


_NO_DEALER = "no dealer of coins: a party inputs them, and knows them; TLS is left off here"
_MPYC_LACKS = f"the actor must be one of its parties; {_NO_DEALER}"
_SPU_LACKS = f"no roles: the benchmark passes on shares of inputs and of the arm; {_NO_DEALER}"
PEERS = (
    Peer(
        "MPyC, 2 parties",
        "mpyc",
        2,
        "nobody: an honest majority is needed, so with two parties shares are the values themselves",
        _MPYC_LACKS,
    ),
    Peer("MPyC, 3 parties", "mpyc", 3, "one of three parties, curious", _MPYC_LACKS),
    Peer(
        "SPU Semi2k, 2 parties",
        "spu",
        2,
        "party 1 only: party 0 deals and can read all; the server of a third dealer is not in the package",
        _SPU_LACKS,
        ("--protocol", "SEMI2K"),
    ),
    Peer(
        "SPU Cheetah, 2 parties",
        "spu",
        2,
        "either party, curious, without a dealer",
        _SPU_LACKS,
        ("--protocol", "CHEETAH"),
    ),
    Peer("SPU ABY3, 3 parties", "spu", 3, "one of three parties, curious", _SPU_LACKS, ("--protocol", "ABY3")),
)


def environment(peer: Peer, folder: Path) -> Path:
    """The Python of an environment with the peer's packages, made unless it is there; ConfigError if it cannot be."""
    place, wanted = folder / peer.framework, peer.requirements.read_text()
    python = place / "bin" / "python"
    mark = place / _MARK
    if mark.exists() and mark.read_text() == wanted:
        return python
    shutil.rmtree(place, ignore_errors=True)
    _install([sys.executable, "-m", "venv", str(place)], peer)
    options = ("--quiet", "--no-input", "--disable-pip-version-check", "--requirement", str(peer.requirements))
    _install([str(python), "-m", "pip", "install", *options], peer)
    mark.write_text(wanted)
    return python


def _install(command: Sequence[str], peer: Peer) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{peer.framework} could not be installed in {_INSTALL_SECONDS:.0f} s") from None
    if done.returncode:
        raise ConfigError(f"{peer.framework} {peer.version} cannot be installed here: {_last_line(done.stderr)}")


def run_peer(peer: Peer, python: Path, task: Task, seconds: float) -> Outcome:
    """Run all parties to the end, each as a process; what party 0 found. ConfigError if one fails or takes too long."""
    with tempfile.TemporaryDirectory(prefix="hiddenarm-peers-") as name:
        folder = Path(name)
        task.write(folder / "task.npz")
        ports = ",".join(str(port) for port in free_ports(peer.parties))
        command = [str(python), str(peer.script), "task.npz", "result.npz", "--ports", ports, *peer.options]
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        processes = []
        try:
            for rank in range(peer.parties):
                with (folder / f"party {rank}").open("wb") as log:
                    processes.append(
                        subprocess.Popen(
                            [*command, "--rank", str(rank)],
                            cwd=folder,
                            env=variables,
                            stdin=subprocess.DEVNULL,
                            stdout=log,
                            stderr=log,
                            start_new_session=True,
                        )
                    )
            _wait(peer, processes, folder, monotonic() + seconds)
        finally:
            for process in processes:
                _end(process)
        return Outcome.read(folder / "result.npz")


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _wait(peer: Peer, processes: Sequence[subprocess.Popen[bytes]], folder: Path, deadline: float) -> None:
    """Until all have ended well. The first that has not ended well is told: the others wait for it."""
    while any(process.poll() is None for process in processes):
        for rank, process in enumerate(processes):
            if process.poll():
                log = (folder / f"party {rank}").read_text(errors="replace")
                raise ConfigError(f"{peer.name}: party {rank} failed: {_last_line(log)}")
        if monotonic() > deadline:
            raise ConfigError(f"{peer.name} took too long")
        sleep(_POLL_SECONDS)
    if any(process.returncode for process in processes):
        raise ConfigError(f"{peer.name}: a party failed at its end")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a party and whatever it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last_line(text: str) -> str:
    """The last line that says something, cut."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_TOLD_LETTERS] if lines else "it said nothing"
