"""`fabmon ras`: what NCCL's RAS reports of a job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabmon.cli.options import (
    node_session,
    parse_zone,
    patience_option,
    recording_option,
    redact_option,
    report_option,
)
from fabmon.session.errors import Exit
from fabmon.session.stderr_lines import say

if TYPE_CHECKING:
    from fabmon.session.session import Session


@click.command()
@click.argument("answers", nargs=-1, metavar="[FILE...]", type=click.Path(path_type=Path))
@click.option(
    "--host",
    metavar="HOST[:PORT]",
    help="Ask RAS once on this node of the job: over SSH on its localhost, port 28028.",
)
@click.option(
    "--direct",
    is_flag=True,
    help="Connect to HOST itself, where NCCL_RAS_ADDR lets RAS listen there.",
)
@click.option("--nccl-version", metavar="X.Y.Z", help="Version of the job's NCCL.")
@click.option(
    "--log",
    "logs",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Log of the job: its NCCL version, and which HCAs a rank uses. May be repeated.",
)
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="FILE", help="Keep the answer, to compare."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1, 60),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="RAS waits at most this long for processes that do not answer.",
)
@recording_option(
    "Recording of that time: nodes, NICs, links, and whether they were idle, hot or paused."
)
@click.option("--screen", is_flag=True, help="The same from the screen that was shown last.")
@click.option(
    "--tz",
    metavar="ZONE",
    help="With --recording and FILE: time zone of the answer, Europe/Berlin or +2.",
)
@click.option(
    "--hosts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Hosts file: how HOST is reached; the nodes are asked for ports, addresses and cables.",
)
@patience_option()
@node_session
@report_option
@redact_option
def ras(
    tz: str | None,
    style: str,
    session: Session,
    **given: Any,
) -> None:
    """Show which ranks of a job are late or dead, by NCCL's RAS.

    \b
    fabmon ras --host gpu001 --nccl-version 2.29.3
    fabmon ras --host gpu001 --log job.log --screen --save first.json
    fabmon ras first.json --host gpu001 --log job.log --screen
    ncclras | tee status.txt; fabmon ras status.txt

    A query can crash a job with some versions of NCCL. One is sent only with --host, and only if
    the version is known: from --nccl-version, --log, or the library that processes of the node
    have mapped. Versions before 2.29.2 and 2.29.7 are refused. FILE is what ncclras printed, text
    or JSON, or --save kept: it is read, and nothing is sent. With several answers, the last is
    compared with the one before. Exit status 5: a rank is dead, does not answer or has failed, or
    nothing moves.
    """
    from fabmon.analysis.job.observation import WRONG
    from fabmon.report.job_table import job_table
    from fabmon.session.printing import log_to_stderr, print_report
    from fabmon.session.ras_run import RasOptions, RasUnreachable
    from fabmon.session.ras_run import ras as ask_ras

    zone = None if tz is None else parse_zone(tz)
    log_to_stderr()
    options = RasOptions(**given, zone=zone)
    try:
        record = ask_ras(session, options)
    except RasUnreachable as error:
        say(str(error))
        sys.exit(Exit.NO_NODE)
    print_report(style, record, job_table)
    sys.exit(Exit.FIX_NEEDED if record.result == WRONG else Exit.OK)
