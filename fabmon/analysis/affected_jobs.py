"""The jobs that a condition affects: those on the hosts that it names, or whose traffic may pass
the switch ports that it names."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from fabmon.analysis.finding import Condition
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.model import SWITCH, Fabric, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.topology.leaves import far_node, is_uplink_to

MOST_NAMED = 8
"""Jobs that a finding names, at most."""


class AffectedJobs:
    """Adds the labels of affected jobs to conditions; computed again when the jobs, the fabric or
    the ports of a condition change."""

    def __init__(self) -> None:
        self._of: tuple[object, ...] = ()
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._port_of: dict[str, Port] = {}
        self._switches: frozenset[str] = frozenset()

    def added(self, conditions: list[Condition], snapshot: Snapshot) -> list[Condition]:
        """The conditions with their jobs."""
        if not snapshot.jobs.jobs:
            return conditions
        if self._of[:1] != (snapshot.jobs,) or self._of[1] is not snapshot.fabric:
            self._of, self._known = (snapshot.jobs, snapshot.fabric), {}
            self._port_of = {port.id: port for port in snapshot.fabric.ports if port.node}
            self._switches = _switches(snapshot.fabric)
        return [self._with_jobs(each, snapshot) for each in conditions]

    def _with_jobs(self, condition: Condition, snapshot: Snapshot) -> Condition:
        key = (condition.subject, condition.rows, condition.victims)
        if key not in self._known:
            jobs = self._jobs(condition, snapshot)
            self._known[key] = tuple(job.label for job in jobs[:MOST_NAMED])
        found = self._known[key]
        return msgspec.structs.replace(condition, jobs=found) if found else condition

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
