"""Where a series of numbers changed its level: one change point after the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.middle import median
from fabmon.analysis.rhythm.pulses import Floats

LEAST_SIDE = 4
"""Values on each side of a change: fewer may be a coincidence."""

_LEAST_CHANGE = 0.06
_SIGMAS = 5.0
_OUTLIER_MADS = 8.0
_MAD_SIGMA = 1.4826


@dataclass(frozen=True, slots=True)
class Shift:
    """The level was `before` and is `after` from value `index` on."""

    index: int
    before: float
    after: float


def last_shift(values: Floats) -> Shift | None:
    """The last change of level; None where there is none that stands out of the noise."""
    found: Shift | None = None
    start = 0
    while True:
        shift = _shift(values[start:])
        if shift is None:
            return found
        found = Shift(start + shift.index, shift.before, shift.after)
        start = found.index


def _shift(values: Floats) -> Shift | None:
    """The split into two levels that explains most, if it explains enough.

    At least 6 % of the level, and five standard errors of the difference.
    """
    count = len(values)
    if count < 2 * LEAST_SIDE:
        return None
    tame = _tamed(values)
    sums = np.cumsum(tame)
    squares = np.cumsum(tame * tame)
    left = np.arange(LEAST_SIDE, count - LEAST_SIDE + 1)
    right = count - left
    mean_left = sums[left - 1] / left
    mean_right = (sums[-1] - sums[left - 1]) / right
    rest = squares[-1] - left * mean_left**2 - right * mean_right**2
    best = int(np.argmin(rest))
    at = int(left[best])
    sigma = float(np.sqrt(max(rest[best], 0.0) / max(count - 2, 1)))
    before, after = float(mean_left[best]), float(mean_right[best])
    error = sigma * float(np.sqrt(1 / at + 1 / (count - at)))
    change = abs(after - before)
    if change <= max(_LEAST_CHANGE * abs(before), _SIGMAS * error):
        return None
    before, after = median(values[:at]), median(values[at:])
    enough = abs(after - before) > _LEAST_CHANGE * abs(before)
    return Shift(at, before, after) if enough else None


def _tamed(values: Floats) -> Floats:
    """Outliers cut: one iteration in which a checkpoint was written is not a new level."""
    middle = median(values)
    mad = median(np.abs(values - middle)) * _MAD_SIGMA
    room = max(_OUTLIER_MADS * mad, 0.5 * abs(middle))
    return np.clip(values, middle - room, middle + room)
