"""What is usual among the busy ports of a fabric, which a raised level is compared with.

A few events are part of every healthy fabric: each burst begins with some. So they are counted per
gigabit, and compared with what the quieter quarter of the busy rails has at the same moment.
"""

from __future__ import annotations

import numpy as np

from fabmon.analysis.fabric_structure import Mask
from fabmon.analysis.median import quantile
from fabmon.fabric.snapshot import Floats

_QUIET_SHARE = 0.25
"""The quantile of the busy rails that is their usual level: most rails have no trouble."""

_MIN_RAILS = 8
"""Busy rails below which there is no usual level: two of four may well have the same trouble."""

_OF_FEW = 5.0
"""Without a usual level, the minimum is so many times higher."""


def per_gbit(events: Floats, bps: Floats, counts: Mask) -> Floats:
    """[ports]: events per gigabit, from the totals of both over the same ticks; 0 for ports that do
    not count."""
    gbit = bps / np.float32(1e9)
    share: Floats = np.where(counts, events / np.fmax(gbit, np.float32(1e-6)), 0)
    return share.astype(np.float32, copy=False)


def raised_from(levels: Floats, least: float, rise: float) -> float:
    """The level from which on one of some ports' levels is raised: a minimum, higher where there
    are too few ports, and `rise` times the usual one."""
    usual = usual_level(levels)
    return _OF_FEW * least if usual is None else max(least, rise * usual)


def usual_level(levels: Floats) -> float | None:
    """What the quieter quarter of some ports has at most; None of too few ports."""
    if len(levels) < _MIN_RAILS:
        return None
    return quantile(levels, _QUIET_SHARE)
