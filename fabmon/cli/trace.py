"""`fabmon trace A B`: the path of flows from one host to another, on demand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.completion import complete_nodes
from fabmon.cli.options import node_session, nodes_options, number_option, report_option
from fabmon.session.errors import Exit, UsageError
from fabmon.session.stderr_lines import say

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@click.argument("src", metavar="A", shell_complete=complete_nodes)
@click.argument("dst", metavar="B", shell_complete=complete_nodes)
@nodes_options
@click.option(
    "--sport",
    "sports",
    type=click.IntRange(1, 65535),
    multiple=True,
    metavar="PORT",
    help="UDP source port of a flow. May be repeated.  [default: those of the queue pairs between"
    " A and B, else 49152 to 49159]",
)
@click.option("--from-port", metavar="PORT", help="Port of A, as in mlx5_0, eth2 or r0.")
@click.option("--to-port", metavar="PORT", help="Port of B.  [default: the port of the same rail]")
@number_option(
    "--dscp", 0, 63, "DSCP of the datagrams: switches may hash on it, or filter by it.", 0
)
@number_option(
    "--probes",
    1,
    3,
    "Answers per hop; several show whether packets of one flow take several paths.",
    1,
)
@number_option("--max-hops", 1, 64, "Maximum number of hops.", 16)
@report_option
@node_session
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
    session: Session,
) -> None:
    """Show which switches and links flows cross from host A to host B.

    On InfiniBand the path is in the switches' forwarding tables (sources=+ib_fabric on one node).
    For RoCE, A sends some UDP datagrams with increasing TTL to port 4791 of B, from each source
    port. Switches hash them as they hash the flow with that source port, and answer when the TTL
    ends. Hops are named from the switches in the hosts file, LLDP and --topology; * is a hop that
    does not answer. A Linux switch answers six times at once, then once per second, so that many
    source ports take a while.
    """
    from fabmon.report.output import as_json
    from fabmon.report.trace import ForwardedTraceRecord, forwarded_trace_table, trace_table
    from fabmon.session import event_loop
    from fabmon.session.node_selection import selected_hosts
    from fabmon.session.path_trace import (
        MAX_SPORTS,
        TraceFailed,
        TraceRequest,
        trace_paths,
        traced_hosts,
    )
    from fabmon.session.printing import log_to_stderr, write, write_text

    log_to_stderr()
    watched = traced_hosts(selected_hosts(hosts, nodesets), src, dst)
    if len(set(sports)) > MAX_SPORTS:
        raise UsageError(f"--sport: {len(set(sports))} source ports, {MAX_SPORTS} at most")
    request = TraceRequest(src, dst, sports, from_port, to_port, dscp, probes, max_hops)
    try:
        record = event_loop.run(trace_paths(session, watched, request))
    except TraceFailed as error:
        say(str(error))
        sys.exit(Exit.NO_NODE)
    if style == "json":
        write(as_json(record))
    elif isinstance(record, ForwardedTraceRecord):
        write_text(forwarded_trace_table(record))
    else:
        write_text(trace_table(record))
    sys.exit(Exit.OK if any(path.hops for path in record.paths) else Exit.FAILED)
