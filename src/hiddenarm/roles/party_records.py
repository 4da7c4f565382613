"""What a party writes down, and reads back after a crash.

    area        key                          payload
    me          -                            whose state this is (`owner`)
    epoch       -                            prepared and activated epoch, consent, what peers were heard to have
                                             committed
    opened      epoch                        the plan of an epoch that was activated
    went back   -                            the last epoch that was prepared with the consent of all to go back
    decision    epoch's name, count, step    own features, shares of the masks of one-hots and rewards; where sums are
                                             noisy, digests of the keys; where values are evaluated, shares of the
                                             coins; where one-hots are of slots, the arms of these; the count is 0 for
                                             a decision by `step`, and its upper bits say among how many slots
    arms        epoch's name, count, step    the masked one-hots that the actor has returned, of all decisions of this
                                             run
    lesson      number                       learned or why refused; names of decisions and masked rewards, or the
                                             decision that is unlearned and the lesson that learned it
    checkpoint  version, epoch               counters; this party's shares, by name (`bandit.state`)
    values      version                      the totals of all windows of values, the last of them filled by the lesson
                                             before (`roles.values`)
    refresh     version                      the epoch in which noise was added to the sums with the lesson before
    noise used  -                            the version of the newest refresh that a decision has used
    undone      version, epoch               a refresh that decisions have used and from before which all agreed to go
                                             on; the epoch with which they did
    pruned      -                            the first lesson whose interactions are kept: of earlier ones the records
                                             `decision` and `arms` are emptied (`retention`)
    privacy     -                            the privacy ledger: it is written with the decisions that it counts, before
                                             any of them is told

Keys are big-endian, so that their order is that of the numbers. The log of lessons has no gap, and is cut at its end
only, when all parties have agreed on a shorter one.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from hiddenarm.bandit.catalogue import STEP, STEP_ONE, ProgramId, slots_of
from hiddenarm.bandit.decisions import counted, decided_by, decision_name, decision_number, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, Interaction, own_words
from hiddenarm.bandit.noisy_sums import noisy_sums
from hiddenarm.bandit.policy import Learner
from hiddenarm.bandit.retained import Retained
from hiddenarm.bandit.state import (
    State,
    check_state,
    decode_array,
    decode_arrays,
    encode_arrays,
    grown_state,
    initial_state,
    padded_arms,
)
from hiddenarm.bandit.subsets import Subset
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.privacy.ledger import NOTHING_RELEASED, PrivacyLedger
from hiddenarm.ring.streams import SpentSteps
from hiddenarm.ring.words import Words
from hiddenarm.roles.epochs.plan import INITIAL, MAX_CHECKPOINTS, CheckpointName, Committed, Heard, PartyStatement, Plan
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.roles.retention import CheckpointNeeds, Retention
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.roles.values import WindowTotals
from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put, Store
from hiddenarm.store.journal import Journal, Then

_EPOCH, _OPENED, _DECISION, _ARMS, _LESSON = "epoch", "opened", "decision", "arms", "lesson"
_CHECKPOINT = "checkpoint"
_REFRESH, _NOISE_USED, _UNDONE = "refresh", "noise used", "undone"
_WENT_BACK = "went back"
_VALUES = "values"
PRIVACY = "privacy"
_ONLY = b""
_NUMBER = struct.Struct(">Q")
_DECISIONS = struct.Struct(">QHQ")
_NAME = struct.Struct(">QQ")
_WINDOWS = struct.Struct("<QQ")
_EPOCHS = struct.Struct("<QQBB")
_PAIR = struct.Struct("<QQ")
_LESSON_HEAD = struct.Struct("<H")
_REWARD = struct.Struct("<QQQ")
_COUNTERS = struct.Struct("<QQBQ")
_WORD = "<u8"
_WORD_BYTES = 8
_FULL, _NAMED, _DUE = 1, 2, 3
"""How a checkpoint is written: its sums were full, which earlier versions went beyond; its arrays have names; the same,
and a repair is due. Earlier versions, whose arrays had no names, otherwise wrote zero."""
_UNNAMED_ARRAYS = 4
_PRUNED, _EMPTIED = "pruned", b"\x02"
"""The record of decisions, or of returned one-hots, that was pruned: that there was one is still known."""
KEPT_IN_MEMORY = 1000
"""Interactions that were learned, and are kept to be unlearned, where state does not last."""
_UNLEARNS = b"\x01"
"""Ends the record of an unlearning, which is by this longer than any number of rewards."""
UNLEARNED_BEFORE = "this decision was unlearned before"
WAS_TAUGHT = "this decision was learned, or dropped"
NOT_LEARNED = "this decision was not learned in the lesson that is named"
NOT_KEPT = "this interaction is no longer kept"
"""Why an unlearning is refused."""
_OF_ONE_HOTS, _HIDES_ZERO, _RETURNED = b"", b"\x00", b"\x01"
"""How a record of decisions begins: earlier versions kept shares of the one-hots, with no head; the masks of the
one-hots hide zero; the actor returns the one-hots under them."""


class PartyRecords:
    """The records of party `number`. Reading is immediate; what is written lasts when `then` is called.

    `with_activation` is written with every epoch that is activated: whose state this is. So nothing is kept under a new
    version of the federation before it is written down that this is one; until then a role may go back."""

    def __init__(
        self,
        store: Store,
        journal: Journal,
        federation: Federation,
        number: int,
        with_activation: Sequence[Change] = (),
    ) -> None:
        self.prepared = 0
        self.activated = 0
        self.epoch = 0
        """The last epoch that was activated, by its name as a number."""
        self.consents = False
        self.committed = Committed(0, 0)
        self.noted = [Committed(0, 0)] * federation.parties
        self.checkpoints: set[CheckpointName] = set()
        self.ledger = NOTHING_RELEASED
        """What was released, or is about to be."""
        self._store = store
        self._journal = journal
        self._federation = federation
        self._number = number
        self._with_activation = with_activation
        self._appended = 0
        self._cuts = 0
        """Cuts of the log that are being written down."""
        self._length = 0
        self._origin = INITIAL
        self._kept_notes = list(self.noted)
        self._unwritten_arms: dict[bytes, bytes] = {}
        self._taught: dict[tuple[int, ProgramId], SpentSteps] = {}
        self._taught_count = 0
        self._unlearned: set[int] = set()
        """Decisions that were learned, and unlearned."""
        self._dropped = 0
        """Decisions without a reward that were unlearned: no lesson will use them."""
        self._unwritten_lessons: dict[int, Lesson] = {}
        self._retention = Retention(0)
        self._pruned = 0
        """The first lesson whose interactions are kept."""
        self._partly: Counter[bytes] = Counter()
        """Of runs, how many of their decisions were pruned, if not all."""
        self._needs: dict[CheckpointName, CheckpointNeeds] = {}
        self._counts_rows = noisy_sums(federation) is not None
        self._values = federation.evaluation
        self._refreshes: set[CheckpointName] = set()
        self._undone: dict[CheckpointName, int] = {}
        self._noise_used = 0
        self._load()

    def statement(self) -> PartyStatement:
        """What this party has, for the others."""
        return PartyStatement(
            self.prepared,
            self.activated,
            self.committed,
            tuple(sorted(self._newest(self.checkpoints))),
            tuple(self.noted),
            self.consents,
            self.ledger,
        )

    # Epochs

    def prepare(self, plan: Plan, then: Then, ledger: PrivacyLedger = NOTHING_RELEASED) -> None:
        """Write down that this epoch was prepared, and what all parties know to have been released. Nobody needs to
        hold more than the common log from now on."""
        self.prepared = plan.epoch
        self.ledger = self.ledger.merged(ledger)
        self.noted = [Committed(min(noted.lessons, plan.length), noted.decisions) for noted in self.noted]
        changes: list[Change] = []
        if plan.recovers:
            self.noted = [Committed(noted.lessons, 0) for noted in self.noted]
            changes.append(Put(_WENT_BACK, _ONLY, _NUMBER.pack(plan.epoch)))
        self._journal.append([self._epochs(), self._privacy(), *changes], then)

    def activate(self, plan: Plan, then: Then) -> None:
        """Cut the log to the common length and write down that this epoch was activated. From here on this party does
        not have more, though it lasts a while longer: another attempt to open an epoch must not count on it."""
        self.activated, self.epoch = plan.epoch, plan.named
        self.consents = False
        self._length, self._origin = plan.length, plan.checkpoint
        cut = plan.length < self._appended
        if cut:
            self._cuts += 1
            self.committed = Committed(min(plan.length, self.committed.lessons), self.committed.decisions)
        gone = {name for name in self.checkpoints if name.version > plan.length}
        self.checkpoints -= gone
        changes: list[Change] = [
            self._epochs(),
            Put(_OPENED, _NUMBER.pack(plan.epoch), plan.encode()),
            *(Delete(_CHECKPOINT, _NAME.pack(*name)) for name in gone),
            *self._undo_refreshes(plan),
            *self._with_activation,
            *self._undo_values(plan),
        ]
        if self._pruned > plan.length:
            self._pruned = plan.length
            changes.append(Put(_PRUNED, _ONLY, _NUMBER.pack(self._pruned)))
        if cut:
            changes.append(DeleteFrom(_LESSON, _NUMBER.pack(plan.length)))
        self._journal.append(changes, partial(self._activated, cut, then))

    def _undo_refreshes(self, plan: Plan) -> list[Change]:
        """Forget refreshes after the checkpoint from which all start: their lessons are learned or taught again, and
        noise is drawn anew. As some party does not hold them, no decision has used them, unless it has lost them and
        all agreed to go back: then what decisions have used is noted as undone."""
        changes: list[Change] = []
        for name in self._after(plan.checkpoint):
            self._refreshes.remove(name)
            changes.append(Delete(_REFRESH, _NUMBER.pack(name.version)))
            if name.version <= self._noise_used:
                self._undone[name] = plan.epoch
                changes.append(Put(_UNDONE, _NAME.pack(*name), _NUMBER.pack(plan.epoch)))
        if self._noise_used > plan.checkpoint.version:
            changes.append(self._use_noise(self.refreshed))
        return changes

    def _undo_values(self, plan: Plan) -> list[Change]:
        """Forget windows of lessons that are cut off. Their decisions will be part of another opening. Without them
        nobody can have learned the first one, unless all agreed to go back; it is counted in any case."""
        if self._values is None:
            return []
        gone = list(self._store.items(_VALUES, _NUMBER.pack(plan.length + 1)))
        if not gone:
            return []
        self.ledger = self.ledger.opens_again(self._values.mu)
        return [DeleteFrom(_VALUES, _NUMBER.pack(plan.length + 1)), self._privacy()]

    def window_totals(self) -> WindowTotals | None:
        """The totals of all windows so far, after an epoch was activated; None if no window was full."""
        last = max(self._store.items(_VALUES), default=None)
        if last is None or self._values is None:
            return None
        key, payload = last
        if len(payload) != _WINDOWS.size + self._values.sums * _WORD_BYTES:
            raise DamagedStoreError("a record of values has a wrong length")
        windows, position = _WINDOWS.unpack_from(payload)
        shares = np.frombuffer(payload, _WORD, offset=_WINDOWS.size).astype(np.uint64)
        return WindowTotals(windows, _NUMBER.unpack(key)[0], position, shares)

    def _after(self, checkpoint: CheckpointName) -> list[CheckpointName]:
        """Refreshes that a checkpoint does not hold."""
        return sorted(name for name in self._refreshes if name.version > checkpoint.version)

    def _use_noise(self, version: int) -> Change:
        self._noise_used = version
        return Put(_NOISE_USED, _ONLY, _NUMBER.pack(version))

    def undoes_used(self, plan: Plan) -> bool:
        """Whether noise that decisions have used would be drawn again, and all parties have not agreed to that since
        this party has activated an epoch."""
        went_back = self._store.get(_WENT_BACK, _ONLY)
        agreed = went_back is not None and _NUMBER.unpack(went_back)[0] > self.activated
        return self._noise_used > plan.checkpoint.version and not agreed

    @property
    def refreshed(self) -> int:
        """The version that the last refresh has made; 0 if there was none."""
        return max((name.version for name in self._refreshes), default=0)

    @property
    def releases(self) -> int:
        """In how many refreshes that decisions have used a row may be: one, and one more for each time that all parties
        agreed to go back behind such a refresh. The loss about a row is that of so many refreshes together."""
        return 1 + len(set(self._undone.values()))

    def _activated(self, cut: bool, then: Then) -> None:
        if cut:
            self._cuts -= 1
            self._load_log()
        then()

    def consent(self) -> None:
        """Agree to go back to what all parties still have in common; it holds until the next epoch is activated."""
        self.consents = True
        self._store.commit([self._epochs()])

    def note(self, party: int, committed: Committed) -> None:
        """A peer has said what lasts there. It is written down with whatever is written next."""
        self.noted[party] = committed

    # Decisions

    def charge(self, thresholds: Sequence[int]) -> None:
        """Count decisions that are about to be told. It is written down with what is kept of them."""
        self.ledger = self.ledger.decided(*thresholds)

    def left_range(self, decisions: int, then: Then) -> None:
        """Count decisions whose scores were out of range."""
        self.ledger = self.ledger.left_range(decisions)
        self._journal.append([self._privacy()], then)

    def keep_decisions(
        self,
        epoch: int,
        program: ProgramId,
        step: int,
        features: Words,
        decided: Decided,
        then: Then,
        *,
        version: int = 0,
        rows_of: Sequence[int] = (),
        slots: Subset | None = None,
    ) -> None:
        """Keep decisions that were made together by a version of the model, and that they were charged."""
        arrays = [features, *own_words(decided.arm_mask, decided.reward_mask), np.array(rows_of, np.uint64)]
        if decided.kept is not None:
            arrays.extend(own_words(decided.kept))
        if slots is not None:
            arrays.append(slots.rows.astype(np.uint64))
        words = b"".join(np.ascontiguousarray(array, _WORD).tobytes() for array in arrays)
        payload = (_HIDES_ZERO if decided.masked_arm is not None else _RETURNED) + words
        used = sum(name.version <= version for name in self._refreshes) + len(self._undone)
        self.ledger = self.ledger.with_refreshes(used, self.releases - 1)
        changes = [Put(_DECISION, _run_key(epoch, program, step), payload), self._privacy(), *self._new_notes()]
        uses = max((name.version for name in self._refreshes if name.version <= version), default=0)
        if uses > self._noise_used:
            changes.append(self._use_noise(uses))
        self._journal.append(changes, partial(self._decisions_lasting, program.count, then))

    def _decisions_lasting(self, count: int, then: Then) -> None:
        self.committed = Committed(self.committed.lessons, self.committed.decisions + count)
        then()

    def interaction(self, name: int) -> Interaction | None:
        """What was kept of a decision, whether it was rewarded or not."""
        epoch, number = split_name(name)
        program, step, position = split_number(number)
        count, key = program.count, _run_key(epoch, program, step)
        payload = self._store.get(_DECISION, key)
        if payload is None or payload == _EMPTIED or position >= count:
            return None
        own, head = self._federation.features[self._number], payload[: len(payload) % _WORD_BYTES]
        evaluates = self._values is not None
        words = np.frombuffer(payload, _WORD, offset=len(head))
        words, rows = np.split(words, [max(0, len(words) - self._slots_kept(program))])
        arms, left = divmod(len(words) - count * (own + 1 + self._counts_rows + evaluates), count)
        if left or not self._had_arms(arms, program) or head not in (_OF_ONE_HOTS, _HIDES_ZERO, _RETURNED):
            raise DamagedStoreError("a record of decisions has a wrong length")
        slots = Subset.of_rows(rows.astype(np.int64), self._federation.arms) if len(rows) else None
        width = self._federation.arm_width if slots is None else slots.size
        ends = [count * own, count * (own + arms), count * (own + arms + 1)]
        features, arm_masks, reward_masks, others = np.split(words, ends)
        by_position = others.reshape(-1, count)
        arm_mask = padded_arms(arm_masks.reshape(1, count, arms)[:, position], width)
        return Interaction(
            features.reshape(1, count, own)[:, position].copy(),
            -arm_mask if head == _OF_ONE_HOTS else arm_mask.copy(),
            self._returned_arm(key, count, arms, position, width) if head == _RETURNED else np.zeros_like(arm_mask),
            reward_masks.reshape(1, count)[:, position].copy(),
            int(by_position[0, position]) if self._counts_rows else 0,
            by_position[-1:, position].copy() if evaluates else None,
            slots,
        )

    def _slots_kept(self, program: ProgramId) -> int:
        """How many arms of slots the record of a run has: those of one-hots, where arms have no features."""
        return 0 if self._federation.arm_features is not None else slots_of(program) or 0

    def _returned_arm(self, key: bytes, count: int, arms: int, position: int, width: int) -> Words | None:
        masked = self._arms(key)
        if masked is None:
            return None
        if len(masked) != count * arms * _WORD_BYTES:
            raise DamagedStoreError("a record of returned one-hots has a wrong length")
        words = np.frombuffer(masked, _WORD).reshape(1, count, arms)[:, position].copy()
        return padded_arms(words, width)

    def _had_arms(self, arms: int, program: ProgramId) -> bool:
        """Whether there were ever so many arms, or slots of a program, as far as is known here: arms become more, never
        fewer."""
        if slots := self._slots_kept(program):
            return arms == slots
        width = self._federation.arm_width
        return arms == width or (self._federation.arm_features is None and 2 <= arms < width)

    def _arms(self, key: bytes) -> bytes | None:
        return self._unwritten_arms.get(key) or self._store.get(_ARMS, key)

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """Keep the one-hots that the actor has returned for a run, also if the run is not known here; False if others
        are kept."""
        key = _run_key(returned.epoch, returned.program, returned.step)
        kept = self._arms(key)
        if not self._fits_run(key, returned) or (kept is not None and kept not in (returned.masked, _EMPTIED)):
            return False
        if key in self._unwritten_arms or kept is None:
            self._unwritten_arms[key] = returned.masked
            self._journal.append([Put(_ARMS, key, returned.masked)], partial(self._arms_lasting, key, then))
        else:
            then()
        return True

    def _fits_run(self, key: bytes, returned: ReturnedArms) -> bool:
        """Whether they are of as many arms as there were in this run, if it is known here."""
        payload = self._store.get(_DECISION, key)
        if payload is None or payload == _EMPTIED:
            return True
        others = self._federation.features[self._number] + 1 + self._counts_rows + (self._values is not None)
        beside = returned.program.count * others + self._slots_kept(returned.program)
        return len(returned.masked) == (len(payload) // _WORD_BYTES - beside) * _WORD_BYTES

    def _arms_lasting(self, key: bytes, then: Then) -> None:
        self._unwritten_arms.pop(key, None)
        then()

    def untaught(self) -> Iterator[int]:
        """The names of all decisions that last here and wait for their reward."""
        for key, _ in self._store.items(_DECISION):
            epoch, count, step = _DECISIONS.unpack(key)
            program = decided_by(count) if count else STEP_ONE
            for position in range(program.count):
                name = decision_name(epoch, decision_number(program, step, position))
                if not self.is_taught(name):
                    yield name

    @property
    def pending(self) -> int:
        """Decisions of all epochs that last here and wait for their reward."""
        return max(0, self.committed.decisions - self._taught_count)

    def lacks(self, heard: Heard) -> bool:
        """Whether decisions, or returned one-hots, of which this party has told the actor are gone, and all parties
        have not agreed since to go back. After an agreement an epoch that is not known here may be one that was given
        up."""
        return self._lacks(_DECISION, heard.decided) or self._lacks(_ARMS, heard.kept)

    def _lacks(self, area: str, name: int) -> bool:
        epoch, number = split_name(name)
        went_back = self._store.get(_WENT_BACK, _ONLY)
        opened = [number for number, plan in self.opened().items() if plan.named == epoch]
        if not name or (went_back is not None and _NUMBER.unpack(went_back)[0] > max(opened, default=0)):
            return False
        program, step, _ = split_number(number)
        return self._store.get(area, _run_key(epoch, program, step)) is None

    def is_taught(self, name: int) -> bool:
        """Whether a lesson has used this decision."""
        line, place = _place(name)
        return line in self._taught and place in self._taught[line]

    def _teach(self, name: int) -> None:
        """A lesson of the log has used this decision."""
        line, place = _place(name)
        self._taught.setdefault(line, SpentSteps(in_order=False)).spend(place)
        self._taught_count += 1

    # Unlearning

    def begin_to_learn(self, name: int, interaction: Interaction) -> None:
        """A lesson has begun with this decision, which lasts here."""

    def why_not_unlearned(self, unlearning: Unlearning) -> str:
        """Why a decision cannot be unlearned, or dropped; empty if it can. All but the last follows from the log."""
        name = unlearning.name
        if name in self._unlearned:
            return UNLEARNED_BEFORE
        if unlearning.drops:
            return WAS_TAUGHT if self.is_taught(name) else ""
        if self.learned_reward(unlearning) is None:
            return NOT_LEARNED
        if not self._retention.keeps(unlearning.learned_in):
            return NOT_KEPT
        interaction = self.interaction(name)
        return "" if interaction is not None and interaction.masked_arm is not None else NOT_KEPT

    def learned_reward(self, unlearning: Unlearning) -> int | None:
        """The masked reward with which a decision was learned; None if it was not, in this lesson."""
        lesson = self._lesson(unlearning.learned_in)
        return None if lesson is None or lesson.refused else dict(lesson.rewards).get(unlearning.name)

    def _unlearn(self, unlearning: Unlearning | None) -> None:
        """An unlearning of the log has ended."""
        if unlearning is None:
            return
        if unlearning.drops:
            self._teach(unlearning.name)
            self._dropped += 1
        else:
            self._unlearned.add(unlearning.name)

    # Pruning

    def lacks_pruned(self, plan: Plan) -> int | None:
        """The first lesson whose interactions are needed to start from a plan and were pruned, if there is one."""
        needed = 0 if plan.checkpoint == INITIAL else self._needs[plan.checkpoint].ungathered
        return needed if needed < min(self._pruned, plan.length) else None

    def _prune(self) -> list[Change]:
        """Empty the records of interactions that nobody needs any more. It is done with a checkpoint, in one commit, so
        between lessons: an unlearning under way has what it needs."""
        if not self._federation.keep_interactions:
            return []
        needs = [self._needs[name] for name in self.checkpoints]
        oldest = min((each.version for each in needs), default=0)
        lessons = self._retention.prunable(self._pruned, needs, self._first_needed(oldest))
        if not lessons:
            return []
        self._pruned = lessons.stop
        changes: list[Change] = [Put(_PRUNED, _ONLY, _NUMBER.pack(self._pruned))]
        for number in lessons:
            lesson = self._lesson(number)
            for key in self._wholly_pruned(lesson):
                changes.append(Put(_DECISION, key, _EMPTIED))
                if self._arms(key) is not None:
                    changes.append(Put(_ARMS, key, _EMPTIED))
        return changes

    def _first_needed(self, version: int) -> int:
        """The first lesson whose interactions an epoch that starts from this version, or from a later one, may need
        besides: to unlearn them again, for the window of values under way, to count rows since the last refresh."""
        behind = [lesson for lesson in (*self._log(version), *self._unwritten_lessons.values()) if not lesson.refused]
        unlearnings = [lesson.unlearning for lesson in behind if lesson.unlearning is not None]
        needed = [version, *(unlearning.learned_in for unlearning in unlearnings if not unlearning.drops)]
        if self._values is not None:
            filled = (_NUMBER.unpack(key)[0] for key, _ in self._store.items(_VALUES))
            needed.append(max((by for by in filled if by <= version), default=1) - 1)
        if self._counts_rows:
            needed.append(max((name.version for name in self._refreshes if name.version <= version), default=0))
        return min(needed)

    def _wholly_pruned(self, lesson: Lesson | None) -> Iterator[bytes]:
        """The runs all of whose decisions are pruned with those of a lesson."""
        for name in _used_by(lesson):
            epoch, number = split_name(name)
            program, step, _ = split_number(number)
            key = _run_key(epoch, program, step)
            self._partly[key] += 1
            if self._partly[key] == program.count:
                del self._partly[key]
                if self._store.get(_DECISION, key) is not None:
                    yield key

    def _lesson(self, number: int) -> Lesson | None:
        """A lesson of the log, whether it lasts already or not."""
        lesson = self._unwritten_lessons.get(number)
        if lesson is not None:
            return lesson
        payload = self._store.get(_LESSON, _NUMBER.pack(number))
        return None if payload is None else _decode_lesson(number, payload)

    # Lessons

    def log_lesson(
        self,
        lesson: Lesson,
        refused: str | None,
        checkpoint: tuple[int, LearnedState] | None,
        then: Then,
        *,
        refreshed: bool = False,
        values: WindowTotals | None = None,
    ) -> None:
        """Note how a lesson ended; with the state after it, and the epoch that made it, where a checkpoint is due. That
        of a lesson which `refreshed` the model lasts with it, or not at all; and so do the totals of windows that it
        has filled, with the count of what they tell."""
        if lesson.number != self._appended:
            raise StoreError(f"lesson {lesson.number} cannot follow a log of {self._appended}")
        self._appended += 1
        if refused is None:
            for name, _ in lesson.rewards:
                self._teach(name)
            self._unlearn(lesson.unlearning)
            self._unwritten_lessons[lesson.number] = lesson
        self._retention.ended(0 if refused is not None else len(lesson.rewards))
        changes = [Put(_LESSON, _NUMBER.pack(lesson.number), _encode_lesson(lesson, refused)), *self._new_notes()]
        if checkpoint is not None:
            changes.extend(self._checkpoint(*checkpoint, refreshed=refreshed))
        if values is not None:
            changes.extend(self._window_totals(values))
        self._journal.append(changes, partial(self._lesson_lasting, lesson.number, then))

    def _window_totals(self, totals: WindowTotals) -> list[Change]:
        assert self._values is not None
        for _ in range(totals.new):
            self.ledger = self.ledger.opened_with(self._values.mu)
        payload = _WINDOWS.pack(totals.windows, totals.position) + np.ascontiguousarray(totals.shares, _WORD).tobytes()
        return [Put(_VALUES, _NUMBER.pack(totals.version), payload), self._privacy()]

    def _lesson_lasting(self, number: int, then: Then) -> None:
        self._unwritten_lessons.pop(number, None)
        if not self._cuts:  # else it is about to be cut off
            self.committed = Committed(number + 1, self.committed.decisions)
        then()

    def keep_checkpoint(self, epoch: int, state: LearnedState, then: Then, *, refreshed: bool = False) -> None:
        """Keep the state after a lesson that is in the log already."""
        self._journal.append(self._checkpoint(epoch, state, refreshed=refreshed), then)

    def _checkpoint(self, epoch: int, state: LearnedState, *, refreshed: bool) -> list[Change]:
        """Write a checkpoint; remove those before the newest that all parties are known to have, of which they are not
        in need any more, and those for which a statement has no room. Others have a checkpoint of this epoch if they
        have the lesson it follows, and one that is new in this epoch: what was learned again was written before."""
        name = CheckpointName(state.version, epoch)
        everywhere = min(noted.lessons for peer, noted in enumerate(self.noted) if peer != self._number)
        fresh = everywhere > self._length
        common = [kept for kept in self.checkpoints if fresh and kept.epoch == epoch and kept.version <= everywhere]
        old = {kept for kept in self.checkpoints if common and kept.version < max(common).version}
        left = self._newest(self.checkpoints - old | {name})
        gone, self.checkpoints = self.checkpoints - left, left
        self._needs[name] = CheckpointNeeds(state.version, state.ungathered)
        changes: list[Change] = [Put(_CHECKPOINT, _NAME.pack(*name), _encode_state(state))]
        if refreshed:
            self._refreshes.add(name)
            changes.append(Put(_REFRESH, _NUMBER.pack(name.version), _NUMBER.pack(epoch)))
        if common or self._origin != INITIAL:  # else all may still have to start from nothing
            changes.extend(self._prune())
        return [*changes, *(Delete(_CHECKPOINT, _NAME.pack(*kept)) for kept in gone)]

    def _newest(self, names: set[CheckpointName]) -> set[CheckpointName]:
        """As many checkpoints as fit into a statement: the one from which this epoch started, which all parties have,
        and those that were written last. All parties write the same ones in the same order."""

        def rank(name: CheckpointName) -> tuple[bool, int, int]:
            return name == self._origin, name.epoch, name.version

        return set(sorted(names, key=rank)[-MAX_CHECKPOINTS:])

    def lessons(self, first: int, end: int) -> list[Lesson]:
        """Lessons of the log, from `first` to before `end`."""
        return [lesson for lesson in self._log(first) if lesson.number < end]

    def state(self, name: CheckpointName) -> LearnedState:
        """A checkpoint, or the public state before the first lesson."""
        if name == INITIAL:
            return _initial_state(self._federation, self._number)
        payload = self._store.get(_CHECKPOINT, _NAME.pack(*name))
        if payload is None:
            raise DamagedStoreError(f"the checkpoint of version {name.version} is not there")
        return _decode_state(payload, self._federation.learner, self._number)

    def opened(self) -> dict[int, Plan]:
        """The plans of all epochs that were activated, by number."""
        return {_NUMBER.unpack(key)[0]: Plan.decode(payload) for key, payload in self._store.items(_OPENED)}

    # Loading

    def _load(self) -> None:
        payload = self._store.get(_EPOCH, _ONLY)
        if payload is not None:
            self.prepared, self.activated, consents, parties = _EPOCHS.unpack_from(payload)
            self.consents = bool(consents)
            self.noted = [Committed(*pair) for pair in _PAIR.iter_unpack(payload[_EPOCHS.size :])]
            if not parties == len(self.noted) == self._federation.parties:
                raise DamagedStoreError("the record of epochs is that of another number of parties")
        self._kept_notes = list(self.noted)
        if (plan := self._store.get(_OPENED, _NUMBER.pack(self.activated))) is not None:
            self.epoch = Plan.decode(plan).named
        self._needs = {
            CheckpointName(*_NAME.unpack(key)): _needs(payload) for key, payload in self._store.items(_CHECKPOINT)
        }
        self.checkpoints = set(self._needs)
        pruned = self._store.get(_PRUNED, _ONLY)
        self._pruned = 0 if pruned is None else _NUMBER.unpack(pruned)[0]
        self._refreshes = {
            CheckpointName(*_NUMBER.unpack(key), *_NUMBER.unpack(epoch)) for key, epoch in self._store.items(_REFRESH)
        }
        self._undone = {
            CheckpointName(*_NAME.unpack(key)): _NUMBER.unpack(epoch)[0] for key, epoch in self._store.items(_UNDONE)
        }
        used = self._store.get(_NOISE_USED, _ONLY)
        self._noise_used = 0 if used is None else _NUMBER.unpack(used)[0]
        self.ledger = read_ledger(self._store)
        decisions = sum(_decisions_of(key) for key, _ in self._store.items(_DECISION))
        self.committed = Committed(0, decisions)
        self._load_log()

    def _load_log(self) -> None:
        """Count the lessons, and find out which decisions they used."""
        self._taught, self._taught_count = {}, 0
        self._unlearned, self._dropped = set(), 0
        self._retention, self._partly = Retention(self._federation.keep_interactions), Counter()
        length = 0
        for lesson in self._log(0):
            if lesson.number != length:
                raise DamagedStoreError(f"lesson {length} is missing in the log")
            length += 1
            if not lesson.refused:
                for name, _ in lesson.rewards:
                    self._teach(name)
                self._unlearn(lesson.unlearning)
            self._retention.ended(0 if lesson.refused else len(lesson.rewards))
            if lesson.number < self._pruned:
                for _ in self._wholly_pruned(lesson):
                    pass
        self._appended = length
        self.committed = Committed(length, self.committed.decisions)
        most = self._federation.max_interactions
        held = self._taught_count - self._dropped - len(self._unlearned)
        if self._federation.learner.learns_many and held > most:
            raise StoreError(
                f"this state was written by an earlier version and holds {held:,} interactions; this "
                f"federation holds at most {most:,} (`max_interactions`), and scores of more may be compared wrongly: "
                "start a new federation"
            )

    def _log(self, first: int) -> Iterator[Lesson]:
        for key, payload in self._store.items(_LESSON, _NUMBER.pack(first)):
            yield _decode_lesson(_NUMBER.unpack(key)[0], payload)

    def _epochs(self) -> Put:
        self._kept_notes = list(self.noted)
        head = _EPOCHS.pack(self.prepared, self.activated, self.consents, len(self.noted))
        return Put(_EPOCH, _ONLY, head + b"".join(_PAIR.pack(*noted) for noted in self.noted))

    def _privacy(self) -> Put:
        return Put(PRIVACY, _ONLY, self.ledger.encode())

    def _new_notes(self) -> list[Change]:
        return [self._epochs()] if self.noted != self._kept_notes else []


class _Retained(NamedTuple):
    """An interaction that was learned in a lesson, with its masked reward."""

    lesson: int
    interaction: Interaction
    masked: int


class MemoryPartyRecords:
    """The records of a party whose state ends with it. There is one epoch, and nothing to read back: of lessons their
    number is kept, and the newest interactions; decisions that wait for a reward are in the `ledger`; nothing is
    encoded."""

    consents = False
    refreshed = 0
    releases = 1
    pending = None
    """They are counted in the ledger."""

    def __init__(self, federation: Federation, number: int) -> None:
        self.prepared = self.activated = self.epoch = 0
        self.committed = Committed(0, 0)
        self.ledger = NOTHING_RELEASED
        self._federation = federation
        self._number = number
        self._learning: dict[int, Interaction] = {}
        self._retained: Retained[_Retained] = Retained(
            0 if federation.learner.schedule().no_unlearning else federation.keep_interactions or KEPT_IN_MEMORY
        )

    def statement(self) -> PartyStatement:
        noted = (Committed(0, 0),) * self._federation.parties
        return PartyStatement(self.prepared, self.activated, self.committed, (), noted)

    def prepare(self, plan: Plan, then: Then, ledger: PrivacyLedger = NOTHING_RELEASED) -> None:
        self.prepared = plan.epoch
        then()

    def activate(self, plan: Plan, then: Then) -> None:
        self.activated, self.epoch = plan.epoch, plan.named
        then()

    def note(self, party: int, committed: Committed) -> None:
        return

    def charge(self, thresholds: Sequence[int]) -> None:
        self.ledger = self.ledger.decided(*thresholds)

    def left_range(self, decisions: int, then: Then) -> None:
        self.ledger = self.ledger.left_range(decisions)
        then()

    def window_totals(self) -> WindowTotals | None:
        """There is no epoch before this one."""
        return None

    def keep_decisions(
        self,
        epoch: int,
        program: ProgramId,
        step: int,
        features: Words,
        decided: Decided,
        then: Then,
        *,
        version: int = 0,
        rows_of: Sequence[int] = (),
        slots: Subset | None = None,
    ) -> None:
        then()

    def interaction(self, name: int) -> Interaction | None:
        """One that was learned, and is kept to be unlearned."""
        kept = self._retained.get(name)
        return None if kept is None else kept.interaction

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """They are in the ledger. The actor sends them once, and does not ask."""
        return True

    def lacks(self, heard: Heard) -> bool:
        return False

    def untaught(self) -> Iterator[int]:
        """There is no epoch before this one."""
        return iter(())

    def is_taught(self, name: int) -> bool:
        return name in self._retained

    def begin_to_learn(self, name: int, interaction: Interaction) -> None:
        """Keep it until the lesson has ended."""
        self._learning[name] = interaction

    def why_not_unlearned(self, unlearning: Unlearning) -> str:
        if unlearning.drops:
            return WAS_TAUGHT if self.is_taught(unlearning.name) else ""
        return NOT_KEPT if self.learned_reward(unlearning) is None else ""

    def learned_reward(self, unlearning: Unlearning) -> int | None:
        kept = self._retained.get(unlearning.name)
        return None if kept is None or kept.lesson != unlearning.learned_in else kept.masked

    def _retain(self, lesson: Lesson, refused: str | None) -> None:
        """Keep what was learned, so that it can be unlearned; not what was unlearned."""
        for name, masked in lesson.rewards:
            interaction = self._learning.pop(name, None)
            if refused is None and interaction is not None:
                self._retained.add(name, _Retained(lesson.number, interaction, masked))
        if lesson.unlearning is not None:
            self._learning.pop(lesson.unlearning.name, None)
            if refused is None:
                self._retained.pop(lesson.unlearning.name, None)

    def log_lesson(
        self,
        lesson: Lesson,
        refused: str | None,
        checkpoint: tuple[int, LearnedState] | None,
        then: Then,
        *,
        refreshed: bool = False,
        values: WindowTotals | None = None,
    ) -> None:
        self.committed = Committed(lesson.number + 1, 0)
        self._retain(lesson, refused)
        if values is not None and self._federation.evaluation is not None:
            for _ in range(values.new):
                self.ledger = self.ledger.opened_with(self._federation.evaluation.mu)
        if refreshed:
            self.ledger = self.ledger.refreshed()
        then()

    def keep_checkpoint(self, epoch: int, state: LearnedState, then: Then, *, refreshed: bool = False) -> None:
        then()

    def undoes_used(self, plan: Plan) -> bool:
        return False

    def lacks_pruned(self, plan: Plan) -> int | None:
        return None

    def lessons(self, first: int, end: int) -> list[Lesson]:
        return []

    def state(self, name: CheckpointName) -> LearnedState:
        return _initial_state(self._federation, self._number)


Records = PartyRecords | MemoryPartyRecords


def read_ledger(store: Store) -> PrivacyLedger:
    """The privacy ledger in a store; an empty one if there is none."""
    payload = store.get(PRIVACY, _ONLY)
    return NOTHING_RELEASED if payload is None else decode_ledger(payload)


def decode_ledger(payload: bytes) -> PrivacyLedger:
    """The privacy ledger of a record."""
    try:
        return PrivacyLedger.decode(payload)
    except ValueError:
        raise DamagedStoreError("the record of the privacy ledger cannot be read") from None


def _initial_state(federation: Federation, number: int) -> LearnedState:
    return LearnedState(0, initial_state(federation.learner.arrays, number))


def _run_key(epoch: int, program: ProgramId, step: int) -> bytes:
    return _DECISIONS.pack(epoch, 0 if program.name == STEP else counted(program), step)


def _decisions_of(key: bytes) -> int:
    """How many decisions the run of a key has."""
    count = _DECISIONS.unpack(key)[1]
    return decided_by(count).count if count else 1


def _place(name: int) -> tuple[tuple[int, ProgramId], int]:
    """Where a decision is marked as taught: epoch and program, and its place among their decisions."""
    epoch, number = split_name(name)
    program, step, position = split_number(number)
    return (epoch, program), step * program.count + position


def _used_by(lesson: Lesson | None) -> list[int]:
    """The decisions that no other lesson will use."""
    if lesson is None or lesson.refused:
        return []
    dropped = [lesson.unlearning.name] if lesson.unlearning is not None and lesson.unlearning.drops else []
    return [*(name for name, _ in lesson.rewards), *dropped]


def _needs(payload: bytes) -> CheckpointNeeds:
    """What is needed to start from a checkpoint; one of an earlier version, or a damaged one, may need all lessons."""
    if len(payload) < _COUNTERS.size:
        return CheckpointNeeds(0, 0)
    version, _, form, ungathered = _COUNTERS.unpack_from(payload)
    return CheckpointNeeds(version, ungathered if form in (_NAMED, _DUE) else 0)


def _encode_lesson(lesson: Lesson, refused: str | None) -> bytes:
    why = (refused or "").encode()
    if lesson.unlearning is not None:
        return _LESSON_HEAD.pack(len(why)) + why + lesson.unlearning.encode() + _UNLEARNS
    rewards = (_REWARD.pack(*split_name(name), masked) for name, masked in lesson.rewards)
    return _LESSON_HEAD.pack(len(why)) + why + b"".join(rewards)


def _decode_lesson(number: int, payload: bytes) -> Lesson:
    (length,) = _LESSON_HEAD.unpack_from(payload)
    start = _LESSON_HEAD.size + length
    refused = payload[_LESSON_HEAD.size : start].decode()
    if (len(payload) - start) % _REWARD.size:
        unlearning = Unlearning.decode(payload[start : -len(_UNLEARNS)])
        return Lesson(number, [], logged=True, refused=refused, unlearning=unlearning)
    rewards = [(decision_name(epoch, number), word) for epoch, number, word in _REWARD.iter_unpack(payload[start:])]
    return Lesson(number, rewards, logged=True, refused=refused)


def _encode_state(state: LearnedState) -> bytes:
    form = _DUE if state.due else _NAMED
    return _COUNTERS.pack(state.version, state.gathered, form, state.ungathered) + encode_arrays(state.arrays)


def _decode_state(payload: bytes, learner: Learner, party: int) -> LearnedState:
    """A checkpoint; one that was made when there were fewer arms grows to those that there are now."""
    version, gathered, form, ungathered = _COUNTERS.unpack_from(payload)
    if form not in (_NAMED, _DUE):
        return _decode_unnamed(payload, learner, party)
    arrays = grown_state(learner.arrays, decode_arrays(payload[_COUNTERS.size :]), party)
    check_state(learner.arrays, arrays)
    return LearnedState(version, arrays, gathered, ungathered, due=form == _DUE)


def _decode_unnamed(payload: bytes, learner: Learner, party: int) -> LearnedState:
    """A checkpoint of an earlier version: counters, whether the sums were full, and four arrays without names in the
    order of the learner's. The paper's suite, which has two, kept sums that it did not use. Earlier versions could make
    a wrong model: a repair is due."""
    version, gathered, form, ungathered = _COUNTERS.unpack_from(payload)
    if form == _FULL and learner.learns_many:
        raise StoreError(
            "this state was written by an earlier version after more interactions than its sums could hold; the model "
            "cannot be repaired any more. Start a new federation, with `max_interactions` as many as it is to learn"
        )
    at, arrays = _COUNTERS.size, []
    for _ in range(_UNNAMED_ARRAYS):
        words, at = decode_array(payload, at)
        arrays.append(words)
    unnamed = State(zip((array.name for array in learner.arrays), arrays, strict=False))
    named = grown_state(learner.arrays, unnamed, party)
    check_state(learner.arrays, named)
    return LearnedState(version, named, gathered, ungathered if learner.learns_many else version, learner.learns_many)
