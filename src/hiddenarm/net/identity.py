"""Who a peer is: a role and a number, read from its certificate and from nowhere else.

A certificate names its holder in exactly one URI subjectAltName, such as `hiddenarm:party/0`.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple, Self

from hiddenarm.errors import IdentityError

SCHEME: Final = "hiddenarm:"
_URI: Final = re.compile(r"hiddenarm:(party|dealer|actor|rewarder)/(0|[1-9][0-9]{0,5})", re.ASCII)


class Role(StrEnum):
    """The four roles of a federation."""

    PARTY = "party"
    DEALER = "dealer"
    ACTOR = "actor"
    REWARDER = "rewarder"

    __hash__ = str.__hash__  # the hash of an identity is taken for every frame


class _Member(NamedTuple):
    role: Role
    number: int


class Identity(_Member):
    """One member of a federation. Only parties come in several, so only they show their number when it is 0.

    A tuple, because identities are compared and looked up for every frame.
    """

    __slots__ = ()

    def __new__(cls, role: Role, number: int = 0) -> Self:
        identity = super().__new__(cls, role, number)
        if not _URI.fullmatch(identity.uri):
            raise IdentityError(f"no such member of a federation: {role!s} {number}")
        return identity

    def __str__(self) -> str:
        if self.role is Role.PARTY or self.number:
            return f"{self.role.value} {self.number}"
        return self.role.value

    @property
    def uri(self) -> str:
        """The name inside the certificate."""
        return f"{SCHEME}{self.role}/{self.number}"

    @classmethod
    def parse(cls, uri: str) -> Identity:
        """The identity that `uri` spells, exactly as `uri` spells it."""
        match = _URI.fullmatch(uri)
        if match is None:
            raise IdentityError("the certificate's URI does not name a member of a federation")
        return cls(Role(match[1]), int(match[2]))


def identity_of(tls: ssl.SSLSocket | ssl.SSLObject) -> Identity:
    """The identity in the verified certificate of the peer at the other end of `tls`."""
    certificate = tls.getpeercert()
    if not certificate:
        raise IdentityError("the peer has no verified certificate")
    names = certificate.get("subjectAltName", ())
    uris = [name[1] for name in _pairs(names) if name[0] == "URI" and name[1].startswith(SCHEME)]
    if len(uris) != 1:
        raise IdentityError(f"the certificate has {len(uris)} hiddenarm names, it must have one")
    return Identity.parse(uris[0])


def _pairs(names: object) -> Iterable[tuple[str, str]]:
    """The (type, name) pairs of a subjectAltName; anything else in it is skipped."""
    if not isinstance(names, tuple):
        return
    for name in names:
        if isinstance(name, tuple) and len(name) == 2 and all(isinstance(part, str) for part in name):
            yield name
