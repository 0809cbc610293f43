"""What a byte counter read once an interval shows of a job: exact means of on and off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True)
class Exchanges:
    """Iterations of parts, (duration in intervals, level in line rates) each; level 0 computes.

    `jitter` varies the duration of each part, `noise` each sample; up to `background` is added to
    each sample. Hosts read their counters up to `skew` intervals apart; the signal is their mean.
    """

    jitter: float = 0.02
    noise: float = 0.03
    background: float = 0.0
    skew: float = 0.0

    def samples(
        self,
        parts_at: Callable[[float], Sequence[tuple[float, float]]],
        count: int,
        rng: np.random.Generator,
    ) -> Floats:
        """[count] means over an interval, of the parts of iterations that begin at some time."""
        at = -20.0 * float(rng.uniform(0.5, 1.0))
        times, sent = [at], [0.0]
        while at < count + 2:
            for duration, level in parts_at(at):
                length = duration * max(0.3, 1 + self.jitter * float(rng.standard_normal()))
                at += length
                times.append(at)
                sent.append(sent[-1] + length * level)
        hosts = [
            np.diff(np.interp(np.arange(count + 1) + late, times, sent))
            for late in np.linspace(0, self.skew, 1 if self.skew == 0 else 8)
        ]
        signal = np.mean(hosts, axis=0) * (1 + self.noise * rng.standard_normal(count))
        signal += self.background * rng.uniform(size=count)
        return np.asarray(np.clip(signal, 0, None), np.float64)
