"""What has been released, and what that tells about one row of data.

The ledger counts, and forgets nothing: decisions by *level*, the chance with which they were explored, as the dealer's
coin has it (a 63-bit threshold); refreshes of noisy sums, and how often noise was drawn again for rows that decisions
had used already; sums that were opened: how many, how many of them without noise, the sum of mu^2 of those with noise,
and of those that hold the same row; and decisions that ended without an answer as scores left their range, which all
parties see. A decision that is drawn twice counts twice. Two ledgers of the same federation are merged by taking the
larger of every count, so no copy, however old, can take anything back.

A statement says what the counts mean, by relation: which two data sets must look alike, and to whom.

    own_action       one row differs; its own action alone is seen, as by a user of the service
    dropped          one row is taught nothing; all other actions are seen
    replaced         one row is any other; all other actions are seen
    with_own_action  one row is taught nothing; all actions are seen, its own too
    user             all rows of one user are taught nothing; all other actions are seen

With exploration alone every later action depends on a row, so all but the first have the loss of all actions together,
an upper bound for each of them. If sums were opened besides, there is no bound: they tell something of which decisions
were explored, and the bound rests on nobody knowing that. With noisy sums they have bounds of their own, which do not
grow with the actions, and an opened sum adds to them once, as a row is part of one window. A sum that was opened
without noise leaves no bound about other actions.

A decision that ended as its scores left their range was not explored, and that it ended may depend on any row before:
its chance may be 0 with other data. So one such decision leaves no bound, but where sums are noisy that about other
actions: it is, as they are, a function of the noisy sums and of its own row. A row's own action has none either, as it
may have been the one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import exp, inf, log, sqrt

from hiddenarm.errors import ConfigError
from hiddenarm.privacy.actions import Levels, epsilon_total, eta, is_exact
from hiddenarm.privacy.gaussian import (
    advantage,
    check_delta,
    composed,
    epsilon_for,
    own_action_epsilon,
    tpr_at,
)
from hiddenarm.privacy.mechanisms import DEFAULT_DELTA, Mechanism, NoisyMechanism

COIN_UNITS = 2**63
"""An action is explored with the chance threshold / COIN_UNITS."""
MOST_LEVELS = 1024
MOST_LEDGER_BYTES = 128 + 48 * MOST_LEVELS
"""Of an encoded ledger."""
FALSE_ALARMS = 0.01
"""The rate of false positives at which attacks are compared."""
_VACUOUS = 0.999
"""A bound that lets an attack find this share of rows at one false alarm in a hundred is called vacuous."""
_LEVEL_BITS = 5
_FIRST = {"decisions", "refreshes", "opened", "repeated"}
_LATER = ("row_opened", "openings", "bare", "out_of_range")
"""Left out where they are zero, and the first where it is as large as `opened`: earlier versions had the others
alone, and counted every opening for every row."""


@dataclass(frozen=True, slots=True)
class PrivacyLedger:
    """The counts: decisions by the threshold of their coin, refreshes, the sum of mu^2 of openings, in how many
    refreshes more than one a single row may be; the largest sum of mu^2 of openings that hold the same row; how many
    sums were opened, and how many of them without noise; decisions whose scores were out of range."""

    decisions: Mapping[int, int] = field(default_factory=dict)
    refreshes: int = 0
    opened: float = 0.0
    repeated: int = 0
    row_opened: float = 0.0
    openings: int = 0
    bare: int = 0
    out_of_range: int = 0

    @property
    def count(self) -> int:
        """All decisions."""
        return sum(self.decisions.values())

    @property
    def telling(self) -> int:
        """All decisions but those that were certain to be explored, which tell nothing."""
        return self.count - self.decisions.get(COIN_UNITS, 0)

    @property
    def levels(self) -> Levels:
        """Decisions by their chance to be explored."""
        return {threshold / COIN_UNITS: count for threshold, count in self.decisions.items()}

    def decided(self, *thresholds: int) -> PrivacyLedger:
        """After further decisions, each with the threshold of its coin."""
        decisions = dict(self.decisions)
        for threshold in thresholds:
            decisions[threshold] = decisions.get(threshold, 0) + 1
        opened = self.row_opened, self.openings, self.bare, self.out_of_range
        return PrivacyLedger(decisions, self.refreshes, self.opened, self.repeated, *opened)

    def refreshed(self) -> PrivacyLedger:
        """After another refresh of noisy sums."""
        return replace(self, refreshes=self.refreshes + 1)

    def with_refreshes(self, refreshes: int, repeated: int) -> PrivacyLedger:
        """With so many refreshes at least, and a row in so many more than one."""
        return replace(self, refreshes=max(refreshes, self.refreshes), repeated=max(repeated, self.repeated))

    def opened_with(self, *mus: float | None) -> PrivacyLedger:
        """After sums over the same rows were opened, each with so much noise, or with none; over rows that were part of
        no opening before."""
        added = sum(mu**2 for mu in mus if mu is not None)
        return replace(
            self,
            opened=self.opened + added,
            row_opened=max(self.row_opened, added),
            openings=self.openings + len(mus),
            bare=self.bare + mus.count(None),
        )

    def opens_again(self, mu: float) -> PrivacyLedger:
        """Before rows that were part of an opening become part of another."""
        return replace(self, row_opened=self.row_opened + mu**2)

    def left_range(self, decisions: int) -> PrivacyLedger:
        """After decisions of a run that ended as scores were out of range: of one of them at least, all are counted."""
        return replace(self, out_of_range=self.out_of_range + decisions)

    def merged(self, other: PrivacyLedger) -> PrivacyLedger:
        """The larger of every count."""
        keys = self.decisions.keys() | other.decisions.keys()
        return PrivacyLedger(
            {key: max(self.decisions.get(key, 0), other.decisions.get(key, 0)) for key in sorted(keys)},
            max(self.refreshes, other.refreshes),
            max(self.opened, other.opened),
            max(self.repeated, other.repeated),
            max(self.row_opened, other.row_opened),
            max(self.openings, other.openings),
            max(self.bare, other.bare),
            max(self.out_of_range, other.out_of_range),
        )

    def covers(self, other: PrivacyLedger) -> bool:
        """Whether no count is smaller than the other's."""
        return self.merged(other) == self.merged(self)

    # In records and messages

    def to_dict(self) -> dict[str, object]:
        decisions = {str(threshold): count for threshold, count in sorted(self.decisions.items())}
        others = {"refreshes": self.refreshes, "opened": self.opened, "repeated": self.repeated}
        usual = {"row_opened": self.opened}
        later = {name: getattr(self, name) for name in _LATER if getattr(self, name) != usual.get(name, 0)}
        return {"decisions": decisions, **others, **later}

    @classmethod
    def from_dict(cls, given: Mapping[str, object]) -> PrivacyLedger:
        """The ledger that `to_dict` gave, here or in an earlier version; ValueError if it is none."""
        if not _FIRST <= given.keys() <= _FIRST | set(_LATER):
            raise ValueError("a ledger has decisions, refreshes and openings")
        decisions, refreshes, opened, repeated = (
            given[name] for name in ("decisions", "refreshes", "opened", "repeated")
        )
        if not isinstance(decisions, dict):
            raise ValueError("a ledger has counts of decisions")
        counted = {int(threshold): count for threshold, count in decisions.items()}
        if len(counted) > MOST_LEVELS or not all(0 <= threshold <= COIN_UNITS for threshold in counted):
            raise ValueError("a ledger has thresholds of coins")
        later = {name: given.get(name, 0) for name in _LATER}
        row_opened = given.get("row_opened", opened)
        counts = [later[name] for name in _LATER if name != "row_opened"]
        if not all(_is_count(count) for count in (*counted.values(), refreshes, repeated, *counts)):
            raise ValueError("a ledger has whole numbers")
        if not _is_sum(opened) or not _is_sum(row_opened):
            raise ValueError("a ledger has sums of openings")
        numbers = int(str(refreshes)), float(str(opened)), int(str(repeated)), float(str(row_opened))
        return cls(counted, *numbers, *(int(str(count)) for count in counts))

    def encode(self) -> bytes:
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> PrivacyLedger:
        """ValueError for whatever is no ledger."""
        try:
            given = json.loads(payload)
        except RecursionError:
            raise ValueError("a ledger is not nested") from None
        if not isinstance(given, dict):
            raise ValueError("a ledger is an object")
        return cls.from_dict(given)


