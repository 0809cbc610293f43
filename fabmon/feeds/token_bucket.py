"""Rate limits: what a node may send, and may cost the console."""

from __future__ import annotations

CPU_BURST_S, CPU_SHARE = 10.0, 0.1
"""Seconds of CPU time that the console spends on what a node sends, at once and a second, over all
its sessions. The largest fabric of one node costs 3 s once; a large hello every 3 s is too much."""


class TokenBucket:
    """A rate limit: `burst` at once, then `per_s` a second. Times are seconds of one clock."""

    def __init__(self, burst: float, per_s: float, now_s: float) -> None:
        self._burst = burst
        self.per_s = per_s
        self._level = burst
        self._updated_s = now_s

    def take(self, amount: float, now_s: float, *, or_none: bool = False) -> bool:
        """Take `amount`; whether it was within the limit. With `or_none` only what is within it."""
        self._level = min(self._burst, self._level + (now_s - self._updated_s) * self.per_s)
        self._updated_s = now_s
        if or_none and self._level < amount:
            return False
        self._level -= amount
        return self._level >= 0

    def wait_s(self, share: float, now_s: float) -> float:
        """Seconds until it is full to this share, 0 to 1, if nothing is taken; 0 where it is."""
        self.take(0.0, now_s)
        return max(0.0, share * self._burst - self._level) / self.per_s
