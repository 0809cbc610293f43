"""Measurement of one job's signal: the iteration, the share of time in communication, and changes.

Times are in sampling intervals, values in the signal's own unit (bits/s, say). All functions are
pure functions of the signal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.communication import (
    CommunicationShare,
    Iterations,
    busy_times,
    communication_share,
    find_phases,
    levels_of_exchanges,
    with_one_level,
)
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
from fabmon.analysis.median import median

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

_HALVES = 0.25
"""Share by which iterations of the first half may be longer or shorter than those of the second."""

_MIN_HALF = 6
"""Iterations of a half from which on this is certain: a checkpoint or two make no difference."""

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
    if signal is None:
        return None
    shape = with_one_level(signal, ceiling)
    levels = normalise(shape, _estimate(shape))
    if levels is None:
        return None
    pulses = find_pulses(levels.height)
    if len(pulses.middles) < MIN_PULSES:
        return None
    usual = median(np.diff(pulses.middles))
    if len(signal) - pulses.middles[-1] > _MISSED * usual:
        return None
    return _measure_pulses(signal, shape, levels, pulses, ceiling)


def iteration_lengths(values: NDArray[np.floating], ceiling: float) -> Floats:
    """The length of each iteration in a signal, in intervals; none where no iteration is certain,
    or shorter ones could look the same: what they seem to take changes with any change of theirs.

    An iteration of unusual length (a checkpoint, a pulse that was missed) is left out. Where an
    iteration has several pulses there is one number, the mean of all.
    """
    measured, signal = measure_iteration(values, ceiling), fill_gaps(values)
    if measured is None or signal is None or not measured.is_resolved:
        return np.empty(0)
    period = measured.period
    levels = normalise(with_one_level(signal, ceiling), period)
    if levels is None:
        return np.empty(0)
    lengths = np.diff(find_pulses(levels.height).middles)
    usual: Floats = lengths[np.abs(lengths - period) <= _USUAL * period]
    if len(usual) < 2 or abs(usual.mean() - period) > _SAME_MEAN * period:
        return np.array([period])
    return usual


def _measure_pulses(
    signal: Floats, shape: Floats, levels: NormalisedSignal, pulses: Pulses, ceiling: float
) -> MeasuredIteration | None:
    series = _Series(signal, levels, pulses, ceiling)
    since = series.since
    repetition = find_repetition(shape[int(pulses.starts[since]) :])
    if repetition is None:
        return None
    per_iteration = max(1, round(repetition.intervals / median(series.lengths[since:])))
    if per_iteration > 1 and series.alternates:
        # Several pulses an iteration, as where every pipeline stage communicates once.
        pulses = Pulses(pulses.middles[::per_iteration], pulses.starts[::per_iteration])
        if len(pulses.middles) < MIN_PULSES:
            return None
        series = _Series(signal, levels, pulses, ceiling)
        since = series.since
    usual_length = median(series.lengths[since:])
    usual = np.abs(series.lengths - usual_length) <= _USUAL * usual_length
    # The first iteration after a change may have begun before it.
    first = since + (since > 0)
    usual[:first] = False
    lengths = series.lengths[usual]
    if len(lengths) < MIN_PULSES - 1 or len(lengths) < _MIN_USUAL * (len(usual) - first):
        return None
    if _halves_differ(series.lengths[first:]):
        return None
    period = float(lengths.mean())
    if period <= SHORTEST_INTERVALS or float(lengths.std()) > _MAX_VARIATION * period:
        return None
    periods = max(1, round(repetition.intervals / period))
    if abs(period * periods - repetition.intervals) > _SAME_PERIOD * period:
        return None
    begin = int(pulses.starts[first])
    return MeasuredIteration(
        period=period,
        error=_BLUR / len(lengths) + 2 * _own_sigma(lengths) / len(lengths) ** 0.5,
        strength=repetition.strength,
        share=communication_share(signal[begin:], series.iterations(usual, begin), ceiling),
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

    def __init__(
        self, signal: Floats, levels: NormalisedSignal, pulses: Pulses, ceiling: float
    ) -> None:
        self._middles = pulses.middles
        self.lengths: Floats = np.diff(pulses.middles)
        # Cut where the signal is quiet, so that a cut between two samples moves little.
        cuts = pulses.middles if levels.inverted else pulses.starts.astype(np.float64)
        self._all = Iterations(cuts[:-1], cuts[1:], self.lengths)
        self.volumes = self._all.sums(signal)
        # Each iteration has its own usual level: a job that is slowed is busy all the same.
        maxima = np.maximum.reduceat(signal, pulses.starts)
        samples = np.diff(np.concatenate([pulses.starts, [len(signal)]]))
        samples[0] += pulses.starts[0]
        exchanges = levels_of_exchanges(signal, levels.low, find_phases(signal, ceiling))
        times = busy_times(signal, levels.low, np.repeat(maxima, samples), exchanges)
        self.shares: Floats = np.clip(self._all.sums(times) / self.lengths, 0.0, 1.0)
        change = last_level_change(self.lengths)
        self.since = 0 if change is None else change.index

    def iterations(self, which: NDArray[np.bool_], begin: int) -> Iterations:
        """Some of the iterations, [iterations], in the signal from sample `begin` on."""
        every = self._all
        kept = which & (every.begins >= begin)
        return Iterations(every.begins[kept] - begin, every.ends[kept] - begin, every.lengths[kept])

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


def _halves_differ(lengths: Floats) -> bool:
    """Whether earlier and later iterations have different lengths: of a change that is not certain
    yet, neither is the length now."""
    half = len(lengths) // 2
    if half < _MIN_HALF:
        return False
    earlier, later = median(lengths[:half]), median(lengths[half:])
    return abs(later - earlier) > _HALVES * min(earlier, later)


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
