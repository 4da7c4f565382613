"""Federations drawn from all that is accepted, fed with hard but legal data, beside an exact plain twin.

The twin is taught the arms and rewards of the private run, in float64 from exact sums, with features as they are
entered: rounded to L fractional bits; a bonus is one of features as they are entered for it, rounded once more. A
decision is wrong if the arm that was chosen greedily scores, at the twin, more than a margin below the best one:
MARGIN, and what tables of a root may be off.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import sqrt

import numpy as np

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.confidence import ROOT_ERROR, Confidence, RootConfidence, rounded_features
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.policies.bonus import Bonus
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.linucb import LinUcb
from hiddenarm.bandit.policies.thompson import Thompson
from hiddenarm.bandit.policy import Policy
from hiddenarm.errors import ConfigError
from hiddenarm.ring.streams import derive
from hiddenarm.ring.words import Floats, decode, encode

MARGIN = 0.01
INTERACTIONS = 300
"""Of a world; in some the model can hold no more."""
_MOST_PRODUCTS = 5_000
"""Entries of all o x' of a batch, which bound how long it takes."""
KINDS = (
    "collinear",
    "one direction, then another",
    "nearly collinear",
    "extremes",
    "tiny and large",
    "tiny sign",
    "any",
)
REWARDS = ("ones", "zeros", "alternating", "by arm", "any")


class ExactTwin:
    """The model of every arm in the clear, or the one of all arms: W and b exactly, weights solved when they are
    needed."""

    def __init__(self, federation: Federation) -> None:
        models, size = federation.models, federation.model_size
        self._federation = federation
        self._grams = np.repeat(np.eye(size)[None] * federation.ridge, models, axis=0)
        self._moments = np.zeros((models, size))
        self.weights = np.zeros((models, size))

    def learn(self, context: Floats, arm: int, reward: float) -> None:
        model, x = arm, context
        if self._federation.arm_features is not None:
            model, x = 0, np.outer(context, self._federation.arm_features.features[arm]).ravel()
        self._grams[model] += np.outer(x, x)
        self._moments[model] += reward * x
        self.weights[model] = np.linalg.solve(self._grams[model], self._moments[model])

    @property
    def inverses(self) -> Floats:
        return np.linalg.inv(self._grams).astype(np.float64)

    def shortfall(self, context: Floats, arm: int, normals: Floats | None) -> float:
        """How much less than the best arm this one scores."""
        scores = scores_of(self._federation, self.weights, context)
        policy = self._federation.policy
        if isinstance(policy, Confidence):
            scores += policy.bonus(self._quadratic(policy, context), normals)
        return float(scores.max() - scores[arm])

    def _quadratic(self, policy: Confidence, context: Floats) -> Floats:
        federation, factor = self._federation, policy.feature_factor(self._federation)
        words = rounded_features(encode(context, federation.fraction_bits), factor, federation)
        rounded = words.view(np.int64) / factor
        return np.asarray(np.einsum("aij,i,j->a", self.inverses, rounded, rounded))


def scores_of(federation: Federation, weights: Floats, context: Floats) -> Floats:
    """The scores of all arms by weights in the clear."""
    if federation.arm_features is None:
        return np.asarray(weights @ context)
    return np.asarray(federation.arm_features.features @ (context @ weights.reshape(len(context), -1)))


def drawn_policy(draw: random.Random, confident: bool) -> Policy:
    epsilon = draw.choice((0.0, 0.3, 0.7))
    if not confident:
        return EpsilonGreedy(epsilon)
    return draw.choice((Bonus, LinUcb, Thompson))(10 ** draw.uniform(-2, 0.5), epsilon)


def table_error(federation: Federation) -> float:
    """How far the scores of two arms may be apart by tables of a root."""
    policy = federation.policy
    return 2 * ROOT_ERROR * policy.largest_factor if isinstance(policy, RootConfidence) else 0.0


