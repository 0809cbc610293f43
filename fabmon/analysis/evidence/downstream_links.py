"""Of full links in a row, the one whose queue it is."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import WINDOW_TICKS, DetectorInput
from fabmon.analysis.evidence.full_link import FullLink
from fabmon.analysis.evidence.sharing import last_ticks
from fabmon.analysis.fabric_structure import NONE
from fabmon.analysis.finding import Trait

SAME_LOAD = 0.06
"""Links whose loads differ by less than this share, in the same ticks, carry the same flows."""

_NEARLY = 0.9
"""Share of a link's greatest load, 0 to 1, from which on a tick shows what fills it."""

_MORE = 1.015
"""A link that carries this many times another's load has traffic that the other has not."""


def without_downstream(inputs: DetectorInput, links: list[FullLink]) -> list[FullLink]:
    """Full links without those that only carry the flows of another one before or behind them.

    Flows that collided on their way up go down together where their destination is the same; there
    is no second queue then. Of two such links the one that carries more has other traffic as well,
    which makes it the narrower one; where they carry the same, it is the first. Links are
    inferred from a queue that may be another's: where none is known to be full, and of two such
    links the one that loses more. A link that has been reported is before others in a tick in which
    it does not meet its rule, too.
    """
    peer, node = inputs.structure.peer, inputs.structure.node
    links = [each for each in links if not each.is_inferred] or links
    into: dict[int, list[int]] = {}
    arriving: dict[int, float] = {}
    leaving: dict[int, float] = {}
    for each in links:
        here, there = int(node[each.row]), int(node[peer[each.row]])
        leaving[here] = max(each.lost, leaving.get(here, 0.0))
        if peer[each.row] != NONE:
            into.setdefault(there, []).append(each.row)
            arriving[there] = max(each.lost, arriving.get(there, 0.0))
    dropped = {
        each.row
        for each in links
        if each.is_inferred
        and each.lost
        < max(arriving.get(int(node[each.row]), 0.0), leaving.get(int(node[peer[each.row]]), 0.0))
    }
    known = {each.row for each in links}
    for finding in inputs.open_with(Trait.FULL_LINK_OF_GROUP):
        row = finding.rows[0]
        if row not in known and peer[row] != NONE:
            into.setdefault(int(node[peer[row]]), []).append(row)
    for each in links:
        # What comes down into a leaf does not go up again.
        is_first_hop = not each.group.is_inward and len(each.group.hosts) > 0
        for before in () if is_first_hop else into.get(int(node[each.row]), ()):
            rows = np.array([before, each.row])
            fed, own = np.nan_to_num(inputs.leaving(rows, WINDOW_TICKS))
            ticks = last_ticks(own >= _NEARLY * own.max())
            first, second = float(fed[ticks].mean()), float(own[ticks].mean())
            if abs(first - second) <= SAME_LOAD * second:
                dropped.add(before if second > first * _MORE else each.row)
    return [each for each in links if each.row not in dropped]
