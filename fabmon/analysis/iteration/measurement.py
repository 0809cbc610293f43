"""What share of the time a job communicates, as well as samples that are means can say it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.signal_analysis import (
    SHORTEST_INTERVALS,
    Floats,
    NormalisedSignal,
    Pulses,
    fill_gaps,
    find_pulses,
    find_repetition,
    last_level_shift,
    normalise,
)
from fabmon.analysis.median import median, quantile

_LEAST_WHOLE = 3
_EDGE = 0.02
"""Share of the samples at either end that may be flukes."""

_FLAT = 0.25
"""A phase is level where its whole samples are that near its end, of the span of all samples."""


@dataclass(frozen=True, slots=True)
class CommunicationShare:
    """Between `low` and `high` of the time, 0 to 1; `level` is the traffic meanwhile, at least.

    `is_level_sure` says that some samples lay wholly in the communication, so that it is just that.
    """

    low: float
    high: float
    level: float
    is_level_sure: bool


def communication_share(signal: Floats, mean: float, ceiling: float) -> CommunicationShare:
    """The share of time in which a signal of that mean was busy.

    A sample whose neighbours are busy too lay wholly in a busy phase: their median is the level of
    the phase. Without such samples the level lies between the greatest sample and the ceiling; and
    the quiet level between nothing and the smallest sample. Then the share has bounds.
    """
    bottom, top = (quantile(signal, edge) for edge in (_EDGE, 1 - _EDGE))
    busy = signal > (bottom + top) / 2
    inner, outer = _whole(signal, busy), _whole(signal, ~busy)
    room = _FLAT * (top - bottom)
    is_level_sure = inner is not None and inner >= top - room
    highs = (top if inner is None else inner, max(top, ceiling))
    if inner is not None and is_level_sure:
        top = inner
        highs = (top, top)
    lows = (0.0, bottom if outer is None else outer)
    if outer is not None and outer <= bottom + room:
        lows = (outer, outer)
    least = _between(mean, lows[1], highs[1])
    most = _between(mean, lows[0], highs[0])
    return CommunicationShare(min(least, most), max(least, most), top, is_level_sure)


def _whole(signal: Floats, phase: NDArray[np.bool_]) -> float | None:
    """The median of the samples in a phase whose neighbours are in it too; None for too few."""
    inner = phase[1:-1] & phase[:-2] & phase[2:]
    if int(inner.sum()) < _LEAST_WHOLE:
        return None
    return median(signal[1:-1][inner])


def _between(mean: float, low: float, high: float) -> float:
    if not np.isfinite(high):
        return 0.0
    return float(np.clip((mean - low) / max(high - low, 1e-12), 0.0, 1.0))


# One job's signal, measured: the iteration, the share of time in communication, what changed.
#
# All in sampling intervals and in the signal's own unit (bits/s, say); pure functions of the
# signal.


MIN_PULSES = 5
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
class MeasuredChange:
    """A level that changed: `at` is when, in intervals from the signal's start."""

    at: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """A rhythm. Times are in intervals; `error` is what the period may be wrong by.

    `strength` is the correlation of the signal with itself a period later. `share` is that of time
    in communication, `volume` the signal's sum over one iteration, `iterations` how many it was
    measured over. `is_resolved` says that nothing faster can look like this. `steps`, `shares` and
    `volumes` are the last changes of the three.
    """

    period: float
    error: float
    strength: float
    share: CommunicationShare
    volume: float
    iterations: int
    is_resolved: bool
    steps: MeasuredChange | None
    shares: MeasuredChange | None
    volumes: MeasuredChange | None


def measure_iteration(
    values: NDArray[np.floating], ceiling: float = float("inf")
) -> MeasuredIteration | None:
    """The rhythm of a signal, NaN where nothing is known; None where it has none that is sure.

    `ceiling` is what the signal cannot exceed: the line rate.
    """
    signal = fill_gaps(values)
    at = normalise(signal, _guess(signal)) if signal is not None else None
    if signal is None or at is None:
        return None
    found = find_pulses(at.height)
    if len(found.middles) < MIN_PULSES:
        return None
    usual = median(np.diff(found.middles))
    if len(signal) - found.middles[-1] > _MISSED * usual:
        return None
    return _of_pulses(signal, at, found, ceiling)


