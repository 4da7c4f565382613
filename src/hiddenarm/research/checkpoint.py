"""The state of a simulation in a file, so that a long one can be interrupted and resumed.

It holds every party's shares and the plain twins: all that a simulation knows, and therefore secrets (mode 0600). A
file is written under a name of its own beside the old one and takes its place when it is complete and on the disk. A
file of a version that counted agreement in another way is refused.

A resumed run goes on at the steps of randomness that come next. With a seed it has the key of the run before, and all
comes as if there had been no interruption; without one it has a fresh key: an epoch of its own. Runs that share a seed
share masks, one more reason why a seeded run is not private.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import LEDGER, NEXT_STEP, Lockstep
from hiddenarm.bandit.plain import PlainBandit
from hiddenarm.bandit.state import decode_arrays, encode_arrays
from hiddenarm.errors import ConfigError
from hiddenarm.files import new_partial, replacing
from hiddenarm.research.data.worlds import World
from hiddenarm.research.results import PlainTwins, Scoreboard

Arrays = dict[str, NDArray[Any]]

_LOCKSTEP = "lockstep"
"""The name of the array with the state of the run, as bytes (`bandit.state`)."""
_SENT = "sent "
"""Begins the names of the arrays with what a program sent so far: rounds, and bytes to each peer."""
_TAUGHT = "taught"
"""Begins the names of the arrays of the twins that are taught."""


class Saved(NamedTuple):
    """A state that was read: its arrays, and how many steps were made."""

    arrays: Arrays
    steps: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A file, and what the simulation in it must be about."""

    path: Path
    about: dict[str, Any]

    @classmethod
    def of(cls, path: Path, federation: Federation, worlds: list[World], batch: int) -> Checkpoint:
        world = [f"{world.name} {world.seed} {len(world.contexts)}" for world in worlds]
        return cls(path, json.loads(json.dumps({**federation.terms, "worlds": world, "batch": batch})))

    def load(self) -> Saved | None:
        """What was saved, or None if nothing was; refused if it is damaged or belongs to another simulation."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}; name another file") from None
        with file:
            try:
                about, saved = _read(file)
            except Exception:  # a damaged archive fails in more ways than can be named
                raise self._no_state() from None
        if _of_earlier(saved.arrays):
            raise ConfigError(
                f"{self.path} was written by an earlier version, which compared the private learner with another twin; "
                "it was left as it is: remove it, or name another file"
            )
        for name, value in self.about.items():
            if about.get(name) != value:
                raise ConfigError(
                    f"{self.path} is the state of another simulation: {name} differs; "
                    "give the options it was made with, or name another file"
                )
        return saved

    def save(self, lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
        """Replace the file by the present state, in one stroke."""
        state = np.frombuffer(encode_arrays(lockstep.snapshot()), np.uint8)
        arrays: dict[str, Any] = {
            "about": np.array(json.dumps(self.about)),
            _LOCKSTEP: state,
            **_measured(lockstep, twins, board),
        }
        try:
            with replacing(self.path) as file:
                np.savez(file, **arrays)
        except OSError as error:
            raise _not_writable(self.path, error) from None

    def resume(self, saved: Saved, lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
        """Put a saved state in the place of a fresh one."""
        arrays = saved.arrays
        if not _fit(arrays, {**_measured(lockstep, twins, board), **_expected(lockstep)}):
            raise self._no_state()
        try:
            lockstep.restore(arrays)
        except (KeyError, IndexError, TypeError, ValueError):
            raise self._no_state() from None
        for name, (rounds, size) in _sent(arrays).items():
            lockstep.meter.rounds[name], lockstep.meter.bytes_to_each_peer[name] = int(rounds), int(size)
        for kind, bandits in _twins(twins).items():
            for number, bandit in enumerate(bandits):
                for name, array in bandit.arrays.items():
                    array[:] = arrays[f"{kind} {name}"][number]
        agreed, private_seconds, twins.seconds = arrays["counts"].tolist()
        board.resume(arrays["rewards"], arrays["plain rewards"], int(agreed))
        board.private_seconds, board.plain_seconds = private_seconds, twins.seconds

    def _no_state(self) -> ConfigError:
        return ConfigError(
            f"{self.path} is not the state of a simulation, or it is damaged; it was left as it is: "
            "remove it, or name another file"
        )


def check_place(path: Path) -> None:
    """Refuse a file that could not be written later, by making a partial one beside it and removing it."""
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            f"cannot keep the state in {path}: there is no folder {path.parent}; make it, or name another file"
        )
    try:
        descriptor, partial = new_partial(path)
        os.close(descriptor)
        partial.unlink()
    except OSError as error:
        raise _not_writable(path, error) from None


def _read(file: BinaryIO) -> tuple[dict[str, Any], Saved]:
    """What an archive is about, and the rest of it. Any exception means that it is none of ours."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    about = json.loads(str(arrays.pop("about")))
    if _LOCKSTEP in arrays:
        arrays |= decode_arrays(arrays.pop(_LOCKSTEP).tobytes())
    if not isinstance(about, dict):
        raise TypeError("`about` is not an object")
    return about, Saved(arrays, arrays["rewards"].shape[1])


