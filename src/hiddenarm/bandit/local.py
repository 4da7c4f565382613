"""A whole federation in one process, behind the names users of bandit libraries expect.

fed = LocalFederation(arms=["beach", "city"], features=[12, 8], epsilon=0.1)
decision = fed.decide([x_hotel, x_airline])
fed.reward(decision.id, 1.0)

All shares lie in this process, so nothing is hidden from whoever runs it: it is for notebooks, research and tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.decisions import MAX_PENDING, DecisionIds, new_epoch, split_number
from hiddenarm.bandit.features import as_floats, checked_reward
from hiddenarm.bandit.federation import FastNumbers, Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.policies import policy_from_table, table_of
from hiddenarm.bandit.policy import Policy
from hiddenarm.bandit.state import decode_arrays, encode_arrays
from hiddenarm.errors import ConfigError, DecisionIdError, FeatureError, InputError
from hiddenarm.files import replacing
from hiddenarm.privacy.ledger import PrivacyLedger, Statement, statement
from hiddenarm.privacy.mechanisms import NO_MECHANISM, Mechanism, privacy_from_table, privacy_table
from hiddenarm.ring.streams import SpentSteps, fresh_key, seeded_key
from hiddenarm.ring.words import Floats

_FORMAT = "hiddenarm LocalFederation 1"
_MOST_NAME = 200


@dataclass(frozen=True, slots=True)
class Decision:
    """What the actor learns: the decision's id and the arm to pull. `arm_name` is the name of the arm, if arms were
    given names where the decision was asked for."""

    id: str
    arm: int
    arm_name: str = ""


class LocalFederation:
    """Dealer, parties, actor and rewarder of one federation, all in this process.

    >>> fed = LocalFederation(arms=["beach", "city", "mountains"], features=[2, 1], epsilon=0.1)
    >>> decision = fed.decide([[0.6, 0.3], [0.1]])
    >>> decision.arm_name in ("beach", "city", "mountains")
    True
    >>> fed.reward(decision.id, 1.0)
    >>> fed
    LocalFederation(arms=3, features=[2, 1], policy='epsilon-greedy:epsilon=0.1', decisions=1, rewards=1, pending=0)

    `arms` is their number, or their names. `features` has the number of features of each party. `epsilon=0.1` is short
    for `policy=EpsilonGreedy(0.1)`. The other keywords up to `newton_iterations` are those of `Federation`. Rewards may
    come late, in any order, or never: the newest `max_pending` decisions without a reward are kept, older ones are
    forgotten. With a `seed` the run can be repeated exactly; but who knows the seed knows all masks and coins, and runs
    of one seed share them, so it is for experiments with data that are not secret.
    """

    def __init__(
        self,
        arms: int | Sequence[str],
        features: Sequence[int],
        epsilon: float | None = None,
        *,
        policy: Policy | None = None,
        privacy: Mechanism | None = None,
        suite: str = "fast",
        ridge: float = 1.0,
        norms: Sequence[float] = (),
        fraction_bits: int = 20,
        max_interactions: int | None = None,
        max_batch: int | None = None,
        reciprocal_bits: int | None = None,
        repair_every: int | None = None,
        newton_iterations: int | None = None,
        max_pending: int = MAX_PENDING,
        seed: int | None = None,
    ) -> None:
        self.arm_names = _arm_names(arms)
        """The names of the arms; none if they have only numbers."""
        self.federation = Federation(
            arms=len(self.arm_names) if self.arm_names else arms,  # type: ignore[arg-type]
            features=_per_party(features),
            policy=policy,
            suite=suite,
            epsilon=epsilon,
            ridge=ridge,
            norms=norms if isinstance(norms, tuple) else list(norms),  # type: ignore[arg-type]
            fraction_bits=fraction_bits,
            newton_iterations=newton_iterations,
            privacy=privacy,
            **_given(
                max_interactions=max_interactions,
                max_batch=max_batch,
                reciprocal_bits=reciprocal_bits,
                repair_every=repair_every,
            ),
        )
        self._begin(DecisionIds(new_epoch(), fresh_key()), max_pending, seed)

    def _begin(self, ids: DecisionIds, max_pending: int, seed: int | None) -> None:
        self._seed = _checked_seed(seed)
        key = fresh_key() if seed is None else seeded_key(seed)
        self._lockstep = Lockstep(self.federation, key, max_pending=max_pending)
        self._ids = ids
        self._max_pending = max_pending
        self._decisions = 0
        self._rewarded: dict[ProgramId, SpentSteps] = {}

    # Deciding

    def decide(self, contexts: Sequence[ArrayLike], *, eligible: Sequence[int | str] | None = None) -> Decision:
        """Choose an arm for a context of which each party holds its own features, among the arms that are `eligible`,
        by number or name; all are unless given."""
        rows = [
            _row(values, self.federation, party)[None, None] for party, values in enumerate(self._by_party(contexts))
        ]
        return self._decide(rows, eligible)[0]

    def decide_many(
        self, contexts: Sequence[ArrayLike], *, eligible: Sequence[int | str] | None = None
    ) -> list[Decision]:
        """Choose an arm for each of many contexts, with an array or a data frame of rows from each party. All are
        decided by the model as it is now, up to `max_batch` in the rounds of one.

        >>> fed = LocalFederation(arms=4, features=[2, 1], epsilon=0.1)
        >>> hotel, airline = [[0.6, 0.3], [0.2, 0.9]], [[0.1], [0.4]]
        >>> decisions = fed.decide_many([hotel, airline])
        >>> fed.reward_many([decision.id for decision in decisions], [1.0, 0.0])
        """
        tables = [_table(values, self.federation, party) for party, values in enumerate(self._by_party(contexts))]
        if len({len(table) for table in tables}) > 1:
            counts = ", ".join(str(len(table)) for table in tables)
            raise FeatureError(f"each party must give a row for each context; they gave {counts} rows")
        most, decisions = max(1, self.federation.max_batch), list[Decision]()
        for first in range(0, len(tables[0]), most):
            decisions += self._decide([table[None, first : first + most] for table in tables], eligible)
        return decisions

    def _decide(self, contexts: Sequence[Floats], eligible: Sequence[int | str] | None) -> list[Decision]:
        among = None if eligible is None else [self._number_of(arm) for arm in eligible]
        numbers, arms = self._lockstep.decide_each(contexts, among)
        self._decisions += len(numbers)
        return [
            Decision(self._ids.id_of(number), arm, self.arm_names[arm] if self.arm_names else "")
            for number, arm in zip(numbers, arms[0].tolist(), strict=True)
        ]

    def _by_party(self, contexts: Sequence[ArrayLike]) -> Sequence[ArrayLike]:
        if len(contexts) != self.federation.parties:
            raise FeatureError(f"{self.federation.parties} parties but features of {len(contexts)} were given")
        return contexts

    def _number_of(self, arm: int | str) -> int:
        """The number of an arm that is named by it or by its name."""
        if not isinstance(arm, str):
            return arm
        if arm not in self.arm_names:
            known = ", ".join(self.arm_names) or "numbers only"
            raise InputError(f"there is no arm {arm!r}; arms are {known}")
        return self.arm_names.index(arm)

    # Learning

    @property
    def ledger(self) -> PrivacyLedger:
        """What was released so far."""
        return self._lockstep.ledger

    def privacy(self) -> Statement:
        """What that tells about one row of data, by relation."""
        return statement(self.ledger, self.federation.arms, self.federation.privacy)

    def reward(self, id: str, reward: float) -> None:
        """Learn from the reward of an earlier decision: a number in [0, 1]."""
        self._learn([id], [checked_reward(reward)])

    def reward_many(self, ids: Sequence[str], rewards: Sequence[float]) -> None:
        """Learn from the rewards of many decisions, made together or not. If one of them is wrong, none is learned."""
        if len(ids) != len(rewards):
            raise InputError(f"{len(ids)} ids but {len(rewards)} rewards were given")
        self._learn(list(ids), [checked_reward(reward) for reward in rewards])

    def _learn(self, ids: Sequence[str], rewards: Sequence[float]) -> None:
        numbers = [self._ids.number_of(id) for id in ids]
        for id, number in zip(ids, numbers, strict=True):
            if not self._lockstep.is_pending(number):
                raise DecisionIdError(f"decision {id} {self._why_not_pending(number)}")
        if len(set(numbers)) < len(numbers):
            raise DecisionIdError("a decision is listed twice, and is rewarded once")
        self._lockstep.check_room(len(numbers))
        most = self.federation.max_batch if self._lockstep.schedule.learns_many else 1
        for first in range(0, len(numbers), most):
            some = numbers[first : first + most]
            for number in some:
                self._spend(number)
            self._lockstep.learn_each(some, [rewards[first : first + most]])

    def _spend(self, number: int) -> None:
        program, step, position = split_number(number)
        self._rewarded.setdefault(program, SpentSteps(in_order=False)).spend(step * program.count + position)

    def _why_not_pending(self, number: int) -> str:
        program, step, position = split_number(number)
        if step >= self._lockstep.begun(program):
            return "was never made"
        if program in self._rewarded and step * program.count + position in self._rewarded[program]:
            return "was rewarded before"
        return f"is forgotten: only the newest {self._max_pending:,} decisions without a reward are kept (max_pending)"

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write all of it to a file, for its owner only: every party's shares, and decisions that wait for a reward.
        An existing file is replaced in one stroke."""
        about = {
            "format": _FORMAT,
            "federation": _described(self.federation),
            "arm_names": list(self.arm_names),
            "max_pending": self._max_pending,
            "seed": self._seed,
            "decisions": self._decisions,
            "epoch": self._ids.epoch,
            "rewarded": {_label(program): spent.bits.hex() for program, spent in self._rewarded.items()},
        }
        state = encode_arrays(self._lockstep.snapshot(pending=True))
        try:
            with replacing(Path(path)) as file:
                np.savez(
                    file,
                    about=np.array(json.dumps(about)),
                    ids=np.frombuffer(self._ids.key, np.uint8),
                    state=np.frombuffer(state, np.uint8),
                )
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}; name another file") from None

    @classmethod
    def load(cls, path: str | Path) -> LocalFederation:
        """Go on from a file that `save` wrote. Without a seed it goes on under a fresh key, with fresh masks for what
        waits for a reward, so one file may be loaded many times. With noisy sums each copy that goes on draws noise of
        its own: what all copies release together about a row is not bounded by `total_epsilon`."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                about = json.loads(str(archive["about"]))
                key, state = archive["ids"].tobytes(), decode_arrays(archive["state"].tobytes())
            if about["format"] != _FORMAT:
                raise ValueError("another format")
        except OSError as error:
            if error.errno is None:
                raise _no_federation(path) from None
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except Exception:  # a damaged archive fails in more ways than can be named
            raise _no_federation(path) from None
        loaded = cls.__new__(cls)
        try:
            loaded._load(about, key, state)
        except (KeyError, IndexError, TypeError, ValueError):
            raise _no_federation(path) from None
        return loaded

    def _load(self, about: Mapping[str, Any], key: bytes, state: Mapping[str, Any]) -> None:
        self.arm_names = tuple(about["arm_names"])
        self.federation = _federation_of(about["federation"])
        self._begin(DecisionIds(about["epoch"], key), about["max_pending"], about["seed"])
        self._lockstep.restore(state)
        if self._seed is None:
            self._lockstep.remask_pending()
        self._decisions = about["decisions"]
        for label, counts in about["rewarded"].items():
            self._rewarded[_program(label)] = SpentSteps.of(bytes.fromhex(counts))

    # Showing

    def _facts(self) -> dict[str, object]:
        """What it may show: nothing that was learned."""
        lockstep = self._lockstep
        return {
            "arms": self.federation.arms,
            "features": list(self.federation.features),
            "policy": str(self.federation.policy),
            **({} if self.federation.privacy.name == NO_MECHANISM else {"privacy": str(self.federation.privacy)}),
            "decisions": self._decisions,
            "rewards": lockstep.interactions_learned,
            "pending": len(lockstep.pending),
        }

    def __repr__(self) -> str:
        return f"LocalFederation({', '.join(f'{name}={value!r}' for name, value in self._facts().items())})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>" for name, value in self._facts().items()
        )
        return f"<table><caption>LocalFederation</caption>{rows}</table>"


def _arm_names(arms: int | Sequence[str]) -> tuple[str, ...]:
    """Names of arms, if they are given."""
    if isinstance(arms, int | float | np.integer) or arms is None:
        return ()
    if isinstance(arms, str | bytes):
        raise ConfigError(f"arms must be their number or a list of their names, got {arms!r}")
    names = tuple(arms)
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _MOST_NAME:
            raise ConfigError(f"the name of an arm must be printable text of 1 to {_MOST_NAME} letters, got {name!r}")
    if len(set(names)) < len(names):
        raise ConfigError("two arms have the same name")
    return names


def _per_party(features: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(features)
    except TypeError:
        raise ConfigError(
            f"features must have the number of features of each party, such as [3, 2], got {features!r}"
        ) from None


def _given(**numbers: int | None) -> FastNumbers:
    """Those that were given."""
    return {name: number for name, number in numbers.items() if number is not None}  # type: ignore[return-value]


def _checked_seed(seed: int | None) -> int | None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ConfigError(f"seed must be a whole number, got {seed!r}")
    return seed


def _row(values: ArrayLike, federation: Federation, party: int) -> Floats:
    features, declared = as_floats(values, party), federation.features[party]
    if features.ndim != 1:
        raise FeatureError(f"the features of party {party} must be a list of numbers, got shape {features.shape}")
    if len(features) != declared:
        raise FeatureError(f"party {party} declared {declared} features but gave {len(features)}")
    return features


def _table(values: ArrayLike, federation: Federation, party: int) -> Floats:
    features, declared = as_floats(values, party), federation.features[party]
    if features.ndim != 2 or features.shape[1] != declared:
        raise FeatureError(
            f"party {party} must give rows of {declared} features, one for each context; got shape {features.shape}"
        )
    return features


# In a file


def _described(federation: Federation) -> dict[str, Any]:
    """A federation as JSON has it."""
    numbers = {field.name: getattr(federation, field.name) for field in fields(federation)}
    return {**numbers, "policy": table_of(federation.policy), "privacy": privacy_table(federation.privacy)}


def _federation_of(described: Mapping[str, Any]) -> Federation:
    absent = {name for name, value in described.items() if not value and name != "ridge"}
    given = {name: value for name, value in described.items() if name not in absent}
    policy, privacy = policy_from_table(described["policy"]), privacy_from_table(described["privacy"])
    return Federation(**{**given, "policy": policy, "privacy": privacy})


def _label(program: ProgramId) -> str:
    return f"{program.name} {program.count}"


def _program(label: str) -> ProgramId:
    name, count = label.rsplit(" ", 1)
    return ProgramId(name, int(count))


def _no_federation(path: str | Path) -> ConfigError:
    return ConfigError(f"{path} is not a federation that `LocalFederation.save` wrote, or it is damaged")