def _of_pulses(
    signal: Floats, at: NormalisedSignal, found: Pulses, ceiling: float
) -> MeasuredIteration | None:
    series = _Series(signal, at, found)
    since = series.since
    seen = find_repetition(signal[int(found.starts[since]) :])
    if seen is None:
        return None
    each = max(1, round(seen.intervals / median(series.lengths[since:])))
    if each > 1 and series.alternates:
        # Several pulses an iteration, as where every pipeline stage communicates once.
        found = Pulses(found.middles[::each], found.starts[::each])
        if len(found.middles) < MIN_PULSES:
            return None
        series = _Series(signal, at, found)
        since = series.since
    usual = median(series.lengths[since:])
    likely = np.abs(series.lengths - usual) <= _LIKELY * usual
    likely[:since] = False
    lengths = series.lengths[likely]
    if len(lengths) < MIN_PULSES - 1 or len(lengths) < _MOST_LIKELY * (len(likely) - since):
        return None
    period = float(lengths.mean())
    if period <= SHORTEST_INTERVALS or float(lengths.std()) > _MOST_VARIATION * period:
        return None
    if abs(period * max(1, round(seen.intervals / period)) - seen.intervals) > 0.2 * period:
        return None
    # The first iteration after a change may have begun before it.
    begin, end = int(found.starts[since + (since > 0)]), int(np.ceil(found.middles[-1]))
    return MeasuredIteration(
        period=period,
        error=_BLUR / len(lengths) + 2 * _own(lengths) / len(lengths) ** 0.5,
        strength=seen.strength,
        share=communication_share(signal[begin:], float(signal[begin:end].mean()), ceiling),
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

    def __init__(self, signal: Floats, at: NormalisedSignal, found: Pulses) -> None:
        self._middles = found.middles
        self.lengths: Floats = np.diff(found.middles)
        # Cut where the signal is quiet, so that a cut between two samples moves little.
        cuts = found.middles if at.inverted else found.starts.astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(signal)])
        self.volumes: Floats = np.diff(np.interp(cuts, np.arange(len(total)), total))
        tops = np.maximum.reduceat(signal, found.starts)[:-1]
        busy = (self.volumes - at.low * self.lengths) / np.maximum(tops - at.low, 1e-12)
        self.shares: Floats = np.clip(busy / self.lengths, 0.0, 1.0)
        shift = last_level_shift(self.lengths)
        self.since = 0 if shift is None else shift.index

    @property
    def alternates(self) -> bool:
        """Whether neighbouring pulses differ by more than the samples blur them."""
        lengths, volumes = self.lengths[self.since :], self.volumes[self.since :]
        uneven = float(lengths.std()) > 0.1 * float(lengths.mean()) + _BLUR / 2
        return uneven or float(volumes.std()) > _UNEVEN_VOLUMES * float(volumes.mean())

    def change(self, values: Floats) -> MeasuredChange | None:
        """The last change in one of the three, and when it was."""
        shift = last_level_shift(values)
        if shift is None:
            return None
        return MeasuredChange(float(self._middles[shift.index]), shift.before, shift.after)


def _guess(signal: Floats) -> float:
    """About how long an iteration may be, in intervals: the longer of lately and in all."""
    seen = [find_repetition(signal[-_LATELY:]), find_repetition(signal)]
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
    return int((quiet[1:] & quiet[:-1]).sum()) >= MIN_PULSES - 1


def _own(lengths: Floats) -> float:
    """How much the iterations themselves vary, without the blur of the samples."""
    blur = _BLUR / 2
    return float(np.sqrt(max(float(lengths.var()) - 2 * blur * blur, 0.0)))
