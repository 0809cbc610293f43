"""Which flows an InfiniBand link carries, from the forwarding tables of the switches.

A switch sends what is addressed to a LID out of one port. The LIDs of a NIC are those that lead to
its cable, whatever the LMC: a NIC with several has as many paths from every other one, and which of
them a connection uses is not known. The tables do not decide where adaptive routing is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.forwarding_tables import NO_PORT
from fabmon.fabric.model import RAIL, Fabric
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.routing_mode import STATIC
from fabmon.fabric.topology.leaves import Rows

_MAX_HOPS = 16
"""Switches on a path; more are a loop."""

_MOST_KEPT = 256
"""Ports whose pairs are kept: with 1,000 hosts, those of an uplink take half a megabyte."""

Lids = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class PairsOnLink:
    """The pairs of NICs, as port rows, whose traffic the tables send over a link; parallel arrays.

    `is_exact` is False where some destination has several LIDs: a pair may use another path then.
    """

    src: Rows
    dst: Rows
    is_exact: bool

    def hosts(self, fabric: Fabric) -> list[tuple[str, str]]:
        """The pairs of hosts, in the order of the NICs."""
        ports = fabric.ports
        pairs = zip(self.src.tolist(), self.dst.tolist(), strict=True)
        return list(dict.fromkeys((ports[one].node, ports[other].node) for one, other in pairs))


class Forwarding:
    """The tables of a fabric, with its rows of ports."""

    def __init__(self, fabric: Fabric) -> None:
        self.fabric = fabric
        tables = fabric.forwarding.tables if fabric.forwarding is not None else {}
        self._place = {name: place for place, name in enumerate(tables)}
        count = len(fabric.ports)
        row_of = np.full((len(tables), NO_PORT + 1), NONE, np.intp)
        self._next = np.full(count + 1, NONE, np.intp)
        """[ports + 1]: the switch that a port leads to; the last element is of no port."""
        self._nic = np.full(count + 1, NONE, np.intp)
        """[ports + 1]: the NIC that a port of a switch leads to."""
        self._leaf = np.full(count, NONE, np.intp)
        """[ports]: the switch that a NIC is cabled to."""
        for port in fabric.ports:
            place = self._place.get(port.node)
            number = port.info.get("port_number")
            if place is not None and isinstance(number, int) and 0 < number < NO_PORT:
                row_of[place, number] = port.row
            peer = None if port.peer is None else fabric.ports[port.peer]
            if peer is None or not port.node:
                continue
            if place is not None and peer.role == RAIL:
                self._nic[port.row] = peer.row
                self._leaf[peer.row] = place
            self._next[port.row] = self._place.get(peer.node, NONE)
        lids = max(map(len, tables.values()), default=0)
        self._out = np.full((len(tables), lids), NONE, np.int32)
        """[switches, LIDs]: the row of the port that a LID leaves a switch by."""
        for place, table in enumerate(tables.values()):
            numbers = np.frombuffer(table, np.uint8)
            self._out[place, : len(numbers)] = row_of[place, numbers]
        self._owner = self._nic[self._out].max(axis=0, initial=NONE)
        """[LIDs]: the NIC that a LID belongs to."""
        self._has_several = np.bincount(self._owner[self._owner != NONE], minlength=count) > 1
        """[ports]: whether a NIC has several LIDs."""
        place_of = {name: place for place, name in enumerate({p.node for p in fabric.ports})}
        self._host = np.array([place_of[port.node] for port in fabric.ports], np.intp)
        """[ports]: a number for each node."""
        self._pairs: dict[int, PairsOnLink] = {}
        """By row: the latest answers of `pairs_over`."""

    def path(self, src: int, dst: int) -> list[tuple[int, ...]]:
        """The paths from one NIC to another, one for each LID of `dst`.

        A path is the rows of the ports that send: the NIC, then a port of each switch. Empty where
        a table or a cable is missing.
        """
        paths = []
        for lid in np.flatnonzero(self._owner == dst).tolist() if src != dst else ():
            place, rows = int(self._leaf[src]), [src]
            while place != NONE and len(rows) <= _MAX_HOPS:
                row = int(self._out[place, lid])
                rows.append(row)
                place = int(self._next[row]) if row != NONE else NONE
            if rows[-1] != NONE and self._nic[rows[-1]] == dst:
                paths.append(tuple(rows))
        return paths

    def pairs_over(self, row: int) -> PairsOnLink | None:
        """The pairs of NICs of different hosts whose traffic a port sends; None for a port that is
        neither a NIC nor of a switch with a table."""
        found = self._pairs.get(row)
        if found is None:
            found = self._pairs_over(row)
            if len(self._pairs) >= _MOST_KEPT:
                self._pairs.clear()
            if found is not None:
                self._pairs[row] = found
        return found

    def _pairs_over(self, row: int) -> PairsOnLink | None:
        ports = self.fabric.ports
        if not 0 <= row < len(ports):
            return None
        at = self._place.get(ports[row].node)
        if at is not None:
            lids = np.flatnonzero((self._out[at] == row) & (self._owner != NONE))
        elif ports[row].role == RAIL and self._leaf[row] != NONE:
            lids = np.flatnonzero((self._owner != NONE) & (self._owner != row))
        else:
            return None
        nics = np.flatnonzero(self._leaf != NONE) if at is not None else np.array([row], np.intp)
        leaves, leaf_of = np.unique(self._leaf[nics], return_inverse=True)
        reaches, passes = self._walk(leaves, lids, at)
        on_link = (reaches & passes)[leaf_of]
        src_place, lid_place = np.nonzero(on_link)
        src, dst = nics[src_place], self._owner[lids[lid_place]]
        src, dst = np.divmod(np.unique(src * len(ports) + dst), len(ports))
        between = self._host[src] != self._host[dst]
        src, dst = src[between], dst[between]
        return PairsOnLink(src, dst, not self._has_several[dst].any())

    def _walk(
        self, leaves: Rows, lids: Lids, through: int | None
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """[leaves, lids]: whether what enters at a leaf for a LID reaches its owner, and whether it
        passes the switch `through` (None: always)."""
        at = np.repeat(leaves[:, None], len(lids), axis=1)
        columns = np.broadcast_to(lids, at.shape)
        reaches = np.zeros(at.shape, np.bool_)
        passes = np.full(at.shape, through is None)
        for _ in range(_MAX_HOPS):
            moving = at != NONE
            if not moving.any():
                break
            passes |= at == (NONE - 1 if through is None else through)
            row = np.where(moving, self._out[at, columns], NONE)
            reaches |= moving & (self._nic[row] != NONE) & (self._nic[row] == self._owner[columns])
            at = np.where(row == NONE, NONE, self._next[row])
        return reaches, passes


def table_pairs(forwarding: Forwarding, rows: Sequence[int], way: str = "tx") -> PairsOnLink | None:
    """The pairs of NICs whose traffic the tables send over any of some links, in the direction that
    their ports send (`tx`) or receive (`rx`).

    None where the tables do not decide or are not known: another routing mode than static.
    """
    fabric = forwarding.fabric
    found = []
    for row in rows:
        port = fabric.ports[row]
        sender = row if way == "tx" else port.peer
        if sender is None or fabric.routing_of(row).mode != STATIC:
            continue
        pairs = forwarding.pairs_over(sender)
        if pairs is not None:
            found.append(pairs)
    if not found:
        return None
    if len(found) == 1:
        return found[0]
    count = len(fabric.ports)
    both = np.concatenate([each.src * count + each.dst for each in found])
    src, dst = np.divmod(np.unique(both), count)
    return PairsOnLink(src, dst, all(each.is_exact for each in found))
