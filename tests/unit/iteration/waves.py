"""What a byte counter read once an interval shows of a job: exact means of on and off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Wave:
    """Computes, then communicates, over and over; in intervals, the level in line rates.

    `period` is that of the mean; `jitter` varies each iteration, `noise` each sample, `phase` (0 to
    1) is where in an iteration the sampling begins.
    """

    period: float
    duty: float = 0.5
    jitter: float = 0.0
    noise: float = 0.0
    phase: float = 0.0
    level: float = 0.8
    low: float = 0.0

    def samples(self, count: int, rng: np.random.Generator) -> tuple[Floats, float]:
        """[count] means over an interval, and the mean period of the iterations that were made."""
        many = int(count / self.period * 1.3) + 12
        lengths = self.period * np.clip(1 + self.jitter * rng.standard_normal(many), 0.3, 2)
        ends = np.cumsum(lengths) - self.period * (1 + self.phase)
        begins = ends - lengths * self.duty
        grid = np.arange(count + 1)[:, None]
        busy = np.clip(grid - begins, 0, ends - begins).sum(axis=1)
        signal = self.low + (self.level - self.low) * np.diff(busy)
        signal *= 1 + self.noise * rng.standard_normal(count)
        seen = lengths[(ends > 0) & (ends < count)]
        return np.clip(signal, 0, None), float(seen.mean())
