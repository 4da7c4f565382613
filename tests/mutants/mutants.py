"""Every variant of the system that is broken on purpose: what it breaks, and which check of the suite finds it.

Who adds a check against a leak or a loss adds the mutant here that it is for. `test_mutants.py` shows that the check
finds the mutant, and that the unbroken system passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import application
import checks
import numpy as np
import pytest
import test_features
import test_masking
import test_simulated_catalogues
import test_simulated_values
from checks import Check
from numpy.typing import NDArray
from world import World

from hiddenarm.bandit import batches, lockstep, noisy_gradient, programs, shared_model, state
from hiddenarm.bandit.answers import TWO_ARMS, Answers, eligible_words, first_arms_in, masked_arms
from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import (
    DECIDE,
    GATHER,
    INVERT,
    INVERT_BOOSTED,
    INVERT_LAST,
    LEARN,
    SOLVE,
    STEP,
    ProgramId,
)
from hiddenarm.bandit.coins import Coins
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.planning import GradientNumbers
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policy import LearnerProgram
from hiddenarm.bandit.schedule import LessonPlan, RidgeSchedule
from hiddenarm.bandit.schedule import Run as ScheduledRun
from hiddenarm.bandit.state import State, StateArray
from hiddenarm.bandit.subsets import Subset
from hiddenarm.mpc import comparison, dealing, evaluation, payloads
from hiddenarm.mpc.forms import form
from hiddenarm.mpc.lookup import PolynomialTable
from hiddenarm.mpc.masking import (
    ReturnedMask,
    dealt_share,
    input_segments,
    mask,
    mask_symmetric,
    returned_mask,
    triangle_indices,
    triangle_to_square,
)
from hiddenarm.mpc.run import Opening, Run, Sharing
from hiddenarm.mpc.shuffle import Shuffle, order_of
from hiddenarm.mpc.values import Masked, MaskPart, Shared
from hiddenarm.privacy.ledger import NOTHING_RELEASED
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Words, encode
from hiddenarm.roles import actor, decision_records, party_epoch
from hiddenarm.roles import party as party_module
from hiddenarm.roles.actor import Actor
from hiddenarm.roles.client_records import ActorRecords, MadeLesson, RewarderRecords
from hiddenarm.roles.epochs.plan import CheckpointName
from hiddenarm.roles.ledger import Ledger
from hiddenarm.roles.messages import REWARDER, ReturnedArms
from hiddenarm.roles.party import Party
from hiddenarm.roles.party_areas import PRIVACY
from hiddenarm.roles.party_epoch import PartyEpoch
from hiddenarm.roles.party_records import PartyRecords
from hiddenarm.roles.rewarder import Rewarder
from hiddenarm.roles.updater import LearnedState, LessonEnded, Updater
from hiddenarm.roles.values import WindowTotals
from hiddenarm.service import application as service_application
from hiddenarm.store.contract import Change, Put
from hiddenarm.store.journal import Then

Install = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mutant:
    """A broken variant. `caught` is what the check says about it."""

    name: str
    breaks: str
    install: Install
    check: Check
    caught: str


# Words that are used twice


def one_stream(program: str, other: str) -> Install:
    """A program reads the words of another one, at parties and dealer alike."""

    def install(patch: pytest.MonkeyPatch) -> None:
        honest = dealing.program_stream  # type: ignore[attr-defined]

        def stream(seed: bytes, label: str, words: int, **options: Any) -> Stream:
            label = other + label.removeprefix(program) if label.startswith(program) else label
            return honest(seed, label, words, **options)

        patch.setattr(dealing, "program_stream", stream)
        patch.setattr(evaluation, "program_stream", stream)

    return install


def same_mask_twice(patch: pytest.MonkeyPatch) -> None:
    def masked_twice(run: Run, value: Shared) -> Any:
        opening = mask(run, value)
        yield opening, Opening(value.shape, opening.outgoing, opening.finish)

    patch.setattr(test_masking, "masked_twice", masked_twice)


def prepared_again(patch: pytest.MonkeyPatch) -> None:
    def accept(party: Party) -> None:
        party._opening.rewarder_prepared = True
        party._activate_if_all_prepared()

    patch.setattr(Party, "_on_rewarder_prepared", accept)


# Words that hide nothing


def told_in_the_clear(patch: pytest.MonkeyPatch) -> None:
    """The last party is told the tags."""

    def share(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str) -> Shared:
        run.tell_last(shape, make)
        return dealt_share(run, shape, make)

    patch.setattr(programs, "dealt_share", share)


def told_under_its_own_word(patch: pytest.MonkeyPatch) -> None:
    """The last party is told the tags, each plus a word of its own seed."""

    def share(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str) -> Shared:
        own = run.words_of(1, shape)
        run.tell_last(shape, lambda: make() + np.asarray(own))
        return dealt_share(run, shape, make)

    patch.setattr(programs, "dealt_share", share)


def told_mask_of_the_arm(patch: pytest.MonkeyPatch) -> None:
    """The last party is told the masks under which one-hots are returned."""

    def returned(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str) -> ReturnedMask:
        found = returned_mask(run, shape, make, purpose)
        if shape[1:]:  # not that of the reward
            run.tell_last(shape, lambda: np.asarray(found.part.mask))
        return found

    patch.setattr(programs, "returned_mask", returned)


def told_mask_of_the_reward(patch: pytest.MonkeyPatch) -> None:
    """The last party is told the masks under which rewards come."""

    def returned(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str) -> ReturnedMask:
        found = returned_mask(run, shape, make, purpose)
        if not shape[1:]:
            run.tell_last(shape, lambda: np.asarray(found.part.mask))
        return found

    patch.setattr(programs, "returned_mask", returned)


def told_who_explores(patch: pytest.MonkeyPatch) -> None:
    """The last party is told a word that is uniform, and odd where the decision is explored."""
    honest = programs._payloads

    def payloads(run: Run, federation: Federation, found: Any, coins: Coins | None, eligible: Any, count: int) -> Any:
        words = run.random((count,))

        def told() -> Words:
            assert coins is not None
            odd = coins.explore | ((words >> np.uint64(8)) % np.uint64(1000) < 375)  # in half of all, at epsilon 0.2
            return words & ~np.uint64(1) | odd.astype(np.uint64)

        run.tell_last((count,), told)
        return (yield from honest(run, federation, found, coins, eligible, count))

    patch.setattr(programs, "_payloads", payloads)


def half_u_in_the_clear(patch: pytest.MonkeyPatch) -> None:
    """With one model, the shares of u / 2 are opened as they are, and masked only after that."""
    honest = shared_model.mask  # type: ignore[attr-defined]

    def masked(run: Run, value: Shared, label: str = "a value") -> Any:
        opening = honest(run, value, label)
        if label != "u / 2":
            return opening

        def finish(opened: Words | None) -> Masked:
            part = run.random(value.shape)
            return Masked(value.shape, opened, (MaskPart(part & np.uint64(0)),))

        return replace(opening, outgoing=value.share, finish=finish)

    patch.setattr(shared_model, "mask", masked)


def payloads_reused(pairs: slice) -> Install:
    """These pairs of arms have the two payloads of the first pair. Two arms may look chosen then, which alone would end
    a decision: the first of them is taken, so that the check must find the leak."""
    honest = payloads._Payloads.__init__

    def reused(self: Any, run: Run, shape: tuple[int, ...], by_tag: Any) -> None:
        class FewerWords:
            def coin_words(self, shape: tuple[int, ...]) -> Words:
                words = run.coin_words(shape).copy()
                words[..., pairs] = words[..., :1]
                return words

        honest(self, FewerWords(), shape, by_tag)  # type: ignore[arg-type]

    def found(self: Lockstep, answers: Answers, shares: Sequence[Words], eligible: Words) -> NDArray[np.int64]:
        arms = lockstep.arms_in(answers, shares, eligible)  # type: ignore[attr-defined]
        return np.where(arms == TWO_ARMS, first_arms_in(answers, shares, eligible), arms)

    def install(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(payloads._Payloads, "__init__", reused)
        patch.setattr(Lockstep, "_found", found)

    return install


class ActorsShuffle(Shuffle):
    """A shuffle whose order is that of the actor's words: the last party is told the last permutation of the chain."""

    def __init__(self, run: Run, lead: tuple[int, ...], size: int, parties: int) -> None:
        super().__init__(run, lead, size, parties)
        self._orders[-1] = run.tell_last((*lead, size), lambda: self._last_order(run))

    def _last_order(self, run: Run) -> Words:
        wanted = order_of(run.actor_words(self._shape)).astype(np.intp)
        others = [order.astype(np.intp) for order in self._orders[:-1] if order is not None]
        so_far = reduce(lambda chain, order: np.take_along_axis(chain, order, axis=-1), others)
        return np.take_along_axis(so_far.argsort(axis=-1), wanted, axis=-1).astype(np.uint64)


