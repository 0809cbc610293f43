"""How much of something a node may send: a burst, and a pace after it."""

from __future__ import annotations


class Bucket:
    """Holds `burst` at most and regains `per_s` a second. Times are seconds of one clock."""

    def __init__(self, burst: float, per_s: float, now: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> bool:
        """Whether `amount` was there to take."""
        self._level = min(self._burst, self._level + (now - self._at) * self._per_s)
        self._at = now
        self._level -= amount
        return self._level >= 0
