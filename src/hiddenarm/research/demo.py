"""`hiddenarm demo`: every role as its own process, and the world around them, on the embedded digits."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final

import numpy as np

from hiddenarm.bandit.audit import audit_coins, audit_noise
from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.decisions import run_of
from hiddenarm.bandit.federation import Federation
from hiddenarm.errors import BudgetSpentError
from hiddenarm.mpc.material import Seeds
from hiddenarm.privacy.ledger import PrivacyLedger
from hiddenarm.research.data.worlds import World
from hiddenarm.research.local_roles import LocalRoles
from hiddenarm.research.progress import ProgressDisplay, Standing, interrupts_noted, until_interrupted
from hiddenarm.research.results import INTERRUPTED, PlainTwins, Scoreboard, Traffic, count_traffic
from hiddenarm.research.web_demo import Curve, DemoPage
from hiddenarm.ring.words import Floats

_LOOK_SECONDS: Final = 0.1
"""How often a page that stays looks for an interrupt."""


@dataclass(frozen=True, slots=True, repr=False)
class Demo:
    """A demo to run. It holds the dealer's key, so that the plain twins can have the same coins."""

    federation: Federation
    world: World
    steps: int
    epoch_key: bytes
    web: bool = False
    """Whether to show all roles on a page of this machine, until an interrupt."""

    def run(self, display: ProgressDisplay) -> tuple[Scoreboard, Traffic, PrivacyLedger]:
        """Run to the end, to an interrupt, or until the budget is spent: then the result is that of the steps made."""
        keys, contexts = self._features()
        with tempfile.TemporaryDirectory(prefix="hiddenarm-") as folder:
            kits = Path(folder) / "kits"
            with LocalRoles(kits, self.federation, keys, contexts, self.epoch_key, monitored=self.web) as roles:
                if self.web:
                    board = self._shown(roles, display)
                else:
                    board = self._play(roles, until_interrupted(range(self.steps)), display.update)
                if not board.steps:
                    raise KeyboardInterrupt
                meters = roles.stop()
                ledgers = [PrivacyLedger.from_dict(meter.pop("privacy")) for meter in meters]
                return board, count_traffic(self.federation, meters, board.steps), reduce(PrivacyLedger.merged, ledgers)

    def _shown(self, roles: LocalRoles, display: ProgressDisplay) -> Scoreboard:
        """Play with a page beside it, which stays until an interrupt."""
        curve = Curve(self.steps)

        def update(**standing: Any) -> None:
            display.update(**standing)
            curve.update(Standing(**standing))

        with DemoPage(roles.monitor_ports, curve) as page, interrupts_noted() as interrupt:
            display.say(f"all roles are at {page.url}")
            board = self._play(roles, takewhile(lambda _: not interrupt.came, range(self.steps)), update)
            spent = board.ended != INTERRUPTED
            curve.ended = board.ended if spent else ""
            if board.steps == self.steps or spent:
                display.say(f"the page stays at {page.url} until Ctrl-C")
                while not interrupt.came:
                    sleep(_LOOK_SECONDS)
        return board

    def _features(self) -> tuple[list[str], Floats]:
        """Keys and contexts of the world's rows. Where rows of one key are counted, whoever arrives is somebody else:
        there is a key for each step, so that a digit that comes again is learned again, as by the twins."""
        if self.federation.noisy is None:
            return [_key(row) for row in range(len(self.world.contexts))], self.world.contexts
        rows = [self.world.row(step) for step in range(self.steps)]
        return [_key(step) for step in range(self.steps)], self.world.contexts[rows]

    def _key_of(self, step: int) -> str:
        return _key(self.world.row(step) if self.federation.noisy is None else step)

    def _play(self, roles: LocalRoles, steps: Iterable[int], update: Callable[..., None]) -> Scoreboard:
        twins = PlainTwins(self.federation, [self.world], self._coins, self._noise)
        board = Scoreboard(self.steps)
        version = 0
        for step in steps:
            start = perf_counter()
            try:
                identifier, arm = roles.decide(self._key_of(step), version)
            except BudgetSpentError as error:
                board.ended = str(error)
                break
            reward = self.world.reward(step, arm)
            version = roles.reward(identifier, reward)
            board.private_seconds += (perf_counter() - start) if step else 0.0
            context, rewards = self.world.context(step)[None], np.array([reward])
            run, arms, pure = run_of(identifier), np.array([arm]), self._is_pure(step)
            agreed, plain_rewards = twins.step(step, context, run, arms, rewards, pure=pure)
            board.plain_seconds = twins.seconds
            board.record(rewards, plain_rewards, agreed)
            update(steps=step + 1, reward=board.reward, plain_reward=board.plain_reward, agreement=board.agreement)
        return board

    def _coins(self, program: ProgramId, first: int, count: int) -> Coins:
        return audit_coins(Seeds(self.epoch_key), self.federation, first, count, program=program)

    def _is_pure(self, step: int) -> bool:
        """Whether the budget is spent, and the tags alone choose."""
        budget = self.federation.budget
        return budget is not None and budget.explores and step >= budget.decisions

    def _noise(self, refresh: int) -> tuple[Floats, Floats]:
        return audit_noise(Seeds(self.epoch_key), self.federation, refresh)


def _key(row: int) -> str:
    return f"digit {row}"
