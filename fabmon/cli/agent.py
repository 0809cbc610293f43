"""`fabmon agent`: the counters of this machine over HTTP, for fabmon and for Prometheus."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from fabmon.agent.serve import (
    AgentError,
    ListenAddress,
    parse_listen_address,
    server_tls_context,
    token_at,
)
from fabmon.cli.options import FILE, NumberRange
from fabmon.feeds.access import agent_token_file as usual_token_file
from fabmon.feeds.errors import NodeError
from fabmon.session import event_loop
from fabmon.session.errors import Exit, UsageError
from fabmon.session.stderr_lines import LineFormatter, say


@click.command()
@click.option(
    "--listen",
    default=str(ListenAddress()),
    show_default=True,
    metavar="ADDR:PORT",
    help="Address to listen on. Other addresses than loopback need TLS.",
)
@click.option(
    "--token-file",
    type=FILE,
    help="File with the token that clients must send; created if it does not exist.  "
    "[default: ~/.local/state/fabmon/agent.token]",
)
@click.option("--tls-cert", type=FILE, help="Certificate chain (PEM).")
@click.option(
    "--tls-key", type=FILE, help="Private key of the certificate (PEM, without a passphrase)."
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen on any address without TLS: the token is sent unencrypted.",
)
@click.option(
    "--interval",
    type=NumberRange(min=0.1, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two frames.",
)
@click.option(
    "--sources",
    metavar="NAMES",
    help="Sources to read, comma-separated: NAME replaces the default set, +NAME and -NAME"
    " change it.",
)
@click.option("--root", default="/", hidden=True)
def agent(
    listen: str,
    token_file: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    interval: float,
    sources: str | None,
    root: str,
) -> None:
    """Serve the counters of this machine over HTTP, until it is stopped.

    /stream sends every frame, for fabmon (`via=http` in a hosts file); /metrics the last values,
    for Prometheus; /healthz whether frames arrive. Access is read-only. All paths except /healthz
    require the token: `Authorization: Bearer TOKEN`.
    """
    from fabmon.agent.serve import AgentOptions, serve

    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    path = token_file or usual_token_file()

    def ready(url: str) -> None:
        say(f"agent at {url}, token in {path}")

    try:
        address = parse_listen_address(listen)
        tls = server_tls_context(address, tls_cert, tls_key, is_insecure=insecure)
        options = AgentOptions(
            address=address,
            token=token_at(path),
            tls=tls,
            interval_s=interval,
            sources=tuple(sources.split(",")) if sources else None,
            root=root,
        )
        event_loop.run(serve(options, ready))
    except AgentError as error:
        raise UsageError(str(error)) from None
    except NodeError as error:
        say(f"this machine cannot be read: {error}")
        sys.exit(Exit.FAILED)
