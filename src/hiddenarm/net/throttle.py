"""How often something may happen: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations


class Throttle:
    """Lets `burst` things pass at once and `per_second` in the long run."""

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._rate = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at = now

    def pause(self, now: float) -> float:
        """0 if one more may pass now, which then counts as passed; else the seconds until it may."""
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._rate)
        self._filled_at = now
        if self._tokens < 1:
            return (1 - self._tokens) / self._rate
        self._tokens -= 1
        return 0.0
