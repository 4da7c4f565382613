"""`hiddenarm simulate`: all roles in lockstep in one process, beside plain twins; many replicates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ConfigError
from hiddenarm.research.checkpoint import Checkpoint, check_place
from hiddenarm.research.data.worlds import World
from hiddenarm.research.progress import ProgressDisplay, until_interrupted
from hiddenarm.research.results import PlainTwins, Scoreboard, Traffic

_SAVE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """A simulation to run: replicate r lives in worlds[r]."""

    federation: Federation
    worlds: Sequence[World]
    steps: int
    epoch_key: bytes
    batch: int = 1
    state: Path | None = None

    def __post_init__(self) -> None:
        """Refuse a state that could not be saved, before any work."""
        if self.state is not None:
            check_place(self.state)

    def run(self, display: ProgressDisplay) -> tuple[Scoreboard, Traffic]:
        """Run to the end, or to an interrupt: then the result is that of the steps made. `state` is where to go on."""
        checkpoint = None
        if self.state is not None:
            checkpoint = Checkpoint.of(self.state, self.federation, list(self.worlds), self.batch)
        saved = checkpoint.load() if checkpoint is not None else None
        made = 0 if saved is None else saved.steps
        if made >= self.steps:
            raise ConfigError(f"{self.state} holds {made} steps already; ask for more with --steps, or remove it")
        lockstep = Lockstep(self.federation, self.epoch_key, replicates=len(self.worlds), online=self.batch == 1)
        twins = PlainTwins(
            self.federation, self.worlds, lambda _, first, count: lockstep.coins(first, count), lockstep.noise
        )
        board = Scoreboard(self.steps, len(self.worlds))
        if checkpoint is not None and saved is not None:
            checkpoint.resume(saved, lockstep, twins, board)
        self._run(made, lockstep, twins, board, display, checkpoint)
        if not board.steps:
            raise KeyboardInterrupt
        if checkpoint is not None and board.steps > made:
            checkpoint.save(lockstep, twins, board)
        return board, _traffic(lockstep, board.steps)

    def _run(
        self,
        made: int,
        lockstep: Lockstep,
        twins: PlainTwins,
        board: Scoreboard,
        display: ProgressDisplay,
        checkpoint: Checkpoint | None,
    ) -> None:
        saved_at = perf_counter()
        for step in until_interrupted(range(made, self.steps, self.batch)):
            if self.batch == 1:
                self._step(step, lockstep, twins, board)
            else:
                self._batch(step, lockstep, twins, board)
            display.update(
                steps=board.steps, reward=board.reward, plain_reward=board.plain_reward, agreement=board.agreement
            )
            if checkpoint is not None and perf_counter() - saved_at > _SAVE_SECONDS:
                checkpoint.save(lockstep, twins, board)
                saved_at = perf_counter()

    def _step(self, step: int, lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
        contexts = np.stack([world.context(step) for world in self.worlds])
        slices = np.split(contexts, np.cumsum(self.federation.features)[:-1], axis=1)
        start = perf_counter()
        decision, arms = lockstep.decide(slices)
        board.private_seconds += perf_counter() - start
        rewards = np.array([world.reward(step, int(arm)) for world, arm in zip(self.worlds, arms, strict=True)])
        start = perf_counter()
        lockstep.learn(decision, rewards)
        board.private_seconds += perf_counter() - start
        agreed, plain_rewards = twins.step(step, contexts, (DECIDE_ONE, decision), arms, rewards)
        board.plain_seconds = twins.seconds
        board.record(rewards, plain_rewards, agreed)

    def _batch(self, first: int, lockstep: Lockstep, twins: PlainTwins, board: Scoreboard) -> None:
        """Decide for some contexts at once, then learn from all their rewards at once."""
        steps = range(first, min(first + self.batch, self.steps))
        contexts = np.stack([[world.context(step) for step in steps] for world in self.worlds])
        slices = np.split(contexts, np.cumsum(self.federation.features)[:-1], axis=-1)
        start = perf_counter()
        name, arms = lockstep.decide_batch(slices)
        board.private_seconds += perf_counter() - start
        rewards = np.array(
            [
                [world.reward(step, int(arm)) for step, arm in zip(steps, row, strict=True)]
                for world, row in zip(self.worlds, arms, strict=True)
            ]
        )
        start = perf_counter()
        lockstep.learn_batch(name, rewards)
        board.private_seconds += perf_counter() - start
        coins = lockstep.coins(name[1], 1, batch=len(steps))
        agreed, plain_rewards = twins.batch(steps, contexts, coins, arms, rewards)
        board.plain_seconds = twins.seconds
        for position in range(len(steps)):
            board.record(rewards[:, position], plain_rewards[:, position], agreed[:, position])


def _traffic(lockstep: Lockstep, steps: int) -> Traffic:
    meter, steps = lockstep.meter, max(1, steps)
    sent = sum(meter.bytes_to_each_peer.values()) * (lockstep.federation.parties - 1)
    deciding = sum(count for name, count in meter.rounds.items() if name.startswith(DECIDE))
    if STEP in meter.rounds:  # which begins with the rounds of a decision
        layouts = lockstep.layouts
        deciding += meter.rounds[STEP] // layouts[STEP].rounds * layouts[DECIDE].rounds
    return Traffic(
        rounds_per_decision=deciding / steps,
        rounds_per_step=sum(meter.rounds.values()) / steps,
        bytes_per_step_per_party=sent / steps / lockstep.replicates,
    )
