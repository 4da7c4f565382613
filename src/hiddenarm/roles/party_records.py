"""What a party writes down, and reads back after a crash: which epochs it has prepared and activated, what it keeps of
decisions (`decision_records`), how lessons ended, checkpoints of its state, and what was released. How each of it is
written: `party_areas`. A party whose state ends with it has other records (`memory_records`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from hiddenarm.bandit.decisions import DecisionSet, split_name, split_number
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.interactions import Interaction
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.privacy.ledger import NOTHING_RELEASED, PrivacyLedger
from hiddenarm.roles.decision_records import DecidedRun, DecisionRecords
from hiddenarm.roles.epochs.plan import INITIAL, MAX_CHECKPOINTS, CheckpointName, Committed, Heard, PartyStatement, Plan
from hiddenarm.roles.memory_records import MemoryPartyRecords
from hiddenarm.roles.messages import ReturnedArms, Unlearning
from hiddenarm.roles.party_areas import (
    ARMS,
    CHECKPOINT,
    DECISION,
    EPOCH,
    EPOCHS,
    LESSON,
    NAME,
    NOISE_USED,
    NUMBER,
    ONLY,
    OPENED,
    PAIR,
    PRIVACY,
    PRUNED,
    REFRESH,
    UNDONE,
    VALUES,
    WENT_BACK,
    WINDOWS,
    WORD,
    WORD_BYTES,
    decode_lesson,
    decode_state,
    encode_lesson,
    encode_state,
    public_start,
    read_ledger,
    read_needs,
    run_key,
)
from hiddenarm.roles.retention import NOT_KEPT, NOT_LEARNED, UNLEARNED_BEFORE, WAS_TAUGHT, CheckpointNeeds, Retention
from hiddenarm.roles.updater import LearnedState, Lesson
from hiddenarm.roles.values import WindowTotals
from hiddenarm.store.contract import Change, Delete, DeleteFrom, Put, Store
from hiddenarm.store.journal import Journal, Then


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
        self._decisions = DecisionRecords(store, journal, federation, number)
        self._taught = DecisionSet()
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
        self._counts_rows = federation.noisy is not None
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
            changes.append(Put(WENT_BACK, ONLY, NUMBER.pack(plan.epoch)))
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
            Put(OPENED, NUMBER.pack(plan.epoch), plan.encode()),
            *(Delete(CHECKPOINT, NAME.pack(*name)) for name in gone),
            *self._undo_refreshes(plan),
            *self._with_activation,
            *self._undo_values(plan),
        ]
        if self._pruned > plan.length:
            self._pruned = plan.length
            changes.append(Put(PRUNED, ONLY, NUMBER.pack(self._pruned)))
        if cut:
            changes.append(DeleteFrom(LESSON, NUMBER.pack(plan.length)))
        self._journal.append(changes, partial(self._activated, cut, then))

    def _undo_refreshes(self, plan: Plan) -> list[Change]:
        """Forget refreshes after the checkpoint from which all start: their lessons are learned or taught again, and
        noise is drawn anew. As some party does not hold them, no decision has used them, unless it has lost them and
        all agreed to go back: then what decisions have used is noted as undone."""
        changes: list[Change] = []
        for name in self._after(plan.checkpoint):
            self._refreshes.remove(name)
            changes.append(Delete(REFRESH, NUMBER.pack(name.version)))
            if name.version <= self._noise_used:
                self._undone[name] = plan.epoch
                changes.append(Put(UNDONE, NAME.pack(*name), NUMBER.pack(plan.epoch)))
        if self._noise_used > plan.checkpoint.version:
            changes.append(self._use_noise(self.refreshed))
        return changes

    def _undo_values(self, plan: Plan) -> list[Change]:
        """Forget windows of lessons that are cut off. Their decisions will be part of another opening. Without them
        nobody can have learned the first one, unless all agreed to go back; it is counted in any case."""
        if self._values is None:
            return []
        gone = list(self._store.items(VALUES, NUMBER.pack(plan.length + 1)))
        if not gone:
            return []
        self.ledger = self.ledger.opens_again(self._values.mu)
        return [DeleteFrom(VALUES, NUMBER.pack(plan.length + 1)), self._privacy()]

    def window_totals(self) -> WindowTotals | None:
        """The totals of all windows so far, after an epoch was activated; None if no window was full."""
        last = max(self._store.items(VALUES), default=None)
        if last is None or self._values is None:
            return None
        key, payload = last
        if len(payload) != WINDOWS.size + self._values.sums * WORD_BYTES:
            raise DamagedStoreError("a record of values has a wrong length")
        windows, position = WINDOWS.unpack_from(payload)
        shares = np.frombuffer(payload, WORD, offset=WINDOWS.size).astype(np.uint64)
        return WindowTotals(windows, NUMBER.unpack(key)[0], position, shares)

    def _after(self, checkpoint: CheckpointName) -> list[CheckpointName]:
        """Refreshes that a checkpoint does not hold."""
        return sorted(name for name in self._refreshes if name.version > checkpoint.version)

    def _use_noise(self, version: int) -> Change:
        self._noise_used = version
        return Put(NOISE_USED, ONLY, NUMBER.pack(version))

    def undoes_used(self, plan: Plan) -> bool:
        """Whether noise that decisions have used would be drawn again, and all parties have not agreed to that since
        this party has activated an epoch."""
        went_back = self._store.get(WENT_BACK, ONLY)
        agreed = went_back is not None and NUMBER.unpack(went_back)[0] > self.activated
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

    def keep_decisions(self, run: DecidedRun, then: Then) -> None:
        """Keep decisions that were made together, and that they were charged."""
        used = sum(name.version <= run.version for name in self._refreshes) + len(self._undone)
        self.ledger = self.ledger.with_refreshes(used, self.releases - 1)
        changes = [self._decisions.written(run), self._privacy(), *self._new_notes()]
        uses = max((name.version for name in self._refreshes if name.version <= run.version), default=0)
        if uses > self._noise_used:
            changes.append(self._use_noise(uses))
        self._journal.append(changes, partial(self._decisions_lasting, run.program.count, then))

    def _decisions_lasting(self, count: int, then: Then) -> None:
        self.committed = Committed(self.committed.lessons, self.committed.decisions + count)
        then()

    def interaction(self, name: int) -> Interaction | None:
        """What was kept of a decision, whether it was rewarded or not."""
        return self._decisions.interaction(name)

    def keep_arms(self, returned: ReturnedArms, then: Then) -> bool:
        """Keep the one-hots that the actor has returned for a run; False if others are kept."""
        return self._decisions.keep_arms(returned, then)

    def untaught(self) -> Iterator[int]:
        """The names of all decisions that last here and wait for their reward."""
        return (name for name in self._decisions.names() if not self.is_taught(name))

    @property
    def pending(self) -> int:
        """Decisions of all epochs that last here and wait for their reward."""
        return max(0, self.committed.decisions - self._taught_count)

    def lacks(self, heard: Heard) -> bool:
        """Whether decisions, or returned one-hots, of which this party has told the actor are gone, and all parties
        have not agreed since to go back. After an agreement an epoch that is not known here may be one that was given
        up."""
        return self._lacks(DECISION, heard.decided) or self._lacks(ARMS, heard.kept)

    def _lacks(self, area: str, name: int) -> bool:
        epoch, _ = split_name(name)
        went_back = self._store.get(WENT_BACK, ONLY)
        opened = [number for number, plan in self.opened().items() if plan.named == epoch]
        if not name or (went_back is not None and NUMBER.unpack(went_back)[0] > max(opened, default=0)):
            return False
        return not self._decisions.holds(area, name)

    def is_taught(self, name: int) -> bool:
        """Whether a lesson has used this decision."""
        return name in self._taught

    def _teach(self, name: int) -> None:
        """A lesson of the log has used this decision."""
        self._taught.add(name)
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
        changes: list[Change] = [Put(PRUNED, ONLY, NUMBER.pack(self._pruned))]
        for number in lessons:
            lesson = self._lesson(number)
            for key in self._wholly_pruned(lesson):
                changes.extend(self._decisions.emptied(key))
        return changes

    def _first_needed(self, version: int) -> int:
        """The first lesson whose interactions an epoch that starts from this version, or from a later one, may need
        besides: to unlearn them again, for the window of values under way, to count rows since the last refresh."""
        behind = [lesson for lesson in (*self._log(version), *self._unwritten_lessons.values()) if not lesson.refused]
        unlearnings = [lesson.unlearning for lesson in behind if lesson.unlearning is not None]
        needed = [version, *(unlearning.learned_in for unlearning in unlearnings if not unlearning.drops)]
        if self._values is not None:
            filled = (NUMBER.unpack(key)[0] for key, _ in self._store.items(VALUES))
            needed.append(max((by for by in filled if by <= version), default=1) - 1)
        if self._counts_rows:
            needed.append(max((name.version for name in self._refreshes if name.version <= version), default=0))
        return min(needed)

    def _wholly_pruned(self, lesson: Lesson | None) -> Iterator[bytes]:
        """The runs all of whose decisions are pruned with those of a lesson."""
        for name in _used_by(lesson):
            epoch, number = split_name(name)
            program, step, _ = split_number(number)
            key = run_key(epoch, program, step)
            self._partly[key] += 1
            if self._partly[key] == program.count:
                del self._partly[key]
                yield key

    def _lesson(self, number: int) -> Lesson | None:
        """A lesson of the log, whether it lasts already or not."""
        lesson = self._unwritten_lessons.get(number)
        if lesson is not None:
            return lesson
        payload = self._store.get(LESSON, NUMBER.pack(number))
        return None if payload is None else decode_lesson(number, payload)

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
        changes = [Put(LESSON, NUMBER.pack(lesson.number), encode_lesson(lesson, refused)), *self._new_notes()]
        if checkpoint is not None:
            changes.extend(self._checkpoint(*checkpoint, refreshed=refreshed))
        if values is not None:
            changes.extend(self._window_totals(values))
        self._journal.append(changes, partial(self._lesson_lasting, lesson.number, then))

    def _window_totals(self, totals: WindowTotals) -> list[Change]:
        assert self._values is not None
        for _ in range(totals.new):
            self.ledger = self.ledger.opened_with(self._values.mu)
        payload = WINDOWS.pack(totals.windows, totals.position) + np.ascontiguousarray(totals.shares, WORD).tobytes()
        return [Put(VALUES, NUMBER.pack(totals.version), payload), self._privacy()]

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
        changes: list[Change] = [Put(CHECKPOINT, NAME.pack(*name), encode_state(state))]
        if refreshed:
            self._refreshes.add(name)
            changes.append(Put(REFRESH, NUMBER.pack(name.version), NUMBER.pack(epoch)))
        if common or self._origin != INITIAL:  # else all may still have to start from nothing
            changes.extend(self._prune())
        return [*changes, *(Delete(CHECKPOINT, NAME.pack(*kept)) for kept in gone)]

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
            return public_start(self._federation, self._number)
        payload = self._store.get(CHECKPOINT, NAME.pack(*name))
        if payload is None:
            raise DamagedStoreError(f"the checkpoint of version {name.version} is not there")
        return decode_state(payload, self._federation.learner, self._number)

    def opened(self) -> dict[int, Plan]:
        """The plans of all epochs that were activated, by number."""
        return {NUMBER.unpack(key)[0]: Plan.decode(payload) for key, payload in self._store.items(OPENED)}

    # Loading

    def _load(self) -> None:
        payload = self._store.get(EPOCH, ONLY)
        if payload is not None:
            self.prepared, self.activated, consents, parties = EPOCHS.unpack_from(payload)
            self.consents = bool(consents)
            self.noted = [Committed(*pair) for pair in PAIR.iter_unpack(payload[EPOCHS.size :])]
            if not parties == len(self.noted) == self._federation.parties:
                raise DamagedStoreError("the record of epochs is that of another number of parties")
        self._kept_notes = list(self.noted)
        if (plan := self._store.get(OPENED, NUMBER.pack(self.activated))) is not None:
            self.epoch = Plan.decode(plan).named
        self._needs = {
            CheckpointName(*NAME.unpack(key)): read_needs(payload) for key, payload in self._store.items(CHECKPOINT)
        }
        self.checkpoints = set(self._needs)
        pruned = self._store.get(PRUNED, ONLY)
        self._pruned = 0 if pruned is None else NUMBER.unpack(pruned)[0]
        self._refreshes = {
            CheckpointName(*NUMBER.unpack(key), *NUMBER.unpack(epoch)) for key, epoch in self._store.items(REFRESH)
        }
        self._undone = {
            CheckpointName(*NAME.unpack(key)): NUMBER.unpack(epoch)[0] for key, epoch in self._store.items(UNDONE)
        }
        used = self._store.get(NOISE_USED, ONLY)
        self._noise_used = 0 if used is None else NUMBER.unpack(used)[0]
        self.ledger = read_ledger(self._store)
        self.committed = Committed(0, self._decisions.count)
        self._load_log()

    def _load_log(self) -> None:
        """Count the lessons, and find out which decisions they used."""
        self._taught, self._taught_count = DecisionSet(), 0
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
        for key, payload in self._store.items(LESSON, NUMBER.pack(first)):
            yield decode_lesson(NUMBER.unpack(key)[0], payload)

    def _epochs(self) -> Put:
        self._kept_notes = list(self.noted)
        head = EPOCHS.pack(self.prepared, self.activated, self.consents, len(self.noted))
        return Put(EPOCH, ONLY, head + b"".join(PAIR.pack(*noted) for noted in self.noted))

    def _privacy(self) -> Put:
        return Put(PRIVACY, ONLY, self.ledger.encode())

    def _new_notes(self) -> list[Change]:
        return [self._epochs()] if self.noted != self._kept_notes else []


Records = PartyRecords | MemoryPartyRecords


def _used_by(lesson: Lesson | None) -> list[int]:
    """The decisions that no other lesson will use."""
    if lesson is None or lesson.refused:
        return []
    dropped = [lesson.unlearning.name] if lesson.unlearning is not None and lesson.unlearning.drops else []
    return [*(name for name, _ in lesson.rewards), *dropped]
