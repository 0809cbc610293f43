"""`fabmon doctor`: what can be read on each node, and what a careful engineer would mend first."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from pathlib import Path

import click

from fabmon.cli.hosts import (
    config_option,
    host_option,
    hosts_option,
    selected_hosts,
    ssh_config_option,
)
from fabmon.cli.shared import patience_option, report_option
from fabmon.cli.topology import load_topology, topology_option
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState
from fabmon.history.history import History
from fabmon.report.doctor import DoctorRecord
from fabmon.session.errors import Exit

_FRAMES = 3
"""Heard of a node before it is judged: rates need two, and a slow first read is not the rule."""

_PATIENCE_S = 15.0


@click.command()
@hosts_option
@host_option
@report_option
@patience_option(_PATIENCE_S)
@topology_option
@config_option
@ssh_config_option
def doctor(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    style: str,
    duration: float,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
) -> None:
    """What can be read on each node, and what is set up wrongly.

    For each node and source: works, absent, unsupported, not permitted (with what would help), too
    slow. And the audit before a run: dead rails, link speed, PCIe, MTU, PFC and ECN along each
    rail, flaps, cabling, NUMA, shared ports. Nodes are asked themselves, never an engine: there is
    no --prometheus.
    """
    from fabmon.report.doctor import doctor_json, doctor_table
    from fabmon.session import printing
    from fabmon.session.config import load

    settings = load(config)
    printing.log_to_stderr()
    watched = selected_hosts(hosts, nodesets)
    path = str(ssh_config) if ssh_config else settings.ssh_config
    history = History(
        watched,
        1.0,
        settings.management_ports,
        topology=load_topology(settings, config, topologies),
    )
    record = asyncio.run(_examine(watched, history, path, duration))
    text = doctor_json(record) if style == "json" else doctor_table(record).encode()
    printing.write(text)
    if not record.nodes_up:
        sys.exit(Exit.NO_NODE)
    if record.to_mend:
        sys.exit(Exit.FIX_NEEDED)
    sys.exit(Exit.OK if record.nodes_up == record.nodes_total else Exit.SOME_NODES)


async def _examine(
    hosts: list[Host], history: History, ssh_config: str | None, duration_s: float
) -> DoctorRecord:
    """Listen until every node has said enough or has failed, at most so long."""
    from fabmon.analysis.audit.survey import Surveyor
    from fabmon.feeds.live import LiveFeed
    from fabmon.report.doctor import examine

    surveyor = Surveyor(hosts)
    until = time.monotonic() + duration_s
    async with aclosing(LiveFeed(hosts, ssh_config=ssh_config)) as feed:
        async for tick in feed:
            snapshot = history.accept(tick)
            surveyor.accept(tick)
            settled = all(
                surveyor.frames_of(host.name) >= _FRAMES
                or snapshot.statuses[host.name].state in (NodeState.FAILED, NodeState.LOST)
                for host in hosts
            )
            if settled or time.monotonic() >= until:
                break
        return examine(surveyor.survey(snapshot))
