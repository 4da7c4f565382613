"""Many decisions about the same, under new words each time, as the actor together with all parties but one sees them.

Worlds differ in model, contexts and exploration; the arm is the same in all of them. What the coalition holds and
receives must not tell the worlds apart: what the other party sends to parties and actor, what is opened with it, the
combined answers, the corrections of the last party, and any two words together. The other party holds the whole model,
so that what it sends is not hidden by its shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from trials import Column, Trials, check_same_columns, check_uniform_columns, columns_of, dealt_words_noted

from hiddenarm.bandit import lockstep as lockstep_module
from hiddenarm.bandit.answers import Answers
from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import DECIDE, STEP_ONE, deciding, program_text
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.state import initial_state
from hiddenarm.mpc.dealing import layout_of
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.payloads import PAYLOAD_BITS
from hiddenarm.mpc.tournament import levels, pairs
from hiddenarm.ring.words import Floats, Words, encode
from support import SIGNIFICANCE, fixed_key

OPENED, COMBINED, ANSWER = "opened", "combined answers", "answer of party "
NARROW = 16
"""Words of at most so many bits are several values side by side, each of one bit."""
ENOUGH = 40
"""Trials beyond the number of bits: those of independent bits are dependent by a chance of 2^-40."""
ORDERS = 32
"""Trials whose opened order is looked at."""


class World(NamedTuple):
    """What is decided about: the feature of every party, the weight of each arm for all of them, whether the dealer
    explores, and the reward."""

    name: str
    feature: float
    weights: Floats
    explored: bool
    reward: float

    def scores(self, parties: int) -> Floats:
        return self.weights * self.feature * parties


def worlds_of(federation: Federation, arm: int) -> tuple[World, World, World]:
    """Three worlds in which an arm is chosen: it is the best and the order of the others is rising; or falling; or it
    is the worst by far, all others are equally good, at the bound of scores, and the dealer explores."""
    rising = np.linspace(-0.9, 0.8, federation.arms)
    falling = rising[::-1].copy()
    rising[arm] = falling[arm] = 0.9
    saturated = np.full(federation.arms, 0.99 * federation.score_bound / federation.parties)
    saturated[arm] *= -1
    return (
        World("rising", 1.0, rising, explored=False, reward=0.0),
        World("falling", -0.5, -falling, explored=False, reward=1.0),
        World("explored", 1.0, saturated, explored=True, reward=0.7),
    )


def planted(federation: Federation, world: World) -> Floats:
    """Weights [models, size] by which arms have the weights of a world in every feature of the contexts."""
    if federation.arm_features is None:
        return world.weights[:, None]
    matrix = np.linalg.lstsq(federation.arm_features.features, world.weights, rcond=None)[0]
    return np.tile(matrix, federation.parties)[None]


@dataclass
class Decisions(Trials):
    """What was seen of decisions: also the words that the actor holds, and what it returned."""

    program: str = DECIDE
    arm: int = 0
    answered: Answers = Answers.PAYLOADS
    actor: list[Words] = field(default_factory=list)
    returned: list[Words] = field(default_factory=list)

    def answer(self, shares: Sequence[Words]) -> None:
        """The answers of all parties [1, contexts, arms]."""
        bits = PAYLOAD_BITS if self.answered is Answers.PAYLOADS else 64
        for party, words in enumerate(shares):
            self.note(f"{ANSWER}{party}", words, bits)
        if self.answered is Answers.PAYLOADS:
            self.note(COMBINED, np.delete(np.bitwise_xor.reduce(shares), self.arm, axis=-1), bits)

    # What a coalition of the actor and all parties but one has

    def received(self, coalition: set[int]) -> list[Column]:
        """What comes to it from others: the other party, and the dealer. And what is opened and found with it."""
        (other,) = set(range(self.parties)) - coalition
        places = [place for _, place in self.seen if place.endswith((f"party {other}", OPENED, COMBINED))]
        columns = [column for place in places for column in self.at(self.program, place)]
        return columns + (self.corrections_of(self.program) if self.parties - 1 in coalition else [])

    def two_losers(self) -> list[Column]:
        """The words of any two arms that were not chosen, together."""
        if self.answered is not Answers.PAYLOADS:
            return []
        words = np.stack(self.seen[self.program, COMBINED])
        first, second = np.array(list(combinations(range(words.shape[1]), 2)), np.intp).reshape(-1, 2).T
        return columns_of("two arms, combined", words[:, first] ^ words[:, second], PAYLOAD_BITS)

    def held(self, coalition: set[int], *, sums: bool = True) -> Words:
        """The words of its seeds, the actor's among them, [trials, words]; and sums of those at one place."""
        each = [np.stack(self.dealt[self.program, party]) for party in sorted(coalition)]
        if sums and len(coalition) > 1 and len({words.shape for words in each}) == 1:
            each += [reduce(np.add, each), reduce(np.bitwise_xor, each)]  # their part of what is shared
        return np.concatenate([*each, np.stack(self.actor)], axis=1)


