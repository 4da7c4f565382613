"""`hiddenarm simulate`: all roles in lockstep in one process, beside the plain twin; many replicates at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.programs import DECIDE
from hiddenarm.cli.interrupts import until_interrupted
from hiddenarm.cli.progress import ProgressDisplay
from hiddenarm.cli.results import Scoreboard, Traffic
from hiddenarm.cli.twins import PlainTwins
from hiddenarm.data.worlds import World


@dataclass(frozen=True, slots=True, repr=False)
class Simulation:
    """A simulation to run: replicate r lives in worlds[r]."""

    federation: Federation
    worlds: Sequence[World]
    steps: int
    epoch_key: bytes

    def run(self, display: ProgressDisplay) -> tuple[Scoreboard, Traffic]:
        """Run to the end, or to an interrupt: then the result is that of the steps made."""
        lockstep = Lockstep(self.federation, self.epoch_key, replicates=len(self.worlds))
        twins = PlainTwins(self.federation, self.worlds, lockstep.coins)
        board = Scoreboard(self.steps, len(self.worlds))
        for step in until_interrupted(range(self.steps)):
            self._step(step, lockstep, twins, board)
            display.update(
                steps=step + 1, reward=board.reward, plain_reward=board.plain_reward, agreement=board.agreement
            )
        if not board.steps:
            raise KeyboardInterrupt
        return board, _traffic(lockstep)

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
        plain_arms, plain_rewards = twins.step(step, contexts, decision)
        board.plain_seconds = twins.seconds
        board.record(rewards, plain_rewards, int((arms == plain_arms).sum()))


def _traffic(lockstep: Lockstep) -> Traffic:
    meter, steps = lockstep.meter, max(1, lockstep.decisions)
    sent = sum(meter.bytes_to_each_peer.values()) * (lockstep.federation.parties - 1)
    return Traffic(
        rounds_per_decision=meter.rounds.get(DECIDE, 0) / steps,
        rounds_per_step=sum(meter.rounds.values()) / steps,
        bytes_per_step_per_party=sent / steps / lockstep.replicates,
    )
