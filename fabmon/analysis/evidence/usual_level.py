"""What is usual among the busy ports of a fabric now, which a raised level is compared with."""

from __future__ import annotations

from fabmon.analysis.median import median
from fabmon.fabric.snapshot import Floats

MIN_PORTS = 8
"""Ports of a kind below which none is usual: two of four may well have the same trouble."""


def usual_level(levels: Floats) -> float | None:
    """The median of the levels of some ports; None of too few."""
    return median(levels) if len(levels) >= MIN_PORTS else None