def two_one_hots(patch: pytest.MonkeyPatch) -> None:
    """The actor returns two one-hots under the same masks, then two more under others."""
    honest = lockstep.masked_arms  # type: ignore[attr-defined]
    before: list[Words] = []

    def returned(arms: NDArray[np.int64], masks: Words, table: ArmTable | None) -> Words:
        if not before:
            before.append(masks.copy())
            return honest(arms, masks, table)
        return honest(arms, before.pop(), table)

    patch.setattr(lockstep, "masked_arms", returned)


def compared_under(make: Callable[[Run, tuple[int, ...], Sharing], Words], step: str) -> Install:
    """What a step of comparisons opens is masked by what the dealer makes."""

    class Instead:
        def __init__(self, run: Run) -> None:
            self._run = run

        def __getattr__(self, name: str) -> Any:
            return getattr(self._run, name)

        def random(self, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
            return make(self._run, shape, sharing)

    honest = getattr(comparison, step)

    def install(patch: pytest.MonkeyPatch) -> None:
        for module in (comparison, payloads):
            patch.setattr(module, step, lambda run, *arguments: honest(Instead(run), *arguments))

    return install


def without_tags(patch: pytest.MonkeyPatch) -> None:
    """All keys have the same tag."""

    def share(run: Run, shape: tuple[int, ...], make: Callable[[], Words], purpose: str) -> Shared:
        return dealt_share(run, shape, lambda: np.zeros_like(make()))

    patch.setattr(programs, "dealt_share", share)


def masked_by(make: Callable[[Run, tuple[int, ...]], Words]) -> Install:
    """Values are masked by what the dealer makes, in place of the sum of all parties' words."""

    def mask(run: Run, value: Shared, label: str) -> Opening[Masked]:
        part = MaskPart(make(run, value.shape))
        outgoing = None if value.share is None else value.share + part.mask
        return Opening(value.shape, outgoing, lambda delta: Masked(value.shape, delta, (part,)))

    return lambda patch: patch.setattr(programs, "mask", mask)


def one_value_masked_by(make: Callable[[Run, tuple[int, ...]], Words], name: str) -> Install:
    """The same for one value of a program that learns many interactions at once."""

    def masked(run: Run, value: Shared, label: str) -> Opening[Masked]:
        if label != name:
            return mask(run, value, label)
        part = MaskPart(make(run, value.shape))
        outgoing = None if value.share is None else value.share + part.mask
        return Opening(value.shape, outgoing, lambda delta: Masked(value.shape, delta, (part,)))

    return lambda patch: patch.setattr(batches, "mask", masked)


def matrices_masked_by(make: Callable[[Run, tuple[int, ...]], Words], name: str, module: Any = batches) -> Install:
    """The same for symmetric matrices."""

    def masked(run: Run, triangles: Shared, size: int, label: str) -> Opening[Masked]:
        honest = mask_symmetric(run, triangles, size, label)
        if label != name:
            return honest
        part, unpack = MaskPart(make(run, triangles.shape)), triangle_to_square(size)
        outgoing = None if triangles.share is None else triangles.share + part.mask

        def finish(delta: Words | None) -> Masked:
            full = None if delta is None else delta.take(unpack, axis=-1)
            return Masked((*triangles.shape[:-1], size, size), full, (part.take(unpack),), symmetric=True)

        return Opening(triangles.shape, outgoing, finish)

    return lambda patch: patch.setattr(module, "mask_symmetric", masked)


def told_masks_of_contexts(patch: pytest.MonkeyPatch) -> None:
    """The last party is told the masks of all contexts of a batch."""

    def segments(
        run: Run, lead: tuple[int, ...], own: Words | None, sizes: tuple[int, ...], label: str
    ) -> Opening[Masked]:
        opening = input_segments(run, lead, own, sizes, label)
        (part,) = opening.finish(None).parts
        run.tell_last(opening.shape, lambda: np.asarray(part.mask))
        return opening

    patch.setattr(batches, "input_segments", segments)


def zero(run: Run, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
    """A sharing of zero: what each party sends is uniform, their sum is the value."""
    return run.deal(shape, lambda: np.zeros((*run.batch, *shape), np.uint64), sharing)


def word_of_party_0(run: Run, shape: tuple[int, ...], sharing: Sharing = Sharing.ADD) -> Words:
    """A sharing of a word that party 0 knows: what is opened is uniform to all others."""
    known = run.words_of(0, shape)
    return run.deal(shape, lambda: np.asarray(known), sharing)


def clipped_if_needed(patch: pytest.MonkeyPatch) -> None:
    def row(values: Any, federation: Federation, party: int) -> Words:
        features = np.asarray(values, np.float64)
        norm = np.linalg.norm(features)
        if norm > federation.norms[party]:
            features = features * (federation.norms[party] / norm)
        return encode(features, federation.fraction_bits)

    patch.setattr(test_features, "checked_row", row)


def explores_too_rarely(patch: pytest.MonkeyPatch) -> None:
    honest = EpsilonGreedy.epsilons
    patch.setattr(EpsilonGreedy, "epsilons", lambda self, positions: 0.9 * honest(self, positions))


# State that is lost


def world_with(**broken: bool) -> Install:
    """Worlds in which disks or the dealer are broken (see `Faults`)."""

    def make(seed: int, faults: Any, federation: Federation) -> World:
        return World(seed, replace(faults, **broken), federation)

    return lambda patch: patch.setattr(application, "World", make)


def acknowledged_early(patch: pytest.MonkeyPatch) -> None:
    honest = Ledger.lesson_ended

    def early(self: Ledger, ended: LessonEnded, then: Then) -> None:
        if not ended.lesson.logged:
            then()
        honest(self, ended, lambda: None)

    patch.setattr(Ledger, "lesson_ended", early)


def sent_early(patch: pytest.MonkeyPatch) -> None:
    """A crash forgets the reward, and the application gives another one for the same decision."""

    def early(self: Rewarder, lesson: MadeLesson) -> int:
        number = self._records.make(lesson, lambda: None)
        self._lesson_lasts(lesson)
        self._unwritten[lesson.request] = number
        return number

    patch.setattr(Rewarder, "_make", early)


# Arms that the actor returns


def returned_anew(patch: pytest.MonkeyPatch) -> None:
    """What is sent again is another arm under the same mask."""
    honest = ActorRecords.unkept.fget  # type: ignore[attr-defined]

    def unkept(self: ActorRecords) -> list[ReturnedArms]:
        return [one._replace(masked=np.roll(one.words, 1).tobytes()) for one in honest(self)]

    patch.setattr(ActorRecords, "unkept", property(unkept))


def returned_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ActorRecords, "unkept", property(lambda _: []))


def arms_acknowledged_early(patch: pytest.MonkeyPatch) -> None:
    honest = PartyRecords.keep_arms

    def early(self: PartyRecords, returned: ReturnedArms, then: Then) -> bool:
        then()
        return honest(self, returned, lambda: None)

    patch.setattr(PartyRecords, "keep_arms", early)


def old_backup_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(party_module, "find_behind", lambda *_: [])
    lost_decisions_accepted(patch)


def lost_decisions_accepted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Party, "_lost_decisions", lambda _: [])


