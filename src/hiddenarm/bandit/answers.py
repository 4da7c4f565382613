"""What the parties answer to the actor when they have decided, and how the actor finds the arms in it.

    payloads   xor-shares of words V, 32 bits each: zero at the chosen arm, uniform and independent at all others. The
               parties do not hold the arm: the actor returns its one-hot, under a mask that the dealer dealt.
    one-hots   additive shares of the one-hot of the arm, which the parties hold.

Either way the actor, who alone gets all answers, learns the arm and nothing else (`mpc.payloads`, `mpc.shuffle`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.errors import InputError
from hiddenarm.ring.words import Words

NO_ARM = -1
"""In place of an arm: none beats all others, as scores have left their range; or the answers are not in step."""
TWO_ARMS = -2
"""In place of an arm: the word of another arm is zero by chance, once in 2^32 / (arms - 1) decisions."""
ALL_BITS = np.uint64(2**64 - 1)


class Answers(Enum):
    """What each party answers, for each arm."""

    PAYLOADS = "a share of a word that is zero at the chosen arm"
    ONE_HOTS = "a share of a number that is one at the chosen arm"

    @property
    def returned(self) -> bool:
        """Whether the actor returns the one-hot of the arm to the parties."""
        return self is Answers.PAYLOADS


def eligible_words(arms: int, eligible: Iterable[int] | None = None, retired: Sequence[int] = ()) -> Words:
    """What a party brings for a set of eligible arms, all unless given, but none that is retired: a word for each arm,
    all bits set or none."""
    words = np.zeros(arms, np.uint64)
    chosen = range(arms) if eligible is None else list(eligible)
    for arm in chosen:
        if isinstance(arm, bool) or not isinstance(arm, int | np.integer) or not 0 <= arm < arms:
            raise InputError(f"eligible arms must be whole numbers from 0 to {arms - 1}")
        if words[arm]:
            raise InputError(f"arm {arm} is named twice among the eligible arms")
        words[arm] = ALL_BITS
    if not len(chosen):
        raise InputError("no arm is eligible: name one at least, or none to have all")
    return without_retired(words, retired)


def without_retired(words: Words, retired: Sequence[int]) -> Words:
    """Words of eligible arms, which are written to, of which the retired ones are none."""
    words[list(retired)] = 0
    if not words.any():
        raise InputError("all arms that are named as eligible are retired: name another")
    return words


def arms_in(answers: Answers, shares: Sequence[Words], eligible: Words) -> NDArray[np.int64]:
    """The arms [...] in the answers [..., arms] of all parties; NO_ARM or TWO_ARMS where there is no single one."""
    chosen, possible = _chosen(answers, shares, eligible)
    found = chosen.sum(axis=-1)
    arms = np.where(found == 1, chosen.argmax(axis=-1), np.where(found == 0, NO_ARM, TWO_ARMS))
    return np.where(possible, arms, NO_ARM).astype(np.int64)


def first_arms_in(answers: Answers, shares: Sequence[Words], eligible: Words) -> NDArray[np.int64]:
    """Where several arms look chosen, the first of them."""
    chosen, _ = _chosen(answers, shares, eligible)
    arms: NDArray[np.int64] = chosen.argmax(axis=-1).astype(np.int64)
    return arms


def _chosen(
    answers: Answers, shares: Sequence[Words], eligible: Words
) -> tuple[NDArray[np.bool_], NDArray[np.bool_] | np.bool_]:
    """Which eligible arms [..., arms] look chosen, and whether the answers [...] are possible ones."""
    if answers is Answers.PAYLOADS:
        chosen, possible = np.bitwise_xor.reduce(shares) == 0, np.True_
    else:
        total = np.add.reduce(shares)
        chosen, possible = total == 1, (total <= 1).all(axis=-1)
    return chosen & (eligible != 0), possible


def masked_arms(arms: NDArray[np.int64], masks: Words, table: ArmTable | None = None) -> Words:
    """What the actor returns: the one-hots of arms [...] under masks [..., arms], or their features under masks
    [..., width] where arms have some; zeros under them where there is no arm. Never two of them under the same masks:
    their difference would reveal both."""
    if table is not None:
        return masks + np.where(arms[..., None] >= 0, table.words[arms], np.uint64(0))
    one_hots: Words = (arms[..., None] == np.arange(masks.shape[-1])).astype(np.uint64)
    return masks + one_hots
