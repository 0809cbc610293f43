"""`fabmon doctor`: what can be read on each node, and what should be fixed before a run."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from fabmon.cli.options import (
    check_feeds,
    config_option,
    host_option,
    hosts_option,
    match_option,
    patience_option,
    prometheus_option,
    report_option,
    ssh_config_option,
    token_option,
    topology_option,
)
from fabmon.session.errors import Exit

_PATIENCE_S = 15.0


@click.command()
@hosts_option
@host_option
@prometheus_option
@match_option
@token_option
@report_option
@patience_option(_PATIENCE_S)
@topology_option
@config_option
@ssh_config_option
def doctor(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    prometheus: str | None,
    matches: tuple[str, ...],
    token_file: Path | None,
    style: str,
    duration_s: float,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
) -> None:
    """Check what can be read on each node, and what is configured wrongly.

    For each node and source: works, absent, unsupported, not permitted (and what would help) or too
    slow. Then the audit before a run: dead rails, link speed, PCIe, MTU, PFC and ECN along each
    rail, flaps, cabling, NUMA, shared ports. With --prometheus: by what the server has of each
    node, and which of its metrics are not read.
    """
    check_feeds(prometheus, matches, token_file)
    from fabmon.report.doctor import doctor_table
    from fabmon.report.output import as_json
    from fabmon.session.node_queries import examine_nodes, examine_prometheus
    from fabmon.session.node_selection import selected_hosts
    from fabmon.session.printing import log_to_stderr, status_of, write, write_text
    from fabmon.session.session import Session

    session = Session.load(config, topologies, ssh_config)
    log_to_stderr(nodes=False)
    if prometheus is not None:
        from fabmon.session.presentation import RunOptions
        from fabmon.session.prometheus_run import prometheus_feed

        named = selected_hosts(hosts, nodesets) if hosts is not None or nodesets else []
        options = RunOptions(matches=matches, token_file=token_file)
        feed = prometheus_feed(prometheus, session.settings.prometheus, options, named)
        found = asyncio.run(examine_prometheus(session, feed))
        if found is None:
            sys.exit(Exit.NO_NODE)
        record = found
    else:
        watched = selected_hosts(hosts, nodesets)
        record = asyncio.run(examine_nodes(session, watched, duration_s))
    if style == "json":
        write(as_json(record))
    else:
        write_text(doctor_table(record))
    if record.nodes_up and record.to_fix:
        sys.exit(Exit.FIX_NEEDED)
    sys.exit(status_of(record.nodes_up, record.nodes_total))
