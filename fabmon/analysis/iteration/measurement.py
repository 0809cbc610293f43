"""Measurement of one job's signal: the iteration, the share of time in communication, and changes.

Times are in sampling intervals, values in the signal's own unit (bits/s, say). All functions are
pure functions of the signal.
"""

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
    last_level_change,
    normalise,
)
from fabmon.analysis.median import median, quantile

MIN_PULSES = 5
"""Iterations that must have been seen before anything is reported."""

_MAX_VARIATION = 0.5
"""Greatest coefficient of variation of the lengths of iterations (as sflow-rt/ai-metrics accepts).
"""

_MISSED = 3.0
"""Periods without a pulse after which nothing is reported; the tracker waits for seven more."""

_BLUR = 0.6
"""How far the centre of a pulse may be from where the samples show it, in intervals (two sigma)."""

_USUAL = 0.4
"""An iteration whose length differs from the usual one by a greater share does not count: a
checkpoint, or a pulse that was missed."""

_MIN_USUAL = 0.7
"""Share of the iterations that must be usual."""

_SAME_PERIOD = 0.2
"""Share by which the period of pulses may differ from that of the autocorrelation."""

_SAME_MEAN = 0.1
"""Share by which the mean of single lengths may differ from the period."""

_RECENT = 60
"""Samples of the recent past, of which the period is estimated first."""

_ALIAS_SPAN = 0.5
"""Share of the ceiling: samples of an alias span less, see `_is_resolved`."""

_QUIET = 0.05
"""Share of the maximum below which a sample is quiet."""

_UNEVEN_LENGTHS, _UNEVEN_VOLUMES = 0.1, 0.25
"""Coefficients of variation above which neighbouring pulses are not of the same kind."""

_MIN_WHOLE = 3
"""Samples entirely in a phase that are needed to know its level."""

_EDGE = 0.02
"""Share of the samples at either end that may be outliers."""

_FLAT = 0.25
"""A phase is level where its whole samples are this close to its end, of the span of all samples.
"""


