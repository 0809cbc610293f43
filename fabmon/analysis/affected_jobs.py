"""The jobs that a condition affects: those on the hosts that it names, or whose traffic may pass
the switch ports that it names; and which of their hosts send over its link, and to which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fabmon.analysis.causes import causes_with
from fabmon.analysis.evidence.link_health import ERROR_RATE
from fabmon.analysis.finding import Condition, Evidence, Trait
from fabmon.fabric.flows.flow_table import KnownFlows
from fabmon.fabric.flows.possible_ends import possible_ends
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import RAIL, SWITCH, Fabric, Port
from fabmon.fabric.names import natural
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.topology.leaves import Rows, far_node, is_uplink_to
from fabmon.fabric.wording import name_list

MOST_NAMED = 8
"""Jobs that a finding names, at most."""

_MOST_KNOWN = 4096
_MOST_WITH_HOSTS = 2
_MOST_HOSTS = 8
"""Conditions that are remembered; jobs of which the hosts at the ends of a link are named; hosts of
one that are named at one end."""


class _Affected(NamedTuple):
    """What is added to a condition."""

    jobs: tuple[str, ...]
    evidence: tuple[Evidence, ...]


class _End(NamedTuple):
    """NICs at one end of a link, and whether it is known that all of them use it."""

    rows: Rows
    are_known: bool

    def joined(self, other: _End) -> _End:
        return _End(np.union1d(self.rows, other.rows), self.are_known and other.are_known)

    def names(self, ports: Sequence[Port]) -> str:
        """`gpu001, gpu003`; where it is not known which of them, `some of gpu001, gpu003`."""
        ordered = sorted({ports[row].node for row in self.rows.tolist()}, key=natural)
        listed = name_list(ordered, _MOST_HOSTS)
        return listed if self.are_known or len(ordered) == 1 else f"some of {listed}"


class LinkOfCondition(NamedTuple):
    """The ports of a condition's link, and the directions of its traffic there (tx, rx)."""

    rows: list[int]
    directions: tuple[str, ...]


def link_of(fabric: Fabric, condition: Condition) -> LinkOfCondition | None:
    """The link of a condition; None where its cause is not about traffic.

    What is wrong with a cable concerns both directions; errors are of what arrives at the port that
    counts them.
    """
    ports = fabric.ports
    rows = [row for row in condition.rows if 0 <= row < len(ports) and ports[row].node]
    if condition.cause not in causes_with(Trait.HAS_SENDERS) or not rows:
        return None
    if any(each.name == ERROR_RATE for each in condition.evidence):
        return LinkOfCondition(rows[:1], ("rx",))
    if condition.cause in causes_with(Trait.OF_LINK):
        return LinkOfCondition(rows[:1], ("tx", "rx"))
    is_rail = ports[rows[0]].role == RAIL
    if is_rail and condition.cause in causes_with(Trait.LAST_HOP):
        return LinkOfCondition(rows[:1], ("rx",))
    # All rails of a finding about slowed senders count; of an ECMP group only its first link.
    several = is_rail and all(ports[row].role == RAIL for row in rows)
    return LinkOfCondition(rows if several else rows[:1], ("tx",))


