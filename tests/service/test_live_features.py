"""Features change while a party serves, and look-ups are bounded in time and tell no data."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Timer

import numpy as np
import pytest
import structlog
from structlog.testing import capture_logs

from deployment import PATIENCE, provision
from hiddenarm.errors import FeatureError, UnavailableError
from hiddenarm.roles.party_epoch import Found
from hiddenarm.service.kit import Kit
from hiddenarm.service.live_features import LiveFeatures

HEADER = "key,nights,stars,spend\n"


class Loop:
    """Stands for the loop of a party: calls back in this thread."""

    def __init__(self) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def after(self, seconds: float, then: Callable[[], None]) -> None:
        self.timers.append((seconds, then))

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < deadline
            if self.calls.empty():
                time.sleep(0.01)
            else:
                self.calls.get()()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def hotel(tmp_path: Path) -> Path:
    kit = provision(tmp_path) / "hotel"
    put(kit / "features.csv", f"{HEADER}a,0.5,0,0\n")
    return kit


def put(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    partial.chmod(0o600)
    partial.replace(path)


@pytest.fixture
def live(hotel: Path, loop: Loop) -> Iterator[Callable[[], LiveFeatures]]:
    made: list[LiveFeatures] = []

    def make() -> LiveFeatures:
        made.append(LiveFeatures(Kit.read(hotel), loop.calls.put, loop.after, poll_seconds=0.05))
        made[-1].start()
        return made[-1]

    yield make
    for features in made:
        features.close()


def first(features: LiveFeatures, key: str = "a") -> float:
    return float(features.words(key).astype(np.int64)[0]) / 2**20


@pytest.fixture
def logs() -> Iterator[list[structlog.typing.EventDict]]:
    with capture_logs() as captured:
        yield captured


pytestmark = pytest.mark.processes  # free ports are looked for


def test_a_replaced_file_is_taken_between_two_calls_of_the_loop(
    hotel: Path, loop: Loop, live: Callable[[], LiveFeatures], logs: list[structlog.typing.EventDict]
) -> None:
    features = live()
    assert first(features) == 0.5
    put(hotel / "features.csv", f"{HEADER}a,0.25,0,0\nb,0,0,0\n")
    deadline = time.monotonic() + PATIENCE
    while loop.calls.empty():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert first(features) == 0.5  # until the loop takes it
    loop.until(lambda: first(features) == 0.25)
    assert first(features, "b") == 0
    assert [(line["event"], line["keys"]) for line in logs] == [("features reloaded", 2)]


@pytest.mark.parametrize("text", ["key,nights\n", f"{HEADER}a,s3cr3t,0,0\n", ""])
def test_a_file_that_cannot_be_used_is_refused_and_the_old_one_stays(
    hotel: Path, loop: Loop, live: Callable[[], LiveFeatures], logs: list[structlog.typing.EventDict], text: str
) -> None:
    features = live()
    put(hotel / "features.csv", text)
    loop.until(lambda: bool(logs))
    assert first(features) == 0.5
    assert logs[0]["event"] == "features not reloaded"
    assert "s3cr3t" not in str(logs)
    put(hotel / "features.csv", f"{HEADER}a,0.25,0,0\n")
    loop.until(lambda: first(features) == 0.25)


def test_what_is_asked_for_is_read_at_once_and_other_kinds_of_sources_are_not(
    hotel: Path, loop: Loop, logs: list[structlog.typing.EventDict]
) -> None:
    features = LiveFeatures(Kit.read(hotel), loop.calls.put, loop.after, poll_seconds=1000)
    features.start()
    put(hotel / "features.csv", f"{HEADER}a,0.125,0,0\n")
    features.reload()
    loop.until(lambda: first(features) == 0.125)
    put(hotel / "f.py", "def features(key): return [1, 2, 3]\n")
    put(hotel / "features.toml", 'source = "python"\nfile = "f.py"\n')
    features.reload()
    loop.until(lambda: len(logs) == 2)
    assert "restart the party" in logs[1]["reason"]
    assert first(features) == 0.125
    features.close()


def test_a_function_that_was_corrected_is_taken(hotel: Path, loop: Loop, live: Callable[[], LiveFeatures]) -> None:
    put(hotel / "f.py", "def features(key): return [0.5, 0, 0]\n")
    put(hotel / "features.toml", 'source = "python"\nfile = "f.py"\n')
    features = live()
    assert value_of(loop, features) == 0.5
    put(hotel / "f.py", "def features(key): return [0.1, 0, 0]\n")
    deadline = time.monotonic() + PATIENCE
    while value_of(loop, features) == 0.5:
        assert time.monotonic() < deadline
    assert value_of(loop, features) == pytest.approx(0.1, abs=1e-5)


def look(loop: Loop, features: LiveFeatures, *keys: str) -> list[Found]:
    found: list[list[Found]] = []
    assert features.look_up is not None
    features.look_up(keys, found.append)
    assert not found  # not in the caller's turn
    loop.until(lambda: bool(found))
    assert len(found) == 1
    return found[0]


def value_of(loop: Loop, features: LiveFeatures) -> float:
    (words,) = look(loop, features, "a")
    assert isinstance(words, np.ndarray)
    return float(words.astype(np.int64)[0]) / 2**20


WHERE = """
from threading import current_thread, main_thread
def features(key):
    if key == "bad":
        raise ValueError("s3cr3t")
    if key == "none":
        return None
    return {"spend": 0.0, "nights": 0.25 if current_thread() is main_thread() else 0.5, "stars": 0.0}
"""


def test_keys_are_looked_up_in_threads_and_told_in_their_order(
    hotel: Path, loop: Loop, live: Callable[[], LiveFeatures]
) -> None:
    put(hotel / "f.py", WHERE)
    put(hotel / "features.toml", 'source = "python"\nfile = "f.py"\nworkers = 3\n')
    features = live()
    good, bad, none, thread = look(loop, features, "good", "bad", "none", "thread")
    assert isinstance(good, np.ndarray)
    assert isinstance(bad, UnavailableError)
    assert "ValueError" in str(bad)
    assert "s3cr3t" not in str(bad)
    assert isinstance(none, FeatureError)
    assert isinstance(thread, np.ndarray)
    assert float(thread.astype(np.int64)[0]) / 2**20 == 0.5  # not by this thread


def test_a_look_up_that_takes_too_long_is_given_up(
    hotel: Path, loop: Loop, live: Callable[[], LiveFeatures], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    text = f"import os, time\ndef features(key):\n    while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    put(hotel / "f.py", f"{text}    return [0.5, 0, 0]\n")
    put(hotel / "features.toml", 'source = "python"\nfile = "f.py"\nworkers = 1\nseconds = 0.1\n')
    features = live()
    found: list[list[Found]] = []
    assert features.look_up is not None
    features.look_up(["a", "b"], found.append)
    seconds, expire = loop.timers.pop()
    assert seconds == 0.1
    expire()
    assert [str(one) for one in found[0]] == ["the source did not answer within 0.1 seconds"] * 2
    gate.touch()
    done = Event()
    Timer(0.3, done.set).start()
    loop.until(done.is_set)
    assert len(found) == 1  # what comes later is dropped
    assert value_of(loop, features) == 0.5  # and the worker is free again
