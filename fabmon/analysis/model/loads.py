"""The loads of the links that NICs may share, and which of them are worth a closer look."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput, without_nan
from fabmon.analysis.fabric_structure import NONE, Mask
from fabmon.analysis.model.ends import Ends
from fabmon.analysis.model.shared_links import SharedLinks
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.snapshot import Floats


class Loads:
    """The loads of the links of all groups over the window."""

    def __init__(
        self, inputs: DetectorInput, links: Sequence[SharedLinks], seen: Signs, t: ModelThresholds
    ) -> None:
        self._t = t
        rows = np.concatenate([*(group.rows for group in links), np.empty(0, np.intp)])
        counts = [len(group.rows) for group in links]
        self._rows, self._ends = rows, np.cumsum([0, *counts])
        self._is_inward = np.repeat(
            np.array([group.is_inward for group in links], np.bool_), counts
        )
        leaving = inputs.leaving(rows, t.window)
        self._load = without_nan(leaving)
        line = inputs.link_lines_bps(rows)
        self._up: Mask = (inputs.snapshot.up[rows] != 0) & (line > 0)
        self._up &= np.isfinite(leaving).any(axis=1)  # What cannot be read is not idle.
        util = self._load / np.where(self._up, line, np.float32(1))[:, None]
        self._util = np.where(self._up[:, None], util, np.float32(0))
        self._busy = self._util.mean(axis=1)
        # Of a link itself: full at times, or without room, or its own queue.
        self._shows: Mask = (self._util.max(axis=1, initial=0) >= t.full_util) | (
            seen.own[rows] > 0
        )
        self._shows |= self._util.min(axis=1, initial=1) >= t.nearly
        self._shows &= self._busy >= t.some
        self._any_signs = bool((seen.sends > 0).any() or (seen.receives > 0).any())
        # The switches before which some port waits.
        structure = inputs.structure
        before = structure.peer[np.flatnonzero(seen.waits > 0)]
        is_waited_for: Mask = np.zeros(len(structure.fabric.nodes), np.bool_)
        is_waited_for[structure.node[before[before != NONE]]] = True
        of_links = is_waited_for[structure.node[rows]]
        self._are_waited_for = [
            group.has_links_before and bool(of_links[self._of(number)].any())
            for number, group in enumerate(links)
        ]

    def _of(self, number: int) -> slice:
        return slice(self._ends[number], self._ends[number + 1])

    def is_busy(self, number: int) -> bool:
        """Whether a link of a group may have a queue, by what it shows or anybody else does."""
        own = self._of(number)
        if self._shows[own].any():
            return True
        anywhere = self._are_waited_for[number] or self._any_signs
        return anywhere and bool(self._busy[own].max(initial=0) >= self._t.some)

    def may_hold(self, number: int, ends: Ends) -> bool:
        """Whether some link of a group is busier than some of its ends, and it or one of them shows
        a queue, or ports wait."""
        t, own = self._t, self._of(number)
        waits = self._are_waited_for[number]
        if not (waits or self._shows[own].any() or (ends.sign > 0).any()):
            return False
        of_ends = ends.rate.mean(axis=1) / np.fmax(ends.line, 1)
        part = of_ends[of_ends > t.takes_part * of_ends.max(initial=0)]
        return bool(self._busy[own].max(initial=0) >= (1 + t.apart) * part.min(initial=np.inf))

    def of(self, number: int) -> tuple[Floats, Floats, Floats, Mask]:
        """[links, ticks] the loads of a group, bits/s, and utilisations, 0 of a link that is down;
        [links] their means, NaN of those, and whether a link itself shows a queue."""
        own = self._of(number)
        level = np.where(self._up[own], self._busy[own], np.float32(np.nan))
        return self._load[own], self._util[own], level, self._shows[own]

    def brings(self, inputs: DetectorInput, row: int, util: Floats, goes_up: bool) -> int:
        """The link into the switch before another one that carries as much as this, `util` [ticks]
        of `row`; else NONE. What goes down does not go up again (`goes_up`)."""
        structure = inputs.structure
        far = structure.peer[self._rows]
        into = (far != NONE) & (structure.node[far] == structure.node[row])
        into &= (self._busy >= self._t.some) & (self._rows != structure.peer[row])
        if goes_up:
            into &= ~self._is_inward
        near = np.flatnonzero(_apart(self._util[into], util) <= self._t.takes_part)
        return int(self._rows[into][near[0]]) if len(near) else NONE


def _apart(loads: Floats, load: Floats) -> Floats:
    """[links] how far what links have carried since the begin of a window [links, ticks] is from
    what another has [ticks], as a share of all of it.

    One reading between the first and the last may be wrong: where a node missed a tick, it is not
    known what of the next rate belongs to it.
    """
    ahead = np.pad(np.cumsum(loads - load, axis=1), ((0, 0), (1, 0)))
    but = [np.ptp(np.delete(ahead, each, 1), 1) for each in range(1, ahead.shape[1] - 1)]
    carried = np.float32(max(float(load.sum()), 1e-9))
    apart: Floats = np.min([np.ptp(ahead, 1), *but], axis=0) / carried
    return apart
