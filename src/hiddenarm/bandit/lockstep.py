"""The whole system in one process, for tests and research: dealer, parties, actor and rewarder call each other.

The programs, the material and the checks are those of the real roles; only the network is missing. A leading axis of
replicates lets many independent runs, each with its own epsilon, advance together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.bandit.audit import audit_coins
from hiddenarm.bandit.batches import FULL, Sums, gathered_at_once, initial_sums, public_diagonal, zero_weights
from hiddenarm.bandit.catalogue import (
    DECIDE_ONE,
    GATHER,
    LEARN_ONE,
    LEARN_ONE_AHEAD,
    REPAIR_RUNS,
    SOLVE,
    ProgramId,
    program_text,
    repair_programs,
    single_lessons,
)
from hiddenarm.bandit.coins import Coins, exploration_thresholds
from hiddenarm.bandit.decisions import MAX_PENDING
from hiddenarm.bandit.features import checked_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.planning import repair_plan
from hiddenarm.bandit.programs import (
    DECIDE,
    Interaction,
    Model,
    interactions,
    own_words,
    reward_share,
    stacked,
)
from hiddenarm.bandit.suites import suite_of
from hiddenarm.errors import ConfigError, InputError
from hiddenarm.mpc.dealing import ProgramDealer, trace
from hiddenarm.mpc.evaluation import Evaluation, ProgramMaterial, record
from hiddenarm.mpc.lockstep import LockstepMeter, Observer, run_lockstep
from hiddenarm.mpc.material import Layout, Seeds, program_stream
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Floats, Words, encode

NEXT_STEP = "next step "
"""Begins the names of the arrays of a snapshot with a program's next step."""


class _Supply:
    """One program: its dealer, and the words dealt to each role."""

    def __init__(
        self, federation: Federation, thresholds: Words, program: ProgramId, seeds: Seeds, replicates: int, ahead: int
    ) -> None:
        text, parties = program_text(federation, thresholds, program), federation.parties
        self.layout = trace(text, parties, replicates)
        self.next_step = 0
        self._ahead = ahead
        self._dealer = ProgramDealer(
            program.label, text, self.layout, seeds, replicates, rewarded=program.rewarded_label
        )
        self._scripts = [record(text, party, parties, replicates) for party in range(parties)]
        self._materials = [
            ProgramMaterial(party, parties, program.label, self.layout, seeds.party(party), ahead=ahead)
            for party in range(parties)
        ]
        self.actor = program_stream(seeds.actor(), program.label, self.layout.actor_words, ahead=ahead)
        self.rewarder = program_stream(seeds.rewarder(), program.label, self.layout.rewarder_words, in_order=False)

    def begin(self, given: Sequence[Sequence[Words]], step: int) -> list[Evaluation]:
        """Each party's evaluation of a step, on what each brings. Steps are begun in order; some may be left out."""
        self.next_step = step + 1
        last = self._materials[-1]
        if not last.ready(step):
            last.skip_to(step)
            last.add_corrections(step, self._dealer.deal(step, self._ahead))
        parties = zip(self._scripts, self._materials, given, strict=True)
        return [Evaluation(script, material.take(step), own) for script, material, own in parties]

    def skip_to(self, step: int) -> None:
        """Leave out all steps before `step`: they were used by the run that is resumed."""
        self.next_step = step
        self._materials[-1].skip_to(step)


def _shares(model: Model, sums: Sums) -> dict[str, Shared]:
    return {"inverses": model.inverses, "weights": model.weights, "grams": sums.grams, "moments": sums.moments}


def _rows(arrays: list[Words], *shape: int) -> Words:
    """Arrays of one shape, one after another; of that shape also where there are none."""
    return np.array(arrays, np.uint64).reshape(len(arrays), *shape)