NOTHING_RELEASED = PrivacyLedger()


def coarse(threshold: int) -> int:
    """A threshold rounded down to five significant bits. The coins of a schedule have such thresholds, so that it has
    few levels, and is counted by exactly those that it has."""
    spare = max(0, threshold.bit_length() - _LEVEL_BITS)
    return threshold >> spare << spare


@dataclass(frozen=True, slots=True)
class Bound:
    """What holds of one relation: the loss, the most that any attack finds at one false alarm in a hundred, and the
    largest difference of true and false positives. `exact` is whether the loss is attained by some learner and data."""

    relation: str
    epsilon: float
    true_positives: float
    advantage: float
    exact: bool = False

    @property
    def vacuous(self) -> bool:
        return self.true_positives >= _VACUOUS


@dataclass(frozen=True, slots=True)
class Statement:
    """What the ledger of a federation means. `delta` is the chance at which the losses may be exceeded."""

    mechanism: str
    decisions: int
    delta: float
    bounds: tuple[Bound, ...]

    def __getitem__(self, relation: str) -> Bound:
        return next(bound for bound in self.bounds if bound.relation == relation)

    @property
    def headline(self) -> Bound:
        """Over all time: of a dropped row."""
        return self["dropped"]

    def to_dict(self) -> dict[str, object]:
        """For JSON, which has no infinity: null stands for it."""
        named = {f"epsilon_{bound.relation}": _finite(bound.epsilon) for bound in self.bounds}
        bounds = [
            {**asdict(bound), "epsilon": _finite(bound.epsilon), "vacuous": bound.vacuous} for bound in self.bounds
        ]
        return {
            "privacy": self.mechanism,
            "decisions": self.decisions,
            "delta": self.delta,
            "epsilon_total": _finite(self.headline.epsilon),
            "vacuous": self.headline.vacuous,
            **named,
            "bounds": bounds,
        }


