"""What a party writes down, and reads back after a crash.

    area        key                          payload
    me          -                            whose state this is (`owner`)
    epoch       -                            prepared and activated epoch, consent, what peers were heard to have
                                             committed
    opened      epoch                        the plan of an epoch that was activated
    went back   -                            the last epoch that was prepared with the consent of all to go back
    decision    epoch's name, count, step    own features, shares of the masks of one-hots and rewards; where sums are
                                             noisy, digests of the keys; the count is 0 for a decision by `step`
    arms        epoch's name, count, step    the masked one-hots that the actor has returned, of all decisions of this
                                             run
    lesson      number                       learned or why refused; names of decisions and masked rewards
    checkpoint  version, epoch               counters; this party's shares, by name (`bandit.state`)
    refresh     version                      the epoch in which noise was added to the sums with the lesson before
    noise used  -                            the version of the newest refresh that a decision has used
    undone      version, epoch               a refresh that decisions have used and from before which all agreed to go
                                             on; the epoch with which they did
    privacy     -                            the privacy ledger: it is written with the decisions that it counts, before
                                             any of them is told

Keys are big-endian, so that their order is that of the numbers. The log of lessons has no gap, and is cut at its end
only, when all parties have agreed on a shorter one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from hiddenarm.bandit.catalogue import DECIDE, STEP, STEP_ONE, ProgramId
from hiddenarm.bandit.decisions import decision_name, decision_number, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Decided, Interaction, own_words
from hiddenarm.bandit.noisy_sums import noisy_sums
from hiddenarm.bandit.policy import Learner
from hiddenarm.bandit.state import State, check_state, decode_array, decode_arrays, encode_arrays, initial_state
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.privacy.ledger import NOTHING_RELEASED, PrivacyLedger
from hiddenarm.ring.streams import SpentSteps
from hiddenarm.ring.words import Words
from hiddenarm.roles.epochs.plan import INITIAL, MAX_CHECKPOINTS, CheckpointName, Committed, Heard, PartyStatement, Plan
from hiddenarm.roles.messages import ReturnedArms
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put, Store
from hiddenarm.store.journal import Journal, Then

_EPOCH, _OPENED, _DECISION, _ARMS, _LESSON = "epoch", "opened", "decision", "arms", "lesson"
_CHECKPOINT = "checkpoint"
_REFRESH, _NOISE_USED, _UNDONE = "refresh", "noise used", "undone"
_WENT_BACK = "went back"
PRIVACY = "privacy"
_ONLY = b""
_NUMBER = struct.Struct(">Q")
_DECISIONS = struct.Struct(">QHQ")
_NAME = struct.Struct(">QQ")
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
_OF_ONE_HOTS, _HIDES_ZERO, _RETURNED = b"", b"\x00", b"\x01"
"""How a record of decisions begins: earlier versions kept shares of the one-hots, with no head; the masks of the
one-hots hide zero; the actor returns the one-hots under them."""


class PartyRecords:
    """The records of party `number`. Reading is immediate; what is written lasts when `then` is called."""

    def __init__(self, store: Store, journal: Journal, federation: Federation, number: int) -> None:
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
        self._appended = 0
        self._cuts = 0
        """Cuts of the log that are being written down."""
        self._length = 0
        self._origin = INITIAL
        self._kept_notes = list(self.noted)
        self._unwritten_arms: dict[bytes, bytes] = {}
        self._taught: dict[tuple[int, ProgramId], SpentSteps] = {}
        self._taught_count = 0
        self._counts_rows = noisy_sums(federation) is not None
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
        ]
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
    ) -> None:
        """Keep decisions that were made together by a version of the model, and that they were charged."""
        arrays = [features, *own_words(decided.arm_mask, decided.reward_mask), np.array(rows_of, np.uint64)]
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
        if payload is None or position >= count:
            return None
        own, arms = self._federation.features[self._number], self._federation.arms
        size = count * (own + arms + 1 + self._counts_rows) * _WORD_BYTES
        head = payload[: len(payload) - size]
        if len(payload) < size or head not in (_OF_ONE_HOTS, _HIDES_ZERO, _RETURNED):
            raise DamagedStoreError("a record of decisions has a wrong length")
        words = np.frombuffer(payload, _WORD, offset=len(head))
        ends = [count * own, count * (own + arms), count * (own + arms + 1)]
        features, arm_masks, reward_masks, rows_of = np.split(words, ends)
        arm_mask = arm_masks.reshape(1, count, arms)[:, position]
        return Interaction(
            features.reshape(1, count, own)[:, position].copy(),
            -arm_mask if head == _OF_ONE_HOTS else arm_mask.copy(),
            self._returned_arm(key, count, position) if head == _RETURNED else np.zeros_like(arm_mask),
            reward_masks.reshape(1, count)[:, position].copy(),
            int(rows_of[position]) if self._counts_rows else 0,
        )

    def _returned_arm(self, key: bytes, count: int, position: int) -> Words | None:
        masked = self._arms(key)
        if masked is None:
            return None
        arms = self._federation.arms
        if len(masked) != count * arms * _WORD_BYTES:
            raise DamagedStoreError("a record of returned one-hots has a wrong length")
        return np.frombuffer(masked, _WORD).reshape(1, count, arms)[:, position].copy()

    def _arms(self, key: bytes) -> bytes | None:
        return self._unwritten_arms.get(key) or self._store.get(_ARMS, key)

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """Keep the one-hots that the actor has returned for a run, also if the run is not known here; False if others
        are kept."""
        key = _run_key(returned.epoch, returned.program, returned.step)
        kept = self._arms(key)
        if kept is not None and kept != returned.masked:
            return False
        if key in self._unwritten_arms or kept is None:
            self._unwritten_arms[key] = returned.masked
            self._journal.append([Put(_ARMS, key, returned.masked)], partial(self._arms_lasting, key, then))
        else:
            then()
        return True

    def _arms_lasting(self, key: bytes, then: Then) -> None:
        self._unwritten_arms.pop(key, None)
        then()

    def untaught(self) -> Iterator[int]:
        """The names of all decisions that last here and wait for their reward."""
        for key, _ in self._store.items(_DECISION):
            epoch, count, step = _DECISIONS.unpack(key)
            program = ProgramId(DECIDE, count) if count else STEP_ONE
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

    # Lessons

    def log_lesson(
        self,
        lesson: Lesson,
        refused: str | None,
        checkpoint: tuple[int, LearnedState] | None,
        then: Then,
        *,
        refreshed: bool = False,
    ) -> None:
        """Note how a lesson ended; with the state after it, and the epoch that made it, where a checkpoint is due. That
        of a lesson which `refreshed` the model lasts with it, or not at all."""
        if lesson.number != self._appended:
            raise StoreError(f"lesson {lesson.number} cannot follow a log of {self._appended}")
        self._appended += 1
        for name, _ in () if refused is not None else lesson.rewards:
            self._teach(name)
        changes = [Put(_LESSON, _NUMBER.pack(lesson.number), _encode_lesson(lesson, refused)), *self._new_notes()]
        if checkpoint is not None:
            changes.extend(self._checkpoint(*checkpoint, refreshed=refreshed))
        self._journal.append(changes, partial(self._lesson_lasting, lesson.number, then))

    def _lesson_lasting(self, number: int, then: Then) -> None:
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
        changes: list[Change] = [Put(_CHECKPOINT, _NAME.pack(*name), _encode_state(state))]
        if refreshed:
            self._refreshes.add(name)
            changes.append(Put(_REFRESH, _NUMBER.pack(name.version), _NUMBER.pack(epoch)))
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
        return _decode_state(payload, self._federation.learner)

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
        self.checkpoints = {CheckpointName(*_NAME.unpack(key)) for key, _ in self._store.items(_CHECKPOINT)}
        self._refreshes = {
            CheckpointName(*_NUMBER.unpack(key), *_NUMBER.unpack(epoch)) for key, epoch in self._store.items(_REFRESH)
        }
        self._undone = {
            CheckpointName(*_NAME.unpack(key)): _NUMBER.unpack(epoch)[0] for key, epoch in self._store.items(_UNDONE)
        }
        used = self._store.get(_NOISE_USED, _ONLY)
        self._noise_used = 0 if used is None else _NUMBER.unpack(used)[0]
        self.ledger = read_ledger(self._store)
        decisions = sum(_DECISIONS.unpack(key)[1] or 1 for key, _ in self._store.items(_DECISION))
        self.committed = Committed(0, decisions)
        self._load_log()

    def _load_log(self) -> None:
        """Count the lessons, and find out which decisions they used."""
        self._taught, self._taught_count = {}, 0
        length = 0
        for lesson in self._log(0):
            if lesson.number != length:
                raise DamagedStoreError(f"lesson {length} is missing in the log")
            length += 1
            for name, _ in () if lesson.refused else lesson.rewards:
                self._teach(name)
        self._appended = length
        self.committed = Committed(length, self.committed.decisions)
        most = self._federation.max_interactions
        if self._federation.learner.learns_many and self._taught_count > most:
            raise StoreError(
                f"this state was written by an earlier version and holds {self._taught_count:,} interactions; this "
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


class MemoryPartyRecords:
    """The records of a party whose state ends with it. There is one epoch, and nothing to read back: of lessons their
    number is kept; decisions that wait for a reward are in the `ledger`; nothing is encoded."""

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
    ) -> None:
        then()

    def interaction(self, name: int) -> Interaction | None:
        return None

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """They are in the ledger. The actor sends them once, and does not ask."""
        return True

    def lacks(self, heard: Heard) -> bool:
        return False

    def untaught(self) -> Iterator[int]:
        """There is no epoch before this one."""
        return iter(())

    def is_taught(self, name: int) -> bool:
        return False

    def log_lesson(
        self,
        lesson: Lesson,
        refused: str | None,
        checkpoint: tuple[int, LearnedState] | None,
        then: Then,
        *,
        refreshed: bool = False,
    ) -> None:
        self.committed = Committed(lesson.number + 1, 0)
        if refreshed:
            self.ledger = self.ledger.refreshed()
        then()

    def keep_checkpoint(self, epoch: int, state: LearnedState, then: Then, *, refreshed: bool = False) -> None:
        then()

    def undoes_used(self, plan: Plan) -> bool:
        return False

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
    return _DECISIONS.pack(epoch, 0 if program.name == STEP else program.count, step)


def _place(name: int) -> tuple[tuple[int, ProgramId], int]:
    """Where a decision is marked as taught: epoch and program, and its place among their decisions."""
    epoch, number = split_name(name)
    program, step, position = split_number(number)
    return (epoch, program), step * program.count + position


def _encode_lesson(lesson: Lesson, refused: str | None) -> bytes:
    why = (refused or "").encode()
    rewards = (_REWARD.pack(*split_name(name), masked) for name, masked in lesson.rewards)
    return _LESSON_HEAD.pack(len(why)) + why + b"".join(rewards)


def _decode_lesson(number: int, payload: bytes) -> Lesson:
    (length,) = _LESSON_HEAD.unpack_from(payload)
    start = _LESSON_HEAD.size + length
    rewards = [(decision_name(epoch, number), word) for epoch, number, word in _REWARD.iter_unpack(payload[start:])]
    return Lesson(number, rewards, logged=True, refused=payload[_LESSON_HEAD.size : start].decode())


def _encode_state(state: LearnedState) -> bytes:
    form = _DUE if state.due else _NAMED
    return _COUNTERS.pack(state.version, state.gathered, form, state.ungathered) + encode_arrays(state.arrays)


def _decode_state(payload: bytes, learner: Learner) -> LearnedState:
    version, gathered, form, ungathered = _COUNTERS.unpack_from(payload)
    if form not in (_NAMED, _DUE):
        return _decode_unnamed(payload, learner)
    arrays = decode_arrays(payload[_COUNTERS.size :])
    check_state(learner.arrays, arrays)
    return LearnedState(version, arrays, gathered, ungathered, due=form == _DUE)


def _decode_unnamed(payload: bytes, learner: Learner) -> LearnedState:
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
    named = State(zip((array.name for array in learner.arrays), arrays, strict=False))
    check_state(learner.arrays, named)
    return LearnedState(version, named, gathered, ungathered if learner.learns_many else version, learner.learns_many)
