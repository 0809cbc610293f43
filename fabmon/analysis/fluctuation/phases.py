"""When something communicates, and which samples lie wholly in a phase of it.

As everywhere in fabmon (sight.py), a sample is communication when the traffic is more than 30 % of
its usual top, the 95th percentile; here of five minutes. A sample is a mean over its interval: only
one between two others of the phase has not caught some of the pause.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.moment import Floats

COMMUNICATES = 0.3
_IDLE = 0.01
"""Of line rate: below it is what is always on a link."""

Bools = NDArray[np.bool_]


def busy(signal: Floats, line_rate_bps: Floats) -> Bools:
    """[ticks, n]: communication, by traffic [ticks, n] and its line rates [n] (NaN: not known)."""
    if not signal.size:
        return np.zeros(signal.shape, np.bool_)
    top = percentile(signal, 0.95)
    floor = np.where(np.isnan(line_rate_bps), 0.0, _IDLE * line_rate_bps)
    with np.errstate(invalid="ignore"):
        found: Bools = (signal > COMMUNICATES * top) & (signal > floor)
    return found


def whole(phases: Bools) -> Bools:
    """[ticks, n]: those of a phase that begin and end in it; not the first and the last of all."""
    inner = phases.copy()
    inner[1:] &= phases[:-1]
    inner[:-1] &= phases[1:]
    inner[:1] = inner[-1:] = False
    return inner


def percentile(values: Floats, share: float, axis: int = 0) -> Floats:
    """Of what is known along an axis, the nearest rank; NaN where nothing is.

    Ten times as fast as numpy's, which knows NaN as well.
    """
    ordered = np.sort(values, axis=axis)
    known = np.isfinite(ordered).sum(axis=axis, keepdims=True)
    place = np.ceil(share * known).astype(np.intp) - 1
    picked: Floats = np.take_along_axis(ordered, np.maximum(place, 0), axis=axis)
    return picked.squeeze(axis)
