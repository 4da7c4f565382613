"""Which words of which key every holder was given: no word is given twice, whatever program or stream asks for it.

An address is a derived key and a place in its key stream. `Stream` forbids a step to be handed out twice by one stream;
it does not see a second stream of the same key. Here all streams are seen together.

A key is known to two holders, and each uses its words once: the role it belongs to, and the dealer, who computes the
corrections from them. There is one exception: the rewarder may compute the mask of a decision again, to compare a
repeated request with what it hid before. The word belongs to this decision for good; that it hides one reward only is
checked where it is sent.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hiddenarm.mpc.dealing import ProgramDealer
from hiddenarm.ring.streams import Stream
from hiddenarm.ring.words import Words
from hiddenarm.roles.rewarder import Rewarder

DEALER, ROLE = "the dealer", "a role"
_WORDS_PER_BLOCK = 2


class Reused(AssertionError):
    """A word of a key stream was given out twice at one holder."""


class Ranges:
    """Ranges of places that do not overlap."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def meets(self, first: int, end: int) -> bool:
        """Whether any place from `first` to before `end` is in a range."""
        after = bisect_right(self._ranges, (first, end))
        return any(one < end and first < other for one, other in self._ranges[max(0, after - 1) : after + 1])

    def add(self, first: int, end: int) -> None:
        insort(self._ranges, (first, end))


class HandOuts:
    """All words that are handed out while this is entered. `dealt` are the labels of the programs that were dealt."""

    def __init__(self) -> None:
        self.dealt: set[str] = set()
        self.words = 0
        self._given: dict[tuple[str, bytes], Ranges] = {}
        self._masks: dict[tuple[bytes, int], int] = {}
        self._dealing = False
        self._masking: int | None = None
        honest: list[tuple[type, str]] = [
            (Stream, "step"),
            (Stream, "word"),
            (Stream, "steps"),
            (ProgramDealer, "__init__"),
            (ProgramDealer, "deal"),
            (Rewarder, "_mask"),
        ]
        seen = [self._step, self._word, self._steps, self._labelled, self._deal, self._mask]
        self._replaced: list[tuple[type, str, Any, Any]] = [
            (owner, name, getattr(owner, name), see(getattr(owner, name)))
            for (owner, name), see in zip(honest, seen, strict=True)
        ]

    def __enter__(self) -> HandOuts:
        for owner, name, _, seen in self._replaced:
            setattr(owner, name, seen)
        return self

    def __exit__(self, *_: object) -> None:
        for owner, name, honest, _ in self._replaced:
            setattr(owner, name, honest)

    # What is handed out

    def _step(self, honest: Any) -> Any:
        def step(stream: Stream, number: int) -> Words:
            words: Words = honest(stream, number)
            self._give(stream, number, 1)
            return words

        return step

    def _steps(self, honest: Any) -> Any:
        def steps(stream: Stream, first: int, count: int) -> Words:
            words: Words = honest(stream, first, count)
            self._give(stream, first, count)
            return words

        return steps

    def _word(self, honest: Any) -> Any:
        def word(stream: Stream, step: int, position: int) -> int:
            value: int = honest(stream, step, position)
            place = step * _width(stream) + position
            if self._masking is None:
                self._claim(ROLE, stream, place, place + 1)
            else:
                self._claim_mask(stream, place, self._masking)
            return value

        return word

    def _give(self, stream: Stream, first: int, count: int) -> None:
        width = _width(stream)
        end = (first + count - 1) * width + stream._words
        if not stream._words:
            return
        self._claim(DEALER if self._dealing else ROLE, stream, first * width, end)

    def _claim(self, holder: str, stream: Stream, first: int, end: int) -> None:
        ranges = self._given.setdefault((holder, bytes(stream._cipher.key)), Ranges())
        if ranges.meets(first, end):
            raise Reused(f"{holder} was given words {first} to {end - 1} of one key twice")
        ranges.add(first, end)
        self.words += end - first

    def _claim_mask(self, stream: Stream, place: int, decision: int) -> None:
        """The mask of a decision's reward, which no other decision may have."""
        address = bytes(stream._cipher.key), place
        if address not in self._masks:
            self._claim(ROLE, stream, place, place + 1)
        if self._masks.setdefault(address, decision) != decision:
            raise Reused("one word is the mask of two decisions' rewards")

    # Who asks for it

    def _labelled(self, honest: Any) -> Any:
        def __init__(dealer: ProgramDealer, name: str, *arguments: Any, **options: Any) -> None:
            honest(dealer, name, *arguments, **options)
            dealer.__dict__["label in hand-outs"] = name

        return __init__

    def _deal(self, honest: Any) -> Any:
        def deal(dealer: ProgramDealer, first: int, count: int) -> Words:
            self.dealt.add(_label(dealer))
            with self._while(dealing=True):
                words: Words = honest(dealer, first, count)
            return words

        return deal

    def _mask(self, honest: Any) -> Any:
        def mask(rewarder: Rewarder, name: int, streams: Any) -> int:
            with self._while(masking=name):
                word: int = honest(rewarder, name, streams)
            return word

        return mask

    @contextmanager
    def _while(self, dealing: bool = False, masking: int | None = None) -> Iterator[None]:
        self._dealing, self._masking = dealing, masking
        try:
            yield
        finally:
            self._dealing, self._masking = False, None


def _width(stream: Stream) -> int:
    """Places of one step in the key stream: whole blocks."""
    return stream._blocks * _WORDS_PER_BLOCK


def _label(dealer: ProgramDealer) -> str:
    label: str = dealer.__dict__["label in hand-outs"]
    return label
