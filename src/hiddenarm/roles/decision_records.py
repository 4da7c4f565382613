"""What a party keeps of its decisions, and the one-hots that the actor returns for them: the areas `decision` and
`arms` of its records (`party_areas`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hiddenarm.bandit.catalogue import STEP_ONE, ProgramId, slots_of
from hiddenarm.bandit.decisions import decided_by, decision_name, decision_number, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, Interaction, own_words
from hiddenarm.bandit.state import padded_arms
from hiddenarm.bandit.subsets import Subset
from hiddenarm.errors import DamagedStoreError
from hiddenarm.ring.words import Words
from hiddenarm.roles.messages import ReturnedArms
from hiddenarm.roles.party_areas import (
    ARMS,
    DECISION,
    EMPTIED,
    HIDES_ZERO,
    OF_ONE_HOTS,
    RETURNED,
    RUN,
    WORD,
    WORD_BYTES,
    run_key,
)
from hiddenarm.store.contract import Change, Put, Store
from hiddenarm.store.journal import Journal, Then


class DecidedRun(NamedTuple):
    """Decisions that one run has made, by a version of the model: this party's part of them. `rows_of` says whose rows
    they are, where these are counted; `slots` has the arms of the slots that one-hots are of, where they are."""

    epoch: int
    program: ProgramId
    step: int
    features: Words
    decided: Decided
    version: int = 0
    rows_of: Sequence[int] = ()
    slots: Subset | None = None


class DecisionRecords:
    """Of party `number`. What was just given to the journal is read back, too, if it is a one-hot."""

    def __init__(self, store: Store, journal: Journal, federation: Federation, number: int) -> None:
        self._store = store
        self._journal = journal
        self._arms_of_all = federation.arms
        self._arm_width = federation.arm_width
        self._grows = federation.arm_features is None
        self._features = federation.features[number]
        self._counts_rows = federation.noisy is not None
        self._evaluates = federation.evaluation is not None
        self._unwritten_arms: dict[bytes, bytes] = {}

    @property
    def count(self) -> int:
        """How many decisions there are."""
        return sum(_program_of(RUN.unpack(key)[1]).count for key, _ in self._store.items(DECISION))

    def names(self) -> Iterator[int]:
        """The names of all decisions."""
        for key, _ in self._store.items(DECISION):
            epoch, count, step = RUN.unpack(key)
            program = _program_of(count)
            for position in range(program.count):
                yield decision_name(epoch, decision_number(program, step, position))

    def holds(self, area: str, name: int) -> bool:
        """Whether there is a record of the run that has made a decision."""
        epoch, number = split_name(name)
        program, step, _ = split_number(number)
        return self._store.get(area, run_key(epoch, program, step)) is not None

    def written(self, run: DecidedRun) -> Put:
        """The record of decisions."""
        decided = run.decided
        arrays = [run.features, *own_words(decided.arm_mask, decided.reward_mask), np.array(run.rows_of, np.uint64)]
        if decided.kept is not None:
            arrays.extend(own_words(decided.kept))
        if run.slots is not None:
            arrays.append(run.slots.rows.astype(np.uint64))
        words = b"".join(np.ascontiguousarray(array, WORD).tobytes() for array in arrays)
        head = HIDES_ZERO if decided.masked_arm is not None else RETURNED
        return Put(DECISION, run_key(run.epoch, run.program, run.step), head + words)

    def emptied(self, key: bytes) -> list[Change]:
        """Forget what was kept of a run, but that it was there."""
        if self._store.get(DECISION, key) is None:
            return []
        areas = (DECISION,) if self._arms(key) is None else (DECISION, ARMS)
        return [Put(area, key, EMPTIED) for area in areas]

    def interaction(self, name: int) -> Interaction | None:
        """What was kept of a decision, whether it was rewarded or not."""
        epoch, number = split_name(name)
        program, step, position = split_number(number)
        count, key = program.count, run_key(epoch, program, step)
        payload = self._store.get(DECISION, key)
        if payload is None or payload == EMPTIED or position >= count:
            return None
        own, head = self._features, payload[: len(payload) % WORD_BYTES]
        words = np.frombuffer(payload, WORD, offset=len(head))
        words, rows = np.split(words, [max(0, len(words) - self._slots_kept(program))])
        arms, left = divmod(len(words) - count * (own + 1 + self._counts_rows + self._evaluates), count)
        if left or not self._had_arms(arms, program) or head not in (OF_ONE_HOTS, HIDES_ZERO, RETURNED):
            raise DamagedStoreError("a record of decisions has a wrong length")
        slots = Subset.of_rows(rows.astype(np.int64), self._arms_of_all) if len(rows) else None
        width = self._arm_width if slots is None else slots.size
        ends = [count * own, count * (own + arms), count * (own + arms + 1)]
        features, arm_masks, reward_masks, others = np.split(words, ends)
        by_position = others.reshape(-1, count)
        arm_mask = padded_arms(arm_masks.reshape(1, count, arms)[:, position], width)
        return Interaction(
            features.reshape(1, count, own)[:, position].copy(),
            -arm_mask if head == OF_ONE_HOTS else arm_mask.copy(),
            self._returned_arm(key, count, arms, position, width) if head == RETURNED else np.zeros_like(arm_mask),
            reward_masks.reshape(1, count)[:, position].copy(),
            int(by_position[0, position]) if self._counts_rows else 0,
            by_position[-1:, position].copy() if self._evaluates else None,
            slots,
        )

    def _slots_kept(self, program: ProgramId) -> int:
        """How many arms of slots the record of a run has: those of one-hots, where arms have no features."""
        return (slots_of(program) or 0) if self._grows else 0

    def _returned_arm(self, key: bytes, count: int, arms: int, position: int, width: int) -> Words | None:
        masked = self._arms(key)
        if masked is None:
            return None
        if len(masked) != count * arms * WORD_BYTES:
            raise DamagedStoreError("a record of returned one-hots has a wrong length")
        words = np.frombuffer(masked, WORD).reshape(1, count, arms)[:, position].copy()
        return padded_arms(words, width)

    def _had_arms(self, arms: int, program: ProgramId) -> bool:
        """Whether there were ever so many arms, or slots of a program, as far as is known here: arms become more, never
        fewer."""
        if slots := self._slots_kept(program):
            return arms == slots
        return arms == self._arm_width or (self._grows and 2 <= arms < self._arm_width)

    def _arms(self, key: bytes) -> bytes | None:
        return self._unwritten_arms.get(key) or self._store.get(ARMS, key)

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """Keep the one-hots that the actor has returned for a run, also if the run is not known here; False if others
        are kept."""
        key = run_key(returned.epoch, returned.program, returned.step)
        kept = self._arms(key)
        if not self._fits_run(key, returned) or (kept is not None and kept not in (returned.masked, EMPTIED)):
            return False
        if key in self._unwritten_arms or kept is None:
            self._unwritten_arms[key] = returned.masked
            self._journal.append([Put(ARMS, key, returned.masked)], partial(self._arms_lasting, key, then))
        else:
            then()
        return True

    def _fits_run(self, key: bytes, returned: ReturnedArms) -> bool:
        """Whether they are of as many arms as there were in this run, if it is known here."""
        payload = self._store.get(DECISION, key)
        if payload is None or payload == EMPTIED:
            return True
        others = self._features + 1 + self._counts_rows + self._evaluates
        beside = returned.program.count * others + self._slots_kept(returned.program)
        return len(returned.masked) == (len(payload) // WORD_BYTES - beside) * WORD_BYTES

    def _arms_lasting(self, key: bytes, then: Then) -> None:
        self._unwritten_arms.pop(key, None)
        then()


def _program_of(count: int) -> ProgramId:
    """The program that made the decisions of a run, by the count in its key."""
    return decided_by(count) if count else STEP_ONE