def statement(ledger: PrivacyLedger, arms: int, mechanism: Mechanism, delta: float | None = None) -> Statement:
    """What was released so far tells about one row. `delta` is that of the mechanism unless given."""
    given = mechanism.options.get("delta", DEFAULT_DELTA) if delta is None else delta
    chance = float(given)
    check_delta(chance)
    noisy = isinstance(mechanism, NoisyMechanism)
    if noisy and chance != mechanism.options["delta"]:
        raise ConfigError(
            f"privacy {mechanism.name} has the delta that it was made for, {mechanism.options['delta']:g}"
        )
    bounds = _of_noise(ledger, arms, mechanism, chance) if noisy else _of_exploration(ledger, arms, chance)
    return Statement(mechanism.name, ledger.count, chance, bounds)


def _of_exploration(ledger: PrivacyLedger, arms: int, delta: float) -> tuple[Bound, ...]:
    unbounded = ledger.opened > 0 or ledger.openings > 0 or ledger.out_of_range > 0
    total = inf if unbounded else epsilon_total(arms, ledger.levels, delta)
    exact = is_exact(ledger.levels) and not unbounded
    at_most = [_bound(name, total, delta, exact=False) for name in ("dropped", "replaced")]
    own, user = (_bound(name, total, delta, exact) for name in ("with_own_action", "user"))
    return (_of_own_action(ledger, arms), *at_most, own, user)


def _of_noise(ledger: PrivacyLedger, arms: int, noisy: Mechanism, delta: float) -> tuple[Bound, ...]:
    assert isinstance(noisy, NoisyMechanism)
    opened, least = inf if ledger.bare else sqrt(ledger.row_opened), min(ledger.levels, default=1.0)
    one_row = noisy.mu * sqrt(1 + ledger.repeated)
    dropped = composed([one_row, opened])
    unbounded = dropped == inf or ledger.out_of_range > 0
    own = inf if unbounded else own_action_epsilon(dropped, arms, least, delta)
    rows = _of_user(ledger, noisy)
    return (
        _of_own_action(ledger, arms),
        _gaussian("dropped", dropped, delta),
        _gaussian("replaced", composed([noisy.replaced * one_row, opened]), delta),
        _bound("with_own_action", own, delta, exact=False),
        _gaussian("user", composed([rows * noisy.mu, noisy.rows_per_key * max(opened, sqrt(ledger.opened))]), delta),
    )


def _of_user(ledger: PrivacyLedger, noisy: NoisyMechanism) -> float:
    """By how much more than one row all rows of a user tell, with as many in each refresh as are taken. To go back
    draws anew what refreshes had drawn; with correlated noise that tells of all rows before, once more."""
    times = 1 + ledger.repeated
    if noisy.correlation is None:
        return noisy.rows_per_key * sqrt(max(times, ledger.refreshes))
    return noisy.rows_per_key * sqrt(times) * noisy.of_rows([1.0] * max(1, ledger.refreshes))


def _of_own_action(ledger: PrivacyLedger, arms: int) -> Bound:
    loss = max((eta(arms, chance) for chance, count in ledger.levels.items() if count), default=0.0)
    return _bound("own_action", inf if ledger.out_of_range else loss, 0.0, exact=True)


def _bound(relation: str, epsilon: float, delta: float, exact: bool) -> Bound:
    """What (epsilon, delta) alone lets an attack do: TPR <= e^epsilon FPR + delta, and the same for its mistakes."""
    ratio = exp(min(epsilon, 700.0))
    found = min(1.0, ratio * FALSE_ALARMS + delta, 1 - (1 - delta - FALSE_ALARMS) / ratio)
    return Bound(relation, epsilon, found, (ratio - 1 + 2 * delta) / (ratio + 1), exact)


def _gaussian(relation: str, mu: float, delta: float) -> Bound:
    if mu == inf:
        return _bound(relation, inf, delta, exact=False)
    return Bound(relation, epsilon_for(mu, delta), tpr_at(mu, FALSE_ALARMS), advantage(mu), exact=False)


def _finite(epsilon: float) -> float | None:
    return epsilon if epsilon < inf else None


def _is_sum(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < inf


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


VACUOUS_FROM = log((1 - FALSE_ALARMS) / (1 - _VACUOUS))
"""From this epsilon on a bound of epsilon alone is vacuous: 6.9."""
