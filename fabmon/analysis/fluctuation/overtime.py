"""What ten seconds after ten seconds tell: steps, drift, hours of the day, days of the week."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation import drift, steps
from fabmon.analysis.fluctuation.records import Drift, Slot, Step
from fabmon.fabric.moment import Floats

MOST_POINTS = 360
"""Points of a series in which steps and slopes are looked for: longer ones are medians of several
cells each."""

_STRIP = 48
_SHORTEST_DRIFT_S = 600.0
_HOUR_S = 3600

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Series:
    """Means of ten seconds in communication, bits/s, and when each begins (ns); no gaps."""

    at_ns: NDArray[np.int64]
    values: Values


def series(at_ns: NDArray[np.int64], values: Floats) -> Series:
    """What is known of [cells]."""
    known = np.isfinite(values)
    return Series(at_ns[known], values[known].astype(np.float64))


def over_time(own: Series, cell_s: float) -> tuple[tuple[Step, ...], Drift | None]:
    """Steps and drift of a series, of at most so many points: several cells each if need be."""
    per = max(1, -(-len(own.values) // MOST_POINTS))
    whole_parts = len(own.values) // per
    points = own.values[: whole_parts * per].reshape(-1, per)
    coarse = np.median(points, axis=1)
    found = steps.changes(coarse)
    told = tuple(
        Step(int(own.at_ns[_finer(own.values, each, per)]), cell_s * 2, each.before, each.after)
        for each in found
    )
    if not whole_parts or (own.at_ns[-1] - own.at_ns[0]) / 1e9 < _SHORTEST_DRIFT_S:
        return told, None
    hours = (own.at_ns[: whole_parts * per : per] - own.at_ns[0]) / (_HOUR_S * 1e9)
    found_slopes = drift.slope(hours, coarse, [each.index for each in found])
    middle = float(np.median(coarse))
    if np.isnan(found_slopes[0]) or middle <= 0:
        return told, None
    return told, Drift(*(each / middle for each in found_slopes))


def _finer(values: Values, change: steps.Change, per: int) -> int:
    """The cell at which the level changed, about the one that a coarse look gives."""
    begin = max(0, (change.index - 1) * per)
    end = min(len(values), (change.index + 1) * per)
    part = values[begin:end]
    left = np.concatenate([[0.0], np.cumsum(np.abs(part - change.before))])
    right = np.abs(part - change.after)
    cost = left + right.sum() - np.concatenate([[0.0], np.cumsum(right)])
    return min(begin + int(np.argmin(cost)), len(values) - 1)


def slots(which: NDArray[np.int64], values: Values) -> tuple[Slot, ...]:
    """By hour or day: [cells] which, and [cells] of values."""
    found = []
    for slot in np.unique(which).tolist():
        own = values[which == slot]
        low, middle, high = (float(np.quantile(own, q)) for q in (0.05, 0.5, 0.95))
        mean = float(own.mean())
        cov = float(own.std()) / mean if mean > 0 else 0.0
        found.append(Slot(slot, middle, low, high, cov, len(own)))
    return tuple(found)


def strip(own: Series, span: tuple[int, int], cell_s: float) -> tuple[float | None, ...]:
    """Medians of equal parts of a span of time, ns: 48, or one a cell where there are fewer.

    None where there is nothing.
    """
    count = int(np.clip((span[1] - span[0]) / (cell_s * 1e9), 1, _STRIP))
    width = max(1, (span[1] - span[0]) // count + 1)
    part = np.clip((own.at_ns - span[0]) // width, 0, count - 1)
    return tuple(
        float(np.median(own.values[part == n])) if (part == n).any() else None for n in range(count)
    )
