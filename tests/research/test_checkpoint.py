"""`simulate --state`: how the file is written, what is refused, and that saving and resuming change nothing."""

from __future__ import annotations

import io
import os
import signal
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ConfigError
from hiddenarm.research import simulate
from hiddenarm.research.checkpoint import Checkpoint
from hiddenarm.research.data.load import cluster_world
from hiddenarm.research.progress import ProgressDisplay
from hiddenarm.research.results import Traffic
from hiddenarm.research.simulate import Simulation

KEY = bytes(range(32))
EARLIER = Path(__file__).parent / "earlier_state.npz"
REPAIR_EVERY = 10
FEDERATION = Federation(arms=3, features=(2, 2), epsilon=0.3, repair_every=REPAIR_EVERY)
WORLD = cluster_world(arms=3, features=4, seed=5, rows=100)
WORLDS = [WORLD, WORLD.reseeded(6)]


@dataclass
class Went:
    """How a run went: the arms of every decision, the rewards of both learners, and what was sent."""

    arms: list[list[int]] = field(default_factory=list)
    rewards: list[list[float]] = field(default_factory=list)
    plain_rewards: list[list[float]] = field(default_factory=list)
    agreed: int = 0
    traffic: Traffic | None = None


class Display(ProgressDisplay):
    """Shows nothing, and interrupts the run after some steps."""

    def __init__(self, interrupt_at: int | None) -> None:
        self._interrupt_at = interrupt_at

    def update(self, *, steps: int, **_: Any) -> None:
        if steps == self._interrupt_at:
            signal.raise_signal(signal.SIGINT)


Run = Callable[..., Went]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a simulation, and note the arms that it chooses."""
    arms: list[list[int]] = []
    decide, decide_batch = Lockstep.decide, Lockstep.decide_batch

    def noted(self: Lockstep, contexts: Any) -> Any:
        name, chosen = decide(self, contexts)
        arms.append(chosen.tolist())
        return name, chosen

    def noted_batch(self: Lockstep, contexts: Any) -> Any:
        name, chosen = decide_batch(self, contexts)
        arms.extend(chosen.T.tolist())
        return name, chosen

    def go(steps: int, state: Path | None = None, *, batch: int = 1, interrupt_at: int | None = None) -> Went:
        arms.clear()
        simulation = Simulation(FEDERATION, WORLDS, steps, KEY, batch, state)
        board, traffic, _ = simulation.run(Display(interrupt_at))
        rewards, plain = board.rewards[:, : board.steps], board.plain_rewards[:, : board.steps]
        return Went(list(arms), rewards.tolist(), plain.tolist(), board.agreed, traffic)

    monkeypatch.setattr(Lockstep, "decide", noted)
    monkeypatch.setattr(Lockstep, "decide_batch", noted_batch)
    return go


@pytest.fixture
def saves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Save as often as a run allows; the steps that had been made at each save."""
    made: list[int] = []
    save = Checkpoint.save

    def noted(self: Checkpoint, lockstep: Lockstep, twins: Any, board: Any) -> None:
        made.append(board.steps)
        save(self, lockstep, twins, board)

    monkeypatch.setattr(simulate, "_SAVE_SECONDS", -1.0)
    monkeypatch.setattr(Checkpoint, "save", noted)
    return made


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class TestWriting:
    @pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
    def test_a_state_is_for_its_owner_only_whatever_the_umask(
        self, tmp_path: Path, run: Run, umask: Callable[[int], int], mask: int
    ) -> None:
        umask(mask)
        run(3, tmp_path / "state.npz")
        assert mode(tmp_path / "state.npz") == 0o600
        assert os.listdir(tmp_path) == ["state.npz"]

    def test_a_state_that_others_could_read_is_replaced_by_one_that_they_cannot(self, tmp_path: Path, run: Run) -> None:
        state = tmp_path / "state.npz"
        run(3, state)
        state.chmod(0o644)
        run(6, state)
        assert mode(state) == 0o600

    def test_a_partial_file_that_was_left_over_is_not_used(self, tmp_path: Path, run: Run) -> None:
        left = tmp_path / "state.partial"
        left.write_bytes(b"left over")
        left.chmod(0o644)
        run(3, tmp_path / "state.npz")
        assert mode(tmp_path / "state.npz") == 0o600
        assert left.read_bytes() == b"left over"

    def test_a_link_in_the_place_of_a_partial_file_is_not_followed(self, tmp_path: Path, run: Run) -> None:
        (tmp_path / "other").write_bytes(b"somebody else's")
        (tmp_path / "state.partial").symlink_to("other")
        run(3, tmp_path / "state.npz")
        assert (tmp_path / "other").read_bytes() == b"somebody else's"
        assert not (tmp_path / "state.npz").is_symlink()

    def test_a_folder_in_the_place_of_a_partial_file_does_not_block(self, tmp_path: Path, run: Run) -> None:
        (tmp_path / "state.partial").mkdir()
        run(3, tmp_path / "state.npz")
        assert len(run(6, tmp_path / "state.npz").rewards[0]) == 6

    def test_files_that_differ_in_their_ending_only_do_not_meet(self, tmp_path: Path, run: Run) -> None:
        first, second = tmp_path / "run.partial", tmp_path / "run.npz"
        run(3, first)
        before = first.read_bytes()
        run(4, second)
        assert first.read_bytes() == before

    def test_a_name_may_be_as_long_as_names_may_be(self, tmp_path: Path, run: Run) -> None:
        state = tmp_path / ("é" * 127)
        run(3, state)
        assert len(run(6, state).rewards[0]) == 6

    def test_the_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        state = tmp_path / "state.npz"
        run(3, state)
        old, fsync = state.stat().st_ino, os.fsync
        synced: list[tuple[int, int]] = []

        def noted(descriptor: int) -> None:
            synced.append((os.fstat(descriptor).st_ino, state.stat().st_ino))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", noted)
        run(6, state)
        new = state.stat().st_ino
        assert synced == [(new, old), (tmp_path.stat().st_ino, new)]

    @pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
    def test_a_save_that_fails_leaves_the_old_state_and_nothing_else(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, failure: BaseException
    ) -> None:
        state = tmp_path / "state.npz"
        run(3, state)
        before = contents(tmp_path)

        def fail(descriptor: int) -> None:
            raise failure

        monkeypatch.setattr(os, "fsync", fail)
        expected = ConfigError if isinstance(failure, OSError) else KeyboardInterrupt
        with pytest.raises(expected) as raised:
            run(6, state)
        assert contents(tmp_path) == before
        if expected is ConfigError:
            assert str(raised.value).startswith(f"cannot write {state}: No space left on device; ")