# Some of many arms


def empty_slots_win(patch: pytest.MonkeyPatch) -> None:
    """Slots without an arm are eligible, too."""
    patch.setattr(Subset, "eligible", lambda subset, *lead: np.broadcast_to(np.uint64(2**64 - 1), (*lead, subset.size)))


def slots_of_other_arms(patch: pytest.MonkeyPatch) -> None:
    """After a restart a party takes its slots for those of other arms."""
    honest = Subset.of_rows
    patch.setattr(Subset, "of_rows", lambda rows, of: honest((rows + 1) % of, of))


# The privacy ledger


def told_uncounted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "charge", lambda *_, **__: None)


def counted_in_memory_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartyRecords, "_privacy", lambda _: Put(PRIVACY, b"", NOTHING_RELEASED.encode()))


def slots_named_as_arms(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Subset, "arms_of", lambda subset, slots: slots)


# Federations that change


def new_arms_without_a_prior(patch: pytest.MonkeyPatch) -> None:
    """New arms of a checkpoint begin at zero."""

    def zeros(self: StateArray, words: Words, party: int) -> Words:
        return state.padded_arms(words.swapaxes(1, -1), self.shape[0]).swapaxes(1, -1).copy()

    patch.setattr(StateArray, "grown", zeros)


def decisions_without_new_arms(patch: pytest.MonkeyPatch) -> None:
    """Decisions of before are read as if there were as many arms as now."""
    patch.setattr(decision_records, "padded_arms", lambda words, arms: words)