def drawn_arms(draw: random.Random) -> ArmTable:
    """Features of arms: of any directions, all alike but for a little, or far apart in size; sometimes with a model of
    their own for some arms on top."""
    arms, width = draw.choice((2, 5, 17, 60)), draw.choice((1, 2, 5))
    features = np.array([[draw.gauss(0, 1) for _ in range(width)] for _ in range(arms)])
    if draw.random() < 0.3:
        features = features[0] + 0.02 * features
    table = ArmTable.of(features * 10 ** draw.uniform(-1, 1))
    return table.with_own(draw.sample(range(arms), draw.randint(1, 2))) if draw.random() < 0.3 else table


def drawn_federation(draw: random.Random, confident: bool, arm_features: bool = False) -> Federation:
    """A federation that was accepted. Few interactions are declared, so that bounds are as tight as they can be; more
    than 24 fraction_bits are hardly ever accepted."""
    while True:
        parties, widest = draw.choice((2, 2, 3, 4, 7)), draw.choice((3, 3, 3, 3, 25))
        features = tuple(draw.randint(1, min(widest, 75 // parties)) for _ in range(parties))
        table = drawn_arms(draw) if arm_features else None
        try:
            return Federation(
                arms=draw.choice((2, 2, 3, 5, 12, 17, 40)) if table is None else table.arms,
                features=features,
                arm_features=table,
                policy=drawn_policy(draw, confident),
                ridge=10 ** draw.uniform(-4, 3),
                norms=tuple(10 ** draw.uniform(-3, 1) for _ in features),
                fraction_bits=draw.randint(12, 24),
                max_interactions=draw.choice((INTERACTIONS, INTERACTIONS, 4_000, 100_000)),
                max_batch=draw.choice((1, 2, 16, 64, 256, 1024, 4095)),
                reciprocal_bits=draw.choice((4, 6, 8, 8, 10, 12)),
                repair_every=draw.choice((1, 25, 50, 150, 10_000)),
            )
        except ConfigError:
            continue


def contexts(draw: random.Random, federation: Federation, kind: str) -> Iterator[list[Floats]]:
    """Endless contexts, a list of the parties' features each, at the largest norms unless their kind says otherwise."""
    main, other = _unit_vectors(draw, federation), _unit_vectors(draw, federation)
    switch, number = draw.randint(5, 250), 0
    while True:
        number += 1
        match kind:
            case "collinear":
                chosen, scale = main, 1.0
            case "one direction, then another":
                chosen, scale = (main if number < switch or number % 50 else other), 1.0
            case "nearly collinear":
                chosen, scale = [a + draw.gauss(0, 1e-3) * b for a, b in zip(main, other, strict=True)], 1.0
            case "extremes":
                chosen, scale = [np.sign(v) * draw.choice((-1, 1)) for v in _unit_vectors(draw, federation)], 10.0
            case "tiny and large":
                chosen, scale = main, draw.choice((1e-3, 1e-2, 1.0))
            case "tiny sign":  # with rewards by its sign, a tiny feature gets weights as large as any can be
                sign = 1 if number % 2 else -1
                tiny = sqrt(federation.ridge / 300) / federation.joint_norm
                chosen, scale = [a + sign * tiny * b for a, b in zip(main, other, strict=True)], 1.0
            case _:
                chosen, scale = _unit_vectors(draw, federation), draw.random()
        yield [scale * norm * vector for norm, vector in zip(federation.norms, chosen, strict=True)]


def _unit_vectors(draw: random.Random, federation: Federation) -> list[Floats]:
    drawn = [np.array([draw.gauss(0, 1) for _ in range(count)]) for count in federation.features]
    return [vector / max(1e-9, float(np.linalg.norm(vector))) for vector in drawn]


def clipped(federation: Federation, context: list[Floats]) -> Floats:
    """The context that enters the computation: each party's features scaled to its norm, and rounded."""
    parts = [v / max(1.0, float(np.linalg.norm(v)) / norm) for v, norm in zip(context, federation.norms, strict=True)]
    return decode(encode(np.concatenate(parts), federation.context_bits), federation.context_bits)


def reward_of(draw: random.Random, kind: str, number: int, arm: int) -> float:
    match kind:
        case "ones":
            return 1.0
        case "zeros":
            return float(number < 3)
        case "alternating":
            return float(number % 2)
        case "by arm":
            return float(arm % 2)
        case _:
            return draw.random()


def score_error(lockstep: Lockstep, twin: ExactTwin, seen: list[Floats]) -> float:
    """The largest difference of a private score from the twin's, over all arms."""
    _, (weights,) = lockstep.reveal_model()
    off = weights - twin.weights
    return max(float(np.abs(scores_of(lockstep.federation, off, context)).max()) for context in seen)


@dataclass
class HardWorld:
    """One world, reproducible from its seed."""

    seed: int
    interactions: int = INTERACTIONS
    confident: bool = False
    """Whether the policy is one with a bonus."""
    arm_features: bool = False
    """Whether arms have features, and one model."""
    federation: Federation = field(init=False)
    kinds: list[str] = field(init=False)
    rewards: str = field(init=False)
    score_error: float = 0.0
    """The largest difference of a private score from the twin's, so far."""

    def __post_init__(self) -> None:
        self._draw = random.Random(self.seed)
        self.federation = drawn_federation(self._draw, self.confident, self.arm_features)
        self.kinds = self._draw.sample(KINDS, 2)
        self.rewards = self._draw.choice(REWARDS)

    def __str__(self) -> str:
        return f"world {self.seed}: {self.federation}, contexts {self.kinds}, rewards {self.rewards}"

    @property
    def largest_batch(self) -> int:
        """The most interactions that are learned at once."""
        quick = max(64, _MOST_PRODUCTS // (self.federation.arm_width * self.federation.dimension))
        return min(self.federation.max_batch, quick, self.interactions)

    def worst(self) -> float:
        """The largest shortfall of an arm that was chosen greedily, over the whole run, which learns singly and in
        batches."""
        draw, federation = self._draw, self.federation
        key, online = derive(b"hard worlds".ljust(32), str(self.seed)), bool(self.seed % 2)
        lockstep = Lockstep(federation, key, deal_ahead=8, online=online)
        twin, worst, number = ExactTwin(federation), 0.0, 0
        streams = [contexts(draw, federation, kind) for kind in self.kinds]
        while number < self.interactions:
            stream = streams[number * 2 >= self.interactions]
            count = draw.choice((1, draw.randint(1, min(16, federation.max_batch)), federation.max_batch))
            count = min(count, self.interactions - number, self.largest_batch)
            for _ in range(draw.randint(1, 80) if count == 1 else 1):
                if number + count > self.interactions:
                    break
                number += count
                worst = max(worst, self._interact(lockstep, twin, [next(stream) for _ in range(count)], number))
        return worst

    def _interact(self, lockstep: Lockstep, twin: ExactTwin, chosen: list[list[Floats]], number: int) -> float:
        """Decide and learn at once; the largest shortfall."""
        seen = [clipped(self.federation, context) for context in chosen]
        if len(chosen) == 1:
            step, arms = lockstep.decide([part[None] for part in chosen[0]])
            coins = lockstep.coins(step, 1)
            explored, normals = coins.explore[0], coins.normals
        else:
            batch, (arms,) = lockstep.decide_batch([np.array(parts)[None] for parts in zip(*chosen, strict=True)])
            coins = lockstep.coins(batch[1], 1, len(chosen))
            explored, normals = coins.explore[0, 0], None if coins.normals is None else coins.normals[0]
        drawn = [None] * len(chosen) if normals is None else list(normals[0])
        each = zip(seen, arms, explored, drawn, strict=True)
        worst = max([twin.shortfall(x, int(arm), own) for x, arm, coin, own in each if not coin], default=0.0)
        self.score_error = max(self.score_error, score_error(lockstep, twin, seen))
        rewards = [reward_of(self._draw, self.rewards, number, int(arm)) for arm in arms]
        if len(chosen) == 1:
            lockstep.learn(step, rewards)
        else:
            lockstep.learn_batch(batch, [rewards])
        for context, arm, reward in zip(seen, arms, rewards, strict=True):
            twin.learn(context, int(arm), reward)
        return worst