class Lockstep:
    """All roles of a federation, advancing together.

    `decide` and `learn` treat one interaction; `decide_batch` and `learn_batch` many at once. After every
    `repair_every` interactions that were learned one by one, `repair` solves the model anew. The suite is that of the
    federation (`suites`); the paper's has no batches of lessons, and no repair. Of the single decisions that wait for
    their reward, the newest `max_pending` are kept.
    """

    def __init__(
        self,
        federation: Federation,
        epoch_key: bytes,
        *,
        replicates: int = 1,
        epsilons: ArrayLike | None = None,
        deal_ahead: int = 64,
        max_pending: int = MAX_PENDING,
        observer: Observer | None = None,
    ) -> None:
        if max_pending < 1:
            raise ConfigError(f"max_pending must be at least 1, got {max_pending}")
        self.federation = federation
        self.replicates = replicates
        self.meter = LockstepMeter()
        self._suite = suite_of(federation)
        self.models = [self._suite.initial_model(party, replicates) for party in range(federation.parties)]
        self.interactions_learned = 0
        self._sums = [initial_sums(federation, party, replicates) for party in range(federation.parties)]
        self._learned_singly: list[tuple[list[Interaction], Words]] = []
        self._gathered = 0
        self._observer = observer
        self._deal_ahead = deal_ahead
        self._max_pending = max_pending
        self._thresholds = exploration_thresholds(federation.epsilon if epsilons is None else epsilons)
        self._pending: OrderedDict[int, list[Interaction]] = OrderedDict()
        self._batches: dict[tuple[int, int], list[list[Interaction]]] = {}
        self._seeds = Seeds(epoch_key)
        self._supplies: dict[ProgramId, _Supply] = {}
        for program in (DECIDE_ONE, LEARN_ONE):
            self._supply(program)

    @property
    def layouts(self) -> dict[str, Layout]:
        """The layouts of the programs for one interaction."""
        programs = DECIDE_ONE, *single_lessons(self.federation)
        texts = {program.name: program_text(self.federation, self._thresholds, program) for program in programs}
        return {name: trace(text, self.federation.parties, self.replicates) for name, text in texts.items()}

    @property
    def decisions(self) -> int:
        """How many single decisions were begun."""
        return self._supply(DECIDE_ONE).next_step

    @property
    def pending(self) -> frozenset[int]:
        """Single decisions that wait for their reward."""
        return frozenset(self._pending)

    def is_pending(self, step: int) -> bool:
        """Whether a single decision waits for its reward. `pending` lists them all, which takes time for each."""
        return step in self._pending

    def decide(self, contexts: Sequence[ArrayLike]) -> tuple[int, NDArray[np.int64]]:
        """Decide on the parties' features, [replicates, features] each; return the decision's number and the arms."""
        features = [checked_features(values, self.federation, party)[:, None] for party, values in enumerate(contexts)]
        step, arms, kept = self._decide(DECIDE_ONE, features)
        self._pending[step] = [party[0] for party in kept]
        if len(self._pending) > self._max_pending:
            self._pending.popitem(last=False)
        return step, arms[:, 0]

    def learn(self, step: int, rewards: ArrayLike, *, ahead: bool = False) -> None:
        """Learn from the reward of a pending decision; one reward a replicate. With `ahead` as in strictly online use,
        by the program that can be begun before the reward is there."""
        self._check_room(1)
        kept = self._pending.pop(step)
        mask = self._supply(DECIDE_ONE).rewarder.step(step).reshape(self.replicates)
        masked = encode(rewards, self.federation.fraction_bits) + mask
        given = []
        for party, (model, own) in enumerate(zip(self.models, kept, strict=True)):
            reward = own.reward_mask if ahead else reward_share(masked, own.reward_mask, adds_constants=party == 0)
            given.append([*own_words(model.inverses, model.weights), own.features, own.arm, reward])
        if ahead:
            _, self.models = self._run(LEARN_ONE_AHEAD, given, step, masked)
            self._supply(LEARN_ONE).next_step += 1  # which is the lesson's number, however it is learned
        else:
            _, self.models = self._run(LEARN_ONE, given)
        self.interactions_learned += 1
        if self._suite.solves:
            self._learned_singly.append((kept, masked))
            if len(self._learned_singly) == self.federation.repair_every:
                self.repair()

    def decide_batch(self, contexts: Sequence[ArrayLike]) -> tuple[tuple[int, int], NDArray[np.int64]]:
        """Decide for many contexts at once, [replicates, count, features] from each party; return the batch's name and
        the arms [replicates, count]."""
        features = [checked_features(values, self.federation, party) for party, values in enumerate(contexts)]
        program = ProgramId(DECIDE, features[0].shape[1])
        step, arms, kept = self._decide(program, features)
        self._batches[program.count, step] = kept
        return (program.count, step), arms

    def learn_batch(self, batch: tuple[int, int], rewards: ArrayLike) -> None:
        """Learn from all rewards [replicates, count] of a batch of decisions at once."""
        if not self._suite.solves:
            raise InputError("the paper's suite learns from one reward at a time")
        count, step = batch
        if count > self.federation.max_batch:
            raise InputError(f"{count} interactions at once; this federation has max_batch {self.federation.max_batch}")
        self._check_room(count)
        kept = self._batches.pop(batch)
        mask = self._supply(ProgramId(DECIDE, count)).rewarder.step(step).reshape(self.replicates, count)
        masked = encode(rewards, self.federation.fraction_bits) + mask
        self._gather(kept, masked)
        self._add_single_ones()
        self._solve(count)
        self.interactions_learned += count

    def repair(self) -> None:
        """Solve the model anew from the sums alone, with all that was learned singly added to them."""
        self._add_single_ones()
        federation, parties = self.federation, range(self.federation.parties)
        plan = repair_plan(federation.numbers, self._gathered)
        self.models = [
            Model(
                public_diagonal(federation, party, plan.start, self.replicates),
                zero_weights(federation, party, self.replicates),
            )
            for party in parties
        ]
        for program in repair_programs(plan):
            self._run_on_sums(program)

    def _check_room(self, count: int) -> None:
        if self._suite.solves and self.interactions_learned + count > self.federation.max_interactions:
            raise InputError(FULL)

    def _add_single_ones(self) -> None:
        """Add to the sums what was learned singly."""
        most = gathered_at_once(self.federation)
        for start in range(0, len(self._learned_singly), most):
            chunk = self._learned_singly[start : start + most]
            kept = [[parties[party] for parties, _ in chunk] for party in range(self.federation.parties)]
            self._gather(kept, np.stack([masked for _, masked in chunk], axis=-1))
        self._learned_singly = []

    def snapshot(self) -> dict[str, Words]:
        """The whole run as arrays, without doing anything to it: every party's shares of model and sums, what was
        learned singly and waits for a repair, and the next step of every program. Decisions that wait for a reward are
        not part of it."""
        arrays = {
            "learned": np.array([self.interactions_learned, self._gathered], np.uint64),
            "waiting rewards": _rows([masked for _, masked in self._learned_singly], self.replicates),
        }
        for program, supply in self._supplies.items():
            arrays[f"{NEXT_STEP}{program.name} {program.count}"] = np.array([supply.next_step], np.uint64)
        for party, (model, sums) in enumerate(zip(self.models, self._sums, strict=True)):
            for name, shared in _shares(model, sums).items():
                assert shared.share is not None
                arrays[f"{name} {party}"] = shared.share
            waiting = [parties[party] for parties, _ in self._learned_singly]
            for name, shape in self._kept_shapes(party).items():
                arrays[f"waiting {name} {party}"] = _rows([getattr(one, name) for one in waiting], *shape)
        return arrays

    def restore(self, arrays: Mapping[str, Words]) -> None:
        """Go on from a snapshot, at the steps that came next.

        Under the key of the run that was saved, everything comes as it would have come there; this is for the same
        inputs only, so that a mask that both use hides the same value. Under another key it is an epoch of its own.
        """
        self.interactions_learned, self._gathered = int(arrays["learned"][0]), int(arrays["learned"][1])
        for label in (name.removeprefix(NEXT_STEP) for name in arrays if name.startswith(NEXT_STEP)):
            program, count = label.rsplit(" ", 1)
            self._supply(ProgramId(program, int(count))).skip_to(int(arrays[NEXT_STEP + label][0]))
        for party, (model, sums) in enumerate(zip(self.models, self._sums, strict=True)):
            for name, shared in _shares(model, sums).items():
                shared.share = np.array(arrays[f"{name} {party}"], np.uint64)
        self._learned_singly = [
            ([self._waiting(arrays, party, row) for party in range(self.federation.parties)], masked.copy())
            for row, masked in enumerate(arrays["waiting rewards"])
        ]

    def _kept_shapes(self, party: int) -> dict[str, tuple[int, ...]]:
        """The shapes of the fields of an `Interaction`."""
        copies, federation = self.replicates, self.federation
        features, arm = (copies, federation.features[party]), (copies, federation.arms)
        return {"features": features, "arm": arm, "reward_mask": (copies,)}

    def _waiting(self, arrays: Mapping[str, Words], party: int, row: int) -> Interaction:
        return Interaction(**{name: arrays[f"waiting {name} {party}"][row].copy() for name in self._kept_shapes(party)})

    def coins(self, first: int, count: int, batch: int = 1) -> Coins:
        """The dealer's coins of some runs of `decide`, for the plain twin (see `audit_coins`).

        Nobody could ask for them in a real federation.
        """
        return audit_coins(self._seeds, self.federation, self._thresholds, first, count, self.replicates, batch)

    def reveal_model(self) -> tuple[Floats, Floats]:
        """Inverses (packed triangles, or the paper's whole matrices) and weights in the clear. Only here, where all
        shares lie in one process."""
        return self._suite.reveal(self.models)

    def _decide(
        self, program: ProgramId, features: list[Words]
    ) -> tuple[int, NDArray[np.int64], list[list[Interaction]]]:
        given = [[*self._suite.brought(model), own] for model, own in zip(self.models, features, strict=True)]
        step, decided = self._run(program, given)
        words = self._supply(program).actor.step(step).reshape(self.replicates, program.count, -1)
        arms = self._suite.arms(words, decided)
        return step, arms, [interactions(own, kept) for own, kept in zip(features, decided, strict=True)]

    def _gather(self, kept: list[list[Interaction]], masked: Words) -> None:
        given = []
        for party, (sums, own) in enumerate(zip(self._sums, kept, strict=True)):
            features, arms, reward_masks = stacked(own)
            rewards = reward_share(masked, reward_masks, adds_constants=party == 0)
            given.append([*own_words(sums.grams, sums.moments), features, arms, rewards])
        _, self._sums = self._run(ProgramId(GATHER, len(kept[0])), given)
        self._gathered += len(kept[0])

    def _solve(self, new: int) -> None:
        self._run_on_sums(ProgramId(SOLVE, new))

    def _run_on_sums(self, program: ProgramId) -> None:
        given = [own_words(*_shares(model, sums).values()) for model, sums in zip(self.models, self._sums, strict=True)]
        _, self.models = self._run(program, given)

    def _run(
        self,
        program: ProgramId,
        given: Sequence[Sequence[Words]],
        step: int | None = None,
        awaited: Words | None = None,
    ) -> tuple[int, list[Any]]:
        """Run a step of a program, the next unless another is named. `given` is what each party brings, see
        `program_text`, and `awaited` what all are told."""
        supply = self._supply(program)
        step = supply.next_step if step is None else step
        evaluations = supply.begin(given, step)
        if awaited is not None:
            for evaluation in evaluations:
                evaluation.tell(awaited)
        return step, run_lockstep(evaluations, program=program.label, meter=self.meter, observer=self._observer)

    def _supply(self, program: ProgramId) -> _Supply:
        if program not in self._supplies:
            large = program.name in (SOLVE, *REPAIR_RUNS)
            ahead = 1 if large else max(1, self._deal_ahead // program.count)
            self._supplies[program] = _Supply(
                self.federation, self._thresholds, program, self._seeds, self.replicates, ahead
            )
        return self._supplies[program]