def run_decisions(
    federation: Federation,
    world: World,
    arm: int,
    key: str,
    *,
    contexts: int,
    count: int,
    other: int,
    online: bool = False,
    eligible: list[int] | None = None,
) -> Decisions:
    """Decide `count` times about as many contexts as are given; `online` by `step`, which goes on to learn a reward.
    Party `other` holds the model, the same every time. Among `eligible` arms, which fill all slots of a program, what
    is noted as the arm is its slot."""
    among = None if eligible is None else len(eligible)
    program = STEP_ONE if online else deciding(contexts, among)
    epoch_key = fixed_key("joint views", key, world.name)
    slot = arm if eligible is None else eligible.index(arm)
    trials = Decisions(federation.parties, program=program.label, arm=slot)
    trials.answered = (federation.learner if among is None else federation.learner.among(among)).answers
    lockstep = Lockstep(
        federation,
        epoch_key,
        epsilons=[float(world.explored)],
        deal_ahead=32,
        observer=trials.observe,
        online=online,
    )
    layout = layout_of(program_text(federation, program), federation.parties, 1)
    actor = program_stream(Seeds(epoch_key).actor(), program.label, layout.actor_words)
    features = [np.full((1, contexts, 1), world.feature)] * federation.parties
    with dealt_words_noted(trials), _actor_noted(trials), _explored_to(slot):
        for step in range(count):
            lockstep.states = [initial_state(federation.learner.arrays, party) for party in range(federation.parties)]
            lockstep.states[other]["weights"][0] = encode(planted(federation, world), federation.fraction_bits)
            inverses = [state["inverses"] for state in lockstep.states]
            inverses[other][:], inverses[other - 1][:] = np.add.reduce(inverses), np.uint64(0)
            trials.start(program.label)
            if contexts == 1:
                number, arms = lockstep.decide([own[:, 0] for own in features], eligible)
            else:
                _, arms = lockstep.decide_batch(features, eligible)
            if online:
                lockstep.learn(number, [world.reward])
            chosen = arms.ravel().tolist()
            trials.arms += chosen if eligible is None else [eligible.index(one) for one in chosen]
            trials.actor.append(actor.step(step) if layout.actor_words else np.empty(0, np.uint64))
    return trials


@contextmanager
def _actor_noted(trials: Decisions) -> Iterator[None]:
    """Note the answers that the actor gets, and what it returns."""
    honest_arms, honest_one_hots = lockstep_module.arms_in, lockstep_module.masked_arms  # type: ignore[attr-defined]

    def arms_in(answers: Answers, shares: Sequence[Words], eligible: Words) -> NDArray[np.int64]:
        trials.answer(shares)
        return honest_arms(answers, shares, eligible)

    def masked_arms(arms: NDArray[np.int64], masks: Words, table: ArmTable | None) -> Words:
        returned = honest_one_hots(arms, masks, table)
        trials.returned.append(returned.ravel().copy())
        return returned

    with (
        patch.object(lockstep_module, "arms_in", arms_in),
        patch.object(lockstep_module, "masked_arms", masked_arms),
    ):
        yield


@contextmanager
def _explored_to(arm: int) -> Iterator[None]:
    """Where the dealer explores, the highest tag is that of an arm; the others are uniform, given that."""
    honest = Coins.from_words

    def from_words(words: Words, thresholds: Words, normals: bool = False) -> Coins:
        coins = honest(words, thresholds, normals)
        tags = coins.tags.copy()
        np.put_along_axis(tags, tags.argmax(axis=-1)[..., None], tags[..., arm, None], axis=-1)
        tags[..., arm] = tags.shape[-1] - 1
        return Coins(coins.explore, np.where(coins.explore[..., None], tags, coins.tags), coins.normals)

    with patch.object(Coins, "from_words", from_words):
        yield


# What is asked of joint views


def check_joint_views(worlds: Sequence[Decisions], coalition: set[int]) -> None:
    """What actor and coalition have does not tell worlds apart, and no word of it goes with another."""
    views = [[*world.received(coalition), *world.two_losers()] for world in worlds]
    check_same_columns(*views)
    for world, view in zip(worlds, views, strict=True):
        check_uniform_columns(view)
        check_no_word_goes_with_another(world, coalition)
        assert set(world.arms) == {world.arm}


def check_no_word_goes_with_another(trials: Decisions, coalition: set[int]) -> None:
    """No word that a coalition receives is another one, or one that it holds, but for a constant: no two bits at the
    same place are equal in all trials, nor different in all. Two independent ones are by a chance of 2^(1 - trials)."""
    received, held = trials.received(coalition), trials.held(coalition)
    if trials.answered is Answers.ONE_HOTS:  # with the arm, the other party's answer follows from the others
        received = [column for column in received if ANSWER not in column.name]
    seen: dict[bytes, str] = {}
    for bit in range(max(column.bits for column in received if column.bits <= NARROW)):
        known = set(_patterns(held, bit)) | (set(_patterns(held, PAYLOAD_BITS)) if bit == 0 else set())
        some = [column for column in received if bit == 0 or bit < column.bits <= NARROW]
        for column, pattern in zip(some, _patterns(_side_by_side(some), bit), strict=True):
            name = f"{column.name}, bit {bit}"
            assert pattern not in known, f"{name}: goes with a word that parties {sorted(coalition)} or actor hold"
            assert pattern not in seen, f"{name}: goes with {seen[pattern]}"
            seen[pattern] = name


