"""What the series of each target may cost this console."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from fabmon.feeds.token_bucket import CpuBudgets, over_budget

_AGAIN_AT = 0.5
"""Share of the burst that has to be there again before new series are taken."""


class TargetBudgets:
    """CPU time of targets: those in `overspent` used up theirs. No new series are taken of them,
    until half of the burst is there again."""

    def __init__(self) -> None:
        self.overspent: set[str] = set()
        self._cpu = CpuBudgets()

    @contextmanager
    def charged(self, target: str) -> Iterator[None]:
        """Take what the block costs from the budget of a target."""
        began_s = time.thread_time()
        try:
            yield
        finally:
            spent_s = time.thread_time() - began_s
            if not self._cpu.bucket(target).take(spent_s, time.monotonic()):
                self.overspent.add(target)

    def refusal(self, target: str) -> str:
        """Why nothing is read of a target; empty where all is well."""
        return str(over_budget(self._cpu.bucket(target))) if target in self.overspent else ""

    def recovered(self) -> set[str]:
        """The targets that may cost something again; they are `overspent` no more."""
        now_s = time.monotonic()
        waits_s = {each: self._cpu.bucket(each).wait_s(_AGAIN_AT, now_s) for each in self.overspent}
        again = {each for each, wait_s in waits_s.items() if not wait_s}
        self.overspent -= again
        return again
