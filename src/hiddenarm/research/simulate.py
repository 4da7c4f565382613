"""`hiddenarm simulate`: all roles in lockstep in one process, beside plain twins; many replicates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.catalogue import DECIDE, DECIDE_ONE, STEP
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.slots import Slots, in_lessons
from hiddenarm.errors import BudgetSpentError, ConfigError
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.research.checkpoint import Checkpoint, check_place
from hiddenarm.research.data.worlds import World
from hiddenarm.research.progress import ProgressDisplay, until_interrupted
from hiddenarm.research.results import PlainTwins, Scoreboard, Traffic
from hiddenarm.ring.words import Floats

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
        if self.slot and self.batch > 1:
            raise ConfigError("--reward-slot is for decisions made one by one: leave --batch at 1")
        if self.slot and self.state is not None:
            raise ConfigError("--state does not hold decisions that wait for the end of a slot: leave out one")
        if self.state is not None:
            check_place(self.state)

    @property
    def slot(self) -> int:
        """Decisions of a slot of rewards, which stand for the seconds of the federation's; 0 if there are none."""
        return self.federation.reward_slot

    def run(self, display: ProgressDisplay) -> tuple[Scoreboard, Traffic, PrivacyLedger]:
        """Run to the end, to an interrupt, or until the budget is spent: then the result is that of the steps made.
        `state` is where to go on."""
        checkpoint = None
        if self.state is not None:
            checkpoint = Checkpoint.of(self.state, self.federation, list(self.worlds), self.batch)
        saved = checkpoint.load() if checkpoint is not None else None
        made = 0 if saved is None else saved.steps
        if made >= self.steps:
            raise ConfigError(f"{self.state} holds {made} steps already; ask for more with --steps, or remove it")
        lockstep = Lockstep(self.federation, self.epoch_key, replicates=len(self.worlds), online=self.batch == 1)
        twins = PlainTwins(
            self.federation,
            self.worlds,
            lambda _, first, count: lockstep.coins(first, count),
            lockstep.noise,
            Slots() if self.slot else None,
        )
        board = Scoreboard(self.steps, len(self.worlds))
        if checkpoint is not None and saved is not None:
            checkpoint.resume(saved, lockstep, twins, board)
        try:
            self._run(made, lockstep, twins, board, display, checkpoint)
        except BudgetSpentError as error:
            if not board.steps:
                raise
            board.ended = str(error)
        if not board.steps:
            raise KeyboardInterrupt
        if checkpoint is not None and board.steps > made:
            checkpoint.save(lockstep, twins, board)
        return board, _traffic(lockstep, board.steps), lockstep.ledger

    def _run(
        self,
        made: int,
        lockstep: Lockstep,
        twins: PlainTwins,
        board: Scoreboard,
        display: ProgressDisplay,
        checkpoint: Checkpoint | None,
    ) -> None:
        saved_at, slots = perf_counter(), Slots[tuple[int, Floats]]()
        for step in until_interrupted(range(made, self.steps, self.batch)):
            if self.slot:
                self._step_in_slots(step, lockstep, twins, board, slots)
            elif self.batch == 1:
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
        contexts, decision, arms, rewards = self._decide(step, lockstep, board)
        start = perf_counter()
        lockstep.learn(decision, rewards)
        board.private_seconds += perf_counter() - start
        self._follow(step, contexts, decision, arms, rewards, twins, board)

    def _step_in_slots(
        self,
        step: int,
        lockstep: Lockstep,
        twins: PlainTwins,
        board: Scoreboard,
        slots: Slots[tuple[int, Floats]],
    ) -> None:
        """Decide; where a slot ends, learn from all decisions of the slot before."""
        contexts, decision, arms, rewards = self._decide(step, lockstep, board)
        slots.add([(decision, rewards)])
        self._follow(step, contexts, decision, arms, rewards, twins, board)
        if (step + 1) % self.slot:
            return
        start = perf_counter()
        for lesson in in_lessons(slots.end(), self.federation.max_batch):
            decisions, earned = zip(*lesson, strict=True)
            lockstep.learn_each(decisions, np.stack(earned, axis=1))
        board.private_seconds += perf_counter() - start
        twins.end_slot()

    def _decide(
        self, step: int, lockstep: Lockstep, board: Scoreboard
    ) -> tuple[Floats, int, NDArray[np.int64], Floats]:
        """Contexts, the decision, its arms and what they earn."""
        contexts = np.stack([world.context(step) for world in self.worlds])
        slices = np.split(contexts, np.cumsum(self.federation.features)[:-1], axis=1)
        start = perf_counter()
        decision, arms = lockstep.decide(slices)
        board.private_seconds += perf_counter() - start
        rewards = np.array([world.reward(step, int(arm)) for world, arm in zip(self.worlds, arms, strict=True)])
        return contexts, decision, arms, rewards

    def _follow(
        self,
        step: int,
        contexts: Floats,
        decision: int,
        arms: NDArray[np.int64],
        rewards: Floats,
        twins: PlainTwins,
        board: Scoreboard,
    ) -> None:
        """Have the twins follow a step."""
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
