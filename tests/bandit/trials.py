"""The same step many times, under new words each time: everything that a coalition of all parties but one sees, a
column for each word and a row for each trial. A step is a decision and its lesson (`run_trials`), or one program alone
on arrays that are made for it (`run_program`): all that learns many interactions at once. `joint_views` is about
decisions as a coalition sees them that the actor belongs to.

What a coalition can compute from it must not depend on arm, features, reward or model. Checked are each word that is
sent or opened and each correction of the last party, by itself; and each of them less any word that the coalition was
dealt: a mask that the coalition knows leaves a word uniform, and hides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import cycle
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from hiddenarm.bandit.catalogue import (
    DECIDE,
    GATHER,
    INVERT_BOOSTED,
    LEARN,
    LEARN_AHEAD,
    REPAIR,
    REPAIR_RUNS,
    SOLVE,
    ProgramId,
)
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction, Rewarded
from hiddenarm.bandit.lockstep import Lockstep, _Supply
from hiddenarm.bandit.planning import repair_plan
from hiddenarm.bandit.state import State, initial_state
from hiddenarm.mpc.evaluation import DealtWords, ProgramMaterial
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import triangle_indices
from hiddenarm.mpc.material import Seeds
from hiddenarm.mpc.run import Openings, Sharing
from hiddenarm.mpc.tournament import RANDOM_ORDER
from hiddenarm.ring.words import Floats, Words, encode, low_bits
from support import SIGNIFICANCE, fixed_key, words_from

ARMS = 4
FEATURES = 2
"""Of each party."""
FEW_ARMS = 3
"""Of a program alone, where each party has one feature: some of them open many words."""
HISTORY = 8
"""Interactions that the sums hold when a program alone begins."""
DEALT_AHEAD = 64
BYTE = 8
COMPARED = 4
"""Trials with which all others are compared."""


class Secrets(NamedTuple):
    """What is decided and learned about: features (the same at all parties), the reward, and weights of the arms."""

    features: tuple[float, float]
    reward: float
    weights: tuple[float, float, float, float]


ZEROS = Secrets((0.0, 0.0), 0.0, (0.0, 0.0, 0.0, 0.0))
EXTREMES = Secrets((0.0, -1.0), 1.0, (0.9, -0.9, 0.9, -0.9))


@dataclass
class Table:
    """Words that were seen at one place, of so many bits: [trials, words]."""

    name: str
    words: Words
    bits: int

    def word_name(self, index: int) -> str:
        return f"{self.name}, word {index}"


@dataclass
class Trials:
    """What was seen: all that parties sent and opened by place, and the words dealt to each, by program."""

    parties: int
    arms: list[int] = field(default_factory=list)
    seen: dict[tuple[str, str], list[Words]] = field(default_factory=lambda: defaultdict(list))
    bits: dict[tuple[str, str], int] = field(default_factory=dict)
    dealt: dict[tuple[str, int], list[Words]] = field(default_factory=lambda: defaultdict(list))
    corrections: dict[str, list[Words]] = field(default_factory=lambda: defaultdict(list))
    orders: list[Words] = field(default_factory=list)
    """Of all slots, or of those that were left: which of two keys is larger, by tournament and level."""
    program: str = DECIDE
    round: int = 0
    results: list[Any] = field(default_factory=list)
    """Of all parties, in the last run of a program alone."""

    def start(self, program: str) -> None:
        self.program, self.round = program, 0

    def observe(self, openings: Openings, by_opening: Sequence[Sequence[Words]]) -> None:
        for number, (opening, sent) in enumerate(zip(openings, by_opening, strict=True)):
            here = f"round {self.round}, opening {number}"
            for sender, words in enumerate(sent):
                self.note(f"{here}, party {sender}", words, opening.bits)
            if opening.owners is not None:
                continue
            add = np.add if opening.sharing is Sharing.ADD else np.bitwise_xor
            opened = low_bits(reduce(add, sent), opening.bits)
            if opening.why == RANDOM_ORDER:  # not uniform among bits, but among orders
                self.orders.append(opened.copy())
            else:
                self.note(f"{here}, opened", opened, opening.bits)
        self.round += 1

    def note(self, place: str, words: Words, bits: int) -> None:
        """Words that somebody sees, of the program that runs."""
        self.seen[self.program, place].append(words.ravel().copy())
        self.bits[self.program, place] = bits

    def take(self, party: int, dealt: DealtWords) -> None:
        self.dealt[self.program, party].append(np.array(dealt.own))
        if party == self.parties - 1:
            self.corrections[self.program].append(np.array(dealt.corrections))

    # As tables

    def tables(self) -> list[Table]:
        """Everything that is seen by anybody, and the corrections."""
        seen = [self._table(program, place) for program, place in self.seen]
        return [*seen, *(self.corrections_of(program) for program in self.corrections)]

    def programs(self) -> set[str]:
        return {program for program, _ in self.seen}

    def seen_by(self, coalition: set[int], program: str) -> list[Table]:
        """What the other party sends to a coalition, and what is opened with it."""
        (other,) = set(range(self.parties)) - coalition
        places = [place for name, place in self.seen if name == program]
        return [self._table(program, place) for place in places if place.endswith((f"party {other}", "opened"))]

    def corrections_of(self, program: str) -> Table:
        return Table(f"{program}, correction", np.stack(self.corrections[program]), 64)

    def _table(self, program: str, place: str) -> Table:
        return Table(f"{program}, {place}", np.stack(self.seen[program, place]), self.bits[program, place])

    def seeded(self, coalition: set[int], program: str) -> Words:
        """The words of a coalition's seeds, [trials, words]: each, and where all members have as many also the sums of
        those at one place, which are their part of a shared mask."""
        each = [np.stack(self.dealt[program, party]) for party in sorted(coalition)]
        if len(coalition) > 1 and len({words.shape for words in each}) == 1:
            each.append(reduce(np.add, each))
        return np.concatenate(each, axis=1)


def run_trials(secrets: Secrets, key: str, *, count: int, parties: int = 2, lesson: str = LEARN) -> Trials:
    """Decide and learn the same, `count` times, each time from the same model."""
    federation = Federation(arms=ARMS, features=(FEATURES,) * parties, epsilon=0.2, repair_every=10 * count)
    trials = Trials(parties)
    lockstep = Lockstep(federation, fixed_key("trials", key), deal_ahead=DEALT_AHEAD, observer=trials.observe)
    contexts = [np.array([secrets.features])] * parties
    with dealt_words_noted(trials):
        for _ in range(count):
            lockstep.states = _model(lockstep, secrets)
            trials.start(DECIDE)
            number, arms = lockstep.decide(contexts)
            trials.arms.append(int(arms[0]))
            trials.start(lesson)
            lockstep.learn(number, [secrets.reward], ahead=lesson == LEARN_AHEAD)
    return trials


def _model(lockstep: Lockstep, secrets: Secrets) -> list[State]:
    """The initial model with other weights, which party 0 holds."""
    federation = lockstep.federation
    states = [initial_state(federation.learner.arrays, party) for party in range(federation.parties)]
    states[0]["weights"][0] = encode(secrets.weights, federation.fraction_bits)[:, None]
    return states


@contextmanager
def dealt_words_noted(trials: Trials) -> Iterator[None]:
    """Parties take their words in turn."""
    honest = ProgramMaterial.take
    in_turn = cycle(range(trials.parties))

    def take(material: ProgramMaterial, step: int) -> DealtWords:
        words = honest(material, step)
        trials.take(next(in_turn), words)
        return words

    with patch.object(ProgramMaterial, "take", take):
        yield


# One program alone


def run_program(
    program: ProgramId, secrets: Secrets, key: str, *, count: int, parties: int = 2, holder: int = 0
) -> Trials:
    """Run a program `count` times on the same secrets. In each trial the interactions are of another arm, or of
    consecutive ones beginning there. `holder` has all that is shared, the others hold zeros: what it sends is not
    hidden by its shares."""
    federation = Federation(arms=FEW_ARMS, features=(1,) * parties, epsilon=0.2)
    seeds = Seeds(fixed_key("trials", program.label, key))
    supply = _Supply(federation, federation.policy.exploration(), program, seeds, 1, DEALT_AHEAD)
    arms = words_from(count, "trials", program.label, key) % np.uint64(FEW_ARMS)
    trials = Trials(parties)
    with dealt_words_noted(trials):
        for step, arm in enumerate(arms.tolist()):
            trials.start(program.label)
            held = _State(federation, secrets, arm, program)
            given = [held.given(supply, party, party == holder) for party in range(parties)]
            trials.results = run_lockstep(supply.begin(given, step), observer=trials.observe)
            trials.arms.append(arm)
    return trials


class _State:
    """What a program alone runs on, in the clear: a model and sums that hold `HISTORY` interactions of one arm, and
    interactions that come to them. All of them have the same context and the same reward."""

    def __init__(self, federation: Federation, secrets: Secrets, arm: int, program: ProgramId) -> None:
        self._federation, self._secrets, self._program = federation, secrets, program
        self._arms = [(arm + place) % federation.arms for place in range(program.count)]
        size = federation.dimension
        context = np.full(size, secrets.features[-1])
        grams = np.repeat(federation.ridge * np.eye(size)[None], federation.arms, axis=0)
        moments = np.zeros((federation.arms, size))
        grams[arm] += HISTORY * np.outer(context, context)
        moments[arm] += HISTORY * secrets.reward * context
        self._arrays = {
            "grams": _packed(grams),
            "moments": moments,
            "inverses": _packed(self._inverses(grams, context)),
            "weights": self._weights(size),
        }

    def _inverses(self, grams: Floats, context: Floats) -> Floats:
        """As the program finds them: without the interactions that `solve` adds, at the start of a repair, or near its
        end."""
        if self._program.name == INVERT_BOOSTED:
            start = repair_plan(self._federation.numbers, HISTORY).start
            return np.zeros(grams.shape) + start * np.eye(grams.shape[-1])
        before = grams.copy()
        if self._program.name == SOLVE:
            before[self._arms[0]] -= self._program.count * np.outer(context, context)
        return np.linalg.inv(before).astype(np.float64)

    def _weights(self, size: int) -> Floats:
        """Those of the secrets; a repair begins from none."""
        given = np.zeros(FEW_ARMS) if self._program.name in REPAIR_RUNS else self._secrets.weights[:FEW_ARMS]
        return np.repeat(np.asarray(given, np.float64)[:, None], size, axis=1)

    def given(self, supply: _Supply, party: int, holds: bool) -> list[Words]:
        """What a party brings into the run."""
        bits, count = self._federation.fraction_bits, self._program.count
        state = State()
        for array in self._federation.learner.arrays:
            state[array.name] = encode(self._arrays[array.name] * holds, array.fraction_bits)[None]
        own = encode(np.full((1, count, 1), self._secrets.features[-1]), bits)
        one_hots = np.eye(FEW_ARMS, dtype=np.uint64)[self._arms] * np.uint64(holds)
        mask = np.zeros(1, np.uint64)
        nothing = np.zeros((1, FEW_ARMS), np.uint64)
        kept = [Interaction(own[:, place], -one_hots[None, place], nothing, mask) for place in range(count)]
        if self._program.name in (GATHER, REPAIR):
            # A reward is shared as minus the mask, and party 0 adds what the rewarder sent; here the holder has it all.
            reward = encode(np.full((1, count), self._secrets.reward * holds), bits)
            *others, _ = supply.program.given(state, Rewarded(kept, reward), party)
            return [*others, reward]
        return supply.program.given(state, None, party)


def _packed(matrices: Floats) -> Floats:
    """Upper triangles."""
    rows, columns = triangle_indices(matrices.shape[-1])
    return matrices[:, rows, columns]


# What is asked of tables


def _cells(tables: Sequence[Table], width: int, *, high: bool) -> Words:
    """The highest or the lowest bits of all words, [trials, words]."""
    cells = [table.words >> np.uint64(table.bits - width if high else 0) for table in tables]
    return np.concatenate(cells, axis=1) & np.uint64((1 << width) - 1)


def _by_width(tables: Sequence[Table], most: int) -> Iterator[tuple[list[Table], int]]:
    """Tables of one number of bits to look at."""
    for width in sorted({min(table.bits, most) for table in tables}):
        yield [table for table in tables if min(table.bits, most) == width], width


def _counts(cells: Words, size: int) -> np.ndarray:
    """How often each column has each value, [values, columns]."""
    return np.stack([(cells == np.uint64(value)).sum(axis=0) for value in range(size)])


def _name_of(tables: Sequence[Table], index: int) -> str:
    """The name of a word of all tables side by side."""
    for table in tables:
        if index < table.words.shape[1]:
            return table.word_name(index)
        index -= table.words.shape[1]
    raise IndexError(index)


def _worst(tables: list[Table], p_values: np.ndarray) -> tuple[float, str]:
    worst = int(p_values.argmin())
    return float(p_values[worst]), _name_of(tables, worst)


def _words(tables: Sequence[Table]) -> int:
    return sum(table.words.shape[1] for table in tables)


def check_uniform(tables: Sequence[Table]) -> None:
    """Every word is uniform in its highest and its lowest bits."""
    found = []
    for some, width in _by_width(tables, 4):
        for high in (True, False):
            counts = _counts(_cells(some, width, high=high), 1 << width)
            found.append(_worst(some, stats.chisquare(counts, axis=0).pvalue))
    _check(found, 2 * _words(tables), "is not uniform")


def check_independent_of_arm(trials: Trials) -> None:
    """No word goes with the arm, by its two highest or lowest bits."""
    arms, tables = np.array(trials.arms), trials.tables()
    found = []
    for some, width in _by_width(tables, 2):
        for high in (True, False):
            cells = _cells(some, width, high=high)
            by_arm = np.stack([_counts(cells[arms == arm], 1 << width) for arm in sorted(set(trials.arms))])
            found.append(_worst(some, _contingency(by_arm)))
    _check(found, 2 * _words(tables), "depends on the arm")


def check_same_distribution(*samples: Sequence[Table]) -> None:
    """No word tells sets of secrets apart, by its four highest or lowest bits."""
    found = []
    assert len({tuple((table.name, table.words.shape[1]) for table in tables) for tables in samples}) == 1
    for alike in zip(*(_by_width(tables, 4) for tables in samples), strict=True):
        some, width = alike[0]
        for high in (True, False):
            counts = [_counts(_cells(tables, width, high=high), 1 << width) for tables, _ in alike]
            found.append(_worst(some, _contingency(np.stack(counts))))
    _check(found, 2 * _words(samples[0]), "depends on the secrets")


def _contingency(table: np.ndarray) -> np.ndarray:
    """p-values of "rows and values are independent" for [rows, values, columns]."""
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum(axis=(0, 1))
    terms = np.divide((table - expected) ** 2, expected, out=np.zeros(table.shape), where=expected > 0)
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    p_values: np.ndarray = stats.chi2.sf(terms.sum(axis=(0, 1)), freedom)
    return p_values


def _check(found: list[tuple[float, str]], tests: int, why: str) -> None:
    smallest, name = min(found)
    assert smallest * tests > SIGNIFICANCE, f"{name}: {why} (p = {smallest:.1e} in {tests} tests)"


def check_no_mask_is_known(trials: Trials, coalition: set[int]) -> None:
    """What a coalition sees, less any word it was dealt, is no secret: its highest and its lowest byte differ from
    trial to trial; and so do those of its corrections, less any word of its seeds."""
    for program in trials.programs():
        known = seeds = trials.seeded(coalition, program)
        if trials.parties - 1 in coalition:
            known = np.concatenate([seeds, np.stack(trials.corrections[program])], axis=1)
            _check_hidden(trials.corrections_of(program), seeds, coalition)
        for table in trials.seen_by(coalition, program):
            if table.bits >= BYTE:
                _check_hidden(table, known, coalition)


def _check_hidden(table: Table, known: Words, coalition: set[int]) -> None:
    """Where a difference is the secret itself, one of a few values, many trials have the byte that one of the first
    has."""
    for index, column in enumerate(table.words.T):
        lowest = column.astype(np.uint8)[:, None] - known.astype(np.uint8)
        highest = ((column[:, None] - known) >> np.uint64(table.bits - BYTE)).astype(np.uint8)
        for parts in (lowest, highest):
            alike = max(_times_alike(parts, trial) for trial in range(COMPARED))
            name = table.word_name(index)
            assert alike < _too_many(len(parts)), f"{name}: hides nothing from parties {sorted(coalition)}"


def _times_alike(parts: NDArray[np.uint8], trial: int) -> int:
    """How many trials have the byte of one of them, where most do."""
    return int((parts == parts[trial]).sum(axis=0, dtype=np.uint16).max())


def _too_many(trials: int) -> int:
    """So many of the other trials have the byte of a given one with a probability below 10^-14. There are some 10^7
    pairs of words, two bytes and four trials: one case in a million."""
    return 2 + int(stats.binom.isf(1e-14, trials - 1, 1 / 256))