def check_words_are_independent(trials: Decisions, coalition: set[int]) -> None:
    """The lowest bits of all words that a coalition receives or holds, and all bits of narrow ones, are independent: no
    exclusive or of any of them is the same in all trials. Takes more trials than there are bits. What is opened is left
    out: it follows from what the other party sends and what the coalition holds, as answers do from combined ones."""
    columns = [column for column in trials.received(coalition) if not column.name.split(", word")[0].endswith(OPENED)]
    columns = [column for column in columns if ANSWER not in column.name]
    columns += columns_of("held", trials.held(coalition, sums=False), 64)
    words = _side_by_side(columns)
    bits = []
    for bit in range(PAYLOAD_BITS + 1):
        looked_at = [place for place, column in enumerate(columns) if _looked_at(bit, column.bits)]
        names = [f"{columns[place].name}, bit {bit}" for place in looked_at]
        bits += list(zip(names, map(int.from_bytes, _patterns(words[:, looked_at], bit)), strict=True))
    assert len(words) > len(bits) + ENOUGH, f"{len(bits)} bits need more trials"
    reduced: dict[int, int] = {}
    for name, pattern in bits:
        while pattern and (highest := pattern.bit_length()) in reduced:
            pattern ^= reduced[highest]
        assert pattern, f"{name}: follows from others, to parties {sorted(coalition)} and actor"
        reduced[highest] = pattern


def _looked_at(bit: int, bits: int) -> bool:
    """All bits of narrow words; the lowest of others, and that of the second payload where a word has two."""
    return bit < bits if bits <= NARROW else bit == 0 or bit == PAYLOAD_BITS < bits


def _side_by_side(columns: Sequence[Column]) -> Words:
    return np.stack([column.words for column in columns], axis=1)


def _patterns(words: Words, bit: int) -> list[bytes]:
    """One bit of each word in all trials; the same for its complement."""
    bits = (words >> np.uint64(bit)).astype(np.uint8) & 1
    return [column.tobytes() for column in np.packbits(bits ^ bits[0], axis=0).T]


def check_no_order_is_known(trials: Decisions, scores: Floats, coalition: set[int]) -> None:
    """The opened order of the slots says nothing about arms: taken for a permutation, no words that the coalition has
    map slots to arms of scores in that order."""
    size = len(scores)
    received = [column for column in trials.received(coalition) if column.bits == 64]
    known = [trials.held(coalition), _side_by_side(received)]
    first, second, places = _slots_apart(levels(size)[0])
    opened = np.stack(trials.orders[: ORDERS * len(levels(size)) : len(levels(size))])[:, 0, 0, places].astype(bool)
    agreed = [_agreement(words[:ORDERS], scores, first, second, opened) for words in known if words.shape[1] >= size]
    tests, draws = sum(counts.size for counts in agreed), opened.size
    most = max(int(np.abs(2 * counts - draws).max()) for counts in agreed)
    p_value = 2 * stats.binom.sf((draws + most) / 2 - 1, draws, 0.5)
    assert p_value * tests > SIGNIFICANCE, f"the order of slots is one of arms to parties {sorted(coalition)} and actor"


def _agreement(
    words: Words, scores: Floats, first: NDArray[np.intp], second: NDArray[np.intp], opened: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """For each block of neighbouring words, how many opened comparisons are those of scores if the words stand for the
    permutation, or its inverse: [2, blocks]."""
    counts = []
    for start in range(words.shape[1] - len(scores) + 1):
        order = words[:, start : start + len(scores)].argsort(axis=1, kind="stable")
        for items in (order, order.argsort(axis=1)):
            less = scores[items[:, first]] < scores[items[:, second]]
            counts.append((less == opened).sum())
    return np.array(counts, np.int64).reshape(-1, 2).T


def _slots_apart(sizes: tuple[int, ...]) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Pairs of neighbouring slots that were compared, no slot in two of them, and their places among all pairs: their
    comparisons are independent in a random order."""
    first, second = pairs(sizes)
    starts = np.cumsum((0, *sizes[:-1]))
    apart = {start + slot for start, size in zip(starts, sizes, strict=True) for slot in range(0, size - 1, 2)}
    places = np.array([p for p in range(len(first)) if second[p] == first[p] + 1 and first[p] in apart], np.intp)
    return first[places], second[places], places


def check_masks_are_new(trials: Decisions) -> None:
    """What the actor returns is masked anew each time: it is uniform, and so are the differences of two trials."""
    returned = np.stack(trials.returned)
    check_uniform_columns(columns_of("returned", returned, 64))
    for apart in (1, 2):
        name = f"returned, {apart} trials apart"
        check_uniform_columns(columns_of(name, returned[apart:] - returned[:-apart], 64))
