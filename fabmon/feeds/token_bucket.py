"""Rate limits: what a node may send, and may cost the console."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from fabmon.fabric.time_wording import interval
from fabmon.feeds.errors import Misbehaved

_P = ParamSpec("_P")
_T = TypeVar("_T")

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


def over_budget(cpu: TokenBucket, but: str = "") -> Misbehaved:
    """The error of what costs more than a budget; `but` is what follows from that."""
    return Misbehaved(
        f"costs the console more than {cpu.per_s:g} s of CPU time a second{but}", "cpu"
    )


class CpuBudgets:
    """What each node may cost this console, over all its sessions: `per_s` of CPU time a second."""

    def __init__(self, per_s: float = CPU_SHARE) -> None:
        self._per_s = per_s
        self._buckets: dict[str, TokenBucket] = {}

    def bucket(self, node: str) -> TokenBucket:
        """The budget of a node, also one that is used up."""
        now_s = time.monotonic()
        return self._buckets.setdefault(node, TokenBucket(CPU_BURST_S, self._per_s, now_s))

    def of(self, node: str) -> TokenBucket:
        """The budget of a node. Raises Misbehaved while it is used up."""
        cpu = self.bucket(node)
        wait_s = cpu.wait_s(0.0, time.monotonic())
        if wait_s:
            raise over_budget(cpu, f"; not asked for {interval(math.ceil(wait_s))}")
        return cpu


async def in_thread(
    cpu: TokenBucket, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
) -> _T:
    """Call a function in a thread, and take the CPU time that it cost from a budget."""
    return await asyncio.to_thread(lambda: charged(cpu, function, *arguments, **named))


def charged(
    cpu: TokenBucket, function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs
) -> _T:
    """Call a function, and take the CPU time that it cost from a budget."""
    began_s = time.thread_time()
    try:
        return function(*arguments, **named)
    finally:
        cpu.take(time.thread_time() - began_s, time.monotonic())
