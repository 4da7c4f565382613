"""The whole system in one process, for tests and research: dealer, parties, actor and rewarder call each other.

The programs, the material and the checks are those of the real roles; only the network is missing. A leading axis of
replicates lets many independent runs, each with its own epsilon, advance together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hiddenarm.bandit.audit import audit_coins, reveal_model
from hiddenarm.bandit.coins import Coins, exploration_thresholds
from hiddenarm.bandit.features import checked_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.programs import (
    DECIDE,
    LEARN,
    Interaction,
    decide,
    initial_model,
    interactions,
    learn,
    program_texts,
    reward_share,
)
from hiddenarm.mpc.dealing import ProgramDealer, trace
from hiddenarm.mpc.evaluation import Evaluation, PartyRun, ProgramMaterial
from hiddenarm.mpc.lockstep import LockstepMeter, Observer, run_lockstep
from hiddenarm.mpc.material import Seeds, program_stream
from hiddenarm.mpc.run import Program
from hiddenarm.mpc.shuffle import permutation_of
from hiddenarm.mpc.values import Shared
from hiddenarm.ring.words import Floats, encode


class Lockstep:
    """All roles of a federation, advancing together."""

    def __init__(
        self,
        federation: Federation,
        epoch_key: bytes,
        *,
        replicates: int = 1,
        epsilons: ArrayLike | None = None,
        deal_ahead: int = 64,
        observer: Observer | None = None,
    ) -> None:
        self.federation = federation
        self.meter = LockstepMeter()
        self.models = [initial_model(federation, party, replicates) for party in range(federation.parties)]
        self.decisions = 0
        self.interactions_learned = 0
        self._observer = observer
        self._deal_ahead = deal_ahead
        self._thresholds = exploration_thresholds(federation.epsilon if epsilons is None else epsilons)
        self._pending: dict[int, list[Interaction]] = {}
        self._seeds = seeds = Seeds(epoch_key)
        texts = program_texts(federation, self._thresholds)
        self.layouts = {name: trace(text, federation.parties, replicates) for name, text in texts.items()}
        self._dealers = {
            name: ProgramDealer(name, texts[name], layout, seeds, replicates) for name, layout in self.layouts.items()
        }
        self._materials = {
            name: [
                ProgramMaterial(
                    party, federation.parties, name, layout, seeds.party(party), replicates, ahead=deal_ahead
                )
                for party in range(federation.parties)
            ]
            for name, layout in self.layouts.items()
        }
        decide_layout = self.layouts[DECIDE]
        self.replicates = replicates
        self._actor = program_stream(seeds.actor(), DECIDE, decide_layout.actor_words, ahead=deal_ahead)
        self._rewarder = program_stream(seeds.rewarder(), DECIDE, decide_layout.rewarder_words, in_order=False)

    @property
    def pending(self) -> frozenset[int]:
        """Decisions that wait for their reward."""
        return frozenset(self._pending)

    def decide(self, contexts: Sequence[ArrayLike]) -> tuple[int, NDArray[np.int64]]:
        """Decide on the parties' features, [replicates, features] each; return the decision's
        number and the actor's arms."""
        features = [checked_features(values, self.federation, party)[:, None] for party, values in enumerate(contexts)]
        step, self.decisions = self.decisions, self.decisions + 1
        programs = [
            lambda run, party=party, own=own: decide(
                run, self.federation, self._thresholds, self.models[party].weights, own, party
            )
            for party, own in enumerate(features)
        ]
        decided = self._run(DECIDE, step, programs)
        self._pending[step] = [interactions(own, kept)[0] for own, kept in zip(features, decided, strict=True)]
        permutation = permutation_of(self._actor.step(step).reshape(self.replicates, self.federation.arms))
        return step, np.take_along_axis(permutation, decided[0].slot, axis=-1)[..., 0]

    def learn(self, step: int, rewards: ArrayLike) -> None:
        """Learn from the reward of a pending decision; one reward a replicate."""
        kept = self._pending.pop(step)
        mask = self._rewarder.step(step).reshape(self.replicates)
        masked = encode(rewards, self.federation.fraction_bits) + mask
        programs = [
            lambda run, party=party, interaction=interaction: learn(
                run,
                self.federation,
                self.models[party],
                interaction.features,
                party,
                Shared((self.federation.arms,), interaction.arm),
                reward_share(masked, interaction.reward_mask, run.adds_constants),
            )
            for party, interaction in enumerate(kept)
        ]
        self.models = self._run(LEARN, self.interactions_learned, programs)
        self.interactions_learned += 1

    def coins(self, first: int, count: int) -> Coins:
        """The dealer's coins of some decisions, for the plain twin. Nobody could ask for them in a real federation."""
        return audit_coins(self._seeds, self.federation, self._thresholds, first, count, self.replicates)

    def reveal_model(self) -> tuple[Floats, Floats]:
        """Inverses (packed triangles) and weights in the clear. Only here, where all shares lie in one process."""
        return reveal_model(self.federation, self.models)

    def _run(self, name: str, step: int, programs: Sequence[Any]) -> list[Any]:
        self._restock(name, step)
        evaluations = []
        for material, program in zip(self._materials[name], programs, strict=True):
            run: PartyRun = material.run(step)
            text: Program = program(run)
            evaluations.append(Evaluation(run, text))
        return run_lockstep(evaluations, program=name, meter=self.meter, observer=self._observer)

    def _restock(self, name: str, step: int) -> None:
        last = self._materials[name][-1]
        if not last.ready(step):
            last.add_corrections(step, self._dealers[name].deal(step, self._deal_ahead))
