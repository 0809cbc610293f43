"""What share of the time a job communicates, as well as samples that are means can say it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.middle import median, quantile
from fabmon.analysis.rhythm.pulses import Floats

_LEAST_WHOLE = 3
_EDGE = 0.02
"""Share of the samples at either end that may be flukes."""

_FLAT = 0.25
"""A phase is level where its whole samples are that near its end, of the span of all samples."""


@dataclass(frozen=True, slots=True)
class Share:
    """Between `low` and `high` of the time, 0 to 1; `level` is the traffic meanwhile, at least.

    `is_level_sure` says that some samples lay wholly in the communication, so that it is just that.
    """

    low: float
    high: float
    level: float
    is_level_sure: bool


def share(signal: Floats, mean: float, ceiling: float) -> Share:
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
    return Share(min(least, most), max(least, most), top, is_level_sure)


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
