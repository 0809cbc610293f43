"""`fabmon`: the fabric live, on the screen or printed."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from fabmon.analysis.analyst import Analyst
from fabmon.cli.hosts import selected_hosts
from fabmon.cli.topology import load_topology
from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor, redacted
from fabmon.fabric.topology.plan import Topology
from fabmon.feeds.live import LiveFeed
from fabmon.history.chunk_rates import RateChunkBuilder
from fabmon.history.history import History
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.recorder import Recorder
from fabmon.session import config
from fabmon.session.errors import Exit, UsageError
from fabmon.session.presentation import Look, check_writable, is_screen, show
from fabmon.session.recorder_setup import describe_status, made, recorder_for, ring_recorder, watch
from fabmon.session.run_options import RunOptions
from fabmon.session.saved_files import saves
from fabmon.session.time_travel import back_through, files_of

if TYPE_CHECKING:
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.tui.app import AskBurst

_REDACTED = "without names"


def run(options: RunOptions) -> Exit:
    """Watch as the options say. Raises UsageError before anything is connected to."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: there is nowhere to show anything")
    settings = config.load(options.config)
    topology = load_topology(settings, options.config, options.topologies)
    if options.picture is not None:
        check_writable(options.picture)
    is_named = options.hosts is not None or bool(options.nodesets)
    hosts = (
        []
        if options.prometheus and not is_named
        else selected_hosts(options.hosts, options.nodesets)
    )
    try:
        if options.prometheus is not None:
            url = options.prometheus
            return asyncio.run(_watch_engine(options, settings, hosts, topology, url))
        return asyncio.run(_watch(options, settings, hosts, topology))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _watch(
    options: RunOptions, settings: config.Config, hosts: list[Host], topology: Topology
) -> Exit:
    interval_s = options.interval_s or settings.interval_s
    ssh_config = str(options.ssh_config) if options.ssh_config else settings.ssh_config
    feed = LiveFeed(hosts, interval_s=interval_s, ssh_config=ssh_config)
    redactor = Redactor(hosts) if options.redact else None
    hosts, topology = _told(hosts, topology, redactor)
    history = History(hosts, interval_s, settings.management_ports, topology=topology)
    analyst = Analyst(settings.thresholds, options.hints)
    title = options.hosts.stem if options.hosts else ",".join(options.nodesets)
    title = _REDACTED if redactor else title or socket.gethostname()
    look = Look(title, options.color or settings.color, ask_burst=_burst(feed, redactor))
    with _recorder(options, settings, hosts, interval_s, title) as recorder:
        if is_screen(options):
            look = _with_past(look, recorder, options, settings, history, topology)
        scenes = watch(redacted(feed, redactor), history, analyst, made(recorder))
        async with aclosing(feed), aclosing(scenes):
            return await show(scenes, options, look)


def _with_past(
    look: Look,
    recorder: Recorder | str,
    options: RunOptions,
    settings: config.Config,
    history: History,
    topology: Topology,
) -> Look:
    """Back in time, through a house that is furnished like the one of now; and cut out of it."""

    def again(timeline: Timeline) -> History:
        ports, rows = settings.management_ports, history.rows
        return History(timeline.hosts, timeline.interval_s, ports, topology=topology, rows=rows)

    def cut(timeline: Timeline) -> History:
        ports = settings.management_ports
        return History(timeline.hosts, timeline.interval_s, ports, topology=topology)

    def rate_chunks() -> RateChunkBuilder:
        return RateChunkBuilder(settings.management_ports, topology)

    def analyst() -> Analyst:
        return Analyst(settings.thresholds, options.hints)

    travel = back_through(recorder, again, analyst, rate_chunks)
    if options.redact:
        keep = travel.keep_note
        nameless = msgspec.structs.replace
        travel = replace(travel, keep_note=lambda note: keep(nameless(note, text="bookmark")))
    return replace(look, travel=travel, saves=saves(lambda: files_of(recorder), cut))


async def _watch_engine(
    options: RunOptions,
    settings: config.Config,
    hosts: list[Host],
    topology: Topology,
    url: str,
) -> Exit:
    from fabmon.feeds.prometheus.responses import PrometheusError
    from fabmon.session import prometheus_run

    feed = prometheus_run.prometheus_feed(
        url,
        settings.prometheus,
        matches=options.matches,
        token_file=options.token_file,
        hosts=hosts,
        interval_s=options.interval_s,
    )
    is_drawn = options.style is None and not options.once
    past_s = settings.prometheus.history_minutes * 60 if is_drawn else 0.0
    async with aclosing(feed):
        try:
            await feed.open()
        except PrometheusError as error:
            print(f"fabmon: {error}", file=sys.stderr)
            return Exit.NO_NODE
        redactor = Redactor(feed.hosts) if options.redact else None
        told, topology = _told(feed.hosts, topology, redactor)
        history = History(told, feed.interval_s, settings.management_ports, topology=topology)
        analyst = Analyst(settings.thresholds, options.hints)
        title = _REDACTED if redactor else feed.title
        title = f"every {feed.interval_s:g} s: {title}"
        look = Look(title, options.color or settings.color, nothing=lambda: _said(feed, redactor))
        with _recorder(options, settings, told, feed.interval_s, title) as recorder:
            if is_screen(options):
                look = _with_past(look, recorder, options, settings, history, topology)
            scenes = prometheus_run.scenes(feed, history, analyst, past_s, made(recorder), redactor)
            async with aclosing(scenes):
                return await show(scenes, options, look)


def _told(
    hosts: Sequence[Host], topology: Topology, redactor: Redactor | None
) -> tuple[list[Host], Topology]:
    """Nodes, and what was given of their cabling, by the names that are to be told."""
    if redactor is None:
        return list(hosts), topology
    return [redactor.host(host) for host in hosts], redactor.topology(topology)


def _said(feed: PrometheusFeed, redactor: Redactor | None) -> str:
    return feed.why_empty if redactor is None else redactor.text(feed.why_empty)


def _burst(feed: LiveFeed, redactor: Redactor | None) -> AskBurst:
    """Has a node sampled that is called by the name that is told."""
    if redactor is None:
        return feed.burst

    def burst(node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        return redactor.text(feed.burst(redactor.original(node), ports, seconds, hz))

    return burst


@contextmanager
def _recorder(
    options: RunOptions,
    settings: config.Config,
    hosts: Sequence[Host],
    interval_s: float,
    title: str,
) -> Iterator[Recorder | str]:
    """What is watched is recorded: to --record, else, beside a screen, to the ring; or why not."""
    recorder: Recorder | str = "nothing is recorded without a screen"
    console = "" if options.redact else None
    if options.redact and options.record is not None and options.record.exists():
        raise UsageError(
            f"--redact: {options.record} is there, and may hold names: name a new file"
        )
    if options.record is not None:
        recorder = recorder_for(options.record, hosts, interval_s, title, console=console)
    elif is_screen(options):
        recorder = ring_recorder(settings.recording, hosts, interval_s, title, console=console)
    try:
        yield recorder
    finally:
        if isinstance(recorder, Recorder):
            status = recorder.close()
            if options.record is not None:
                print(f"fabmon: {describe_status(status)}", file=sys.stderr)
