"""The same step many times, under new words each time: everything that a coalition sees, a column for each word and a
row for each trial. A coalition is all parties but one, with the actor. A step is a decision and its lesson, or `step`
(`run_trials`), or one program alone on arrays that are made for it (`run_program`): decisions in batches, and all that
learns many interactions at once.

What a coalition can compute from it must not depend on features, reward or model, nor on the arm but for what the actor
is told; and not on whether the arm was explored. Checked are each word that is sent or opened, each correction of the
last party, each word that the actor is told or tells, and each that the rewarder tells, by itself; and each of them
less any word that the coalition was dealt: a mask that the coalition knows leaves a word uniform, and hides nothing.

What the actor finds in the answers of all parties is zero at the arm. Its words at the other arms are columns by how
far they are from the arm; so are the differences of any two of them, which are not uniform if two pairs of arms have
the same payloads.
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

from hiddenarm.bandit.answers import ALL_BITS, arms_in
from hiddenarm.bandit.catalogue import (
    DECIDE,
    GATHER,
    INVERT_BOOSTED,
    LEARN,
    REPAIR,
    REPAIR_RUNS,
    SOLVE,
    STEP,
    UNLEARN,
    ProgramId,
)
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, Interaction, Rewarded
from hiddenarm.bandit.lockstep import Lockstep, _Supply
from hiddenarm.bandit.planning import repair_plan
from hiddenarm.bandit.state import State, initial_state
from hiddenarm.bandit.subsets import Subset
from hiddenarm.mpc.evaluation import DealtWords, ProgramMaterial
from hiddenarm.mpc.lockstep import run_lockstep
from hiddenarm.mpc.masking import triangle_indices
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.payloads import PAYLOAD_BITS
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
_LOSERS = "found at other arms"
_RETURNED = "returned one-hot"
_REWARD = "masked reward"


class Secrets(NamedTuple):
    """What is decided and learned about: features (the same at all parties), the reward, and weights of the arms."""

    features: tuple[float, float]
    reward: float
    weights: tuple[float, float, float, float]


ZEROS = Secrets((0.0, 0.0), 0.0, (0.0, 0.0, 0.0, 0.0))
EXTREMES = Secrets((0.0, -1.0), 1.0, (0.9, -0.9, 0.9, -0.9))


@dataclass
class Column:
    """One word of every trial, of so many bits."""

    name: str
    words: Words
    bits: int


@dataclass
class Trials:
    """What was seen: all that parties sent and opened by place, and the words dealt to each, by program."""

    parties: int
    arms: list[int] = field(default_factory=list)
    explored: list[bool] = field(default_factory=list)
    seen: dict[tuple[str, str], list[Words]] = field(default_factory=lambda: defaultdict(list))
    bits: dict[tuple[str, str], int] = field(default_factory=dict)
    dealt: dict[tuple[str, int], list[Words]] = field(default_factory=lambda: defaultdict(list))
    corrections: dict[str, list[Words]] = field(default_factory=lambda: defaultdict(list))
    of_actor: dict[str, list[Words]] = field(default_factory=lambda: defaultdict(list))
    """What the actor knows beside the arm: its own words, and what it found in the answers."""
    orders: list[Words] = field(default_factory=list)
    """Which of two keys is larger, for all pairs of shuffled slots, by decision and level of the tournament."""
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
            if opening.why == RANDOM_ORDER:  # uniform among orders, not among bits
                self.orders.append(opened)
            else:
                self.note(f"{here}, opened", opened, opening.bits)
        self.round += 1

    def note(self, place: str, words: Words, bits: int) -> None:
        """Words that somebody sees while a program runs."""
        self.seen[self.program, place].append(words.ravel().copy())
        self.bits[self.program, place] = bits

    def take(self, party: int, dealt: DealtWords) -> None:
        self.dealt[self.program, party].append(np.array(dealt.own))
        if party == self.parties - 1:
            self.corrections[self.program].append(np.array(dealt.corrections))

    def act(self, answers: Sequence[Words], arms: NDArray[np.int64], masks: Words, returned: Words | None) -> None:
        """The actor was told the answers [contexts, arms] of all parties, and found the arms. It returns one-hots."""
        for party, words in enumerate(answers):
            self.note(f"answer, party {party}", words, PAYLOAD_BITS)
        found = np.bitwise_xor.reduce(answers)
        others = (arms[:, None] + np.arange(1, found.shape[-1])) % found.shape[-1]
        losers: Words = np.take_along_axis(found, others, axis=-1)
        first, second = np.triu_indices(losers.shape[-1], 1)
        self.note(_LOSERS, losers, PAYLOAD_BITS)
        self.note(f"{_LOSERS}, differences", losers[:, first] ^ losers[:, second], PAYLOAD_BITS)
        if returned is not None:
            self.note(_RETURNED, returned, 64)
        self.of_actor[self.program].append(np.concatenate([masks.ravel(), losers.ravel()]))

    # As columns

    def columns(self) -> Iterator[Column]:
        """Everything that is seen by anybody, and the corrections."""
        for (program, place), rows in self.seen.items():
            yield from columns_of(f"{program}, {place}", rows, self.bits[program, place])
        for program in self.corrections:
            yield from self.corrections_of(program)

    def programs(self) -> set[str]:
        return {program for program, _ in self.seen}

    def seen_by(self, coalition: set[int], program: str) -> list[Column]:
        """What the other party sends to a coalition, what is opened with it, and what actor and rewarder send."""
        (other,) = set(range(self.parties)) - coalition
        return [
            column
            for (name, place), rows in self.seen.items()
            if name == program and place.endswith((f", party {other}", "opened", _RETURNED, _REWARD))
            if not place.startswith("answer")
            for column in columns_of(f"{program}, {place}", rows, self.bits[name, place])
        ]

    def losers(self, program: str) -> list[Column]:
        """What the actor found at the other arms."""
        return [
            column
            for (name, place), rows in self.seen.items()
            if name == program and place.startswith(_LOSERS)
            for column in columns_of(f"{program}, {place}", rows, PAYLOAD_BITS)
        ]

    def at(self, program: str, place: str) -> list[Column]:
        """What was seen at one place."""
        return columns_of(f"{program}, {place}", self.seen[program, place], self.bits[program, place])

    def corrections_of(self, program: str) -> list[Column]:
        return columns_of(f"{program}, correction", self.corrections[program], 64)

    def seeded(self, coalition: set[int], program: str) -> Words:
        """The words of a coalition's seeds, [trials, words]: each, and where all members have as many also the sums of
        those at one place, which are their part of a shared mask."""
        each = [np.stack(self.dealt[program, party]) for party in sorted(coalition)]
        if len(coalition) > 1 and len({words.shape for words in each}) == 1:
            each.append(reduce(np.add, each))
        return np.concatenate(each, axis=1)


def columns_of(name: str, rows: Sequence[Words] | Words, bits: int) -> list[Column]:
    """A column for each word of all rows."""
    table: Words = np.asarray(rows)
    return [Column(f"{name}, word {index}", table[:, index], bits) for index in range(table.shape[1])]


def run_trials(
    secrets: Secrets, key: str, *, count: int, parties: int = 2, programs: tuple[str, ...] = (DECIDE, LEARN)
) -> Trials:
    """Decide and learn the same, `count` times, each time from the same model: by two programs, or by one."""
    federation = Federation(arms=ARMS, features=(FEATURES,) * parties, epsilon=0.2, repair_every=10 * count)
    trials = Trials(parties)
    lockstep = Lockstep(
        federation,
        fixed_key("trials", key),
        deal_ahead=DEALT_AHEAD,
        observer=trials.observe,
        online=programs == (STEP,),
    )
    contexts = [np.array([secrets.features])] * parties
    with dealt_words_noted(trials), _actor_noted(trials), _rewarder_noted(trials, programs[0]):
        for _ in range(count):
            lockstep.states = _model(lockstep, secrets)
            trials.start(programs[0])
            number, arms = lockstep.decide(contexts)
            trials.arms.append(int(arms[0]))
            if len(programs) > 1:
                trials.start(programs[1])
            lockstep.learn(number, [secrets.reward])
    trials.explored = lockstep.coins(0, count).explore[:, 0].tolist()
    assert trials.programs() == set(programs)
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


@contextmanager
def _actor_noted(trials: Trials) -> Iterator[None]:
    """What the actor is told, knows and returns."""
    honest = Lockstep._act

    def act(
        lockstep: Lockstep,
        program: ProgramId,
        step: int,
        decided: list[Decided],
        eligible: Words,
        subset: Subset | None,
    ) -> NDArray[np.int64]:
        arms = honest(lockstep, program, step, decided, eligible, subset)
        label = program.label
        masks = program_stream(lockstep._seeds.actor(), label, lockstep._supply(program).layout.actor_words).step(step)
        _note_act(trials, decided, arms, masks)
        return arms

    with patch.object(Lockstep, "_act", act):
        yield


@contextmanager
def _rewarder_noted(trials: Trials, program: str) -> Iterator[None]:
    """What the rewarder sends, under a mask that was dealt with the decision, by this program."""
    honest = Lockstep._teach

    def teach(lockstep: Lockstep, numbers: Any, kept: Any, masked: Words, of_step: int | None = None) -> None:
        trials.seen[program, _REWARD].append(masked.ravel().copy())
        trials.bits[program, _REWARD] = 64
        honest(lockstep, numbers, kept, masked, of_step)

    with patch.object(Lockstep, "_teach", teach):
        yield


def _note_act(trials: Trials, decided: list[Decided], arms: NDArray[np.int64], masks: Words) -> None:
    answers = [own.answer[0] for own in decided if own.answer is not None]
    returned = decided[0].masked_arm
    trials.act(answers, arms[0], masks, None if returned is None else returned[0])


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
            if program.name == DECIDE:
                everywhere = np.full((1, program.count, FEW_ARMS), ALL_BITS)
                answers = [own.answer for own in trials.results]
                found = arms_in(federation.learner.answers, answers, everywhere)
                _note_act(trials, trials.results, found, supply.actor.step(step))
                arm = int(found[0, 0])
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
        if self._program.name == DECIDE:
            everywhere = np.full((1, count, FEW_ARMS), ALL_BITS)
            return [*(state[name] for name in supply.program.reads), own, everywhere]
        one_hots = np.eye(FEW_ARMS, dtype=np.uint64)[self._arms] * np.uint64(holds)
        mask = np.zeros(1, np.uint64)
        nothing = np.zeros((1, FEW_ARMS), np.uint64)
        kept = [Interaction(own[:, place], -one_hots[None, place], nothing, mask) for place in range(count)]
        if self._program.name in (GATHER, REPAIR, UNLEARN):
            # A reward is shared as minus the mask, and party 0 adds what the rewarder sent; here the holder has it all.
            reward = encode(np.full((1, count), self._secrets.reward * holds), bits)
            *others, _ = supply.program.given(state, Rewarded(kept, reward), party)
            return [*others, reward]
        return supply.program.given(state, None, party)


def _packed(matrices: Floats) -> Floats:
    """Upper triangles."""
    rows, columns = triangle_indices(matrices.shape[-1])
    return matrices[:, rows, columns]


# What is asked of columns


def _cells(columns: list[Column], width: int, *, high: bool) -> Words:
    """The highest or the lowest bits of columns, [trials, columns]."""
    cells = [column.words >> np.uint64(column.bits - width if high else 0) for column in columns]
    return np.stack(cells, axis=1) & np.uint64((1 << width) - 1)


def _by_width(columns: list[Column], most: int) -> Iterator[tuple[list[Column], int]]:
    """Columns of one number of bits to look at."""
    for width in sorted({min(column.bits, most) for column in columns}):
        yield [column for column in columns if min(column.bits, most) == width], width


def _counts(cells: Words, size: int) -> np.ndarray:
    """How often each column has each value, [values, columns]."""
    return np.stack([(cells == np.uint64(value)).sum(axis=0) for value in range(size)])


def _worst(columns: list[Column], p_values: np.ndarray) -> tuple[float, str]:
    worst = int(p_values.argmin())
    return float(p_values[worst]), columns[worst].name


def check_uniform(trials: Trials) -> None:
    """Every word is uniform in its highest and its lowest bits."""
    check_uniform_columns(list(trials.columns()))


def check_uniform_columns(seen: list[Column]) -> None:
    """The same for some words."""
    found = []
    for columns, width in _by_width(seen, 4):
        for high in (True, False):
            counts = _counts(_cells(columns, width, high=high), 1 << width)
            found.append(_worst(columns, stats.chisquare(counts, axis=0).pvalue))
    _check(found, 2 * len(seen), "is not uniform")


def check_independent_of_arm(trials: Trials) -> None:
    """No word goes with the arm, by its two highest or lowest bits."""
    _check_independent(trials, trials.arms, "depends on the arm")


def check_independent_of_exploring(trials: Trials) -> None:
    """No word goes with whether the arm was explored."""
    _check_independent(trials, trials.explored, "depends on exploring")


def _check_independent(trials: Trials, of: Sequence[int], why: str) -> None:
    labels = np.array(of)
    found = []
    for columns, width in _by_width(list(trials.columns()), 2):
        for high in (True, False):
            cells = _cells(columns, width, high=high)
            table = np.stack([_counts(cells[labels == label], 1 << width) for label in sorted(set(of))])
            found.append(_worst(columns, _contingency(table)))
    _check(found, 2 * len(list(trials.columns())), why)


def check_same_distribution(one: Trials, other: Trials) -> None:
    """No word tells two sets of secrets apart."""
    check_same_columns(list(one.columns()), list(other.columns()))


def check_same_columns(*samples: list[Column]) -> None:
    """No word tells samples apart, by its four highest or lowest bits."""
    found = []
    assert all([column.name for column in seen] == [column.name for column in samples[0]] for seen in samples)
    for alike in zip(*(_by_width(seen, 4) for seen in samples), strict=True):
        columns, width = alike[0]
        for high in (True, False):
            tables = [_counts(_cells(some, width, high=high), 1 << width) for some, _ in alike]
            found.append(_worst(columns, _contingency(np.stack(tables))))
    _check(found, 2 * len(samples[0]), "depends on the secrets")


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
    trial to trial; and so do those of its corrections, less any word of its seeds. With the actor it knows more, but
    for the one-hots that the actor itself returns; and what the actor finds at other arms is no word that it was
    dealt."""
    for program in trials.programs():
        known = seeds = trials.seeded(coalition, program)
        if trials.parties - 1 in coalition:
            known = np.concatenate([seeds, np.stack(trials.corrections[program])], axis=1)
            for column in trials.corrections_of(program):
                _check_hidden(column, seeds, coalition)
        seen = [column for column in trials.seen_by(coalition, program) if column.bits >= BYTE]
        for column in seen:
            _check_hidden(column, known, coalition)
        if program in trials.of_actor:
            of_actor = np.stack(trials.of_actor[program])
            for column in seen:
                if _RETURNED not in column.name:
                    _check_hidden(column, of_actor, coalition, "and the actor")
            for column in trials.losers(program):
                _check_hidden(column, known, coalition, "and the actor")


def _check_hidden(column: Column, known: Words, coalition: set[int], with_actor: str = "") -> None:
    """Where a difference is the secret itself, one of a few values, many trials have the byte that one of the first
    has. Words of the actor are shared by exclusive or."""
    words = column.words[:, None]
    less = words ^ known if with_actor else words - known
    lowest = less.astype(np.uint8)
    highest = (less >> np.uint64(column.bits - BYTE)).astype(np.uint8)
    for parts in (lowest, highest):
        alike = max(_times_alike(parts, trial) for trial in range(COMPARED))
        whom = f"parties {sorted(coalition)} {with_actor}".strip()
        assert alike < _too_many(len(parts)), f"{column.name}: hides nothing from {whom}"


def _times_alike(parts: NDArray[np.uint8], trial: int) -> int:
    """How many trials have the byte of one of them, where most do."""
    return int((parts == parts[trial]).sum(axis=0, dtype=np.uint16).max())


def _too_many(trials: int) -> int:
    """So many of the other trials have the byte of a given one with a probability below 10^-14. There are some 10^7
    pairs of words, two bytes and four trials: one case in a million."""
    return 2 + int(stats.binom.isf(1e-14, trials - 1, 1 / 256))
