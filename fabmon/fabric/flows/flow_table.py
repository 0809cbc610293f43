"""Flows: the queue pairs of all hosts, each joined with its other end.

A queue pair has its own number and that of its peer, but not the peer's host. (l, r) on A and (r,
l) on B are the two ends of a connection if no other host has these numbers; hosts that start in the
same way assign the same numbers. Among several candidates the Slurm job decides, then packet
sequence numbers that agree in both directions, then the exclusion of candidates that are taken; the
rest remains ambiguous. A connection to a host that is not watched has no other end here, unless a
watched host has its numbers by chance and both are in the same job or in no known job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.flows.forwarding import Forwarding, PairsOnLink, table_pairs
from fabmon.fabric.flows.queue_pairs import Process, QueuePairs, is_derived, roce_source_port
from fabmon.fabric.model import Fabric
from fabmon.fabric.port_arrays import NONE
from fabmon.fabric.topology.leaves import Leaves, Rows, leaves

Numbers = NDArray[np.int64]
T = TypeVar("T")

_ROUNDS = 4
_AT_ONCE = 16_384
"""The number of queue pairs that are joined in about 10 ms."""


class LeafPair(NamedTuple):
    """The number of flows from one leaf to another, and of their UDP source ports."""

    src: str
    dst: str
    flows: int
    sports: int


@dataclass(frozen=True, slots=True)
class FlowTable:
    """Arrays [queue pairs]: the flow that each port may send. Ports are rows of the fabric.

    `dst` is the port at the other end, NONE if unknown; `candidates` is how many queue pairs of
    watched hosts could be the other end: 0 if it is not watched, 1 if it is known, more if it is
    ambiguous. `sport` is the UDP source port, 0 if it cannot be computed. `process` is an index
    into `processes`. `reporting` are the nodes that report queue pairs, even if they have none;
    `left_out` is the number of queue pairs that they did not list.
    """

    src: Rows
    dst: Rows
    candidates: Rows
    lqpn: Numbers
    rqpn: Numbers
    sport: Numbers
    process: Rows
    processes: tuple[Process, ...]
    reporting: frozenset[str]
    left_out: int

    def __len__(self) -> int:
        return len(self.src)

    def owner(self, flow: int) -> Process:
        """The process that owns a queue pair."""
        return self.processes[int(self.process[flow])]

    def distinct_sports(self, which: Rows) -> int:
        """The number of distinct UDP source ports of some flows; 0 if none can be computed."""
        known = self.sport[which]
        return len(np.unique(known[known > 0]))


class ForwardedFlows(NamedTuple):
    """What forwarding tables send over a link: `pairs` of NICs, whether they communicate or not,
    and the `flows` among them, places in the flow table. `unsure` counts flows of these senders
    whose destination is not known."""

    pairs: PairsOnLink
    flows: Rows
    unsure: int


class KnownFlows(NamedTuple):
    """The pairs of NICs, as port rows, whose traffic a link carries and no others; parallel arrays.

    They have connections over it if they `are_connections`; else queue pairs are not all known, and
    they are all pairs that forwarding tables send over the link, whether they communicate or not.
    """

    src: Rows
    dst: Rows
    are_connections: bool


class Connections:
    """The last reported queue pairs, joined when first needed.

    `before` are the connections of the previous report. `reported` is the number of nodes whose
    queue pairs are known.
    """

    def __init__(
        self,
        fabric: Fabric,
        reports: Mapping[str, QueuePairs],
        before: Connections | None = None,
    ) -> None:
        self.fabric = fabric
        self._reports = dict(reports)
        self.reported = len(self._reports)
        self._of_links: dict[tuple[Callable[[Connections, int], Any], int], Any] = {}
        if before is None:
            return
        computed = []
        if before.fabric.ports is fabric.ports:
            computed += ["forwarding"]
        if _are_same_but_for_facts(before.fabric, fabric):
            computed += ["leaves"]
            if _are_same(self._reports, before._reports):
                computed += ["flows"]
        self.__dict__ |= {k: before.__dict__[k] for k in computed if k in before.__dict__}

    def once(self, compute: Callable[[Connections, int], T], row: int) -> T:
        """`compute(self, row)` of a port, computed once."""
        key = (compute, row)
        if key not in self._of_links:
            self._of_links[key] = compute(self, row)
        found: T = self._of_links[key]
        return found

    @property
    def flows_if_quick(self) -> FlowTable | None:
        """The flows if they can be joined within a tick, else None. The result depends only on the
        ticks, live or replayed.
        """
        return self.flows if self._are_few else None

    @cached_property
    def _are_few(self) -> bool:
        return sum(len(each.lqpn) for each in self._reports.values()) <= _AT_ONCE

    @cached_property
    def flows(self) -> FlowTable:
        """All flows."""
        return join(self.fabric, self._reports)

    @cached_property
    def leaves(self) -> Leaves:
        """The leaf of every NIC."""
        return leaves(self.fabric)

    @cached_property
    def forwarding(self) -> Forwarding | None:
        """The paths by the switches' forwarding tables; None where they are not known."""
        tables = self.fabric.forwarding
        return Forwarding(self.fabric) if tables is not None and tables.tables else None

    def on_link(self, rows: Sequence[int], way: str = "tx") -> ForwardedFlows | None:
        """What the forwarding tables send over any of some links, in the direction that their ports
        send (`tx`) or receive (`rx`). None where tables do not decide, or are not known."""
        if self.forwarding is None:
            return None
        pairs = table_pairs(self.forwarding, rows, way)
        if pairs is None:
            return None
        table, count = self.flows, len(self.fabric.ports)
        known = table.dst != NONE
        flows = np.flatnonzero(
            known & np.isin(table.src * count + table.dst, pairs.src * count + pairs.dst)
        )
        unsure = ~known & np.isin(table.src, pairs.src)
        return ForwardedFlows(pairs, flows, int(unsure.sum()))

    def known_on_link(self, row: int) -> KnownFlows | None:
        """Whose traffic a port sends, where forwarding tables decide it exactly and all of them are
        known, else None. Quick enough for a tick, and computed once."""
        return self.once(Connections._exactly_on_link, row)

    def _exactly_on_link(self, row: int) -> KnownFlows | None:
        tables = self.fabric.forwarding
        if self.forwarding is None or tables is None or tables.left_out:
            return None
        pairs = table_pairs(self.forwarding, [row])
        if pairs is None or not pairs.is_exact or not len(pairs.src):
            return None
        table = self.flows_if_quick
        forwarded = self.on_link([row]) if table else None
        if table and forwarded and not forwarded.unsure and not table.left_out:
            senders = {self.fabric.ports[nic].node for nic in np.unique(pairs.src).tolist()}
            if senders <= table.reporting:
                src, dst = table.src[forwarded.flows], table.dst[forwarded.flows]
                ports = len(self.fabric.ports)
                src, dst = np.divmod(np.unique(src * ports + dst), ports)
                return KnownFlows(src, dst, are_connections=True)
        return KnownFlows(pairs.src, pairs.dst, are_connections=False)

    def between_leaves(self) -> list[LeafPair]:
        """The flows between every pair of leaves that has any, the most first."""
        flows, found = self.flows, self.leaves
        known = np.flatnonzero(flows.dst != NONE)
        src, dst = found.of[flows.src[known]], found.of[flows.dst[known]]
        at_leaves = (src != NONE) & (dst != NONE)
        known, cells = known[at_leaves], (src * len(found.names) + dst)[at_leaves]
        order = np.argsort(cells, kind="stable")
        known, cells = known[order], cells[order]
        starts = np.flatnonzero(np.diff(cells, prepend=-1))
        pairs = []
        for cell, which in zip(cells[starts].tolist(), np.split(known, starts[1:]), strict=False):
            src_leaf, dst_leaf = (found.names[place] for place in divmod(cell, len(found.names)))
            pairs.append(LeafPair(src_leaf, dst_leaf, len(which), flows.distinct_sports(which)))
        return sorted(pairs, key=lambda pair: -pair.flows)


