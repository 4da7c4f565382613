"""Whose state a store holds: another role or configuration is refused by the name of the field, older records are
migrated."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import pytest

from deployment import provision
from hiddenarm.bandit.federation import Federation
from hiddenarm.bandit.policies.epsilon_greedy import EpsilonGreedy
from hiddenarm.bandit.policies.epsilon_schedule import EpsilonSchedule
from hiddenarm.errors import DamagedStoreError, StoreError
from hiddenarm.net.hello import hello_payload, parse_hello
from hiddenarm.service.kit import Kit
from hiddenarm.service.state import OWNER_AREA, OWNER_KEY, Owner, owner_of
from hiddenarm.store.contract import Put
from hiddenarm.store.memory import MemoryStore

FEDERATION = Federation(arms=3, features=(2, 1), epsilon=0.1)
NUMBERS_OF_DIGEST = (
    *("arms", "features", "epsilon", "ridge", "norms", "fraction_bits", "reciprocal_bits"),
    "repair_every",
)
EARLIER = {"score_bound": 32.0}


def terms_of(federation: Federation) -> dict:  # type: ignore[type-arg]
    numbers = {name: federation.terms[name] for name in NUMBERS_OF_DIGEST}
    return {"federation": "travel", "suite": "fast", **numbers}


def owner(terms: dict | None = None, role: str = "party 0", defaults: dict | None = None) -> Owner:  # type: ignore[type-arg]
    kit, state = Path("/kits/hotel/kit.json"), "/kits/hotel/state"
    return Owner(role, terms or terms_of(FEDERATION), defaults or {}, EARLIER, kit, state)


def claimed_by(first: Owner) -> MemoryStore:
    store = MemoryStore()
    first.claim(store)
    return store


def written_with(payload: bytes) -> MemoryStore:
    store = MemoryStore()
    store.commit([Put(OWNER_AREA, OWNER_KEY, payload)])
    return store


def digest_of(federation: Federation, role: str) -> bytes:
    """What earlier versions kept."""
    return blake2b(hello_payload({**terms_of(federation), **EARLIER}) + role.encode(), digest_size=32).digest()


def test_every_field_that_differs_is_named_with_both_values_and_what_to_do() -> None:
    store = claimed_by(owner())
    other = owner(terms_of(replace(FEDERATION, policy=EpsilonGreedy(0.2), ridge=2.0)))
    with pytest.raises(StoreError) as raised:
        other.claim(store)
    text = str(raised.value)
    assert "field 'epsilon' differs: 0.1 at /kits/hotel/state, 0.2 at /kits/hotel/kit.json; field 'ridge'" in text
    assert "Put kit.json back as it was" in text
    owner().claim(store)


def test_another_role_is_named() -> None:
    with pytest.raises(StoreError, match=r"field 'role' differs: \"party 0\" at .*, \"party 1\" at"):
        owner(role="party 1").claim(claimed_by(owner()))


def test_a_field_that_is_newer_than_the_state_has_its_default() -> None:
    old = terms_of(FEDERATION)
    store = claimed_by(owner(old))
    with pytest.raises(StoreError, match="field 'limit' differs: 5 at /kits/hotel/state, 6 at"):
        owner({**old, "limit": 6}, defaults={"limit": 5}).claim(store)
    owner({**old, "limit": 5}, defaults={"limit": 5}).claim(store)
    with pytest.raises(StoreError, match="field 'limit' differs: 5 at /kits/hotel/state, 7 at"):
        owner({**old, "limit": 7}, defaults={"limit": 7}).claim(store)  # what was the default is written down


def test_a_field_without_default_or_that_is_gone_is_named() -> None:
    old = terms_of(FEDERATION)
    with pytest.raises(StoreError, match="field 'limit' differs: missing at /kits/hotel/state, 6 at"):
        owner({**old, "limit": 6}).claim(claimed_by(owner(old)))
    with pytest.raises(StoreError, match="field 'limit' differs: 6 at /kits/hotel/state, missing at"):
        owner(old).claim(claimed_by(owner({**old, "limit": 6})))


def test_the_digest_of_an_earlier_version_is_replaced() -> None:
    store = written_with(digest_of(FEDERATION, "party 0"))
    owner(defaults={"limit": 5}, terms={**terms_of(FEDERATION), "limit": 5}).claim(store)
    kept = store.get(OWNER_AREA, OWNER_KEY)
    assert kept is not None
    assert (parse_hello(kept)["epsilon"], parse_hello(kept)["role"], parse_hello(kept)["limit"]) == (0.1, "party 0", 5)


@pytest.mark.parametrize(
    "digest", [digest_of(FEDERATION, "party 1"), digest_of(replace(FEDERATION, policy=EpsilonGreedy(0.2)), "party 0")]
)
def test_the_digest_of_something_else_is_refused_with_the_fields_that_it_may_be(digest: bytes) -> None:
    with pytest.raises(
        StoreError, match=r"earlier version.*one of these fields differs: role, federation, suite, arms"
    ):
        owner().claim(written_with(digest))


def test_a_digest_says_that_newer_fields_had_their_defaults() -> None:
    with pytest.raises(StoreError, match="field 'limit' differs: 5 at"):
        owner({**terms_of(FEDERATION), "limit": 6}, defaults={"limit": 5}).claim(
            written_with(digest_of(FEDERATION, "party 0"))
        )


def test_a_record_that_cannot_be_read() -> None:
    with pytest.raises(DamagedStoreError, match="whose state this is"):
        owner().claim(written_with(b"{"))


def test_defaults_are_what_they_come_to_in_the_federation(tmp_path: Path) -> None:
    """A state without a field whose default follows from others, such as the norms, is that of this kit."""
    kit = Kit.read(provision(tmp_path, durable=True) / "hotel")
    defaults = owner_of(kit, str(tmp_path)).defaults
    assert defaults["norms"] == (1.0, 1.0)
    assert (defaults["ridge"], defaults["repair_every"]) == (1.0, 10_000)
    assert "epsilon" not in defaults


@pytest.mark.parametrize("suite", ["fast", "paper"])
def test_state_that_the_version_before_policies_wrote_is_accepted(tmp_path: Path, suite: str) -> None:
    """It has `epsilon` and no `policy`; of the paper's suite also numbers without meaning, and its option in its
    name."""
    kit = Kit.read(provision(tmp_path, durable=True) / "hotel")
    federation = Federation(arms=4, features=(3, 2), epsilon=0.1, suite=suite)
    kit.federation = federation
    ours = owner_of(kit, str(tmp_path))
    written = {"role": ours.role, **{name: value for name, value in ours.terms.items() if name != "policy"}}
    if suite == "paper":
        del written["newton_iterations"]
        written |= {"suite": "paper, newton_iterations 7", "max_interactions": 10**9}
        written |= {"reciprocal_bits": 8, "repair_every": 10_000}
    store = written_with(hello_payload(written))
    ours.claim(store)
    kept = store.get(OWNER_AREA, OWNER_KEY)
    assert kept is not None
    assert parse_hello(kept)["policy"] == "epsilon-greedy"
    kit.federation = replace(federation, policy=EpsilonSchedule(0.5))
    with pytest.raises(StoreError, match=r"field 'policy' differs: .epsilon-greedy. at .*field 'epsilon' differs: 0.1"):
        owner_of(kit, str(tmp_path)).claim(written_with(hello_payload(written)))
