"""Ids of decisions: an epoch's public name, a number and a tag, such as `3f9c02d17ab4-000017-5d0e9a71c2b84f36`.

The id travels through the outside world, from the actor by way of whoever pulls the arm to the rewarder. Its number is
the step at which the decision's randomness lies; its epoch keeps numbers of different epochs apart. The tag is a MAC
under a key that only actor and rewarder share: nobody else can make up the id of a decision and so have the reward of
that decision refused, or a mask spent on it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from functools import lru_cache

from hiddenarm.bandit.catalogue import DECIDE_ONE, STEP_ONE, SUBSET_SIZES, ProgramId, deciding, slots_of
from hiddenarm.errors import AddressError, DecisionIdError

MAX_PENDING = 100_000
"""Decisions that wait for a reward in memory; the oldest are forgotten beyond it, at all parties alike."""
_EPOCH_BYTES = 6
_TAG_BYTES = 8
_PATTERN = re.compile(r"([0-9a-f]{12})-([0-9]{6}|[1-9][0-9]{6,19})-([0-9a-f]{16})", re.ASCII)
_COUNT_BITS, _POSITION_BITS = 48, 16
_SLOTS_BITS = 12
"""Above them, a count says among how many slots was decided: 0 for all arms, else the place of a size from 1 on."""
_NUMBER_BITS = 64
_PAGE_BITS = 512


def new_epoch() -> str:
    """A public name for a new epoch."""
    return secrets.token_hex(_EPOCH_BYTES)


def decision_number(program: ProgramId, step: int, position: int = 0) -> int:
    """The number of one decision of a run: the step if it was made singly by `decide`; else a count, the step and the
    position side by side. The count is that of a batch, or 1 for a decision by `step`; where some of the arms were left
    out, its upper bits say among how many slots was decided."""
    if program == DECIDE_ONE:
        return step
    count = 1 if program == STEP_ONE else counted(program)
    return count << _COUNT_BITS | step << _POSITION_BITS | position


def fits_number(program: ProgramId, step: int) -> bool:
    """Whether a step of a program has a number of its own."""
    return step < 1 << (_COUNT_BITS if program == DECIDE_ONE else _COUNT_BITS - _POSITION_BITS)


def is_plain(number: int) -> bool:
    """Whether a number is only a step."""
    return number >> _COUNT_BITS == 0


def counted(program: ProgramId) -> int:
    """The count of a program that decides, with its slots: 16 bits."""
    size = slots_of(program)
    return program.count | (0 if size is None else SUBSET_SIZES.index(size) + 1) << _SLOTS_BITS


def decided_by(count: int) -> ProgramId:
    """The program with a count as `counted` gives it, which is not that of `step`."""
    slots, contexts = count >> _SLOTS_BITS, count & ((1 << _SLOTS_BITS) - 1)
    if slots > len(SUBSET_SIZES) or not contexts:
        raise DecisionIdError("this is not the number of a decision")
    return deciding(contexts, SUBSET_SIZES[slots - 1] if slots else None)


def split_number(number: int) -> tuple[ProgramId, int, int]:
    """Program, step and position of a decision."""
    count = number >> _COUNT_BITS
    if count == 0:
        return DECIDE_ONE, number, 0
    program = STEP_ONE if count == 1 else decided_by(count)
    low = number & ((1 << _COUNT_BITS) - 1)
    return program, low >> _POSITION_BITS, low & ((1 << _POSITION_BITS) - 1)


def decision_name(epoch: int, number: int) -> int:
    """A decision among those of all epochs. `epoch` is the epoch's public name as a number."""
    return epoch << _NUMBER_BITS | number


def split_name(name: int) -> tuple[int, int]:
    """Number of the epoch and number of the decision."""
    return name >> _NUMBER_BITS, name & ((1 << _NUMBER_BITS) - 1)


def run_of(identifier: str) -> tuple[ProgramId, int]:
    """The program and the step by which a decision was made, in an id that need not be checked."""
    program, step, _ = split_number(int(parts_of(identifier)[1]))
    return program, step


@dataclass(frozen=True, slots=True, repr=False)
class DecisionIds:
    """Makes and reads the ids of one epoch."""

    epoch: str
    key: bytes
    _mac: hashlib.blake2b = field(init=False, compare=False)  # has read the key

    def __post_init__(self) -> None:
        object.__setattr__(self, "_mac", hashlib.blake2b(key=self.key, digest_size=_TAG_BYTES))

    def id_of(self, number: int) -> str:
        """The id of a decision."""
        return f"{self.epoch}-{number:06d}-{self._tag(number)}"

    def number_of(self, identifier: str) -> int:
        """The number in an id, if it is one of ours."""
        return self.number_in(identifier, parts_of(identifier))

    def number_in(self, identifier: str, parts: tuple[str, str, str]) -> int:
        """The same, of an id that was taken apart."""
        epoch, digits, tag = parts
        number = int(digits)
        if epoch != self.epoch:
            raise DecisionIdError(f"decision {identifier} belongs to epoch {epoch}, this is epoch {self.epoch}")
        if not hmac.compare_digest(tag, self._tag(number)):
            raise DecisionIdError(f"decision {identifier} was never made")
        return number

    def _tag(self, number: int) -> str:
        mac = self._mac.copy()
        mac.update(f"{self.epoch}-{number}".encode())
        return mac.hexdigest()


def parts_of(identifier: str) -> tuple[str, str, str]:
    """The epoch's public name, the digits of the number and the tag in an id."""
    match = _PATTERN.fullmatch(identifier) if isinstance(identifier, str) else None
    if match is None:
        raise DecisionIdError("this is not the id of a decision: give back the `id` that came with it")
    return match[1], match[2], match[3]


class DecisionSet:
    """Decisions by their names: a bit for each, in pages of those that were made one after another. One that was never
    made takes no more room than any other, whatever its number."""

    def __init__(self) -> None:
        self._pages: dict[tuple[int, ProgramId, int], int] = {}

    def add(self, name: int) -> None:
        """Raises `AddressError` if it is in the set."""
        page, bit = _place(name)
        held = self._pages.get(page, 0)
        if held & bit:
            raise AddressError("a decision was used before; its masks are used once, ever")
        self._pages[page] = held | bit

    def __contains__(self, name: int) -> bool:
        page, bit = _place(name)
        return self._pages.get(page, 0) & bit != 0


@lru_cache(maxsize=1024)
def _place(name: int) -> tuple[tuple[int, ProgramId, int], int]:
    """The page of a decision, and its bit there."""
    epoch, number = split_name(name)
    program, step, position = split_number(number)
    page, place = divmod(step * program.count + position, _PAGE_BITS)
    return (epoch, program, page), 1 << place