def _of_earlier(arrays: Arrays) -> bool:
    """Whether a state is one of a version before there were twins that are taught."""
    return "plain inverses" in arrays and not any(name.startswith(_TAUGHT) for name in arrays)


def _expected(lockstep: Lockstep) -> Arrays:
    """The arrays of the run itself."""
    arrays = {**lockstep.snapshot(), "schedule": np.zeros(0, np.uint64)}  # of any length
    del arrays[LEDGER]  # which earlier versions did not have
    return arrays


def _twins(twins: PlainTwins) -> dict[str, list[PlainBandit]]:
    """By what the names of their arrays begin with."""
    return {"plain": twins.bandits, _TAUGHT: twins.taught}


def _measured(lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> Arrays:
    """All that a file holds beside the state of the run."""
    meter = lockstep.meter
    sent = {
        f"{_SENT}{name}": np.array([rounds, meter.bytes_to_each_peer[name]], np.uint64)
        for name, rounds in meter.rounds.items()
    }
    return {
        **sent,
        "rewards": board.rewards[:, : board.steps],
        "plain rewards": board.plain_rewards[:, : board.steps],
        "counts": np.array([board.agreed, board.private_seconds, twins.seconds]),
        **{
            f"{kind} {name}": np.stack([one.arrays[name] for one in bandits])
            for kind, bandits in _twins(twins).items()
            for name in bandits[0].arrays
        },
    }


def _sent(arrays: Arrays) -> Arrays:
    return {name.removeprefix(_SENT): array for name, array in arrays.items() if name.startswith(_SENT)}


def _fit(arrays: Arrays, fresh: Arrays) -> bool:
    """Whether these arrays can stand in for those of a run that has made no step."""
    return (
        fresh.keys() <= arrays.keys()
        and all(_fits(arrays[name], like) for name, like in fresh.items())
        and all(_fits(array, np.zeros(2, np.uint64)) for array in _sent(arrays).values())
        and all(_fits(array, np.zeros(1, np.uint64)) for name, array in arrays.items() if name.startswith(NEXT_STEP))
        and arrays["rewards"].shape == arrays["plain rewards"].shape
    )


def _fits(array: NDArray[Any], like: NDArray[Any]) -> bool:
    """The same type and shape, and finite; where the fresh array has none along an axis, there may be any number."""
    if array.dtype != like.dtype or array.ndim != like.ndim:
        return False
    lengths = zip(array.shape, like.shape, strict=True)
    return all(length == fresh or not fresh for length, fresh in lengths) and bool(np.isfinite(array).all())


def _not_writable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write {path}: {error.strerror}; make room there, or name another file")