class TestRefusals:
    def test_a_missing_folder_is_reported_when_the_simulation_is_made(self, tmp_path: Path) -> None:
        state = tmp_path / "nowhere" / "state.npz"
        with pytest.raises(ConfigError, match=r"state\.npz: there is no folder .*nowhere; make it, or name another"):
            Simulation(FEDERATION, WORLDS, 3, KEY, state=state)

    def test_a_folder_that_cannot_be_written_to_is_reported_when_the_simulation_is_made(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any, **__: Any) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
        with pytest.raises(ConfigError, match=r"cannot write .*state\.npz: Permission denied; .*name another file"):
            Simulation(FEDERATION, WORLDS, 3, KEY, state=tmp_path / "state.npz")

    def test_a_state_that_cannot_be_opened(self, tmp_path: Path, run: Run) -> None:
        (tmp_path / "state.npz").symlink_to("state.npz")
        with pytest.raises(ConfigError, match=r"cannot read .*state\.npz: .*name another file"):
            run(3, tmp_path / "state.npz")

    def test_foreign_files(self, tmp_path: Path, run: Run) -> None:
        for foreign in foreign_files():
            check_refused(run, tmp_path, foreign)

    def test_a_state_that_was_cut_short(self, tmp_path: Path, run: Run) -> None:
        whole = state_of(run, tmp_path)
        for length in range(0, len(whole), 97):
            check_refused(run, tmp_path, whole[:length])

    def test_a_state_with_a_wrong_byte(self, tmp_path: Path, run: Run) -> None:
        """It is refused, unless the byte lies where it does not matter: in the time of an entry, for one."""
        state = tmp_path / "state.npz"
        whole = state_of(run, tmp_path)
        expected = run(5, state)
        refused = 0
        for place in range(0, len(whole), 101):
            damaged = bytearray(whole)
            damaged[place] ^= 0x55
            state.write_bytes(damaged)
            try:
                assert run(5, state) == expected
            except ConfigError:
                refused += 1
                assert contents(tmp_path) == {"state.npz": bytes(damaged)}
        assert refused > 50

    def test_a_state_whose_arrays_are_not_those_of_this_learner(self, tmp_path: Path, run: Run) -> None:
        arrays = arrays_of(state_of(run, tmp_path))
        for name, array in arrays.items():
            if name == "about":
                continue
            others = {key: value for key, value in arrays.items() if key != name}
            wrong = [np.zeros((), array.dtype), array[..., :0], array.astype(np.float32), array.astype(str)]
            if array.dtype == np.float64:
                wrong.append(np.full_like(array, np.nan))
            for other in wrong:
                check_refused(run, tmp_path, archive_of(others | {name: other}))
            if not name.startswith(("sent ", "next step solve", "next step gather", "next step learn ahead")):
                check_refused(run, tmp_path, archive_of(others))

    @pytest.mark.parametrize("about", ["[]", "17", "null", "{", "[" * 100_000, "{}"])
    def test_a_state_about_nothing(self, tmp_path: Path, run: Run, about: str) -> None:
        arrays = arrays_of(state_of(run, tmp_path))
        check_refused(run, tmp_path, archive_of(arrays | {"about": np.array(about)}))

    @pytest.mark.parametrize("error", [KeyError, IndexError, TypeError, ValueError])
    def test_a_state_that_the_learner_cannot_go_on_from(
        self, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
    ) -> None:
        def refuse(*_: Any) -> None:
            raise error("secret")

        state = state_of(run, tmp_path)
        monkeypatch.setattr(Lockstep, "restore", refuse)
        check_refused(run, tmp_path, state)

    def test_a_state_that_an_earlier_version_wrote(self, tmp_path: Path, run: Run) -> None:
        """Its twins were taught nothing, and its agreement was counted in another way."""
        arrays = arrays_of(state_of(run, tmp_path))
        last = archive_of({name: array for name, array in arrays.items() if not name.startswith("taught ")})
        for content in (EARLIER.read_bytes(), last):
            check_refused(run, tmp_path, content, "was written by an earlier version")

    def test_the_state_of_another_simulation_says_what_differs(self, tmp_path: Path, run: Run) -> None:
        run(4, tmp_path / "state.npz", batch=2)
        before = contents(tmp_path)
        with pytest.raises(ConfigError, match="another simulation: batch differs; give the options it was made with"):
            run(8, tmp_path / "state.npz", batch=4)
        assert contents(tmp_path) == before


