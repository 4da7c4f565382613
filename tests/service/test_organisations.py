"""Names of organisations in texts that know parties by number."""

from __future__ import annotations

import pytest

from hiddenarm.errors import HelloError, InputError, PeerLost, UnavailableError
from hiddenarm.net.identity import Identity, Role
from hiddenarm.service.logs import Organisations, with_digests_explained

TRAVEL = Organisations(["hotel", "airline"])
PARTY1, PARTY2, DEALER = Identity(Role.PARTY, 1), Identity(Role.PARTY, 2), Identity(Role.DEALER)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("party 1 is gone", "airline (party 1) is gone"),
        ("0.2 at party 0, 0.1 at party 1", "0.2 at hotel (party 0), 0.1 at airline (party 1)"),
        ("airline (party 1) is gone", "airline (party 1) is gone"),
        ("party 2, party 10 and party 01", "party 2, party 10 and party 01"),
        ("third-party 1, the parties, party1", "third-party 1, the parties, party1"),
        ("dealer is gone", "dealer is gone"),
    ],
)
def test_parties_in_a_text(text: str, named: str) -> None:
    assert TRAVEL.in_text(text) == named
    assert TRAVEL.in_text(named) == named
    assert Organisations().in_text(text) == text


def test_members() -> None:
    assert [TRAVEL.of(member) for member in (PARTY1, PARTY2, DEALER)] == ["airline (party 1)", "party 2", "dealer"]
    assert [TRAVEL.name(member) for member in (PARTY1, PARTY2, DEALER)] == ["airline", None, None]
    assert Organisations().of(PARTY1) == "party 1"


def test_errors_about_peers_are_named_and_those_that_quote_the_caller_are_not() -> None:
    for error, text in (
        (PeerLost("party 1 is gone"), "airline (party 1) is gone"),
        (UnavailableError("party 0 is away", 3.0), "hotel (party 0) is away"),
        (InputError("request 'party 1' was made before"), "request 'party 1' was made before"),
    ):
        TRAVEL.put_into(error)
        assert str(error) == text


def test_what_a_digest_is_of_is_told_where_it_differs() -> None:
    """Two kits show digests, which say nothing to whoever reads them."""
    differs = 'field \'names\' differs: "5e3f" at party 0, "" at actor'
    error = HelloError(f'{differs}; field \'arm_features\' differs: "ab" at party 0, "cd" at actor')
    TRAVEL.put_into(error)
    assert str(error).startswith(
        "field 'names' differs: \"5e3f\" at hotel (party 0), \"\" at actor; field 'arm_features'"
    )
    for said in (
        "; names is a digest of the names of arms, parties and features, in their order",
        "; arm_features is a digest of the table of arms: its numbers, names and columns",
        "an earlier version did: see docs/upgrading.md",
    ):
        assert said in str(error)
    told = str(error)
    TRAVEL.put_into(error)
    assert str(error) == told, "once"
    assert (
        with_digests_explained("field 'epsilon' differs: 0.1 at party 0") == "field 'epsilon' differs: 0.1 at party 0"
    )
