"""Every error this package raises on purpose, in one tree.

    HiddenArmError
    ├── InputError             what the caller gave is wrong; nothing was consumed
    │   ├── FeatureError       a context has NaN, infinity, a wrong length or a missing key
    │   │   └── RefusedKeyError  a party has no usable features under a key
    │   ├── RewardError        a reward outside [0, 1]
    │   ├── DecisionIdError    an unknown, repeated or malformed decision id
    │   │   ├── RewardedError  a decision that was rewarded before, or whose slot was sent without its reward
    │   │   └── RefusedRewardError  the parties have refused to learn a reward
    │   ├── EventError         no request was made under this name, or it cannot be rewarded yet
    │   ├── ConflictError      the name of a request that was made before, with other content
    │   └── ConfigError        a federation whose numbers do not fit
    ├── ProtocolError          the computation cannot go on
    │   ├── AddressError       an address of randomness was asked for twice
    │   ├── ScoreRangeError    scores left the range the comparison was dealt for
    │   │   └── NoArmError     no arm was found for a key, or two: nothing was decided
    │   └── PeerError          a peer vanished, misbehaved or disagrees
    │       ├── FrameError     a malformed, oversized or unexpected frame
    │       │   └── ClientError  one of an actor or a rewarder: its link ends, and nothing else
    │       ├── IdentityError  a certificate without the right role and number
    │       ├── HelloError     another protocol version or configuration
    │       └── PeerLost       a connection ended before its time
    ├── StoreError             durable state cannot be written, or may not be used as it lies there
    │   ├── DamagedStoreError  a record does not match its seal, or the file is broken
    │   ├── StoreLostError     the server of a store does not answer, and was given time to
    │   └── StaleStateError    an old backup or a clone: peers have seen newer state of this role
    ├── UnavailableError       not now: the same request may be made again later
    ├── BudgetSpentError       decisions have lost all that the federation agreed to lose: there are no more
    └── DataError              a data set is missing or damaged

Messages never contain a share, a cryptographic key, a feature or a reward. The key under which a user's features are
found stands only in errors for who asked by it, `RefusedKeyError` and `NoArmError`.
`exit_code` is what a process ends with.
"""

from __future__ import annotations

from typing import Final

_SHOWN_CHARACTERS: Final = 40
"""Of a key, in a message."""


def shown_key(key: str) -> str:
    """A key as a message shows it."""
    return repr(key if len(key) <= _SHOWN_CHARACTERS else f"{key[:_SHOWN_CHARACTERS]}...")


class HiddenArmError(Exception):
    """Base of all errors raised on purpose."""

    exit_code = 1


class InputError(HiddenArmError, ValueError):
    """What the caller gave is wrong; nothing was consumed."""

    exit_code = 2


class FeatureError(InputError):
    """A context has NaN, infinity, a wrong length or a missing key."""


class RefusedKeyError(FeatureError):
    """A party has no usable features under `key`; `party` is its number, `reason` what it said."""

    def __init__(self, key: str, party: int, reason: str, *, named: str | None = None) -> None:
        super().__init__(f"{named or f'party {party}'} refused key {shown_key(key)}: {reason}")
        self.key = key
        self.party = party
        self.reason = reason


class RewardError(InputError):
    """A reward outside [0, 1]."""


class DecisionIdError(InputError):
    """An unknown, repeated or malformed decision id."""


class RewardedError(DecisionIdError):
    """A decision that was rewarded before, or whose slot was sent without its reward."""


class RefusedRewardError(DecisionIdError):
    """The parties have refused to learn a reward, and said why."""


class EventError(InputError):
    """No decision was made under this name; or, with `inactive`, one that is not activated."""

    def __init__(self, message: str, *, inactive: bool = False) -> None:
        super().__init__(message)
        self.inactive = inactive


class ConflictError(InputError):
    """The name of a request that was made before, with other content."""


class ConfigError(InputError):
    """A federation whose numbers do not fit."""


class ProtocolError(HiddenArmError):
    """The computation cannot go on."""

    exit_code = 3


class AddressError(ProtocolError):
    """An address of randomness was asked for twice."""


class ScoreRangeError(ProtocolError):
    """Scores left the range the comparison was dealt for."""


class NoArmError(ScoreRangeError):
    """In the answers for `key` no arm was found, or two by coincidence (`ambiguous`). Nothing was decided, and the
    other keys of the request are not concerned."""

    def __init__(self, key: str, *, ambiguous: bool) -> None:
        why = _TWO_ARMS if ambiguous else f"{OUT_OF_RANGE}; check the features that the parties have under this key"
        super().__init__(f"no decision for key {shown_key(key)}: {why}")
        self.key = key
        self.ambiguous = ambiguous


OUT_OF_RANGE = (
    "no arm beats all others: a score left the range that max_interactions allows; "
    "a party's model or features are not what the protocol made them"
)


_TWO_ARMS = "two arms look chosen, which happens by chance once in some billion decisions; ask again"


class PeerError(ProtocolError):
    """A peer vanished, misbehaved or disagrees."""

    exit_code = 4


class FrameError(PeerError):
    """A malformed, oversized or unexpected frame."""


class ClientError(FrameError):
    """A malformed or unexpected frame of an actor or a rewarder: its link ends, and nothing else."""


class IdentityError(PeerError):
    """A certificate without the right role and number."""


class HelloError(PeerError):
    """Another protocol version or configuration."""


class PeerLost(PeerError):
    """A connection ended before its time."""


class StoreError(HiddenArmError):
    """Durable state cannot be written, or may not be used as it lies there."""

    exit_code = 6


class DamagedStoreError(StoreError):
    """A record does not match its seal, or the file is broken."""


class StoreLostError(StoreError):
    """The server of a store does not answer, and was given time to."""

    exit_code = 10


class StaleStateError(StoreError):
    """An old backup or a clone: peers have seen newer state of this role."""

    exit_code = 7


class UnavailableError(HiddenArmError):
    """Not now: the same request may be made again after `retry_after` seconds."""

    exit_code = 8

    def __init__(self, message: str, retry_after: float = 5.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class BudgetSpentError(HiddenArmError):
    """Decisions have lost all that the federation agreed to lose about one row of data; nothing was consumed."""

    exit_code = 9


class DataError(HiddenArmError):
    """A data set is missing or damaged."""

    exit_code = 5