def state_of(run: Run, folder: Path) -> bytes:
    run(4, folder / "state.npz")
    return (folder / "state.npz").read_bytes()


def arrays_of(state: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(state)) as archive:
        return dict(archive.items())


def archive_of(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def foreign_files() -> list[bytes]:
    single = io.BytesIO()
    np.save(single, np.zeros(3))
    pickled = io.BytesIO()
    np.savez(pickled, about=np.array([{}], dtype=object))
    return [
        b"",
        b"not an archive",
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18),
        b"\x80\x04N.",
        single.getvalue(),
        pickled.getvalue(),
        archive_of({}),
        archive_of({"keys": np.array(["user 1"]), "values": np.zeros((1, 2))}),
        archive_of({"about": np.array("{}")}),
        archive_of({"about": np.array("{}"), "rewards": np.zeros(3)}),
        archive_of({"about": np.zeros(3), "rewards": np.zeros((1, 3))}),
    ]


def check_refused(run: Run, folder: Path, content: bytes, why: str = "is ") -> None:
    """The run ends with a clear error, and the file is as it was."""
    state = folder / "state.npz"
    state.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        run(5, state)
    message = str(raised.value)
    assert message.startswith(f"{state} {why}")
    assert "name another file" in message
    assert message.isprintable()
    assert contents(folder) == {"state.npz": content}


class TestReproducing:
    @pytest.mark.parametrize(("batch", "expected"), [(1, [*range(1, 36), 35]), (4, [*range(4, 35, 4), 35, 35])])
    def test_saving_changes_nothing(
        self, tmp_path: Path, run: Run, saves: list[int], batch: int, expected: list[int]
    ) -> None:
        plain = run(35, batch=batch)
        assert run(35, tmp_path / "state.npz", batch=batch) == plain
        assert saves == expected

    @pytest.mark.parametrize("batch", [1, 4])
    def test_what_was_sent_before_an_interrupt_counts(self, tmp_path: Path, run: Run, batch: int) -> None:
        state = tmp_path / "state.npz"
        whole = run(24, batch=batch)
        assert len(run(24, state, batch=batch, interrupt_at=20).arms) == 20
        resumed = run(24, state, batch=batch)
        assert len(resumed.arms) == 4
        assert resumed.traffic == whole.traffic

    @pytest.mark.parametrize(("batch", "interrupt_at"), [(1, 7), (1, 17), (1, 20), (4, 16)])
    def test_resuming_changes_nothing(self, tmp_path: Path, run: Run, batch: int, interrupt_at: int) -> None:
        whole = run(35, batch=batch)
        before = run(35, tmp_path / "state.npz", batch=batch, interrupt_at=interrupt_at)
        after = run(35, tmp_path / "state.npz", batch=batch)
        assert before.arms == whole.arms[:interrupt_at]
        assert replace(after, arms=before.arms + after.arms) == whole

    def test_a_resumed_run_has_the_twins_that_were_taught(self, tmp_path: Path, run: Run) -> None:
        """They know all that the private learners did: one that knows something else does not agree."""
        run(30, tmp_path / "state.npz")
        whole, arrays = run(60), arrays_of((tmp_path / "state.npz").read_bytes())
        (tmp_path / "other.npz").write_bytes(archive_of(arrays | {"taught weights": -arrays["taught weights"]}))
        assert run(60, tmp_path / "state.npz").agreed == whole.agreed == 120
        assert run(60, tmp_path / "other.npz").agreed < 110
