"""`fabmon record`: watch without a screen, and keep all of it."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.amounts import Seconds
from fabmon.cli.hosts import (
    FILE,
    config_option,
    host_option,
    hosts_option,
    selected_hosts,
    ssh_config_option,
)
from fabmon.cli.topology import load_topology, topology_option
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState
from fabmon.recording.writing.recorder import Recorder
from fabmon.session.errors import Exit

if TYPE_CHECKING:
    from fabmon.fabric.topology.plan import Topology
    from fabmon.session.config import Config


@click.command()
@hosts_option
@host_option
@click.option("-o", "--output", type=FILE, required=True, help="The file, such as pod7.fabrec.")
@click.option("--duration", type=Seconds(), metavar="TIME", help="Leave after so long.")
@click.option(
    "--rotate",
    metavar="TIME|SIZE",
    help="Begin another file every so often (1h), or when it is so large (1GB).",
)
@click.option(
    "--keep",
    metavar="TIME|SIZE",
    help="With --rotate: remove files that are older (7d), or the oldest beyond a size (50GB).",
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    metavar="SECONDS",
    help="From one tick to the next.  [default: 1]",
)
@topology_option
@config_option
@ssh_config_option
def record(
    hosts: Path | None,
    nodesets: tuple[str, ...],
    output: Path,
    duration: float | None,
    rotate: str | None,
    keep: str | None,
    interval: float | None,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
) -> None:
    """Watch without a screen, and keep all of it.

    A file that is there already is gone on with. With --rotate the files are called after --output
    and the time, as in pod7-20261119T021407Z.fabrec. What goes wrong is told on standard error;
    SIGTERM and ctrl+c end it, and make the file whole.
    """
    from fabmon.session import printing
    from fabmon.session.config import load
    from fabmon.session.recorder_setup import describe_status, recorder_for, rotation_of

    settings = load(config)
    topology = load_topology(settings, config, topologies)
    watched = selected_hosts(hosts, nodesets)
    interval_s = interval or settings.interval_s
    printing.log_to_stderr()
    title = hosts.stem if hosts else ",".join(nodesets)
    recorder = recorder_for(output, watched, interval_s, title, rotation_of(rotate, keep))
    path = str(ssh_config) if ssh_config else settings.ssh_config
    try:
        ever_up = asyncio.run(
            _record(recorder, watched, interval_s, path, duration, settings, topology)
        )
    finally:
        status = recorder.close()
    print(f"fabmon: {describe_status(status)}", file=sys.stderr)
    sys.exit(Exit.FAILED if status.trouble else Exit.OK if ever_up else Exit.NO_NODE)


async def _record(
    recorder: Recorder,
    hosts: list[Host],
    interval_s: float,
    ssh_config: str | None,
    duration_s: float | None,
    settings: Config,
    topology: Topology,
) -> bool:
    """Watch until told to leave; whether any node ever answered."""
    from fabmon.analysis.analyst import Analyst
    from fabmon.feeds.live import LiveFeed
    from fabmon.history.history import History
    from fabmon.session.recorder_setup import watch

    loop = asyncio.get_running_loop()
    feed = LiveFeed(hosts, interval_s=interval_s, ssh_config=ssh_config)
    history = History(hosts, interval_s, settings.management_ports, topology=topology)
    closing: list[asyncio.Task[None]] = []

    def leave() -> None:
        closing.append(loop.create_task(feed.aclose()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leave)
    if duration_s is not None:
        loop.call_later(duration_s, leave)
    ever_up = False
    async with (
        aclosing(feed),
        aclosing(watch(feed, history, Analyst(settings.thresholds), recorder)) as scenes,
    ):
        async for scene in scenes:
            states = scene.snapshot.statuses.values()
            ever_up = ever_up or any(status.state is NodeState.UP for status in states)
    await asyncio.gather(*closing)
    return ever_up