class AffectedJobs:
    """Adds the labels of affected jobs, and their hosts, to conditions; computed again when the
    jobs, the ports or tiers of the fabric, the ports of a condition or the number of nodes
    with known queue pairs change."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = (None,) * 4
        self._known: dict[tuple[object, ...], _Affected] = {}
        self._rails: dict[str, Rows] = {}
        self._port_of: dict[str, Port] = {}
        self._switches: frozenset[str] = frozenset()

    def added(self, conditions: list[Condition], snapshot: Snapshot) -> list[Condition]:
        """The conditions with their jobs."""
        if not snapshot.jobs.jobs:
            return conditions
        fabric = snapshot.fabric
        of = (snapshot.jobs, fabric.ports, fabric.shape, fabric.forwarding)
        if any(now is not before for now, before in zip(of, self._of, strict=True)):
            self._of, self._known, self._rails = of, {}, {}
            self._port_of = {port.id: port for port in fabric.ports if port.node}
            self._switches = _switches(fabric)
        return [self._with_jobs(each, snapshot) for each in conditions]

    def _with_jobs(self, condition: Condition, snapshot: Snapshot) -> Condition:
        named = (condition.cause, condition.subject, condition.rows, condition.victims)
        key = (*named, snapshot.connections.reported)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._jobs(condition, snapshot)
            self._known[key] = _Affected(
                tuple(job.label for job in found[:MOST_NAMED]),
                tuple(self._at_the_ends(condition, found[:_MOST_WITH_HOSTS], snapshot)),
            )
        jobs, hosts = self._known[key]
        if not jobs:
            return condition
        evidence = (*condition.evidence, *hosts)
        return msgspec.structs.replace(condition, jobs=jobs, evidence=evidence)

    def _jobs(self, condition: Condition, snapshot: Snapshot) -> tuple[Job, ...]:
        fabric = snapshot.fabric
        ports = [fabric.ports[row] for row in condition.rows if 0 <= row < len(fabric.ports)]
        ports += [self._port_of[name] for name in condition.victims if name in self._port_of]
        hosts = {condition.subject_node, *condition.victims}
        switch_ports = []
        for port in ports:
            if port.node not in self._switches:
                hosts.add(port.node)
            elif (far := far_node(port, fabric)) not in self._switches:
                hosts.add(far)
            else:
                switch_ports.append(port)
        direct = _on(hosts, snapshot)
        return direct or _crossing(switch_ports, snapshot)

    def _at_the_ends(
        self, condition: Condition, jobs: Sequence[Job], snapshot: Snapshot
    ) -> Iterator[Evidence]:
        """Which hosts of each job send over a link between switches, and to which; of a link that
        is at fault in both directions, its hosts on either side."""
        link = link_of(snapshot.fabric, condition)
        if link is None:
            return
        row, ports = link.rows[0], snapshot.fabric.ports
        for job in jobs:
            found = [
                ends
                for direction in link.directions
                if (ends := self._ends(condition, job, snapshot, row, direction)) is not None
            ]
            if len(link.directions) == 1:
                for near, far in found:
                    yield Evidence(f"job {job.number} sends from", near.names(ports))
                    yield Evidence(f"job {job.number} sends to", far.names(ports))
            elif len(found) == len(link.directions):
                (near, far), (back, front) = found
                here, there = near.joined(front), far.joined(back)
                yield Evidence(f"job {job.number} on this side", here.names(ports))
                yield Evidence(f"job {job.number} on the far side", there.names(ports))

    def _ends(
        self, condition: Condition, job: Job, snapshot: Snapshot, row: int, direction: str
    ) -> tuple[_End, _End] | None:
        """The NICs of a job that send over a link between switches, and those that receive; None
        where there are none, and for links of hosts.

        Senders that the condition slows are on it; of other senders, and of receivers, queue pairs
        show which may be; with forwarding tables, which are. Without these they are some of the
        job's hosts on that side of the link.
        """
        ends = possible_ends(snapshot.connections, row, direction)
        if ends is None or ends.is_exact:
            return None
        rows = self._rails_of(job, snapshot)
        sending, receiving = rows[ends.src[rows]], rows[ends.dst[rows]]
        if not len(sending) or not len(receiving):
            return None
        exact = _connections_on(snapshot, row, direction)
        slowed = [row for name in condition.victims for row in self._ends_of_cable(name)]
        named = sending[np.isin(sending, slowed)]
        is_named = bool(len(named))
        if exact is not None and not is_named:
            named = sending[np.isin(sending, exact.src)]
            is_named = bool(len(named))
        near = named if is_named else sending
        reached, is_one = _reached(snapshot, near, receiving, exact)
        is_known = bool(len(reached))
        # A NIC may send to several hosts, of which only some are behind this link.
        is_sure = is_named and is_known and is_one
        return _End(near, is_named), _End(reached if is_known else receiving, is_sure)

    def _rails_of(self, job: Job, snapshot: Snapshot) -> Rows:
        """The rows of the NICs of a job."""
        if job.number not in self._rails:
            wanted = set(snapshot.jobs.nodes_of(job))
            self._rails[job.number] = np.array(
                [
                    port.row
                    for node in snapshot.fabric.nodes
                    if node.name in wanted
                    for port in node.ports
                    if port.role == RAIL
                ],
                np.intp,
            )
        return self._rails[job.number]

    def _ends_of_cable(self, name: str) -> Iterator[int]:
        """The rows of a port and of the one that it is cabled to, as far as they are known."""
        port = self._port_of.get(name)
        if port is not None:
            yield port.row
            if port.peer is not None:
                yield port.peer


def _switches(fabric: Fabric) -> frozenset[str]:
    named = {node.name for node in fabric.nodes if node.role == SWITCH}
    return frozenset(named | {name for name, tier in fabric.shape.tiers.items() if tier > 0})


def _on(hosts: Iterable[str], snapshot: Snapshot) -> tuple[Job, ...]:
    """The jobs on some hosts, by number."""
    found = {id(job) for host in hosts for job in snapshot.jobs.on_node.get(host, ())}
    return tuple(job for job in snapshot.jobs.jobs if id(job) in found)


def _crossing(ports: list[Port], snapshot: Snapshot) -> tuple[Job, ...]:
    """The jobs with hosts on both sides of any of some cables between switches."""
    leaves, fabric = snapshot.connections.leaves, snapshot.fabric
    sides = set()
    for port in ports:
        far = far_node(port, fabric)
        sides.add(port.node if is_uplink_to(port, far, fabric) else far)
    found: dict[str, Job] = {}
    for switch in sides:
        below = {fabric.ports[row].node for row in leaves.under(switch).nonzero()[0].tolist()}
        for job in snapshot.jobs.jobs:
            nodes = set(snapshot.jobs.nodes_of(job))
            if nodes & below and nodes - below:
                found[job.number] = job
    return tuple(job for job in snapshot.jobs.jobs if job.number in found)


def _connections_on(snapshot: Snapshot, row: int, direction: str) -> KnownFlows | None:
    """The connections over a link in one direction; None where they are not known exactly."""
    sender = row if direction == "tx" else snapshot.fabric.ports[row].peer
    known = None if sender is None else snapshot.connections.known_on_link(sender)
    return known if known is not None and known.are_connections else None


def _reached(
    snapshot: Snapshot, near: Rows, far: Rows, exact: KnownFlows | None
) -> tuple[Rows, bool]:
    """Which of the `far` NICs the `near` ones have queue pairs to, and whether each of these has
    them to one host alone; none where queue pairs are not few enough to be joined within a tick.
    Of the flows on a link, where they are known exactly, whether or not to one host alone."""
    if exact is not None:
        dst = exact.dst[np.isin(exact.src, near) & np.isin(exact.dst, far)]
        return np.unique(dst), True
    table, ports = snapshot.connections.flows_if_quick, snapshot.fabric.ports
    if table is None or not len(table):
        return np.empty(0, np.intp), False
    is_between = np.isin(table.src, near) & np.isin(table.dst, far)
    pairs = np.unique(np.stack((table.src[is_between], table.dst[is_between]), axis=1), axis=0)
    hosts = {(src, ports[dst].node) for src, dst in pairs.tolist()}
    return np.unique(pairs[:, 1]), len(hosts) == len({src for src, _ in hosts})
