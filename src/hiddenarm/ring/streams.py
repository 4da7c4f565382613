"""Keyed randomness that is addressed, not drawn: (key, step) -> words, each address handed out once.

A key belongs to one epoch, one role and one program (`derive`), so an address is (epoch, role, program, step).
Step t of a stream with W words per step is the AES-256-CTR key stream from counter block t * ceil(W / 2) on. Whoever
holds the key finds the same words at the same address; whoever does not sees uniform words. A stream remembers which
of its steps it has handed out and refuses to hand one out again, because a mask used for two values reveals their
difference.
"""

from __future__ import annotations

import os
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hiddenarm.errors import AddressError
from hiddenarm.ring.words import Words

KEY_BYTES = 32
_WORDS_PER_BLOCK = 2
_BLOCK_BYTES = 16


def fresh_key() -> bytes:
    """A new secret key. All secret randomness of the package starts here."""
    return os.urandom(KEY_BYTES)


def seeded_key(seed: int) -> bytes:
    """The key of a run that can be repeated, and is therefore not private: who knows the seed knows all words."""
    return sha256(f"hiddenarm seed {seed}".encode()).digest()


def derive(key: bytes, *labels: str | int) -> bytes:
    """An independent key for a purpose: HKDF-SHA256 with the labels as unambiguous context."""
    info = b"hiddenarm" + b"".join(_framed(str(label)) for label in labels)
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(key)


def _framed(label: str) -> bytes:
    encoded = label.encode()
    return len(encoded).to_bytes(4, "big") + encoded


class SpentSteps:
    """Which steps have been used.

    With `in_order`, spending a step gives up all unused steps before it, and the memory is one number. Otherwise it is
    a bit for every step up to the highest used.
    """

    def __init__(self, *, in_order: bool) -> None:
        self._in_order = in_order
        self._floor = 0
        self._bits = bytearray()

    @classmethod
    def of(cls, bits: bytes) -> SpentSteps:
        """Those of `bits`, in no order."""
        spent = cls(in_order=False)
        spent._bits = bytearray(bits)
        return spent

    @property
    def bits(self) -> bytes:
        """A bit for every step, where they are used in no order."""
        return bytes(self._bits)

    def __contains__(self, step: int) -> bool:
        if self._in_order:
            return step < self._floor
        byte = step >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (step & 7) & 1)

    def spend(self, first: int, count: int = 1) -> None:
        """Mark steps as used; raise `AddressError` and mark none if any of them was."""
        steps = (first,) if self._in_order or count == 1 else range(first, first + count)
        for step in steps:
            if step < 0 or step in self:
                raise AddressError(f"randomness of step {step} was handed out before; an address is used once, ever")
        if self._in_order:
            self._floor = first + count
            return
        bits = self._bits
        if (missing := (first + count + 7 >> 3) - len(bits)) > 0:
            bits.extend(bytes(missing))
        for step in steps:
            bits[step >> 3] |= 1 << (step & 7)


class Stream:
    """Uniform words by step, from one key. `ahead` steps are expanded at a time.

    Steps are asked for in increasing order, gaps allowed, unless `in_order` is off.
    """

    def __init__(self, key: bytes, words_per_step: int, *, ahead: int = 1, in_order: bool = True) -> None:
        self._cipher = algorithms.AES(key)
        self._words = words_per_step
        self._blocks = -(-words_per_step // _WORDS_PER_BLOCK)
        self._ahead = ahead
        self._spent = SpentSteps(in_order=in_order)
        self._cached_first = 0
        self._cached = np.empty((0, words_per_step), np.uint64)
        self._numbers_first = 0
        self._numbers: list[list[int]] = []  # the same as Python's numbers, where single words are asked for

    def __repr__(self) -> str:
        return f"Stream({self._words} words per step, key hidden)"

    def step(self, step: int) -> Words:
        """The words of one step; a second request raises."""
        self._spent.spend(step)
        row = step - self._cached_first
        if not 0 <= row < len(self._cached):
            if self._ahead == 1:  # nothing of it will be asked for again, and it may be large
                alone: Words = self._expand(step, 1)[0]
                return alone
            self._cached_first, self._cached = step, self._expand(step, self._ahead)
            row = 0
        words: Words = self._cached[row]
        return words

    def word(self, step: int, position: int) -> int:
        """One word of a step; a second request for it raises. Not to be mixed with requests for whole steps."""
        self._spent.spend(step * self._words + position)
        if not 0 <= step - self._numbers_first < len(self._numbers):
            self._numbers_first = step - step % self._ahead
            self._numbers = self._expand(self._numbers_first, self._ahead).tolist()
        return self._numbers[step - self._numbers_first][position]

    def spent(self, step: int, position: int) -> bool:
        """Whether `word` was asked for this one."""
        return step * self._words + position in self._spent

    def steps(self, first: int, count: int) -> Words:
        """The words of many steps at once, as rows; a second request for any of them raises."""
        self._spent.spend(first, count)
        return self._expand(first, count)

    def _expand(self, first: int, count: int) -> Words:
        counter = (first * self._blocks).to_bytes(_BLOCK_BYTES, "big")
        encryptor = Cipher(self._cipher, modes.CTR(counter)).encryptor()
        stream = encryptor.update(bytes(count * self._blocks * _BLOCK_BYTES))
        rows = np.frombuffer(stream, "<u8").reshape(count, self._blocks * _WORDS_PER_BLOCK)
        return rows[:, : self._words]
