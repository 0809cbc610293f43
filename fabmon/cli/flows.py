"""`fabmon flows`: RDMA connections between hosts, from their queue pairs, and sampled flows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    node_session,
    nodes_options,
    patience_option,
    report_option,
    sflow_option,
)

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@nodes_options
@sflow_option
@report_option
@patience_option()
@node_session
def flows(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    sflow: str | None,
    style: str,
    duration_s: float,
    session: Session,
) -> None:
    """List RDMA connections: every connected queue pair and its remote queue pair.

    Each with UDP source port, process and Slurm job; before them the flows and source ports from
    leaf to leaf. Both ends have to be watched. What is not known is listed as unknown.

    With --sflow, or a node with via=sflow, also the largest flows that switches sampled, by port:
    estimates, with their errors and sampling rates. Samples are summed over 10 s.
    """
    from fabmon.report.flows import flows_record, flows_table
    from fabmon.session import event_loop
    from fabmon.session.node_queries import collect_queue_pairs, receives_sflow
    from fabmon.session.node_selection import selected_hosts
    from fabmon.session.printing import log_to_stderr, print_report, status_of

    log_to_stderr(nodes=False)
    watched = selected_hosts(hosts, nodesets)
    snapshot = event_loop.run(collect_queue_pairs(session, watched, duration_s, sflow))
    record = flows_record(snapshot, receives_sflow=receives_sflow(watched, sflow))
    print_report(style, record, flows_table)
    sys.exit(status_of(snapshot.nodes_up, len(snapshot.statuses)))
