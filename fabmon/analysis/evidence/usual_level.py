"""What is usual among the busy ports of a fabric now, which a raised level is compared with."""

from __future__ import annotations

from fabmon.analysis.median import quantile
from fabmon.fabric.snapshot import Floats

_QUIET_SHARE = 0.25
"""The quantile of the busy rails that is their usual level: most rails have no trouble."""

MIN_PORTS = 8
"""Ports of a kind below which none is usual: two of four may well have the same trouble."""


def usual_level(levels: Floats) -> float | None:
    """What the quieter quarter of some ports has at most; None of too few ports."""
    if len(levels) < MIN_PORTS:
        return None
    return quantile(levels, _QUIET_SHARE)