@dataclass(frozen=True, slots=True)
class CommunicationShare:
    """Between `low` and `high` of the time, 0 to 1; `level` is the traffic meanwhile, at least.

    `is_level_sure`: some samples are entirely in the communication, so that `level` is exact.
    """

    low: float
    high: float
    level: float
    is_level_sure: bool


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A change of level: `at` is when, in intervals from the signal's start."""

    at: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """The iterations of a signal. Times are in intervals; `error` is that of the period.

    `strength` is the correlation of the signal with itself a period later. `share` is that of time
    in communication, `volume` the signal's sum over one iteration, `iterations` the number that was
    measured. `is_resolved`: no faster iteration can look like this. `steps`, `shares` and `volumes`
    are the last changes of the three.
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
    """The iterations of a signal (NaN where unknown); None where none is certain.

    `ceiling` is what the signal cannot exceed: the line rate.
    """
    signal = fill_gaps(values)
    levels = normalise(signal, _estimate(signal)) if signal is not None else None
    if signal is None or levels is None:
        return None
    pulses = find_pulses(levels.height)
    if len(pulses.middles) < MIN_PULSES:
        return None
    usual = median(np.diff(pulses.middles))
    if len(signal) - pulses.middles[-1] > _MISSED * usual:
        return None
    return _measure_pulses(signal, levels, pulses, ceiling)


def iteration_lengths(values: NDArray[np.floating], ceiling: float) -> Floats:
    """The length of each iteration in a signal, in intervals; none where no iteration is certain.

    An iteration of unusual length (a checkpoint, a pulse that was missed) is left out. Where an
    iteration has several pulses there is one number, the mean of all.
    """
    measured, signal = measure_iteration(values, ceiling), fill_gaps(values)
    if measured is None or signal is None:
        return np.empty(0)
    period = measured.period
    levels = normalise(signal, period)
    if levels is None:
        return np.empty(0)
    lengths = np.diff(find_pulses(levels.height).middles)
    usual: Floats = lengths[np.abs(lengths - period) <= _USUAL * period]
    if len(usual) < 2 or abs(usual.mean() - period) > _SAME_MEAN * period:
        return np.array([period])
    return usual


def _measure_pulses(
    signal: Floats, levels: NormalisedSignal, pulses: Pulses, ceiling: float
) -> MeasuredIteration | None:
    series = _Series(signal, levels, pulses)
    since = series.since
    repetition = find_repetition(signal[int(pulses.starts[since]) :])
    if repetition is None:
        return None
    per_iteration = max(1, round(repetition.intervals / median(series.lengths[since:])))
    if per_iteration > 1 and series.alternates:
        # Several pulses an iteration, as where every pipeline stage communicates once.
        pulses = Pulses(pulses.middles[::per_iteration], pulses.starts[::per_iteration])
        if len(pulses.middles) < MIN_PULSES:
            return None
        series = _Series(signal, levels, pulses)
        since = series.since
    usual_length = median(series.lengths[since:])
    usual = np.abs(series.lengths - usual_length) <= _USUAL * usual_length
    usual[:since] = False
    lengths = series.lengths[usual]
    if len(lengths) < MIN_PULSES - 1 or len(lengths) < _MIN_USUAL * (len(usual) - since):
        return None
    period = float(lengths.mean())
    if period <= SHORTEST_INTERVALS or float(lengths.std()) > _MAX_VARIATION * period:
        return None
    periods = max(1, round(repetition.intervals / period))
    if abs(period * periods - repetition.intervals) > _SAME_PERIOD * period:
        return None
    # The first iteration after a change may have begun before it.
    begin, end = int(pulses.starts[since + (since > 0)]), int(np.ceil(pulses.middles[-1]))
    return MeasuredIteration(
        period=period,
        error=_BLUR / len(lengths) + 2 * _own_sigma(lengths) / len(lengths) ** 0.5,
        strength=repetition.strength,
        share=communication_share(signal[begin:], float(signal[begin:end].mean()), ceiling),
        volume=float(series.volumes[usual].mean()),
        iterations=len(lengths),
        is_resolved=_is_resolved(signal, ceiling),
        steps=series.change(series.lengths),
        shares=series.change(series.shares),
        volumes=series.change(series.volumes),
    )


class _Series:
    """Length, volume and busy share of every iteration, from one pulse to the next.

    `since` is the first of the iterations that are as long as the last ones.
    """

    def __init__(self, signal: Floats, levels: NormalisedSignal, pulses: Pulses) -> None:
        self._middles = pulses.middles
        self.lengths: Floats = np.diff(pulses.middles)
        # Cut where the signal is quiet, so that a cut between two samples moves little.
        cuts = pulses.middles if levels.inverted else pulses.starts.astype(np.float64)
        total = np.concatenate([[0.0], np.cumsum(signal)])
        self.volumes: Floats = np.diff(np.interp(cuts, np.arange(len(total)), total))
        maxima = np.maximum.reduceat(signal, pulses.starts)[:-1]
        busy = (self.volumes - levels.low * self.lengths) / np.maximum(maxima - levels.low, 1e-12)
        self.shares: Floats = np.clip(busy / self.lengths, 0.0, 1.0)
        change = last_level_change(self.lengths)
        self.since = 0 if change is None else change.index

    @property
    def alternates(self) -> bool:
        """Whether neighbouring pulses differ by more than the samples blur them."""
        lengths, volumes = self.lengths[self.since :], self.volumes[self.since :]
        uneven = float(lengths.std()) > _UNEVEN_LENGTHS * float(lengths.mean()) + _BLUR / 2
        return uneven or float(volumes.std()) > _UNEVEN_VOLUMES * float(volumes.mean())

    def change(self, values: Floats) -> MeasuredChange | None:
        """The last change in one of the three, and when it was."""
        change = last_level_change(values)
        if change is None:
            return None
        return MeasuredChange(float(self._middles[change.index]), change.before, change.after)


def _estimate(signal: Floats) -> float:
    """An estimate of the period, in intervals: the longer of the recent and the overall one."""
    found = [find_repetition(signal[-_RECENT:]), find_repetition(signal)]
    return max((each.intervals for each in found if each is not None), default=0.0)


def _is_resolved(signal: Floats, ceiling: float) -> bool:
    """Whether the signal cannot be the alias of iterations shorter than two intervals.

    An interval that contains most of a fast iteration never differs much from the next: what
    appears to take three intervals or more is then 1.5 at most, and its samples span half of the
    level, which the ceiling bounds. And two quiet intervals in a row do not fit in such an
    iteration.
    """
    if float(signal.max() - signal.min()) > _ALIAS_SPAN * ceiling:
        return True
    quiet = signal < _QUIET * float(signal.max())
    return int((quiet[1:] & quiet[:-1]).sum()) >= MIN_PULSES - 1


def _own_sigma(lengths: Floats) -> float:
    """The standard deviation of the iterations themselves, without the blur of the samples."""
    blur = _BLUR / 2
    return float(np.sqrt(max(float(lengths.var()) - 2 * blur * blur, 0.0)))


def communication_share(signal: Floats, mean: float, ceiling: float) -> CommunicationShare:
    """The share of time in which a signal of that mean was busy.

    A sample whose neighbours are busy too is entirely in a busy phase: the median of such samples
    is the level of the phase. Without them the level is between the greatest sample and the
    ceiling, and the quiet level between zero and the smallest sample; then the share has bounds.
    """
    bottom, top = (quantile(signal, edge) for edge in (_EDGE, 1 - _EDGE))
    busy = signal > (bottom + top) / 2
    inner, outer = _level_of(signal, busy), _level_of(signal, ~busy)
    room = _FLAT * (top - bottom)
    is_level_sure = inner is not None and inner >= top - room
    highs = (top if inner is None else inner, max(top, ceiling))
    if inner is not None and is_level_sure:
        top = inner
        highs = (top, top)
    lows = (0.0, bottom if outer is None else outer)
    if outer is not None and outer <= bottom + room:
        lows = (outer, outer)
    one = _share_between(mean, lows[1], highs[1])
    other = _share_between(mean, lows[0], highs[0])
    return CommunicationShare(min(one, other), max(one, other), top, is_level_sure)


def _level_of(signal: Floats, phase: NDArray[np.bool_]) -> float | None:
    """The median of the samples in a phase whose neighbours are in it too; None for too few."""
    inner = phase[1:-1] & phase[:-2] & phase[2:]
    if int(inner.sum()) < _MIN_WHOLE:
        return None
    return median(signal[1:-1][inner])


def _share_between(mean: float, low: float, high: float) -> float:
    """The share of time at the level `high` that gives the mean, where the rest is at `low`."""
    if not np.isfinite(high):
        return 0.0
    return float(np.clip((mean - low) / max(high - low, 1e-12), 0.0, 1.0))
