"""The paths of flows through the fabric: up by an uplink that the leaf chooses, and down again.

A path has at most four links: NIC to leaf, leaf to spine, spine to leaf, leaf to NIC. A link has
the number of the port that sends into it; for a flow within one leaf, the middle two are `void`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware

Indices = NDArray[np.intp]
Floats = NDArray[np.float64]
Hashes = NDArray[np.uint64]

_MOST_PATHS = 400_000
"""Paths of sprayed flows that are followed one by one: 0.3 s a change of conditions. Above it each
flow is spread over some of the uplinks only, in turn, which loads all of them as evenly."""

_FEWEST_PATHS = 4
"""Uplinks that a sprayed flow uses at least, where its leaf has so many."""


@dataclass(slots=True)
class ForwardingState:
    """The forwarding state of the switches. `peer` [ports] is the actual cabling, `up` [ports].

    `pins` send all flows of some NICs into one uplink. The leaves in `buckets` distinguish only so
    many hash values.
    """

    peer: Indices
    up: NDArray[np.bool_]
    pins: list[tuple[Indices, int]] = field(default_factory=list)
    buckets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowPaths:
    """Arrays [paths]: the `flow`, its `weight` on the path, and the `links` [paths, 4].

    A sprayed flow has many paths; a flow without a route has one over `dead`.
    """

    flow: Indices
    weight: Floats
    links: Indices


class Router:
    """Routes flows; with `seed` every switch hashes differently, as vendors recommend."""

    def __init__(self, hardware: Hardware, seed: int) -> None:
        self._hardware = hardware
        rng = np.random.default_rng([seed, 7])
        self._salts: Hashes = rng.integers(
            1, 1 << 62, hardware.leaves + hardware.spines, dtype=np.int64
        ).astype(np.uint64)
        noise = hardware.topology.hash_noise
        self._share: Floats = np.maximum(
            1 + noise * rng.standard_normal(hardware.ports).clip(-2, 2), 0.1
        )
        """[ports]: the share of sprayed traffic of an uplink, relative to others of its leaf."""
        self.void = hardware.ports
        self.dead = hardware.ports + 1

    def route(self, flows: Flows, rules: ForwardingState) -> FlowPaths:
        """The paths of all flows."""
        hardware = self._hardware
        enter, leave = rules.peer[flows.src], rules.peer[flows.dst]
        src_leaf, dst_leaf = hardware.leaf_of(enter), hardware.leaf_of(leave)
        links = np.full((len(flows), 4), self.void, np.intp)
        links[:, 0], links[:, 3] = flows.src, leave
        cross = np.flatnonzero(src_leaf != dst_leaf)
        stay = np.flatnonzero(src_leaf == dst_leaf)
        if not len(cross):
            return FlowPaths(stay, flows.weight[stay], links[stay])
        tables = _Tables(hardware, rules, src_leaf[cross], dst_leaf[cross])
        hashes = _hash(flows, cross)
        salted = _mix(hashes ^ self._salts[src_leaf[cross]])
        picks, downlinks = self._picks(flows, rules, tables, cross, src_leaf, salted)
        spray = self._hardware.routing == "spray"
        sprayed = np.flatnonzero((downlinks < 0) & spray & (tables.count[tables.pair] > 0))
        whole = np.setdiff1d(np.arange(len(cross)), sprayed)
        parts = self._hardware.parallel if spray else 1
        whole = np.repeat(whole, parts)
        downlink = np.where(
            downlinks[whole] >= 0, downlinks[whole] + np.arange(len(whole)) % parts, -1
        )
        flow = [stay, cross[whole]]
        weight = [flows.weight[stay], flows.weight[cross[whole]] / parts]
        rows = [
            links[stay],
            self._over(links, cross, whole, picks[whole], tables, salted, rules, downlink),
        ]
        if len(sprayed):
            uplinks = tables.count[tables.pair[sprayed]]
            counts = np.minimum(uplinks, max(_FEWEST_PATHS, _MOST_PATHS // len(sprayed)))
            item = np.repeat(sprayed, counts)
            pick = np.arange(len(item)) - np.repeat(np.cumsum(counts) - counts, counts)
            # Where a flow takes some of the uplinks, the next flow takes those after them.
            first = np.where(counts < uplinks, np.arange(len(sprayed)) * counts, 0)
            pick = (pick + np.repeat(first, counts)) % np.repeat(uplinks, counts)
            flow.append(cross[item])
            share = self._share[tables.port[tables.pair[item], pick]]
            total = np.add.reduceat(share, np.cumsum(counts) - counts)
            weight.append(flows.weight[cross[item]] * share / np.repeat(total, counts))
            rows.append(self._over(links, cross, item, pick, tables, salted, rules, None))
        return FlowPaths(np.concatenate(flow), np.concatenate(weight), np.concatenate(rows))

    def _picks(
        self,
        flows: Flows,
        rules: ForwardingState,
        tables: _Tables,
        cross: Indices,
        src_leaf: Indices,
        salted: Hashes,
    ) -> tuple[Indices, Indices]:
        """The uplink of each flow between leaves, by its place in the pair's list, and its
        downlink.

        The downlink is -1 except for flows that a fault pins: they separate again at the spine, so
        that only the uplink is overloaded.
        """
        count = np.maximum(tables.count[tables.pair], 1)
        if self._hardware.routing == "static":
            picks = flows.dst[cross] % count
        else:
            picks = (salted % count.astype(np.uint64)).astype(np.intp)
        downlinks = np.full(len(cross), -1, np.intp)
        for leaf, buckets in rules.buckets.items():
            here = np.flatnonzero(src_leaf[cross] == leaf)
            few = np.minimum(buckets, count[here])
            bucket = (salted[here] % few.astype(np.uint64)).astype(np.intp)
            picks[here] = bucket * (count[here] // few)
            downlinks[here] = np.arange(len(here))
        for nics, uplink in rules.pins:
            for each in np.flatnonzero(np.isin(flows.src[cross], nics)):
                pair = tables.pair[each]
                place = np.flatnonzero(tables.port[pair, : tables.count[pair]] == uplink)
                if len(place):
                    picks[each] = place[0]
                    downlinks[each] = np.flatnonzero(nics == flows.src[cross[each]])[0]
        return picks, downlinks

    def _over(
        self,
        links: Indices,
        cross: Indices,
        item: Indices,
        pick: Indices,
        tables: _Tables,
        salted: Hashes,
        rules: ForwardingState,
        fixed: Indices | None,
    ) -> Indices:
        """The links of the flows `item` between leaves, each over the uplink `pick` of its pair.

        `fixed` is the downlink at the spine, where it is 0 or more.
        """
        pair = tables.pair[item]
        found = links[cross[item]]
        uplink = tables.port[pair, pick]
        entry = rules.peer[uplink]
        spine = self._hardware.spine_of(entry)
        choices = np.maximum(tables.down_count[spine, tables.dst[pair]], 1)
        downlink = tables.rank[pair, pick]
        if self._hardware.routing == "hash":
            again = _mix(salted[item] ^ self._salts[self._hardware.leaves + spine])
            downlink = (again % choices.astype(np.uint64)).astype(np.intp)
        if fixed is not None:
            downlink = np.where(fixed >= 0, fixed, downlink)
        down = tables.down[spine, tables.dst[pair], downlink % choices]
        lost = (tables.count[pair] == 0) | (down < 0)
        found[:, 1] = np.where(lost, self.dead, uplink)
        found[:, 2] = np.where(lost, self.void, down)
        return found


class _Tables:
    """The usable uplinks for every used pair of leaves."""

    def __init__(
        self, hardware: Hardware, rules: ForwardingState, src_leaf: Indices, dst_leaf: Indices
    ) -> None:
        spine_ports = np.arange(hardware.first_spine_port, hardware.ports)
        opposite = rules.peer[spine_ports]
        alive = rules.up[spine_ports] & rules.up[opposite]
        towards = hardware.leaf_of(opposite)
        spine = hardware.spine_of(spine_ports)
        self.down_count = np.zeros((hardware.spines, hardware.leaves), np.intp)
        np.add.at(self.down_count, (spine[alive], towards[alive]), 1)
        most = max(1, int(self.down_count.max()))
        self.down = np.full((hardware.spines, hardware.leaves, most), -1, np.intp)
        cells = spine[alive] * hardware.leaves + towards[alive]
        order = np.argsort(cells, kind="stable")
        starts = np.cumsum(self.down_count.ravel()) - self.down_count.ravel()
        rank = np.arange(len(order)) - starts[cells[order]]
        self.down.reshape(-1, most)[cells[order], rank] = spine_ports[alive][order]
        keys, self.pair = np.unique(src_leaf * hardware.leaves + dst_leaf, return_inverse=True)
        src, self.dst = keys // hardware.leaves, keys % hardware.leaves
        uplinks = hardware.leaf_port(src[:, None], hardware.down + np.arange(hardware.up)[None, :])
        entry = rules.peer[uplinks]
        leads = rules.up[uplinks] & rules.up[entry]
        leads &= self.down_count[hardware.spine_of(entry), self.dst[:, None]] > 0
        rank = _rank(np.where(leads, hardware.spine_of(entry), -1))
        if hardware.routing == "spray":
            # Adaptive routing uses at most as many uplinks to a spine as it has downlinks.
            leads &= rank < self.down_count[hardware.spine_of(entry), self.dst[:, None]]
        self.order = np.argsort(~leads, axis=1, kind="stable")
        self.count = leads.sum(axis=1)
        self.port = np.take_along_axis(uplinks, self.order, axis=1)
        self.rank = np.take_along_axis(rank, self.order, axis=1)


def _rank(keys: Indices) -> Indices:
    """In each row, the number of equal elements before each element."""
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    place = np.broadcast_to(np.arange(keys.shape[1]), keys.shape)
    begins = np.ones(keys.shape, np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(begins, place, 0), axis=1)
    rank = np.empty(keys.shape, np.intp)
    np.put_along_axis(rank, order, place - first, axis=1)
    return rank


def _hash(flows: Flows, which: Indices) -> Hashes:
    """Hash of the 5-tuple: addresses and UDP source port; the other fields are constant."""
    src = flows.src[which].astype(np.uint64)
    dst = flows.dst[which].astype(np.uint64)
    sport = flows.sport[which].astype(np.uint64)
    return _mix((src << np.uint64(40)) ^ (dst << np.uint64(16)) ^ sport)


def _mix(value: Hashes) -> Hashes:
    """Splitmix64's finaliser: every bit of the input moves half of the output's."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
