"""The jobs that a condition affects: those on the hosts that it names, or whose traffic may pass
the switch ports that it names; and which of their hosts send over its link, and to which."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fabmon.analysis.causes import causes_with
from fabmon.analysis.evidence.flows_on_link import possible_ends
from fabmon.analysis.finding import Condition, Evidence, Trait
from fabmon.fabric.flows.flow_table import KnownFlows
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


def link_of(fabric: Fabric, condition: Condition) -> tuple[list[int], str] | None:
    """The link of a condition, as rows of its ports, and the direction (tx or rx) there; None where
    its cause is not about traffic."""
    ports = fabric.ports
    rows = [row for row in condition.rows if 0 <= row < len(ports) and ports[row].node]
    if condition.cause not in causes_with(Trait.HAS_SENDERS) or not rows:
        return None
    is_rail = ports[rows[0]].role == RAIL
    direction = "rx" if is_rail and condition.cause in causes_with(Trait.LAST_HOP) else "tx"
    # All rails of a finding about slowed senders count; of an ECMP group only its first link.
    several = is_rail and direction == "tx" and all(ports[row].role == RAIL for row in rows)
    return (rows if several else rows[:1]), direction


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
        hosts = {condition.subject.partition("/")[0], *condition.victims}
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
        """Which hosts of each job send over a link between switches, and to which.

        Senders that the condition slows are on it; of other senders, and of receivers, queue pairs
        show which may be; with forwarding tables, which are. Without these they are some of the
        job's hosts on that side of the link.
        """
        fabric = snapshot.fabric
        link = link_of(fabric, condition)
        ends = None if link is None else possible_ends(snapshot, link[0][0], link[1])
        if link is None or ends is None or ends.is_exact:
            return
        ports = fabric.ports
        exact = _connections_on(snapshot, link[0][0], link[1])
        slowed = [row for name in condition.victims for row in self._ends_of_cable(name)]
        for job in jobs:
            rows = self._rails_of(job, snapshot)
            sending, receiving = rows[ends.src[rows]], rows[ends.dst[rows]]
            if not len(sending) or not len(receiving):
                continue
            named = sending[np.isin(sending, slowed)]
            is_named = bool(len(named))
            if exact is not None and not is_named:
                named = sending[np.isin(sending, exact.src)]
                is_named = bool(len(named))
            near = named if is_named else sending
            reached, is_one = _reached(snapshot, near, receiving, exact)
            is_known = bool(len(reached))
            far = reached if is_known else receiving
            yield Evidence(f"job {job.number} sends from", _names(ports, near, is_named))
            # A NIC may send to several hosts, of which only some are behind this link.
            is_sure = is_named and is_known and is_one
            yield Evidence(f"job {job.number} sends to", _names(ports, far, is_sure))

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


def _names(ports: Sequence[Port], rows: Rows, are_known: bool) -> str:
    """`gpu001, gpu003`; where it is not known which of them, `some of gpu001, gpu003`."""
    ordered = sorted({ports[row].node for row in rows.tolist()}, key=natural)
    listed = name_list(ordered, _MOST_HOSTS)
    return listed if are_known or len(ordered) == 1 else f"some of {listed}"
