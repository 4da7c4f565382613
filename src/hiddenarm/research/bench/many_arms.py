"""`hiddenarm bench arms --arm-features N`: one model of arms that have features beside a model for each arm.

Both are measured in one process, in turn, block by block: all parties, the dealer, actor and rewarder, without a
network; all are dealt as many steps at once. Rounds, bytes and dealt words are those that programs declare, and that
travel between roles. A step is a decision and the lesson of its reward. Beside them, decisions among 40 eligible arms
of the most, and a step at 40 arms; and what tournaments of fewer and more levels would take for the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import ProgramId, program_text
from hiddenarm.bandit.decisions import is_plain, split_number
from hiddenarm.bandit.federation import PAYLOAD_ARMS, Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.errors import ConfigError
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Layout
from hiddenarm.mpc.tournament import comparisons, levels, tournament
from hiddenarm.research.bench.report import Curve, Result, draw, micros, print_table, quartiles
from hiddenarm.research.bench.session import make_federation
from hiddenarm.research.bench.timing import Effort, Spread, alternate
from hiddenarm.research.data.catalogues import made_up_catalogue, some_of
from hiddenarm.ring.streams import fresh_key

ELIGIBLE = 40
"""Arms that may be chosen, in the measurement of eligible ones."""
_WORDS_AHEAD = 1 << 21
"""Words that are dealt at once, at most, unless a step takes more."""
_MOST_AHEAD = 32
_ROWS = 512
"""Contexts; a longer run meets them again."""


@dataclass(frozen=True, slots=True)
class Part:
    """What deciding, or learning, takes for one interaction."""

    micros: Spread
    layout: Layout

    @property
    def bytes_per_party(self) -> int:
        """What the party that sends the most sends to all others."""
        parties = len(self.layout.party_words)
        return max(self.layout.bytes_to_each_peer(party) for party in range(parties)) * (parties - 1)

    @property
    def dealt_words(self) -> int:
        """What the dealer sends to the last party; all else is expanded from seeds."""
        return self.layout.correction_words

    def as_dict(self) -> dict[str, Any]:
        """The keys of `--json`."""
        return {
            "us": self.micros.median,
            "us_quartiles": [self.micros.lower, self.micros.upper],
            "rounds": self.layout.rounds,
            "bytes_per_party": self.bytes_per_party,
            "dealt_words": self.dealt_words,
        }


@dataclass(frozen=True, slots=True)
class Step:
    """Both parts of one learner."""

    decide: Part
    learn: Part

    @property
    def micros(self) -> float:
        return self.decide.micros.median + self.learn.micros.median

    @property
    def spread(self) -> Spread:
        """Of both parts together, as a picture shows it."""
        first, second = self.decide.micros, self.learn.micros
        return Spread(first.median + second.median, first.lower + second.lower, first.upper + second.upper)

    def as_dict(self) -> dict[str, Any]:
        return {
            "us_per_step": self.micros,
            "rounds_per_step": self.decide.layout.rounds + self.learn.layout.rounds,
            "bytes_per_step_per_party": self.decide.bytes_per_party + self.learn.bytes_per_party,
            "dealt_words_per_step": self.decide.dealt_words + self.learn.dealt_words,
            "decide": self.decide.as_dict(),
            "learn": self.learn.as_dict(),
        }


class Running:
    """A federation in this process; `decide` and `learn` are the work of `alternate`, one after the other."""

    def __init__(self, federation: Federation, ahead: int, eligible: Sequence[int] | None = None) -> None:
        self._federation, self._eligible = federation, eligible
        self._lockstep = Lockstep(federation, fresh_key(), deal_ahead=ahead)
        self._users = made_up_catalogue(2, 2, federation.dimension, _ROWS).contexts
        self._made = 0
        self._decided: list[int] = []

    def decide(self, steps: int) -> float:
        """Seconds for so many decisions."""
        rows = self._users[(self._made + np.arange(steps)) % _ROWS]
        self._made += steps
        cuts = np.cumsum(self._federation.features)[:-1]
        todo = [np.split(row[None], cuts, axis=1) for row in rows]
        start = perf_counter()
        self._decided += [self._lockstep.decide(contexts, self._eligible)[0] for contexts in todo]
        return perf_counter() - start

    def learn(self, steps: int) -> float:
        """Seconds for the lessons of the decisions before."""
        todo, self._decided = self._decided, []
        start = perf_counter()
        for place, number in enumerate(todo):
            self._lockstep.learn(number, [float(place % 2)])
            self._last = number
        return perf_counter() - start

    def measured(self, decide: Spread, learn: Spread) -> Step:
        """What was timed, with what the programs declare."""
        number = self._last
        learner = self._federation.learner
        program = learner.single_programs[0] if is_plain(number) else split_number(number)[0]
        return Step(Part(decide, self._layout(program)), Part(learn, self._layout(learner.single_lesson)))

    def _layout(self, program: ProgramId) -> Layout:
        return layout_of(program_text(self._federation, program), self._federation.parties, 1)


def dealt_ahead(*federations: Federation) -> int:
    """How many steps are dealt at once, the same for all of these."""
    layouts = [layout_of(program_text(one, one.learner.single_lesson), one.parties, 1) for one in federations]
    return max(1, min(_MOST_AHEAD, _WORDS_AHEAD // max(max(layout.party_words) for layout in layouts)))


def with_features(federation: Federation, arm_features: int) -> Federation:
    """The same with features of the arms, a constant among them, and one model."""
    table = ArmTable.of(made_up_catalogue(federation.arms, arm_features, federation.dimension, 1).items)
    return Federation(federation.arms, federation.features, federation.policy, arm_features=table)


def measure_side_by_side(effort: Effort, *running: Running) -> list[Step]:
    """Time the work of several federations in turn."""
    works = [work for one in running for work in (one.decide, one.learn)]
    spreads = alternate(effort, works)
    return [one.measured(*spreads[2 * place : 2 * place + 2]) for place, one in enumerate(running)]


def bench_many_arms(
    console: Console,
    *,
    parties: int,
    arms: Sequence[int],
    features: int,
    arm_features: int,
    steps: int,
    seconds: float,
    plot: Path | None,
    suite: str = "fast",
    newton_iterations: int | None = None,
) -> Result:
    """Measure, print, draw, return what `--json` writes. Each number of arms has `seconds`, and at least two steps."""
    if suite != "fast" or newton_iterations is not None:
        raise ConfigError("--arm-features belongs to suite fast: leave --suite and --newton-iterations out")
    effort = Effort.of(steps, seconds)
    points = []
    for count in arms:
        own = make_federation(parties, count, features)
        one = with_features(own, arm_features)
        ahead = dealt_ahead(one, own)
        shared, per_arm = measure_side_by_side(effort, Running(one, ahead), Running(own, ahead))
        points.append((count, shared, per_arm))
    title = f"A step by arms: {parties} parties, {features} features, {arm_features} features of arms"
    _print_points(console, title, points)
    tournaments = _tournaments(console, parties, max(arms))
    subset = _measure_subset(console, parties, max(arms), features, arm_features, effort)
    if plot is not None:
        curves = [
            Curve("one model", [(count, shared.spread) for count, shared, _ in points]),
            Curve("a model for each arm", [(count, per_arm.spread) for count, _, per_arm in points]),
        ]
        draw(plot, "Time of a step by arms, in one process", "arms", "µs per step", curves)
    return {
        "parties": parties,
        "features": features,
        "arm_features": arm_features,
        "points": [
            {
                "arms": count,
                "shared_model": shared.as_dict(),
                "model_per_arm": per_arm.as_dict(),
                "shared_over_per_arm": shared.micros / per_arm.micros,
            }
            for count, shared, per_arm in points
        ],
        "learning_depends_on_arms": len({_learning_costs(shared) for _, shared, _ in points}) > 1,
        "tournaments": tournaments,
        "eligible": subset,
    }


def _tournaments(console: Console, parties: int, arms: int) -> list[dict[str, Any]]:
    """What the maximum of the most arms takes, by the levels of the tournament: public numbers. None where arms are
    compared pair by pair."""
    if arms <= PAYLOAD_ARMS:
        return []
    taken, beside = len(levels(arms)), 2 + 2 * parties
    found: list[dict[str, Any]] = []
    largest: list[list[int]] = []
    for depth in range(max(1, taken - 1), taken + 2):
        plan = tournament(arms, depth)
        pairs = comparisons(plan)
        largest.append([max(sizes) for sizes in plan])
        found.append(
            {
                "levels": depth,
                "largest_groups": largest[-1],
                "comparisons": pairs,
                "comparisons_per_arm": pairs / arms,
                "rounds": beside + 3 * depth,
                "taken": depth == taken,
            }
        )
    rows = [
        (
            f"{one['levels']}{' (taken)' if one['taken'] else ''}",
            ", ".join(f"{size}" for size in groups),
            f"{one['comparisons']:,}",
            f"{one['comparisons_per_arm']:.1f}",
            f"{one['rounds']}",
        )
        for one, groups in zip(found, largest, strict=True)
    ]
    columns = ("levels", "groups of up to", "comparisons", "for each arm", "rounds to decide")
    print_table(console, f"The maximum of {arms:,} scores", columns, rows)
    return found


def _learning_costs(step: Step) -> tuple[int, int, int]:
    return step.learn.layout.rounds, step.learn.bytes_per_party, step.learn.dealt_words


def _measure_subset(
    console: Console, parties: int, arms: int, features: int, arm_features: int, effort: Effort
) -> dict[str, Any] | None:
    """A step with 40 eligible arms of the most, beside one at 40 arms; None where there are no more."""
    if arms <= ELIGIBLE:
        return None
    eligible = some_of(arms, ELIGIBLE)
    many, few = (with_features(make_federation(parties, count, features), arm_features) for count in (arms, ELIGIBLE))
    ahead = dealt_ahead(many, few)
    among, whole = measure_side_by_side(effort, Running(many, ahead, eligible), Running(few, ahead))
    ratio = among.micros / whole.micros
    console.print(
        f"One model, {ELIGIBLE} eligible arms of {arms:,}: {micros(among.micros)} a step, {ratio:.2f} times a step at "
        f"{ELIGIBLE} arms, {micros(whole.micros)}.\n"
    )
    return {
        "eligible": ELIGIBLE,
        "arms": arms,
        **{f"{name}_of_many": value for name, value in among.as_dict().items()},
        **{f"{name}_of_few": value for name, value in whole.as_dict().items()},
        "ratio": ratio,
    }


def _print_points(console: Console, title: str, points: Sequence[tuple[int, Step, Step]]) -> None:
    rows = []
    for count, *both in points:
        for model, step in zip(("one model", "a model for each arm"), both, strict=True):
            for name, part in (("decide", step.decide), ("learn", step.learn)):
                rows.append(
                    (
                        f"{count:,}",
                        model,
                        name,
                        micros(part.micros.median),
                        quartiles(part.micros),
                        f"{part.layout.rounds}",
                        f"{part.bytes_per_party:,}",
                        f"{part.dealt_words:,}",
                    )
                )
    columns = ("arms", "model", "", "time", "quartiles", "rounds", "bytes per party", "dealt words")
    print_table(console, title, columns, rows)
    for count, shared, per_arm in points:
        ratio = shared.micros / per_arm.micros
        console.print(f"{count:,} arms: a step with one model takes {ratio:.2f} of the time with a model for each arm.")
    console.print()
