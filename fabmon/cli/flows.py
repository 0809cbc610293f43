"""`fabmon flows`: who talks to whom over RDMA, by the hosts' queue pairs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
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
from fabmon.fabric.flows.queue_pairs import SOURCE
from fabmon.fabric.model import HOST, Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.history.history import History
from fabmon.session.errors import Exit

_PATIENCE_S = 20.0
_FRAMES = 8
"""A host that has told nothing by then has nothing to tell: a probe looks again after 5."""


@click.command()
@hosts_option
@host_option
@report_option
@patience_option(_PATIENCE_S)
@topology_option
@config_option
@ssh_config_option
def flows(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    style: str,
    duration: float,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
) -> None:
    """Who talks to whom over RDMA: every connected queue pair and the one at its other end.

    Each with its UDP source port, process and Slurm job; before them the flows and source ports
    from leaf to leaf. Both ends have to be watched; what cannot be told is said, never guessed.
    """
    from fabmon.report.flows import flows_json, flows_record, flows_table
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
    snapshot = asyncio.run(_listen(watched, history, path, duration))
    record = flows_record(snapshot)
    printing.write(flows_json(record) if style == "json" else flows_table(record).encode())
    up = sum(status.state is NodeState.UP for status in snapshot.statuses.values())
    if not up:
        sys.exit(Exit.NO_NODE)
    sys.exit(Exit.OK if up == len(snapshot.statuses) else Exit.SOME_NODES)


async def _listen(
    hosts: list[Host], history: History, ssh_config: str | None, duration_s: float
) -> Snapshot:
    """Listen until every host has told its queue pairs or why not, at most so long."""
    from fabmon.feeds.live import LiveFeed

    until = time.monotonic() + duration_s
    frames: Counter[str] = Counter()
    async with aclosing(LiveFeed(hosts, ssh_config=ssh_config)) as feed:
        async for tick in feed:
            snapshot = history.accept(tick)
            frames.update(node for node, _ in tick.frames)
            settled = all(_is_settled(snapshot, host, frames[host.name]) for host in hosts)
            if settled or time.monotonic() >= until:
                break
        return snapshot


def _is_settled(snapshot: Snapshot, host: Host, frames: int) -> bool:
    if snapshot.statuses[host.name].state in (NodeState.FAILED, NodeState.LOST):
        return True
    refused = any(notice.source == SOURCE for notice in snapshot.notices.get(host.name, ()))
    told = host.name in snapshot.connections.flows.reporting
    # A switch has no queue pairs; what it tells of its cables comes with its first frame.
    return bool(frames) and (told or refused or host.role != HOST or frames >= _FRAMES)
