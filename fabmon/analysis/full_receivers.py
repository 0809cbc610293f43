"""Receivers whose own link is full: marks on what they get were made at the last hop, not before.

CNPs are conserved: what receivers send is what senders handle. As far as the marks come from full
receivers, an incast explains them, and no link inside the fabric needs to be blamed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fabmon.analysis.sight import TICKS, Sight
from fabmon.analysis.structure import Mask

FULL = 0.9
"""Share of line rate at which a receiver's link is full."""
_TICKS = 3
_MOST = 0.7
"""Share of the marks that full receivers must have seen to explain all."""


@dataclass(frozen=True, slots=True)
class Receivers:
    """`full` is [ports]. By tick, [TICKS]: whether anybody saw `marks`, and whether the full ones
    `explain` nearly all of them.
    """

    full: Mask
    marks: Mask
    explain: Mask


def full_receivers(sight: Sight) -> Receivers:
    """Worked out once a tick."""
    if sight.receivers is None:
        sight.receivers = _full_receivers(sight)
    return sight.receivers


def _full_receivers(sight: Sight) -> Receivers:
    rail = sight.structure.is_rail
    marks = np.nan_to_num(np.fmax(sight.window("ecn"), sight.window("cnp_sent")))
    marks = np.where(rail[:, None], marks, 0)
    if not marks.any():
        none = np.zeros(TICKS, np.bool_)
        return Receivers(np.zeros(len(rail), np.bool_), none, none)
    with np.errstate(invalid="ignore"):
        at_line_rate = (sight.received >= FULL) & rail[:, None]
        full = at_line_rate[:, -_TICKS:].sum(axis=1) >= 2
        theirs = np.where(at_line_rate | full[:, None], marks, 0).sum(axis=0)
        explain: Mask = theirs >= _MOST * np.maximum(marks.sum(axis=0), 1)
    seen: Mask = np.any(marks > 0, axis=0)
    return Receivers(full, seen, explain)
