"""`fabmon watch`: findings without a screen, for a service."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fabmon.cli.options import (
    Duration,
    config_option,
    host_option,
    hosts_option,
    interval_option,
    match_option,
    prometheus_option,
    redact_option,
    sflow_option,
    ssh_config_option,
    token_option,
    topology_option,
)
from fabmon.session.errors import UsageError


@click.command()
@hosts_option
@host_option
@sflow_option
@prometheus_option
@match_option
@token_option
@click.option("--duration", type=Duration(), metavar="TIME", help="Exit after this time (90s, 1h).")
@interval_option
@topology_option
@config_option
@ssh_config_option
@redact_option
def watch(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    sflow: str | None,
    prometheus: str | None,
    matches: tuple[str, ...],
    token_file: Path | None,
    duration: float | None,
    interval: float | None,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
    redact: bool,
) -> None:
    """Watch without a screen: findings only.

    Prints a line when a finding opens, changes or closes, and sends alerts to the receivers that
    fabmon.toml has in [alerts]: see docs/alerts.md. Made to run as a service. Problems are printed
    to standard error. SIGTERM and ctrl+c end it.
    """
    if prometheus is None and (matches or token_file is not None):
        raise UsageError("--match and --prometheus-token-file need --prometheus URL")
    if prometheus is not None and sflow is not None:
        raise UsageError("--sflow and --prometheus cannot be combined")
    from fabmon.session.presentation import FINDINGS, RunOptions
    from fabmon.session.watch_run import watch as watch_nodes

    options = RunOptions(
        hosts=hosts,
        nodesets=nodesets,
        sflow=sflow,
        prometheus=prometheus,
        matches=matches,
        token_file=token_file,
        style=FINDINGS,
        duration_s=duration,
        interval_s=interval,
        config=config,
        topologies=topologies,
        ssh_config=ssh_config,
        redact=redact,
    )
    sys.exit(watch_nodes(options))
