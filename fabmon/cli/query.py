"""`fabmon query` and `fabmon mcp`: questions, answered as JSON, and the same for assistants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import (
    FILE,
    config_option,
    number_option,
    recording_session,
    redact_option,
    topology_option,
)
from fabmon.fabric.heat_columns import HEAT
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.session.session import Session


_NAMES = ("status", "findings", "links", "jobs", "job", "history")
_OPTIONS = {"ports": "--links", "metrics": "--metric", "job": "--job NUMBER", "port": "--port PORT"}
"""Options of fields of questions that are not called as the field, and what those need."""

socket_option = click.option(
    "--socket",
    type=FILE,
    help="Socket of a running `fabmon watch`.  [default: that of the only one that runs]",
)


@click.command()
@click.argument("question", required=False, type=click.Choice(_NAMES), metavar="QUESTION")
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@click.option("--from", "from_", metavar="TIME", help="Of findings, job, history: begin here.")
@click.option("--to", metavar="TIME", help="Of findings, job, history: end here.")
@click.option("--at", metavar="TIME", help="Of links and jobs: at this time.")
@click.option("--job", metavar="JOB", help="A job of the scheduler by number, name or user.")
@click.option("--node", metavar="NODE", help="Of findings: on this node.")
@click.option("--cause", metavar="NAME", help="Of findings: of this cause, as ecmp_collision.")
@click.option(
    "--links",
    "ports",
    multiple=True,
    metavar="PATTERN",
    help="Of links: ports (leaf1/*), nodes (gpu00[1-4]) or rails (r3). May be repeated.",
)
@click.option(
    "--by",
    type=click.Choice(["util", "pause", "ecn", "errors", "drops"]),
    metavar="ORDER",
    help="Of links: order by util, pause, ecn, errors or drops.",
)
@click.option("--port", metavar="PORT", help="Of history: the port, as leaf1/swp5 or 'leaf1 up5'.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help=f"Of history: {', '.join(HEAT)}. May be repeated."
    "  [default: traffic, pauses, ecn, errors and drops]",
)
@number_option("--points", 2, 1440, "Of history: parts of the range, at most.")
@click.option(
    "--analyse/--no-analyse",
    default=None,
    help="Of jobs and job: read the minutes before, for the step time.  [default: up to 128 nodes]",
)
@number_option("--limit", 1, 1000, "Items of the answer, at most 1000.")
@click.option("--schema", is_flag=True, help="Print the JSON schema of the answers.")
@socket_option
@redact_option
@topology_option
@config_option
def query(
    question: str | None,
    files: tuple[Path, ...],
    schema: bool,
    socket: Path | None,
    redact: bool,
    topologies: tuple[Path, ...],
    config: Path | None,
    **fields: object,
) -> None:
    """Ask a recording, or a running `fabmon watch`, and print the answer as JSON.

    \b
    fabmon query status
    fabmon query findings run.fabrec --from 14:00 --job 8801
    fabmon query job --job 8801 --from -30m
    fabmon query links run.fabrec --at 14:03 --by pause --limit 20
    fabmon query history run.fabrec --port 'leaf1 up5' --from 14:00 --metric tx_bps

    Questions: status, findings, links, jobs, job (why one is slow) and history (of a port). Times:
    14:03 (UTC, the latest such time), -10m (before the end), +10m (after the start), `event 3`, or
    a date. Without a FILE, the running watch of this user is asked. Nothing is changed.
    """
    from fabmon.query.answers import schema as schema_of_answers
    from fabmon.query.questions import QueryError, fields_of, question_of
    from fabmon.report.output import as_json
    from fabmon.session import event_loop
    from fabmon.session.printing import log_to_stderr, write
    from fabmon.session.query_run import query as ask
    from fabmon.session.session import Session

    if schema:
        write(schema_of_answers())
        return
    if question is None:
        raise UsageError(f"ask something: {', '.join(_NAMES)}")
    given = {
        "from" if name == "from_" else name: list(value) if isinstance(value, tuple) else value
        for name, value in fields.items()
        if value not in (None, ())
    }
    for name, is_needed in fields_of(question).items():
        if is_needed and name not in given:
            raise UsageError(f"fabmon query {question}: add {_OPTIONS[name]}")
    for name in given.keys() - fields_of(question):
        option = _OPTIONS.get(name, f"--{name}").partition(" ")[0]
        raise UsageError(f"fabmon query {question} has no {option}: see fabmon query --help")
    try:
        asked = question_of(question, given)
    except QueryError as error:
        raise UsageError(str(error)) from None
    log_to_stderr()
    session = Session.load(config, topologies)
    write(as_json(event_loop.run(ask(session, files, socket, redact, asked))))


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@socket_option
@redact_option
@recording_session
def mcp(
    files: tuple[Path, ...],
    socket: Path | None,
    redact: bool,
    session: Session,
) -> None:
    """Answer an assistant's questions: an MCP server on standard input and output.

    Made to be started by an assistant, with recordings or, without a FILE, for the running `fabmon
    watch` of this user. Its tools are the questions of fabmon query: status, findings, links, jobs,
    job and history. All of them only read. Needs the extra fabmon[mcp].
    """
    from fabmon.session import event_loop
    from fabmon.session.printing import log_to_stderr
    from fabmon.session.query_run import serve_mcp

    log_to_stderr()
    event_loop.run(serve_mcp(session, files, socket, redact))
