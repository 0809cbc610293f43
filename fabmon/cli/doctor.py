"""`fabmon doctor`: what can be read on each node, and what should be fixed before a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    check_feeds,
    node_session,
    nodes_options,
    patience_option,
    prometheus_options,
    report_option,
)
from fabmon.session.errors import Exit

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@nodes_options
@prometheus_options
@report_option
@patience_option(15)
@node_session
def doctor(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    prometheus: str | None,
    matches: tuple[str, ...],
    token_file: Path | None,
    style: str,
    duration_s: float,
    session: Session,
) -> None:
    """Check what can be read on each node, and what is configured wrongly.

    For each node and source: works, absent, unsupported, not permitted (and what would help) or too
    slow. Then the audit before a run: dead rails, link speed, PCIe, MTU, PFC and ECN along each
    rail, flaps, cabling, NUMA, shared ports. With --prometheus: by what the server has of each
    node, and which of its metrics are not read.
    """
    check_feeds(prometheus, matches, token_file)
    from fabmon.report.doctor import doctor_table
    from fabmon.session import event_loop
    from fabmon.session.node_queries import examine_nodes, examine_prometheus
    from fabmon.session.node_selection import selected_hosts
    from fabmon.session.printing import log_to_stderr, print_report, status_of

    log_to_stderr(nodes=False)
    if prometheus is not None:
        from fabmon.session.presentation import RunOptions
        from fabmon.session.prometheus_run import prometheus_feed

        named = selected_hosts(hosts, nodesets) if hosts is not None or nodesets else []
        options = RunOptions(matches=matches, token_file=token_file)
        feed = prometheus_feed(prometheus, session.settings.prometheus, options, named)
        found = event_loop.run(examine_prometheus(session, feed))
        if found is None:
            sys.exit(Exit.NO_NODE)
        record = found
    else:
        watched = selected_hosts(hosts, nodesets)
        record = event_loop.run(examine_nodes(session, watched, duration_s))
    print_report(style, record, doctor_table)
    if record.nodes_up and record.to_fix:
        sys.exit(Exit.FIX_NEEDED)
    sys.exit(status_of(record.nodes_up, record.nodes_total))
