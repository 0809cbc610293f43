"""`fabmon record`: record without a screen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    NEW_FILE,
    duration_option,
    inspector_option,
    interval_option,
    job_options,
    node_session,
    nodes_options,
    sflow_option,
)
from fabmon.session.errors import Exit
from fabmon.session.stderr_lines import say

if TYPE_CHECKING:
    from fabmon.fabric.jobs.job import JobFilter
    from fabmon.session.session import Session


@click.command()
@nodes_options
@job_options
@sflow_option
@inspector_option
@click.option("-o", "--output", type=NEW_FILE, required=True, help="The file, such as pod7.fabrec.")
@duration_option
@click.option(
    "--rotate",
    metavar="TIME|SIZE",
    help="Start a new file after this time (1h) or size (1GB).",
)
@click.option(
    "--keep",
    metavar="TIME|SIZE",
    help="With --rotate: remove files older than this time (7d), or the oldest files beyond this"
    " total size (50GB).",
)
@interval_option
@node_session
def record(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    jobs: JobFilter,
    sflow: str | None,
    nccl_inspector: str | None,
    output: Path,
    duration_s: float | None,
    rotate: str | None,
    keep: str | None,
    interval_s: float | None,
    session: Session,
) -> None:
    """Record without a screen.

    An existing file is continued. With --rotate the names of the files contain the time, as in
    pod7-20261119T021407Z.fabrec. Problems are printed to standard error. SIGTERM and ctrl+c stop
    the recording and complete the file. Receivers in [alerts] of fabmon.toml are sent findings.
    """
    from fabmon.session import event_loop
    from fabmon.session.node_queries import job_sources
    from fabmon.session.node_selection import select_nodes
    from fabmon.session.printing import log_to_stderr
    from fabmon.session.recorder_setup import describe_status, recorder_for, rotation_of
    from fabmon.session.watch_run import record_nodes

    selection = select_nodes(hosts, nodesets, jobs, job_sources(session))
    interval_s = interval_s or session.settings.interval_s
    log_to_stderr()
    rotation = rotation_of(rotate, keep)
    recorder = recorder_for(output, selection.hosts, interval_s, selection.title, rotation)
    try:
        ended = event_loop.run(
            record_nodes(
                session, selection, interval_s, recorder, duration_s, sflow, nccl_inspector
            )
        )
    finally:
        status = recorder.close()
    say(describe_status(status))
    if ended is Exit.NO_NODE:
        why = "no node answered: the recording holds the reasons, and no counters"
        say(why)
    sys.exit(Exit.FAILED if status.has_failed else ended)
