"""The features of a party that serves: they may change while it does, and may have to be waited for.

A thread looks every second whether a file that features are made of was changed or replaced, and reads it once it has
been at rest for a second; on SIGHUP at once. What was read takes the place of what was there between two frames of the
party. No epoch ends, and no decision waits: what has its features keeps them. If the new file cannot be used, this is
logged and the old features stay. To go from a table to a place that is asked, or back, takes a restart.

A place that is asked (`sources`) is asked in threads of its own. Others see when a party sends its first words, so they
see how long its look-up takes: it should take the same for all keys. What is done here does: every row is clipped and
encoded by the same operations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Final, Protocol

from hiddenarm.errors import ConfigError, FeatureError, HiddenArmError, UnavailableError
from hiddenarm.net.logs import get_logger
from hiddenarm.ring.words import Words
from hiddenarm.roles.party_epoch import Found, LookUp
from hiddenarm.service.features import EncodedFeatures, words_by_key
from hiddenarm.service.kit import Kit
from hiddenarm.service.logs import name_thread
from hiddenarm.service.sources import FeatureSource, Signature

POLL_SECONDS: Final = 1.0
"""Between two looks at the files."""
TOO_LATE: Final = "the source did not answer within {seconds:g} seconds"

Call = Callable[[Callable[[], None]], None]
"""Has the loop of the party call back; from any thread."""
After = Callable[[float, Callable[[], None]], None]
"""Has the loop call back after some seconds; only from the loop."""


class Features(Protocol):
    """The features that are in use, and how they are taken anew."""

    def take(self, source: FeatureSource) -> tuple[Callable[[], None], int | None]:
        """Read a source: what puts it in place, and how many keys it has, if that is known."""


class LiveTable:
    """A table, clipped and encoded when it is read."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._encoded: EncodedFeatures

    def words(self, key: str) -> Words:
        return self._encoded.words(key)

    def take(self, source: FeatureSource) -> tuple[Callable[[], None], int | None]:
        stored = source.load()
        encoded = self._kit.with_missing(stored).encoded(self._kit.federation, self._kit.identity.number)

        def put() -> None:
            self._encoded = encoded

        return put, len(stored)


class LiveLookups:
    """A place that is asked, in threads."""

    def __init__(self, kit: Kit, call: Call, after: After) -> None:
        self._kit = kit
        self._call = call
        self._after = after
        self._words: Callable[[str], Words]
        self._seconds: float
        self._queue: SimpleQueue[tuple[_Pending, int, str, Callable[[str], Words]] | None] = SimpleQueue()
        self._workers = 0

    def take(self, source: FeatureSource) -> tuple[Callable[[], None], int | None]:
        number = self._kit.identity.number
        lookup = source.open(zeros=self._kit.missing_keys[number] == "zeros")
        words = words_by_key(lookup, self._kit.federation, number)

        def put() -> None:
            self._words, self._seconds = words, source.file.seconds
            self._start(source.file.workers)

        return put, None

    def look_up(self, keys: Sequence[str], then: Callable[[list[Found]], None]) -> None:
        """See `LookUp`."""
        pending = _Pending(len(keys), then, self._call)
        late = UnavailableError(TOO_LATE.format(seconds=self._seconds))
        self._after(self._seconds, partial(pending.expire, late))
        for position, key in enumerate(keys):
            self._queue.put((pending, position, key, self._words))

    def close(self) -> None:
        """Have the threads end. One that is stuck ends with the process."""
        for _ in range(self._workers):
            self._queue.put(None)
        self._workers = 0

    def _start(self, workers: int) -> None:
        for number in range(self._workers, workers):
            threading.Thread(target=self._work, name=f"features {number}", daemon=True).start()
        for _ in range(workers, self._workers):
            self._queue.put(None)
        self._workers = workers

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            pending, position, key, words = job
            if not pending.over:
                pending.put(position, _found(words, key))


def _found(words: Callable[[str], Words], key: str) -> Found:
    """What a look-up gives. An error that was not foreseen is told by its kind: its words may hold data."""
    try:
        return words(key)
    except (FeatureError, UnavailableError) as error:
        return error
    except Exception as error:
        return UnavailableError(f"the source failed: {type(error).__name__}")


class _Pending:
    """The keys of a request that are being looked up. `then` is called once, by the loop."""

    def __init__(self, count: int, then: Callable[[list[Found]], None], call: Call) -> None:
        self.over = False
        self._then = then
        self._call = call
        self._found: list[Found | None] = [None] * count
        self._left = count
        self._lock = threading.Lock()

    def put(self, position: int, found: Found) -> None:
        """From any thread."""
        with self._lock:
            self._found[position] = found
            self._left -= 1
            complete = self._left == 0
        if complete:
            self._call(self._finish)

    def expire(self, late: UnavailableError) -> None:
        """On the loop: what has not come by now has not come."""
        with self._lock:
            self._found = [late if one is None else one for one in self._found]
        self._finish()

    def _finish(self) -> None:
        if not self.over:
            self.over = True
            self._then([one for one in self._found if one is not None])


class LiveFeatures:
    """A party's features while it serves. `words` and `look_up` are what `Party` takes."""

    def __init__(self, kit: Kit, call: Call, after: After, poll_seconds: float = POLL_SECONDS) -> None:
        self._kit = kit
        self._call = call
        self._poll_seconds = poll_seconds
        self._log = get_logger("hiddenarm.party")
        source = kit.feature_source()
        self._signature = source.signature()
        self._lookups = LiveLookups(kit, call, after) if source.waits else None
        self._table = None if source.waits else LiveTable(kit)
        put, _ = self._features.take(source)
        put()
        self._wake = threading.Event()
        self._closed = self._asked = False

    @property
    def _features(self) -> Features:
        features = self._table or self._lookups
        assert features is not None
        return features

    def words(self, key: str) -> Words:
        """The features of a table."""
        assert self._table is not None, "features that are looked up must be waited for"
        return self._table.words(key)

    @property
    def look_up(self) -> LookUp | None:
        """How features are looked up, if that takes a while."""
        return None if self._lookups is None else self._lookups.look_up

    def start(self) -> None:
        """Watch the files from now on."""
        threading.Thread(target=self._watch, name="watches features", daemon=True).start()

    def reload(self) -> None:
        """Read them now, whether they have changed or not. From any thread."""
        self._asked = True
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        if self._lookups is not None:
            self._lookups.close()

    def _watch(self) -> None:
        name_thread(str(self._kit.identity))
        seen = self._signature
        while not self._closed:
            self._wake.wait(self._poll_seconds)
            self._wake.clear()
            asked, self._asked = self._asked, False
            now = self._signature_now()
            rested, seen = now == seen, now
            if not self._closed and (asked or (rested and now != self._signature)):
                self._signature = now
                self._take()

    def _signature_now(self) -> Signature:
        try:
            return self._kit.feature_source().signature()
        except HiddenArmError:
            return ()

    def _take(self) -> None:
        try:
            source = self._kit.feature_source()
            if source.waits != (self._lookups is not None):
                raise ConfigError("to change between a table and a place that is asked, restart the party")
            put, keys = self._features.take(source)
        except HiddenArmError as error:
            self._log.error("features not reloaded", reason=str(error))
        except Exception as error:
            self._log.error("features not reloaded", reason=type(error).__name__)
        else:
            self._call(put)
            self._log.info("features reloaded", keys=keys)
