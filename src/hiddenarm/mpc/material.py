"""Who holds which words of correlated randomness, and where in its stream each word lies.

For one step of a program there is a row of words for each holder:

    party p < N-1   one seed: its shares of everything, in program order
    party N-1       one seed: its shares of uniform values and its own input masks; *corrections* from the dealer for
                    the rest, so that all shares add up
    actor, rewarder one seed each: the permutation, the mask of the reward
    dealer          one seed it keeps: exploration coins and tags

The lengths of these rows are the program's `Layout`. Nobody writes them down: running the program on no steps counts
them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hiddenarm.errors import ProtocolError
from hiddenarm.ring.streams import Stream, derive
from hiddenarm.ring.words import Words


@dataclass(frozen=True, slots=True)
class Layout:
    """Words per step, by holder, and what the program sends: bytes by round and party."""

    party_words: tuple[int, ...]
    correction_words: int
    actor_words: int
    rewarder_words: int
    coin_words: int
    round_bytes: tuple[tuple[int, ...], ...]

    @property
    def rounds(self) -> int:
        return len(self.round_bytes)

    def bytes_to_each_peer(self, party: int) -> int:
        """Payload bytes that a party sends to each other party in one run of the program."""
        return sum(sizes[party] for sizes in self.round_bytes)


class Tape:
    """Words of some steps [steps, words], read from left to right by a running program."""

    def __init__(self, rows: Words) -> None:
        self._rows = rows
        self.position = 0

    def read(self, count: int) -> Words:
        start, self.position = self.position, self.position + count
        return self._rows[..., start : self.position]

    def check_used_up(self) -> None:
        if self.position != self._rows.shape[-1]:
            raise ProtocolError(
                f"a program used {self.position} words of {self._rows.shape[-1]} dealt; "
                "the parties and the dealer do not run the same program"
            )


class CountingTape(Tape):
    """A tape of no steps: it has every length and only counts."""

    def __init__(self) -> None:
        super().__init__(np.empty((0, 0), np.uint64))

    def read(self, count: int) -> Words:
        self.position += count
        return np.empty((0, count), np.uint64)

    def check_used_up(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Seeds:
    """The keys of one epoch, all derived from the dealer's secret. The dealer sends each role its own and no other."""

    epoch_key: bytes

    def party(self, number: int) -> bytes:
        return derive(self.epoch_key, "party", number)

    def actor(self) -> bytes:
        return derive(self.epoch_key, "actor")

    def rewarder(self) -> bytes:
        return derive(self.epoch_key, "rewarder")

    def decision_ids(self) -> bytes:
        """Shared by actor and rewarder, to recognise ids of decisions."""
        return derive(self.epoch_key, "decision ids")

    def coins(self) -> bytes:
        return derive(self.epoch_key, "coins")

    def __repr__(self) -> str:
        return "Seeds(hidden)"


def program_stream(seed: bytes, program: str, words: int, *, ahead: int = 1, in_order: bool = True) -> Stream:
    """A role's stream for one program."""
    return Stream(derive(seed, "program", program), words, ahead=ahead, in_order=in_order)
