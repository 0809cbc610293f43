"""`fabmon mcp`: the questions of `fabmon query` for assistants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.options import recording_session, redact_option
from fabmon.cli.query import socket_option

if TYPE_CHECKING:
    from fabmon.session.session import Session


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
