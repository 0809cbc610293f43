"""What nodes have said until a tick, beside their counters."""

from __future__ import annotations

from typing import Any

from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.kernel_log import KernelLogs, is_logged
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeStatus, Tick
from fabmon.fabric.wire.messages import Hello, Notice


class NodeMetadata:
    """The latest hosts, hellos, statuses, jobs and open notices of ticks that are applied in order.

    Of messages of the kernel log the notices are the last of each kind, with their times.
    """

    def __init__(self, *, keeps_recovered: bool = False) -> None:
        """With `keeps_recovered` a notice of recovery is kept; else it removes what it ends."""
        self.hosts: dict[str, Host] = {}
        self.hellos: dict[str, Hello] = {}
        self.statuses: dict[str, NodeStatus] = {}
        self.jobs: JobReport | None = None
        self.collectives: CollectiveReport | None = None
        self._notices: dict[str, dict[tuple[str, str, str], Notice]] = {}
        self.logs = KernelLogs()
        self._keeps_recovered = keeps_recovered

    def apply(self, tick: Tick) -> None:
        """Add what is in one tick; a hello removes the node's earlier notices."""
        self.hosts |= {host.name: host for host in tick.hosts}
        for node, hello in tick.hellos:
            if node in self.hellos and self.hellos[node].boot_id != hello.boot_id:
                self.logs.forget(node)
            self.hellos[node] = hello
            self._notices.pop(node, None)
        self.statuses |= {status.node: status for status in tick.statuses}
        self.jobs = tick.jobs or self.jobs
        self.collectives = tick.collectives or self.collectives
        for node, notice in tick.notices:
            if is_logged(notice):
                self.logs.add(node, notice, tick.time_ns)
                continue
            notices = self._notices.setdefault(node, {})
            key = (notice.source, notice.object, notice.metric)
            if notice.event == "recovered" and not self._keeps_recovered:
                notices.pop(key, None)
            else:
                notices[key] = notice

    @property
    def problems(self) -> dict[str, tuple[Notice, ...]]:
        """Open notices by node, without those of the kernel log."""
        return {name: tuple(each.values()) for name, each in self._notices.items() if each}

    @property
    def notices(self) -> tuple[tuple[str, Notice], ...]:
        """Open notices with their node."""
        nodes = {**self._notices, **self.logs.by_node()}
        return tuple((node, each) for node in nodes for each in self.notices_of(node))

    def notices_of(self, node: str) -> list[Notice]:
        """Open notices of a node."""
        return [*self._notices.get(node, {}).values(), *self.logs.of(node)]

    def fields(self) -> dict[str, Any]:
        """All of it as the fields of a Tick."""
        return {
            "hosts": tuple(self.hosts.values()),
            "hellos": tuple(self.hellos.items()),
            "statuses": tuple(self.statuses.values()),
            "notices": self.notices,
            "jobs": self.jobs,
            "collectives": self.collectives,
        }
