"""`fabmon explain`: what the logs of a job say of the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabmon.cli.options import (
    LineRate,
    host_option,
    node_session,
    number_option,
    parse_zone,
    patience_option,
    recording_option,
    redact_option,
    report_option,
)

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=click.Path(path_type=Path))
@recording_option("Recording of that time: ports, leaves, findings and links then.")
@click.option(
    "--tz",
    metavar="ZONE",
    help="With --recording: time zone of the log, Europe/Berlin or +2.  [default: the zone in"
    " which the log's times are in the recording]",
)
@click.option(
    "--hosts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Hosts file: the nodes are asked for their ports, addresses and cables.",
)
@host_option
@number_option(
    "--rails",
    1,
    1024,
    "For nccl-tests: NICs of a node.  [default: those in the log, or of the nodes]",
)
@click.option(
    "--line-rate",
    "line_rate_bps",
    type=LineRate(),
    metavar="RATE",
    help="For nccl-tests: line rate of a NIC, as in 400G.  [default: that of the nodes]",
)
@patience_option()
@node_session
@report_option
@redact_option
def explain(
    tz: str | None,
    style: str,
    session: Session,
    **given: Any,
) -> None:
    """Explain logs of NCCL, PyTorch and nccl-tests: which ranks, NICs and links failed.

    \b
    fabmon explain job.log
    fabmon explain rank*.log.gz --recording run.fabrec
    fabmon explain job.log dumps/rank_*
    kubectl logs worker-0 | fabmon explain - --topology fabric.toml
    all_reduce_perf -b 8 -e 8G -f 2 | fabmon explain - --rails 8 --line-rate 400G

    LOG is a file, plain or gzip, or - for standard input; several are the files of one job. Dumps
    of PyTorch's Flight Recorder, whose names end in the rank, are compared with each other.

    Exit status 0: nothing is wrong in the logs; 5: a failure, a timeout or what makes the job slow
    is; 6: none is known, but lines that speak of a failure were not understood, or a dump was not
    read.
    """
    from fabmon.analysis.job.observation import NOT_UNDERSTOOD, WRONG
    from fabmon.report.job_table import job_table
    from fabmon.session.errors import Exit
    from fabmon.session.explain_run import ExplainOptions
    from fabmon.session.explain_run import explain as explain_logs
    from fabmon.session.printing import log_to_stderr, print_report

    zone = None if tz is None else parse_zone(tz)
    log_to_stderr()
    options = ExplainOptions(**given, zone=zone)
    record = explain_logs(session, options)
    print_report(style, record, job_table)
    sys.exit({WRONG: Exit.FIX_NEEDED, NOT_UNDERSTOOD: Exit.NOT_UNDERSTOOD}.get(record.result, 0))