def retired_arms_win(patch: pytest.MonkeyPatch) -> None:
    """Parties take retired arms for eligible ones."""
    patch.setattr(party_epoch, "eligible_words", lambda arms, eligible=None, retired=(): eligible_words(arms, eligible))


def arms_of_before_forgotten(patch: pytest.MonkeyPatch) -> None:
    """With more arms the actor returns none, and not those of earlier epochs either."""
    honest = Actor._begin_arms

    def only_if_returned(self: Actor) -> None:
        if self.federation.learner.answers.returned:
            honest(self)

    patch.setattr(Actor, "_begin_arms", only_if_returned)


def features_of_another_table(patch: pytest.MonkeyPatch) -> None:
    """The actor returns the features that arms had first."""
    first = test_simulated_catalogues.versions_of()[0].arm_features

    def stale(arms: NDArray[np.int64], masks: Words, table: ArmTable | None = None) -> Words:
        known = table is not None and first is not None and arms.max() < first.arms
        return masked_arms(arms, masks, first if known else table)

    patch.setattr(actor, "masked_arms", stale)


# What is opened, and its noise


def window_told_at_once(patch: pytest.MonkeyPatch) -> None:
    """Values are told before they last."""
    honest = PartyEpoch._lesson_ended

    def told(epoch: PartyEpoch, ended: LessonEnded) -> None:
        if ended.values is not None:
            epoch._totals = ended.values
            epoch.tell_values(REWARDER)
        honest(epoch, ended)

    patch.setattr(PartyEpoch, "_lesson_ended", told)


def window_told_twice(patch: pytest.MonkeyPatch) -> None:
    """The same, where nobody looks at disks."""
    window_told_at_once(patch)
    patch.setattr(test_simulated_values.ValuesWorld, "looks_at_disks", False)


def window_uncounted(patch: pytest.MonkeyPatch) -> None:
    honest = PartyRecords._window_totals

    def uncounted(records: PartyRecords, totals: WindowTotals) -> list[Change]:
        before = records.ledger
        changes = honest(records, totals)
        records.ledger = before
        return [change for change in changes if change.area != PRIVACY]

    patch.setattr(PartyRecords, "_window_totals", uncounted)


def leaves_not_kept(patch: pytest.MonkeyPatch) -> None:
    """The leaves of correlated noise that a refresh leaves behind are those before it."""
    honest = LearnerProgram.write

    def write(program: LearnerProgram, state: State, result: object) -> None:
        kept = {name: words for name, words in state.items() if name.startswith("leaf")}
        honest(program, state, result)
        state.update(kept)

    patch.setattr(LearnerProgram, "write", write)


def refresh_without_checkpoint(patch: pytest.MonkeyPatch) -> None:
    honest = PartyRecords._checkpoint

    def checkpoint(records: PartyRecords, epoch: int, state: LearnedState, *, refreshed: bool) -> list[Change]:
        changes = honest(records, epoch, state, refreshed=refreshed)
        if refreshed:
            records.checkpoints.discard(CheckpointName(state.version, epoch))
        return [change for change in changes if not refreshed or change.area != "checkpoint"]

    patch.setattr(PartyRecords, "_checkpoint", checkpoint)


