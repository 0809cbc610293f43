"""`fabmon mcp`: the questions of `fabmon query` for assistants."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from fabmon.cli.options import config_option, redact_option, topology_option
from fabmon.cli.query import socket_option


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@socket_option
@redact_option
@topology_option
@config_option
def mcp(
    files: tuple[Path, ...],
    socket: Path | None,
    redact: bool,
    topologies: tuple[Path, ...],
    config: Path | None,
) -> None:
    """Answer an assistant's questions: an MCP server on standard input and output.

    Made to be started by an assistant, with recordings or, without a FILE, for the running `fabmon
    watch` of this user. Its tools are the questions of fabmon query: status, findings, links, jobs,
    job and history. All of them only read. Needs the extra fabmon[mcp].
    """
    from fabmon.session.printing import log_to_stderr
    from fabmon.session.query_run import serve_mcp
    from fabmon.session.session import Session

    log_to_stderr()
    asyncio.run(serve_mcp(Session.load(config, topologies), files, socket, redact))
