"""`fabmon trace A B`: the way that RoCE flows take from one host to another, on demand."""

from __future__ import annotations

import asyncio
import difflib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hosts import (
    config_option,
    host_option,
    hosts_option,
    selected_hosts,
    ssh_config_option,
)
from fabmon.cli.shared import report_option
from fabmon.cli.topology import load_topology, topology_option
from fabmon.session.errors import Exit, UsageError

if TYPE_CHECKING:
    from fabmon.fabric.model import Host


@click.command()
@click.argument("src", metavar="A")
@click.argument("dst", metavar="B")
@hosts_option
@host_option
@click.option(
    "--sport",
    "sports",
    type=click.IntRange(1, 65535),
    multiple=True,
    metavar="PORT",
    help="UDP source port of a flow, as often as wanted.  [default: those of the queue pairs"
    " between A and B, else 49152 to 49159]",
)
@click.option("--from-port", metavar="PORT", help="Port of A, as in mlx5_0, eth2 or r0.")
@click.option("--to-port", metavar="PORT", help="Port of B.  [default: of the same rail]")
@click.option(
    "--dscp",
    type=click.IntRange(0, 63),
    default=0,
    show_default=True,
    metavar="N",
    help="Of the flow: switches may hash on it, or filter by it.",
)
@click.option(
    "--probes",
    type=click.IntRange(1, 3),
    default=1,
    show_default=True,
    metavar="N",
    help="Answers wanted of a hop, to 3: they show packets of one flow that go several ways.",
)
@click.option(
    "--max-hops",
    type=click.IntRange(1, 64),
    default=16,
    show_default=True,
    metavar="N",
    help="Go no further.",
)
@report_option
@topology_option
@config_option
@ssh_config_option
def trace(
    src: str,
    dst: str,
    hosts: Path | None,
    nodesets: tuple[str, ...],
    sports: tuple[int, ...],
    from_port: str | None,
    to_port: str | None,
    dscp: int,
    probes: int,
    max_hops: int,
    style: str,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
) -> None:
    """Which switches and links RoCE flows cross from host A to host B.

    A sends some UDP datagrams to port 4791 of B from each source port, with a growing TTL: switches
    hash them as they hash the flow with that source port, and answer when the TTL ends. Hops are
    named by what the switches of the hosts file, LLDP and --topology tell; one that does not answer
    is a *. A Linux switch answers six times at once, then once a second, so that many source ports
    take their time.
    """
    from fabmon.history.history import History
    from fabmon.report.trace import trace_json, trace_table
    from fabmon.session import printing
    from fabmon.session.config import load
    from fabmon.session.path_trace import MOST_SPORTS, TraceFailed, TraceRequest, trace_paths

    settings = load(config)
    printing.log_to_stderr()
    watched = _watched(selected_hosts(hosts, nodesets), src, dst)
    if len(set(sports)) > MOST_SPORTS:
        raise UsageError(f"--sport: {len(set(sports))} source ports, {MOST_SPORTS} at most")
    topology = load_topology(settings, config, topologies)
    path = str(ssh_config) if ssh_config else settings.ssh_config
    history = History(watched, 1.0, settings.management_ports, topology=topology)
    wanted = TraceRequest(src, dst, sports, from_port, to_port, dscp, probes, max_hops)
    try:
        record = asyncio.run(trace_paths(watched, history, path, wanted))
    except TraceFailed as error:
        print(f"fabmon: {error}", file=sys.stderr)
        sys.exit(Exit.NO_NODE)
    printing.write(trace_json(record) if style == "json" else trace_table(record).encode())
    sys.exit(Exit.OK if any(path.hops for path in record.paths) else Exit.FAILED)


def _watched(hosts: Sequence[Host], src: str, dst: str) -> list[Host]:
    """The two hosts, and the switches for the names of the hops. Raises UsageError."""
    from fabmon.fabric.model import SWITCH
    from fabmon.feeds.probe_input import VIAS_WITH_PROBE

    by_name = {host.name: host for host in hosts}
    for name in (src, dst):
        if name not in by_name:
            close = difflib.get_close_matches(name, by_name, 1)
            hint = f"did you mean {close[0]}?" if close else "name it with --hosts or --host"
            raise UsageError(f"no host {name} among the {len(by_name)} that are named: {hint}")
    if src == dst:
        raise UsageError(f"{src} to {src} crosses no link: name two hosts")
    for name, vias, lacks in (
        (src, VIAS_WITH_PROBE, "has no probe of this console that could trace"),
        (dst, (*VIAS_WITH_PROBE, "http"), "does not tell its addresses"),
    ):
        via = by_name[name].via
        if via not in vias:
            raise UsageError(f"{name} is read through {via}, which {lacks}: use {', '.join(vias)}")
    switches = [host for host in hosts if host.role == SWITCH and host.name not in (src, dst)]
    return [by_name[src], by_name[dst], *switches]
