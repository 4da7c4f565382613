"""Kills of random roles at random moments while an application decides and rewards; `make soak` runs the long version.

    PYTHONPATH=tests python tests/recovery/soak.py --steps 2000 --kills 200 [--together]

prints what was done, how soon the federation answered again after each kill, and fails if anything acknowledged was
lost or doubled, if two epochs had one name, or if the model is not what the plain twin learned from the same lessons.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from supervised import KEYS, Acknowledged, Inspection, Supervised

from hiddenarm.bandit.federation import Federation
from hiddenarm.net.identity import Identity, Role
from hiddenarm.roles.messages import ACTOR, REWARDER

BATCH_EVERY, BATCH = 10, 5
ORGANISATION = (Identity(Role.PARTY, 0), ACTOR, REWARDER)
"""The roles of the organisation that shows the arm and sees what comes of it."""


def step(roles: Supervised, number: int, count: int = 1) -> Acknowledged:
    """Decide for some keys and give the rewards."""
    keys = [KEYS[(number + position) % len(KEYS)] for position in range(count)]
    decisions = roles.decide(f"decide {number}", *keys)
    rewards = [float(arm == len(key) % 3) for key, (_, arm) in zip(keys, decisions, strict=True)]
    given = [(identifier, reward) for (identifier, _), reward in zip(decisions, rewards, strict=True)]
    return Acknowledged(keys, decisions, rewards, roles.reward(f"reward {number}", *given))


@dataclass
class Soak:
    """So many steps, and so many kills spread over them at moments that the seed chooses."""

    roles: Supervised
    steps: int
    kills: int
    seed: int
    done: list[Acknowledged] = field(default_factory=list)
    back: list[tuple[Identity, float]] = field(default_factory=list)
    """Who was killed, and the seconds until a step that was begun after that was done."""
    reopenings: int = 0
    """Epochs that must have been opened anew, at least: a role other than the dealer was killed after the step that
    showed the last one, and a step that was begun after that was done."""

    def run(self) -> None:
        choose = random.Random(self.seed)
        victims = [self.roles.leaders[number % len(self.roles.leaders)] for number in range(self.kills)]
        choose.shuffle(victims)
        at = sorted(choose.sample(range(1, self.steps), self.kills))
        plan = dict(zip(at, victims, strict=True))
        killer, shown = Killer(self.roles), time.monotonic()
        for number in range(self.steps):
            if number in plan:
                killer.aim(plan[number], choose.uniform(0, 0.06))
            begun = time.monotonic()
            self.done.append(step(self.roles, number, BATCH if number % BATCH_EVERY == 9 else 1))
            now, taken = time.monotonic(), killer.take(before=begun)
            self.back += [(victim, now - when) for victim, when in taken]
            if any(when > shown and victim.role is not Role.DEALER for victim, when in taken):
                self.reopenings += 1
                shown = now
        killer.rest()

    def rewards_of(self, done: Acknowledged) -> list[tuple[str, float]]:
        return [(identifier, reward) for (identifier, _), reward in zip(done.decisions, done.rewards, strict=True)]


class Killer:
    """Kills a role after a delay, while the application goes on."""

    def __init__(self, roles: Supervised) -> None:
        self._roles = roles
        self._threads: list[Thread] = []
        self._struck: list[tuple[Identity, float]] = []
        self._free = Event()
        self._free.set()

    def aim(self, victim: Identity, delay: float) -> None:
        self._free.wait()
        self._free.clear()
        self._threads.append(Thread(target=self._strike, args=(victim, delay), daemon=True))
        self._threads[-1].start()

    def _strike(self, victim: Identity, delay: float) -> None:
        time.sleep(delay)
        self._roles.kill(victim)
        self._struck.append((victim, time.monotonic()))
        self._free.set()

    def take(self, before: float) -> list[tuple[Identity, float]]:
        """The kills that happened before a moment and were not taken yet."""
        taken = [kill for kill in self._struck if kill[1] < before]
        self._struck = [kill for kill in self._struck if kill[1] >= before]
        return taken

    def rest(self) -> None:
        for thread in self._threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill roles while they work.")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--together", action="store_true", help="One process for party 0, actor and rewarder.")
    options = parser.parse_args()
    federation = Federation(arms=3, features=(2, 2), epsilon=0.2, repair_every=50)
    begun = time.monotonic()
    together = ORGANISATION if options.together else ()
    with tempfile.TemporaryDirectory() as folder, Supervised(Path(folder) / "kits", federation, together) as roles:
        soak = Soak(roles, options.steps, options.kills, options.seed)
        soak.run()
        roles.stop(roles.members)
        with Inspection(roles) as found:
            found.check(soak.done)
            epochs = found.check_epochs()
        report(soak, found, epochs, time.monotonic() - begun)


def report(soak: Soak, found: Inspection, epochs: int, seconds: float) -> None:
    waits = sorted(wait for _, wait in soak.back)
    kills = ", ".join(f"{'+'.join(map(str, soak.roles.process_of(one)))} {n}" for one, n in soak.roles.kills.items())
    print(f"{len(soak.done)} steps, {sum(soak.roles.kills.values())} kills ({kills}), {epochs} epochs, {seconds:.0f} s")
    print("no acknowledged reward lost or doubled, no epoch's name used twice")
    print(f"model of version {found.checked} off by {found.error:.2f} units of 2^-16 after as many lessons")
    print(f"answering again after {waits[len(waits) // 2]:.1f} s (median), {waits[-1]:.1f} s (longest)")


if __name__ == "__main__":
    main()
