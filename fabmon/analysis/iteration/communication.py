"""The share of time in which a job communicates: from the first to the last byte of its exchanges.

How fast these bytes are sent does not matter: an exchange that a slow link holds up goes on until
its slowest flow is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.iteration.signal_analysis import Floats
from fabmon.analysis.median import median, quantile

Mask = NDArray[np.bool_]
_Kind = TypeVar("_Kind", np.float64, np.bool_)

_MIN_WHOLE = 3
"""Samples entirely in a phase that are needed to know its level."""

_EDGE = 0.02
"""Share of the samples at either end that may be outliers."""

_FLAT = 0.25
"""A phase is level where its whole samples are this close to its end, of the span of all samples.
"""

_SLOWED = 1 / 6
"""Share of the span of all samples from which on a sample may be of a slowed exchange. A collision
leaves flows a fifth to a half of line rate; checkpoints, input and noise are below."""

_NOISE = 0.03
"""Share of the ceiling below which traffic beside the exchanges is never one."""

_DIP, _DIP_OF_SLOWED = 0.75, 0.5
"""Shares of the level around it below which a sample contains a pause: noise is less. The sum of a
few slowed flows varies more."""

_FEW = 0.05
"""Share of the samples below which slowed exchanges do not change the pulses."""

_OFTEN = 0.75
"""Quantile of the iterations, see `_share_between`."""

_VARIES = 0.5
"""How much longer than that an exchange may be held up, in intervals: samples blur both ends."""


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
class Phases:
    """Which samples are `quiet` and which are `busy`, [samples]; some are neither.

    `bottom` and `top` are the levels between which nearly all samples are.
    """

    bottom: float
    top: float
    quiet: Mask
    busy: Mask


def find_phases(signal: Floats, ceiling: float) -> Phases:
    """The phases of a signal that cannot exceed `ceiling`."""
    bottom, top = (quantile(signal, edge) for edge in (_EDGE, 1 - _EDGE))
    least = max(_SLOWED * (top - bottom), _NOISE * ceiling if np.isfinite(ceiling) else 0.0)
    busy = signal > (bottom + top) / 2
    return Phases(bottom, top, ~busy & (signal <= bottom + least), busy)


@dataclass(frozen=True, slots=True)
class Iterations:
    """Where each iteration begins and ends, and how long it takes, [iterations]; in intervals.

    `begins` and `ends` are where the signal is the same, so that a cut between two samples moves
    little; their difference may differ from `lengths` by a part of a sample.
    """

    begins: Floats
    ends: Floats
    lengths: Floats

    def sums(self, values: Floats) -> Floats:
        """[iterations]: the sum of values, [samples], in each."""
        total, places = np.concatenate([[0.0], np.cumsum(values)]), np.arange(len(values) + 1)
        sums: Floats = np.interp(self.ends, places, total) - np.interp(self.begins, places, total)
        return sums


def communication_share(
    signal: Floats, iterations: Iterations, ceiling: float
) -> CommunicationShare:
    """The share of time in which a signal was busy in some of its iterations.

    A sample whose neighbours are busy too is entirely in a busy phase: the median of such samples
    is the level of the phase. Without them the level is between the greatest sample and the
    ceiling, and the quiet level between zero and the smallest sample; then the share has bounds.
    """
    phases = find_phases(signal, ceiling)
    bottom, top, busy = phases.bottom, phases.top, phases.busy
    inner, outer = (
        _level_of(signal, _inside(busy)),
        _level_of(signal, _inside(~busy) & phases.quiet),
    )
    is_level_sure = inner is not None and inner >= top - _FLAT * (top - bottom)
    highs = (top if inner is None else inner, max(top, ceiling))
    if inner is not None and is_level_sure:
        top = inner
        highs = (top, top)
    lows = (0.0, bottom) if outer is None else (outer, outer)
    one, other = (
        _share_between(signal, iterations, phases, low, high)
        for low, high in ((lows[1], highs[1]), (lows[0], highs[0]))
    )
    return CommunicationShare(min(one, other), max(one, other), top, is_level_sure)


def _share_between(
    signal: Floats, iterations: Iterations, phases: Phases, low: float, high: float
) -> float:
    """The share of time, 0 to 1, where the quiet level is `low` and the usual busy one `high`.

    Exchanges that are held up take longer than their bytes would at the usual level. That counts as
    far as a quarter of the iterations have it: a checkpoint between two of them is no exchange.
    """
    times = busy_times(signal, low, high, levels_of_exchanges(signal, low, phases))
    by_bytes = iterations.sums(busy_times(signal, low, high, np.full(len(signal), np.nan)))
    longer = iterations.sums(times) - by_bytes
    usual = np.minimum(longer, quantile(longer, _OFTEN) + _VARIES)
    return float(np.clip((by_bytes + usual).sum() / iterations.lengths.sum(), 0.0, 1.0))


def with_one_level(signal: Floats, ceiling: float) -> Floats:
    """The signal as if slowed exchanges, neither quiet nor busy, were as fast as the fastest.

    A signal with few samples of slowed exchanges is returned as it is.
    """
    phases = find_phases(signal, ceiling)
    low, high = phases.bottom, phases.top
    levels = levels_of_exchanges(signal, low, phases)
    slowed = ~phases.busy & (levels == signal)
    if int(slowed.sum()) < _FEW * len(signal):
        return signal
    one: Floats = low + (high - low) * busy_times(signal, low, high, levels)
    return one


def busy_times(signal: Floats, low: float, high: Floats | float, levels: Floats) -> Floats:
    """[samples]: the part of each sample, about 0 to 1, in which it was busy.

    `low` is the quiet level and `levels`, [samples], the busy one around each sample; where that is
    NaN it is `high`, which may be infinite.
    """
    known = np.isfinite(levels)
    spans = np.maximum(np.where(known, levels, high) - low, 1e-12)
    times: Floats = (signal - low) / spans
    return np.where(known, np.minimum(times, 1.0), times)


def levels_of_exchanges(signal: Floats, low: float, phases: Phases) -> Floats:
    """[samples]: the rate of the exchange around each sample, NaN where no sample shows it.

    A sample between others of an exchange is entirely in it and shows its own rate, unless it is a
    dip of one or two samples, which may be a short pause. A sample at the end of an exchange is of
    the rate next to it. A single sample that is neither quiet nor busy is where an exchange begins
    or ends; only several in a row are a slowed exchange.
    """
    slow = ~phases.quiet & ~phases.busy
    exchange = phases.busy | (slow & (_shifted(slow, 1, False) | _shifted(slow, -1, False)))
    inside = _inside(exchange)
    filled = _least_of_three(_greatest_of_three(signal))
    dip = np.where(filled > (phases.bottom + phases.top) / 2, _DIP, _DIP_OF_SLOWED)
    own = np.where(signal - low >= dip * (filled - low), signal, filled)
    inner = np.where(inside, own, np.nan)
    next_to = np.fmax(_shifted(inner, 1, np.nan), _shifted(inner, -1, np.nan))
    near = np.fmax(_shifted(inner, 2, np.nan), _shifted(inner, -2, np.nan))
    near = np.where(np.isnan(next_to), near, next_to)
    # The rate may change next to the last sample of an exchange: it is no less than its neighbours.
    ends = np.maximum(near, _greatest_of_three(signal))
    return np.where(inside, inner, ends)


def _level_of(signal: Floats, inside: Mask) -> float | None:
    """The median of the samples entirely in a phase; None for too few."""
    return median(signal[inside]) if int(inside.sum()) >= _MIN_WHOLE else None


def _inside(phase: Mask) -> Mask:
    """[samples]: whether a sample and its neighbours are in a phase."""
    return phase & _shifted(phase, 1, False) & _shifted(phase, -1, False)


def _shifted(values: NDArray[_Kind], by: int, fill: float) -> NDArray[_Kind]:
    """The values `by` places later, `fill` at the end where there are none."""
    moved = np.full_like(values, fill)
    if by > 0:
        moved[by:] = values[:-by]
    else:
        moved[:by] = values[-by:]
    return moved


def _greatest_of_three(values: Floats) -> Floats:
    """[samples]: the greatest of each sample and its two neighbours."""
    greatest: Floats = np.maximum(values, _shifted(values, 1, -np.inf))
    return np.maximum(greatest, _shifted(values, -1, -np.inf))


def _least_of_three(values: Floats) -> Floats:
    """[samples]: the least of each sample and its two neighbours."""
    return -_greatest_of_three(-values)