def _are_same(some: Mapping[str, QueuePairs], others: Mapping[str, QueuePairs]) -> bool:
    """Whether the same nodes, in the same order, have the same objects."""
    return list(some) == list(others) and all(own is others[name] for name, own in some.items())


def _are_same_but_for_facts(one: Fabric, other: Fabric) -> bool:
    """Whether two fabrics have the same ports, cables and way to compute UDP source ports."""
    if one.ports is other.ports:
        return True
    return (
        one.shape is other.shape
        and len(one.ports) == len(other.ports)
        and [(node.name, node.role) for node in one.nodes]
        == [(node.name, node.role) for node in other.nodes]
        and all(
            a is b
            or (
                msgspec.structs.replace(a, info=b.info, role_reason=b.role_reason) == b
                and is_derived(a.info, a.kind) == is_derived(b.info, b.kind)
            )
            for a, b in zip(one.ports, other.ports, strict=True)
        )
    )


def join(fabric: Fabric, reports: Mapping[str, QueuePairs]) -> FlowTable:
    """The joined queue pairs of all nodes; those of unknown ports are left out."""
    rows = {(port.node, port.name): port.row for port in fabric.ports if port.node}
    parts: list[tuple[Rows, ...]] = []
    processes: list[Process] = []
    left_out = 0
    for node, own in reports.items():
        row_of = np.array([rows.get((node, name), NONE) for name in own.ports], np.intp)
        src = row_of[own.port] if len(own.ports) else np.empty(0, np.intp)
        there = src != NONE
        columns = (src, own.lqpn, own.rqpn, own.sq_psn, own.rq_psn, own.process + len(processes))
        parts.append(tuple(column[there] for column in columns))
        processes += own.processes
        left_out += own.count - len(own.lqpn)
    src, lqpn, rqpn, sq_psn, rq_psn, process = _columns(parts)
    names: dict[str, int] = {"": 0}
    job_of = np.array([names.setdefault(each.job, len(names)) for each in processes], np.int64)
    jobs = job_of[process] if len(process) else np.empty(0, np.int64)
    ends = _Ends(lqpn, rqpn, sq_psn, rq_psn, jobs)
    other, candidates = ends.match()
    derived = np.array([is_derived(port.info, port.kind) for port in fabric.ports], np.bool_)
    has_sport = derived[src] if len(src) else np.empty(0, np.bool_)
    return FlowTable(
        src=src,
        dst=np.where(other == NONE, NONE, np.append(src, NONE)[other]),
        candidates=candidates,
        lqpn=lqpn,
        rqpn=rqpn,
        sport=np.where(has_sport, roce_source_port(lqpn, rqpn), 0),
        process=process,
        processes=tuple(processes),
        reporting=frozenset(reports),
        left_out=left_out,
    )