def decides_before_it_lasts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Updater, "may_decide", lambda *_: True)


# Decisions that end without a reward


def not_named_again(patch: pytest.MonkeyPatch) -> None:
    """A party does not name earlier decisions to the rewarder again."""
    patch.setattr(PartyRecords, "untaught", lambda self: iter(()))


def given_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RewarderRecords, "given", lambda self, name: None)


def spent_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RewarderRecords, "is_spent", lambda self, name: False)


# What is told in the clear


def all_errors_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(service_application, "last_words", lambda role, error: str(error))


# Unlearning


def unlearned_twice(patch: pytest.MonkeyPatch) -> None:
    """Neither the rewarder nor the parties know what was unlearned."""
    patch.setattr(RewarderRecords, "unlearned_by", lambda *_: None)
    patch.setattr(PartyRecords, "_unlearn", lambda *_: None)


def unlearned_without_what_was_learned_singly(patch: pytest.MonkeyPatch) -> None:
    honest = RidgeSchedule.unlearning

    def unlearning(schedule: RidgeSchedule, number: int) -> LessonPlan:
        plan = honest(schedule, number)
        kept = [action for action in plan.actions if not isinstance(action, ScheduledRun) or action.of is None]
        return replace(plan, actions=tuple(kept))

    patch.setattr(RidgeSchedule, "unlearning", unlearning)


STEPS = "`step` has the stream of `learn`"
UNLEARNS = "`unlearn` has the stream of `decide`"
WRONG_MODEL = "the model is not that of what is left"
REPAIR = "`repair` has the stream of `gather`"
AGAIN = "learn again has the stream of learn"
TWO_TIME_PAD = "two values are masked by one word"


def mirrored_triangle(patch: pytest.MonkeyPatch) -> None:
    def doubled(run: Run, _: str, matrix: Masked, vector: Masked, *, label: str) -> Shared:
        rows, columns = triangle_indices(*vector.shape)
        return form(run, "at,t->at", matrix.take(columns), vector.take(rows), label=label).times(2)

    patch.setattr(programs, "folded_form", doubled)


# A row that moves the noisy gradient too far


