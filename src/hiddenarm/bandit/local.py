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
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hiddenarm.bandit.arm_table import ArmTable
from hiddenarm.bandit.catalogue import ProgramId
from hiddenarm.bandit.changes import changed_federation
from hiddenarm.bandit.decisions import MAX_PENDING, DecisionIds, new_epoch, split_number
from hiddenarm.bandit.features import as_floats, checked_reward
from hiddenarm.bandit.federation import FastNumbers, Federation
from hiddenarm.bandit.lockstep import Lockstep
from hiddenarm.bandit.policies import EPSILON_GREEDY, make_policy, policy_from_table, table_of
from hiddenarm.bandit.policy import Policy
from hiddenarm.bandit.state import decode_arrays, encode_arrays
from hiddenarm.errors import ConfigError, DecisionIdError, FeatureError, InputError
from hiddenarm.files import replacing
from hiddenarm.privacy.ledger import PrivacyLedger, Statement, statement
from hiddenarm.privacy.mechanisms import NO_MECHANISM, Mechanism, privacy_from_table, privacy_table
from hiddenarm.ring.streams import SpentSteps, derive, fresh_key, seeded_key
from hiddenarm.ring.words import Floats

_FORMAT = "hiddenarm LocalFederation 1"
_MOST_NAME = 200
_ARMS_TOLD = 50
"""Most arms that an error lists."""
_REWARDED_BEFORE = "was rewarded before"


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

    `arms` is their number, or their names, or an `ArmTable` of public features of the arms, which then share a model
    (`ArmTable.of_frame` makes one of a data frame, `read_arms` of a file);
    those of `own_models`, by name or number, have one of their own on top. `features` has the number of features of
    each party. `epsilon=0.1` is short for `policy=EpsilonGreedy(0.1)`. The other keywords up to `newton_iterations` are
    those of `Federation`. Rewards may come late, in any order, or never: the newest `max_pending` decisions without a
    reward are kept, older ones are forgotten. Of those that were learned, the newest `keep_interactions` are kept, so
    that `unlearn` can take them out of the model again. With a `seed` the run can be repeated exactly; but who knows
    the seed knows all masks and coins, and runs of one seed share them, so it is for experiments with data that are not
    secret.
    """

    def __init__(
        self,
        arms: int | Sequence[str] | ArmTable,
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
        keep_interactions: int = MAX_PENDING,
        own_models: Sequence[int | str] = (),
        seed: int | None = None,
    ) -> None:
        if own_models:
            if not isinstance(arms, ArmTable):
                raise ConfigError("own_models are on top of one model for all arms: give arms as an ArmTable")
            arms = arms.with_own(own_models)
        arms = _plain(arms)
        table = arms if isinstance(arms, ArmTable) else None
        self.arm_names = arms.names if isinstance(arms, ArmTable) else _arm_names(arms)
        """The names of the arms; none if they have only numbers."""
        self.federation = Federation(
            arms=len(self.arm_names) if self.arm_names else arms if table is None else table.arms,  # type: ignore[arg-type]
            features=_per_party(features),
            policy=policy,
            suite=suite,
            epsilon=_plain(epsilon),
            ridge=_plain(ridge),
            norms=_norms(norms),
            fraction_bits=_plain(fraction_bits),
            newton_iterations=_plain(newton_iterations),
            privacy=privacy,
            arm_features=table,
            **_given(
                max_interactions=max_interactions,
                max_batch=max_batch,
                reciprocal_bits=reciprocal_bits,
                repair_every=repair_every,
            ),
        )
        self._begin(DecisionIds(new_epoch(), fresh_key()), max_pending, keep_interactions, seed)

    def _begin(
        self, ids: DecisionIds, max_pending: int, keep_interactions: int, seed: int | None, version: int = 1
    ) -> None:
        self._seed = _checked_seed(_plain(seed))
        self._version = version
        self._keep_interactions = _checked_kept(_plain(keep_interactions))
        self._max_pending = _plain(max_pending)
        self._lockstep = self._lockstep_of(self.federation, version)
        self._ids = ids
        self._decisions = 0
        self._rewarded: dict[ProgramId, SpentSteps] = {}
        self._unlearned: set[int] = set()

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
            given: int = _plain(arm)
            return given
        number = _numbers_of(self.arm_names).get(arm)
        if number is None:
            first = ", ".join(self.arm_names[:_ARMS_TOLD]) or "numbers only"
            raise InputError(f"there is no arm {arm!r}; arms are {first}{'' if self._tells_all else ', ...'}")
        return number

    @property
    def _tells_all(self) -> bool:
        """Whether an error names all arms."""
        return len(self.arm_names) <= _ARMS_TOLD

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

    def unlearn(self, id: str) -> None:
        """Take the interaction of a decision out of the model, exactly: the model is then the one that never saw it,
        but for rounding. A decision that waits for its reward is dropped. What was unlearned before stays so.

        >>> fed = LocalFederation(arms=2, features=[2, 1], epsilon=0.1)
        >>> decision = fed.decide([[0.6, 0.3], [0.1]])
        >>> fed.reward(decision.id, 1.0)
        >>> fed.unlearn(decision.id)
        """
        number = self._ids.number_of(id)
        if number in self._unlearned:
            return
        if self._lockstep.schedule.no_unlearning:
            raise InputError(self._lockstep.schedule.no_unlearning)
        if not self._lockstep.is_pending(number) and not self._lockstep.is_retained(number):
            raise DecisionIdError(f"decision {id} {self._why_not_retained(number)}")
        self._lockstep.unlearn(number)
        self._unlearned.add(number)

    def _why_not_retained(self, number: int) -> str:
        why = self._why_not_pending(number)
        if why != _REWARDED_BEFORE:
            return why
        most = self._keep_interactions
        return f"is no longer kept: of what was learned, the newest {most:,} are (keep_interactions)"

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
        if number in self._unlearned:
            return "was unlearned"
        if program in self._rewarded and step * program.count + position in self._rewarded[program]:
            return _REWARDED_BEFORE
        return f"is forgotten: only the newest {self._max_pending:,} decisions without a reward are kept (max_pending)"

    # Changing

    def change(
        self,
        *,
        epsilon: float | None = None,
        policy: Policy | None = None,
        max_interactions: int | None = None,
        max_batch: int | None = None,
        arms: ArmTable | None = None,
    ) -> None:
        """Go on with another policy, other limits, or another table of arms that have features, and the model as it is.
        A table begins with the arms that there are, whose features may differ, and may add some; those that have a
        model of their own keep it. What cannot change is refused by name, and nothing has changed then. Decisions that
        wait for a reward keep what they began with.

        >>> fed = LocalFederation(arms=["beach", "city"], features=[2, 1], epsilon=0.1)
        >>> fed.change(epsilon=0.02)
        >>> fed.add_arm("mountains")
        2
        >>> fed.retire_arm("beach")
        >>> fed.decide([[0.6, 0.3], [0.1]]).arm_name in ("city", "mountains")
        True
        """
        if epsilon is not None and policy is not None:
            raise ConfigError("epsilon is short for policy=EpsilonGreedy(epsilon): give one of the two")
        chosen = make_policy(EPSILON_GREEDY, {"epsilon": _plain(epsilon)}) if epsilon is not None else policy
        own = () if self.federation.arm_features is None else self.federation.arm_features.own
        if arms is not None and own and not arms.own:
            arms = arms.with_own(own)
        if arms is not None and arms.names[: len(self.arm_names)] != self.arm_names:
            raise ConfigError("a table must begin with the arms that there are, under their names and in their order")
        numbers = {"arms": arms.arms, "arm_features": arms} if arms is not None else {}
        limits = {"max_interactions": _plain(max_interactions), "max_batch": _plain(max_batch)}
        self._change(policy=chosen, **limits, **numbers)
        if arms is not None:
            self.arm_names = arms.names

    def add_arm(self, name: str | None = None) -> int:
        """Add an arm, which begins at the prior; its number. It has a name if the others have. Where arms have
        features, `change` takes a table with more arms."""
        if (name is None) == bool(self.arm_names):
            raise ConfigError("a new arm has a name where the others have names, and none where they have none")
        names = _arm_names([*self.arm_names, name]) if name is not None else ()
        self._change(arms=self.federation.arms + 1)
        self.arm_names = names
        return self.federation.arms - 1

    def retire_arm(self, arm: int | str) -> None:
        """Never choose an arm again. It keeps its number, and learns from the rewards of decisions that named it."""
        self._change(retired=(*self.federation.retired, self._number_of(arm)))

    def _change(self, **changes: Any) -> None:
        """Go on as another federation, in another epoch: under a key of its own, so that no address is used twice."""
        given = {name: value for name, value in changes.items() if value is not None}
        changed = changed_federation(self.federation, **given)
        lockstep = self._lockstep_of(changed, self._version + 1)
        lockstep.restore(self._lockstep.snapshot(pending=True))
        self._lockstep, self.federation, self._version = lockstep, changed, self._version + 1

    def _lockstep_of(self, federation: Federation, version: int) -> Lockstep:
        """All roles of a version of the federation, with a dealer's key of its own."""
        key = fresh_key() if self._seed is None else seeded_key(self._seed)
        if self._seed is not None and version > 1:
            key = derive(key, "version", version)
        return Lockstep(federation, key, max_pending=self._max_pending, keep_interactions=self._keep_interactions)

    # Keeping

    def save(self, path: str | Path) -> None:
        """Write all of it to a file, for its owner only: every party's shares, and decisions that wait for a reward.
        An existing file is replaced in one stroke."""
        about = {
            "format": _FORMAT,
            "federation": _described(self.federation),
            "arm_names": list(self.arm_names),
            "max_pending": self._max_pending,
            "keep_interactions": self._keep_interactions,
            "unlearned": sorted(self._unlearned),
            "seed": self._seed,
            "version": self._version,
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
        kept, version = about.get("keep_interactions", MAX_PENDING), about.get("version", 1)  # earlier ones had none
        self._begin(DecisionIds(about["epoch"], key), about["max_pending"], kept, about["seed"], version)
        self._lockstep.restore(state)
        if self._seed is None:
            self._lockstep.remask_pending()
        self._decisions = about["decisions"]
        self._unlearned.update(about.get("unlearned", ()))
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
            **({"retired": list(self.federation.retired)} if self.federation.retired else {}),
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


@lru_cache(maxsize=4)
def _numbers_of(names: tuple[str, ...]) -> dict[str, int]:
    """The number of each arm by its name."""
    return {name: number for number, name in enumerate(names)}


def _plain(number: Any) -> Any:
    """A number of NumPy as one of Python; anything else as it is."""
    is_number = isinstance(number, np.generic) or (isinstance(number, np.ndarray) and number.ndim == 0)
    return number.item() if is_number else number


def _is_table(arms: Any) -> bool:
    """Whether these are rows and columns, not names: those of the columns would be taken for those of arms."""
    has_rows = getattr(arms, "ndim", 1) != 1 or any(isinstance(one, list | tuple | np.ndarray) for one in arms)
    return hasattr(arms, "columns") or has_rows


def _arm_names(arms: int | Sequence[str]) -> tuple[str, ...]:
    """Names of arms, if they are given."""
    if isinstance(arms, int | float) or arms is None:
        return ()
    if isinstance(arms, str | bytes):
        raise ConfigError(f"arms must be their number or a list of their names, got {arms!r}")
    if _is_table(arms):
        raise ConfigError(
            "arms must be their number or a list of their names, got a table: make arms with features by "
            "ArmTable.of_frame(frame), or by ArmTable.of(rows, names)"
        )
    names = tuple(arms)
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _MOST_NAME:
            raise ConfigError(f"the name of an arm must be printable text of 1 to {_MOST_NAME} letters, got {name!r}")
    if len(set(names)) < len(names):
        raise ConfigError("two arms have the same name")
    return names


def _per_party(features: Sequence[int]) -> tuple[int, ...]:
    try:
        return tuple(map(_plain, features))
    except TypeError:
        raise ConfigError(
            f"features must have the number of features of each party, such as [3, 2], got {features!r}"
        ) from None


def _given(**numbers: int | None) -> FastNumbers:
    """Those that were given."""
    return {name: _plain(number) for name, number in numbers.items() if number is not None}  # type: ignore[return-value]


def _norms(norms: Any) -> Any:
    """Norms as they are given; what is none is told by the federation."""
    try:
        return tuple(map(_plain, norms))
    except TypeError:
        return norms


def _checked_seed(seed: int | None) -> int | None:
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise ConfigError(f"seed must be a whole number, got {seed!r}")
    return seed


def _checked_kept(most: int) -> int:
    if isinstance(most, bool) or not isinstance(most, int) or most < 0:
        raise ConfigError(f"keep_interactions must be a whole number, at least 0, got {most!r}")
    return most


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
    described = {**numbers, "policy": table_of(federation.policy), "privacy": privacy_table(federation.privacy)}
    if federation.arm_features is not None:
        table = federation.arm_features
        described["arm_features"] = {name: getattr(table, name) for name in ("rows", "names", "columns", "own")}
    return described


def _federation_of(described: Mapping[str, Any]) -> Federation:
    absent = {name for name, value in described.items() if not value and name != "ridge"}
    given = {name: value for name, value in described.items() if name not in absent}
    policy, privacy = policy_from_table(described["policy"]), privacy_from_table(described["privacy"])
    if "arm_features" in given:
        table = given["arm_features"]
        rows = tuple(map(tuple, table["rows"]))
        others = (tuple(table.get(name, ())) for name in ("names", "columns", "own"))
        given["arm_features"] = ArmTable(rows, *others)
    return Federation(**{**given, "policy": policy, "privacy": privacy})


def _label(program: ProgramId) -> str:
    return f"{program.name} {program.count}"


def _program(label: str) -> ProgramId:
    name, count = label.rsplit(" ", 1)
    return ProgramId(name, int(count))


def _no_federation(path: str | Path) -> ConfigError:
    return ConfigError(f"{path} is not a federation that `LocalFederation.save` wrote, or it is damaged")
