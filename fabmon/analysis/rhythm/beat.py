"""One job's signal, measured: the iteration, the share of time in communication, what changed.

All in sampling intervals and in the signal's own unit (bits/s, say); pure functions of the signal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.middle import median
from fabmon.analysis.rhythm.period import SHORTEST_INTERVALS, repeat
from fabmon.analysis.rhythm.pulses import Floats, Pulses, Relief, filled, pulses, relief
from fabmon.analysis.rhythm.shares import Share, share
from fabmon.analysis.rhythm.shifts import last_shift

LEAST_PULSES = 5
"""Iterations that must have been seen before anything is said of them."""

_MOST_VARIATION = 0.5
"""Greatest coefficient of variation of the steps' lengths (as sflow-rt/ai-metrics accepts it)."""

_MISSED = 3.0
"""Periods without a pulse after which nothing is claimed; the conductor waits for seven more."""

_BLUR = 0.6
"""How far the middle of a pulse may be from where the samples put it, in intervals (two sigma)."""


_LIKELY = 0.4
_MOST_LIKELY = 0.7
"""Iterations that are much longer or shorter than usual (a checkpoint, a pulse that was missed) do
not count; but most have to."""

_LATELY = 60

_ALIAS_SPAN = 0.5
_SILENT = 0.05

_UNEVEN_VOLUMES = 0.25


@dataclass(frozen=True, slots=True)
class Change:
    """A level that changed: `at` is when, in intervals from the signal's start."""

    at: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Beat:
    """A rhythm. Times are in intervals; `error` is what the period may be wrong by.

    `strength` is the correlation of the signal with itself a period later. `share` is that of time
    in communication, `volume` the signal's sum over one iteration, `iterations` how many it was
    measured over. `is_resolved` says that nothing faster can look like this. `steps`, `shares` and
    `volumes` are the last changes of the three.
    """

    period: float
    error: float
    strength: float
    share: Share
    volume: float
    iterations: int
    is_resolved: bool
    steps: Change | None
    shares: Change | None
    volumes: Change | None


def measure(values: NDArray[np.floating], ceiling: float = float("inf")) -> Beat | None:
    """The rhythm of a signal, NaN where nothing is known; None where it has none that is sure.

    `ceiling` is what the signal cannot exceed: the line rate.
    """
    signal = filled(values)
    at = relief(signal, _guess(signal)) if signal is not None else None
    if signal is None or at is None:
        return None
    found = pulses(at.height)
    if len(found.middles) < LEAST_PULSES:
        return None
    usual = median(np.diff(found.middles))
    if len(signal) - found.middles[-1] > _MISSED * usual:
        return None
    return _of_pulses(signal, at, found, ceiling)


def _of_pulses(signal: Floats, at: Relief, found: Pulses, ceiling: float) -> Beat | None:
    series = _Series(signal, at, found)
    since = series.since
    seen = repeat(signal[int(found.starts[since]) :])
    if seen is None:
        return None
    each = max(1, round(seen.intervals / median(series.lengths[since:])))
    if each > 1 and series.alternates:
        # Several pulses an iteration, as where every pipeline stage communicates once.
        found = Pulses(found.middles[::each], found.starts[::each])
        if len(found.middles) < LEAST_PULSES:
            return None
        series = _Series(signal, at, found)
        since = series.since
    usual = median(series.lengths[since:])
    likely = np.abs(series.lengths - usual) <= _LIKELY * usual
    likely[:since] = False
    lengths = series.lengths[likely]
    if len(lengths) < LEAST_PULSES - 1 or len(lengths) < _MOST_LIKELY * (len(likely) - since):
        return None
    period = float(lengths.mean())
    if period <= SHORTEST_INTERVALS or float(lengths.std()) > _MOST_VARIATION * period:
        return None
    if abs(period * max(1, round(seen.intervals / period)) - seen.intervals) > 0.2 * period:
        return None
    # The first iteration after a change may have begun before it.
    begin, end = int(found.starts[since + (since > 0)]), int(np.ceil(found.middles[-1]))
    return Beat(
        period=period,
        error=_BLUR / len(lengths) + 2 * _own(lengths) / len(lengths) ** 0.5,
        strength=seen.strength,
        share=share(signal[begin:], float(signal[begin:end].mean()), ceiling),
        volume=float(series.volumes[likely].mean()),
        iterations=len(lengths),
        is_resolved=_is_resolved(signal, ceiling),
        steps=series.change(series.lengths),
        shares=series.change(series.shares),
        volumes=series.change(series.volumes),
    )


class _Series:
    """Length, volume and busy share of every iteration, from one pulse to the next.

    `since` is the first iteration of those that are as long as the last ones.
    """

    def __init__(self, signal: Floats, at: Relief, found: Pulses) -> None:
        self._middles = found.middles
        self.lengths: Floats = np.diff(found.middles)
        # Cut where the signal is quiet, so that a cut between two samples moves little.
        cuts = found.middles if at.inverted else found.starts.astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(signal)])
        self.volumes: Floats = np.diff(np.interp(cuts, np.arange(len(total)), total))
        tops = np.maximum.reduceat(signal, found.starts)[:-1]
        busy = (self.volumes - at.low * self.lengths) / np.maximum(tops - at.low, 1e-12)
        self.shares: Floats = np.clip(busy / self.lengths, 0.0, 1.0)
        shift = last_shift(self.lengths)
        self.since = 0 if shift is None else shift.index

    @property
    def alternates(self) -> bool:
        """Whether neighbouring pulses differ by more than the samples blur them."""
        lengths, volumes = self.lengths[self.since :], self.volumes[self.since :]
        uneven = float(lengths.std()) > 0.1 * float(lengths.mean()) + _BLUR / 2
        return uneven or float(volumes.std()) > _UNEVEN_VOLUMES * float(volumes.mean())

    def change(self, values: Floats) -> Change | None:
        """The last change in one of the three, and when it was."""
        shift = last_shift(values)
        if shift is None:
            return None
        return Change(float(self._middles[shift.index]), shift.before, shift.after)


def _guess(signal: Floats) -> float:
    """About how long an iteration may be, in intervals: the longer of lately and in all."""
    seen = [repeat(signal[-_LATELY:]), repeat(signal)]
    return max((each.intervals for each in seen if each is not None), default=0.0)


def _is_resolved(signal: Floats, ceiling: float) -> bool:
    """Whether the signal cannot be the alias of iterations shorter than two intervals.

    An interval that holds most of a fast iteration never differs much from the next: what seems to
    take three intervals or more is then 1.5 at most, and its samples span half of the level, which
    the ceiling bounds. And two quiet intervals in a row do not fit in such an iteration.
    """
    if float(signal.max() - signal.min()) > _ALIAS_SPAN * ceiling:
        return True
    quiet = signal < _SILENT * float(signal.max())
    return int((quiet[1:] & quiet[:-1]).sum()) >= LEAST_PULSES - 1


def _own(lengths: Floats) -> float:
    """How much the iterations themselves vary, without the blur of the samples."""
    blur = _BLUR / 2
    return float(np.sqrt(max(float(lengths.var()) - 2 * blur * blur, 0.0)))
