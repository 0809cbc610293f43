"""`fabmon watch`: findings without a screen, for a service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from fabmon.cli.options import (
    FILE,
    check_feeds,
    config_option,
    duration_option,
    interval_option,
    job_options,
    nodes_options,
    prometheus_options,
    redact_option,
    sflow_option,
    ssh_config_option,
    topology_option,
)


class ListenOn(click.ParamType[tuple[str, int]]):
    """An address to listen on, as in `127.0.0.1:9839`; this machine alone without a host."""

    name = "address"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Host and port."""
        host, colon, port = str(value).rpartition(":")
        if not colon or not port.isascii() or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            self.fail(f"{value!r}: write an address and a port, as in 127.0.0.1:9839", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


@click.command()
@nodes_options
@job_options
@sflow_option
@prometheus_options
@duration_option
@interval_option
@topology_option
@config_option
@ssh_config_option
@redact_option
@click.option(
    "--metrics",
    type=ListenOn(),
    metavar="[ADDRESS]:PORT",
    help="Serve findings, nodes and links to Prometheus at /metrics, as 127.0.0.1:9839.",
)
@click.option(
    "--page",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the report page of the last hour to index.html in this directory, every minute.",
)
@click.option(
    "--socket",
    type=FILE,
    help="Answer `fabmon query` here.  [default: in the user's runtime directory]",
)
def watch(**given: Any) -> None:
    """Watch without a screen: findings only.

    Prints a line when a finding opens, changes or closes, and sends alerts to the receivers that
    fabmon.toml has in [alerts]; `fabmon config --init` writes one that explains them. Made to run
    as a service. Problems are printed to standard error. SIGTERM and ctrl+c end it.
    """
    from fabmon.session.presentation import FINDINGS, RunOptions
    from fabmon.session.watch_run import watch as watch_nodes

    options = RunOptions(**given, style=FINDINGS)
    check_feeds(options.prometheus, options.matches, options.token_file, options.sflow)
    sys.exit(watch_nodes(options))