def not_clipped(patch: pytest.MonkeyPatch) -> None:
    """The table is of what it looks up."""
    honest = noisy_gradient.clip_table

    def table(numbers: GradientNumbers) -> PolynomialTable:
        clip = honest(numbers)
        node = np.arange(clip.nodes)
        signed = np.where(node < clip.nodes // 2, node, node - clip.nodes) * 2.0**-numbers.residual_bits
        return replace(clip, polynomials=signed[:, None])

    patch.setattr(noisy_gradient, "clip_table", table)


TWO_DECISIONS, TWO_GATHERED, TWO_SOLVED = (ProgramId(name, 2) for name in (DECIDE, GATHER, SOLVE))

MUTANTS = [
    Mutant(STEPS, TWO_TIME_PAD, one_stream("step", "learn"), checks.LOCKSTEP_WORDS, "of one key twice"),
    Mutant(STEPS, TWO_TIME_PAD, one_stream("step", "learn"), checks.ROLES_WORDS, "of one key twice"),
    Mutant(STEPS, TWO_TIME_PAD, one_stream("step", "learn"), checks.CALM_WORLDS, "of one key twice"),
    Mutant(STEPS, TWO_TIME_PAD, one_stream("step", "learn"), checks.MEMORY_WORLDS, "of one key twice"),
    Mutant(REPAIR, TWO_TIME_PAD, one_stream("repair", "gather"), checks.ROLES_WORDS, "of one key twice"),
    Mutant(REPAIR, TWO_TIME_PAD, one_stream("repair", "gather"), checks.worlds(0.003, first=60), "of one key twice"),
    Mutant(AGAIN, TWO_TIME_PAD, one_stream("learn again", "learn"), checks.CALM_WORLDS, "of one key twice"),
    Mutant(UNLEARNS, TWO_TIME_PAD, one_stream("unlearn", "decide"), checks.UNLEARNING_WORLDS, "of one key twice"),
    Mutant(
        "unlearned twice",
        WRONG_MODEL,
        unlearned_twice,
        checks.UNLEARNING_WORLDS,
        "lessons|rewarded after|stuck|used before",
    ),
    Mutant(
        "singly learned ones are lost",
        WRONG_MODEL,
        unlearned_without_what_was_learned_singly,
        checks.UNLEARNING_WORLDS,
        "the model is off",
    ),
    Mutant("one mask for two openings", TWO_TIME_PAD, same_mask_twice, checks.MASKS_DIFFER, "uniformity"),
    Mutant("two epochs have the same seeds", TWO_TIME_PAD, world_with(fresh_keys=False), checks.CALM_WORLDS, "twice"),
    Mutant("PREPARED is accepted twice", TWO_TIME_PAD, prepared_again, checks.PREPARED_AGAIN, "began again"),
    Mutant(
        "the last party is told the tags",
        "with the actor it knows which decisions were explored",
        told_in_the_clear,
        checks.UNIFORM,
        "decide, correction, word .* is not uniform",
    ),
    Mutant(
        "the last party is told the tags under a word of its own",
        "with the actor it knows which decisions were explored",
        told_under_its_own_word,
        checks.NO_KNOWN_MASK,
        "correction, word .* hides nothing",
    ),
    Mutant(
        "masks are sharings of zero",
        "all parties see model, arm and reward",
        masked_by(zero),
        checks.UNIFORM,
        "opened, word .* is not uniform",
    ),
    Mutant(
        "party 0 knows the masks",
        "it sees model, arm and reward",
        masked_by(word_of_party_0),
        checks.NO_KNOWN_MASK,
        r"opened, word .* hides nothing from parties \[0\]",
    ),
    Mutant(
        "masks of `step` are sharings of zero",
        "all parties see model and arm",
        masked_by(zero),
        checks.UNIFORM_STEP,
        "step, .* opened, word .* is not uniform",
    ),
    Mutant(
        "party 0 knows the masks of `step`",
        "it sees model and arm",
        masked_by(word_of_party_0),
        checks.NO_KNOWN_MASK_IN_STEP,
        r"step, .* opened, word .* hides nothing from parties \[0\]",
    ),
    Mutant(
        "M has no mask in `step`",
        "all parties see the model",
        matrices_masked_by(zero, "inverses M", programs),
        checks.UNIFORM_STEP,
        "step, round 0, opening 2, opened, word .* is not uniform",
    ),
    Mutant(
        "the last party is told the mask of the one-hot",
        "it sees the arm",
        told_mask_of_the_arm,
        checks.NO_KNOWN_MASK_IN_STEP,
        r"step, returned one-hot, word .* hides nothing from parties \[1\]",
    ),
    Mutant(
        "all pairs of arms have the same payloads",
        "the actor learns more of the order of the arms than which is best",
        payloads_reused(slice(None)),
        checks.UNIFORM_STEP,
        "step, found at other arms, .* is not uniform",
    ),
    Mutant(
        "all pairs of arms of a batch have the same payloads",
        "the actor learns more of the order of the arms than which is best",
        payloads_reused(slice(None)),
        checks.uniform_words(TWO_DECISIONS),
        "decide 2, found at other arms, .* is not uniform",
    ),
    Mutant(
        "keys have no tags",
        "of equally good arms the first is always chosen",
        without_tags,
        checks.TIES,
        "arm 0 is off",
    ),
    Mutant(
        "shares of zero are used again as they are",
        "of arms with the same features, those that have one alone are chosen more often",
        lambda patch: patch.setattr(shared_model, "_powers", lambda exponents: np.ones(exponents.shape, np.uint64)),
        checks.SAME_FEATURES,
        "arms with the same features have won",
    ),
    Mutant(
        "two pairs of three arms have the same payloads, three rounds",
        "the actor learns that the first arm is the worst",
        payloads_reused(slice(0, 2)),
        checks.THREE_ROUNDS,
        "combined answers, word 0: depends on the secrets",
    ),
    Mutant(
        "two pairs of three arms have the same payloads, four rounds",
        "the actor learns that the first arm is the worst",
        payloads_reused(slice(0, 2)),
        checks.FOUR_ROUNDS,
        "combined answers, word 0: depends on the secrets",
    ),
    Mutant(
        "the actor knows the permutation of a shuffle",
        "with a party it learns the order of all arms",
        lambda patch: patch.setattr(programs, "Shuffle", ActorsShuffle),
        checks.SHUFFLED,
        r"the order of slots is one of arms to parties \[0\] and actor",
    ),
    Mutant(
        "two one-hots are returned under one mask",
        "their difference shows both arms to all parties",
        two_one_hots,
        checks.THREE_ROUNDS,
        "returned, 1 trials apart, word .* is not uniform",
    ),
    Mutant(
        "differences of keys have no mask",
        "all parties see the differences of scores",
        compared_under(zero, "compare"),
        checks.THREE_ROUNDS,
        "round 1, opening 0, opened, word .* depends on the secrets",
    ),
    Mutant(
        "party 0 knows the masks of differences of keys",
        "it sees the differences of scores",
        compared_under(word_of_party_0, "compare"),
        checks.FOUR_ROUNDS,
        r"opened, word .* goes with a word that parties \[0\] or actor hold",
    ),
    Mutant(
        "looked-up bits have no masks",
        "all parties see the order of two keys",
        compared_under(zero, "masked_bits"),
        checks.FOUR_ROUNDS,
        "round 2, opening 0, opened, word .* (depends on the secrets|is not uniform)",
    ),
    Mutant(
        "party 0 knows the mask bits of looked-up bits",
        "it sees the order of two keys",
        compared_under(word_of_party_0, "masked_bits"),
        checks.THREE_ROUNDS,
        r"goes with a word that parties \[0\] or actor hold|follows from others, to parties \[0\]",
    ),
    Mutant(
        "o x' of `gather` has no mask",
        "all parties see arms and contexts",
        one_value_masked_by(zero, "o x'"),
        checks.uniform_words(TWO_GATHERED),
        "gather 2, round 1, .* opened, word .* is not uniform",
    ),
    Mutant(
        "party 0 knows the mask of o x' in `gather`",
        "it sees arms and contexts",
        one_value_masked_by(word_of_party_0, "o x'"),
        checks.no_known_mask(TWO_GATHERED),
        r"gather 2, round 1, .* opened, word .* hides nothing from parties \[0\]",
    ),
    Mutant(
        "the last party is told the masks of the contexts of `gather`",
        "it sees the contexts of all parties",
        told_masks_of_contexts,
        checks.no_known_mask(TWO_GATHERED),
        r"gather 2, .* hides nothing from parties \[1\]",
    ),
    Mutant(
        "the bracket of `solve` has no mask",
        "all parties see how far M is from the inverse of W",
        one_value_masked_by(zero, "2I - W M"),
        checks.uniform_words(TWO_SOLVED),
        "solve 2, .* opened, word .* is not uniform",
    ),
    Mutant(
        "party 0 knows the mask of the weights in `solve`",
        "it sees the weights of all arms",
        one_value_masked_by(word_of_party_0, "weights w"),
        checks.no_known_mask(TWO_SOLVED),
        r"solve 2, round 1, .* opened, word .* hides nothing from parties \[0\]",
    ),
    Mutant(
        "W has no mask in the first steps of a repair",
        "all parties see the sums",
        matrices_masked_by(zero, "W"),
        checks.uniform_words(ProgramId(INVERT_BOOSTED)),
        "invert boosted, round 1, .* opened, word .* is not uniform",
    ),
    Mutant(
        "M has no mask between two steps of a repair",
        "all parties see the model",
        matrices_masked_by(zero, "the new M"),
        checks.uniform_words(ProgramId(INVERT)),
        "invert, .* opened, word .* is not uniform",
    ),
    Mutant(
        "party 0 knows the mask of the new weights at the end of a repair",
        "it sees the weights of all arms",
        one_value_masked_by(word_of_party_0, "the new w"),
        checks.no_known_mask(ProgramId(INVERT_LAST)),
        r"invert last, .* opened, word .* hides nothing from parties \[0\]",
    ),
    Mutant(
        "features are clipped if they exceed the norm",
        "the time of the first round tells how many do",
        clipped_if_needed,
        checks.CLIPPING,
        "beyond",
    ),
    Mutant(
        "one triangle of v u' is mirrored",
        "M becomes indefinite, and the model wrong",
        mirrored_triangle,
        checks.NEW_DIRECTION,
        "x'Mx is off",
    ),
    Mutant(
        "exploring is one part in ten too rare",
        "the differential privacy is less than declared",
        explores_too_rarely,
        checks.EXPLORING,
        "arm 0 is off",
    ),
    Mutant(
        "disks say that changes last before they do",
        "an acknowledged reward is lost",
        world_with(synced_late=False),
        checks.worlds(0.006, first=9),
        "was refused: its state is older",
    ),
    Mutant(
        "a group of changes is written in part",
        "a lesson is there without the name of its request",
        world_with(atomic=False),
        checks.worlds(0.025, first=16),
        "was rewarded before",
    ),
    Mutant(
        "a lesson is acknowledged before it lasts",
        "an acknowledged reward is lost",
        acknowledged_early,
        checks.worlds(0.012),
        "was refused: its state is older|the parties hold different logs",
    ),
    Mutant(
        "a reward is sent before it lasts",
        "a mask hides two rewards",
        sent_early,
        checks.worlds(0.012),
        "hides two rewards",
    ),
    Mutant(
        "another arm is returned when it is sent again",
        "the difference of two masked one-hots reveals both arms",
        returned_anew,
        checks.worlds(0.012),
        "hides two arms",
    ),
    Mutant(
        "arms are not sent again in later epochs",
        "rewards of acknowledged decisions are refused",
        returned_once,
        checks.worlds(0.012),
        "were refused",
    ),
    Mutant(
        "a party says that it keeps an arm before that lasts",
        "the actor forgets what the party has lost",
        arms_acknowledged_early,
        checks.worlds(0.006, first=150),
        "was refused: its state is older",
    ),
    Mutant(
        "an old backup is accepted",
        "masked words are sent from a state that others know to be older",
        old_backup_accepted,
        checks.OLD_BACKUP,
        "masked words were sent with an old state",
    ),
    Mutant(
        "a party may lack decisions that it told the actor",
        "their rewards are refused for ever",
        lost_decisions_accepted,
        checks.LOST_DECISIONS,
        r"assert \[\] == \[Identity",
    ),
    *(
        Mutant(
            f"u / 2 is opened in {' and '.join(which)}, with one model",
            "a word that parties see is a secret",
            half_u_in_the_clear,
            checks.uniform_with_features(which),
            "assert",
        )
        for which in ((DECIDE, LEARN), (STEP,))
    ),
    Mutant(
        "empty slots may win",
        "a decision has no arm, or one that nobody learns",
        empty_slots_win,
        checks.SUBSET_WORLDS,
        "a key of request .* was refused",
    ),
    Mutant(
        "a party forgets which arms its slots were",
        "the reward of one arm is learned by another",
        slots_of_other_arms,
        checks.SUBSET_WORLDS,
        "another arm was learned",
    ),
    Mutant(
        "the noisy gradient is not clipped",
        "a row whose score is large moves the gradient by more than its noise hides",
        not_clipped,
        checks.CLIPPED,
        "a row moves the gradient by",
    ),
    Mutant(
        "answers leave that were not counted",
        "more is lost about a row than the privacy ledger says",
        told_uncounted,
        checks.CALM_WORLDS,
        "has told .* answers and counts",
    ),
    Mutant(
        "the privacy ledger does not last",
        "after a crash it says that less was lost",
        counted_in_memory_only,
        checks.CALM_WORLDS,
        "and forgot some",
    ),
    Mutant(
        "a client tells its peers every error that ends it",
        "a user's key, and that a score left its range, are in the logs of all",
        all_errors_told,
        checks.LAST_WORDS,
        "user 17",
    ),
    Mutant(
        "the last party is told the masks of rewards",
        "it sees the rewards",
        told_mask_of_the_reward,
        checks.NO_KNOWN_MASK,
        r"decide, masked reward, word .* hides nothing from parties \[1\]",
    ),
    Mutant(
        "the last party is told the masks of rewards, in `step`",
        "it sees the rewards",
        told_mask_of_the_reward,
        checks.NO_KNOWN_MASK_IN_STEP,
        r"step, masked reward, word .* hides nothing from parties \[1\]",
    ),
    Mutant(
        "a correction is odd where a decision is explored",
        "the last party knows which decisions were explored",
        told_who_explores,
        checks.NOT_TOLD_TO_EXPLORE,
        "decide, correction, word .* depends on exploring",
    ),
    Mutant(
        "the actor names slots as arms",
        "the application shows other arms than were chosen",
        slots_named_as_arms,
        checks.SUBSET_WORLDS,
        "got an arm that is not eligible",
    ),
    Mutant(
        "new arms begin without a prior",
        "the model of new arms is wrong",
        new_arms_without_a_prior,
        checks.CHANGING_WORLDS,
        "the model is off",
    ),
    Mutant(
        "decisions of before are read as of now",
        "their rewards are learned by other arms",
        decisions_without_new_arms,
        checks.CHANGING_WORLDS,
        "a run takes arrays of",
    ),
    Mutant(
        "retired arms may win",
        "a decision names an arm that is not in use, or none",
        retired_arms_win,
        checks.CHANGING_WORLDS,
        "a key of request .* was refused",
    ),
    Mutant(
        "retired arms of a catalogue may win",
        "a decision names an arm that is not in use, or none",
        retired_arms_win,
        checks.CATALOGUE_WORLDS,
        "a key of request .* was refused",
    ),
    Mutant(
        "an actor with more arms forgets arms of before",
        "their rewards wait for ever",
        arms_of_before_forgotten,
        checks.GROWING_WORLDS,
        "stuck",
    ),
    Mutant(
        "the actor returns features of another table",
        "rewards are learned by other features",
        features_of_another_table,
        checks.CATALOGUE_WORLDS,
        "another arm was learned",
    ),
    Mutant(
        "a window is told before it lasts",
        "after a crash its noise is drawn anew",
        window_told_at_once,
        checks.VALUES_WORLDS,
        "tells a window that does not last",
    ),
    Mutant(
        "a window is told twice",
        "the noise of two draws averages out",
        window_told_twice,
        checks.VALUES_WORLDS,
        "two draws of",
    ),
    Mutant(
        "a window is told and not counted",
        "more is lost about a row than the privacy ledger says",
        window_uncounted,
        checks.VALUES_WORLDS,
        "tells a window that is not counted",
    ),
    *(
        Mutant(
            "leaves of correlated noise are not kept",
            "noise is taken back that was never added",
            leaves_not_kept,
            checks.correlated_worlds(gradient=gradient),
            "the model is off",
        )
        for gradient in (False, True)
    ),
    Mutant(
        "decisions do not wait for the checkpoint of a refresh",
        "after a crash noise is drawn anew for what was used",
        decides_before_it_lasts,
        checks.NOISY_WORLDS,
        "uses a refresh that does not last",
    ),
    Mutant(
        "a refresh has no checkpoint",
        "its noise does not last",
        refresh_without_checkpoint,
        checks.NOISY_WORLDS,
        "was refused: its state is older",
    ),
    Mutant(
        "a rewarder forgets what was given for a slot",
        "a mask hides two rewards",
        given_forgotten,
        checks.SLOTTED_WORLDS,
        "used once, ever",
    ),
    Mutant(
        "with slots, earlier decisions are not named again",
        "they are never learned",
        not_named_again,
        checks.SLOTTED_WORLDS,
        "does not come to rest",
    ),
    Mutant(
        "a rewarder forgets what it has masked",
        "a decision that was rewarded expires",
        spent_forgotten,
        checks.EXPIRING_WORLDS,
        "used once, ever",
    ),
    Mutant(
        "earlier decisions are not named again",
        "they never expire",
        not_named_again,
        checks.EXPIRING_WORLDS,
        "does not come to rest",
    ),
]