def _columns(parts: list[tuple[Rows, ...]]) -> tuple[Rows, ...]:
    if not parts:
        return tuple(np.empty(0, np.int64) for _ in range(6))
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


class _Ends:
    """Ends of connections, one per element; `jobs` are numbers, 0 if unknown."""

    def __init__(
        self, lqpn: Numbers, rqpn: Numbers, sq_psn: Numbers, rq_psn: Numbers, jobs: Numbers
    ) -> None:
        low, high = np.minimum(lqpn, rqpn), np.maximum(lqpn, rqpn)
        numbers = _dense(low << 24 | high)
        # The job decides only where it is known for all: an unknown job could be any of them.
        unknown = np.bincount(numbers, jobs == 0, minlength=1) > 0
        kept = np.where(unknown[numbers], 0, jobs) if len(jobs) else jobs
        self._key = _dense(numbers * (int(jobs.max(initial=0)) + 1) + kept)
        self._side = (lqpn > rqpn).astype(np.int64)
        self._symmetric = lqpn == rqpn
        # Without packets in flight, what one end sends next is what the other expects.
        ours = np.where(self._side == 0, sq_psn << 24 | rq_psn, rq_psn << 24 | sq_psn)
        self._psn = _dense(ours)
        self._has_psn = (ours != 0) & ~self._symmetric
        self._other = np.full(len(lqpn), NONE, np.intp)

    def match(self) -> tuple[Rows, Rows]:
        """(the other end of each, NONE if unknown; the number of candidates of each)."""
        every = np.arange(len(self._key))
        candidates = self._pair(every, self._key[every])
        for _ in range(_ROUNDS):
            left = np.flatnonzero((self._other == NONE) & (candidates > 0))
            if not len(left):
                break
            with_psn = left[self._has_psn[left]]
            most = int(self._psn.max(initial=0)) + 1
            self._pair(with_psn, self._key[with_psn] * most + self._psn[with_psn])
            open_ = left[self._other[left] == NONE]
            found = self._pair(open_, self._key[open_])
            # An end whose last candidate is taken has an other end that is not watched.
            candidates[open_] = found
            if len(np.flatnonzero(self._other[left] == NONE)) == len(left):
                break
        candidates[self._other != NONE] = 1
        return self._other, candidates

    def _pair(self, which: Rows, key: Numbers) -> Rows:
        """Join ends that are each other's only candidate; the number of candidates of each."""
        if not len(which):
            return np.empty(0, np.intp)
        order = np.argsort(key * 2 + self._side[which], kind="stable")
        ordered = key[order]
        first = np.flatnonzero(np.diff(ordered, prepend=ordered[0] - 1))
        size = np.diff(first, append=len(order))
        ones = np.add.reduceat(self._side[which][order], first)
        symmetric = self._symmetric[which][order][first]
        sole = (size == 2) & ((ones == 1) | symmetric)
        a, b = which[order[first[sole]]], which[order[first[sole] + 1]]
        self._other[a], self._other[b] = b, a
        group = np.empty(len(order), np.intp)
        group[order] = np.repeat(np.arange(len(first)), size)
        opposite = np.where(self._side[which] == 1, (size - ones)[group], ones[group])
        found: Rows = np.where(symmetric[group], size[group] - 1, opposite).astype(np.intp)
        return found


def _dense(values: Numbers) -> Numbers:
    """The rank of each value among the distinct ones: small numbers that can be combined."""
    dense: Numbers = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return dense
