"""Runs that watch live nodes, or Prometheus: on the screen or printed; or only record."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from contextlib import aclosing

from fabmon.fabric.garbage_collection import set_for_a_run
from fabmon.fabric.redaction import Redactor, redacted
from fabmon.feeds.inspector.reports import with_collectives
from fabmon.feeds.live import LiveFeed
from fabmon.recording.writing.recorder import Recorder
from fabmon.scenes.pipeline import AnalysisTime
from fabmon.session import event_loop
from fabmon.session.errors import Exit, UsageError
from fabmon.session.event_loop import EndSignals
from fabmon.session.node_queries import job_sources
from fabmon.session.node_selection import Selection, inspector_of, select_nodes
from fabmon.session.presentation import RunOptions, check_writable, is_screen, load_screen
from fabmon.session.printing import NodesReached, redacted_log
from fabmon.session.prometheus_run import watch_prometheus
from fabmon.session.session import Session, scenes_of
from fabmon.session.watched_feed import REDACTED_TITLE, WatchedFeed, kept_by, shown_hosts
from fabmon.tui.run_facts import AskBurst, RunFacts


def watch(options: RunOptions) -> Exit:
    """Watch live nodes, or Prometheus. Raises UsageError before anything is connected to."""
    set_for_a_run()
    session = Session.load(options.config, options.topologies, options.ssh_config, options.model)
    if options.picture is not None:
        check_writable(options.picture)
    try:
        if options.prometheus is not None:
            if options.jobs:
                raise UsageError(f"{options.jobs}: with --prometheus, filter with / on the screen")
            return event_loop.run(watch_prometheus(session, options, options.prometheus))
        sources = job_sources(session)
        selection = select_nodes(options.hosts, options.nodesets, options.jobs, sources)
        return event_loop.run(_watch_nodes(session, options, selection))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _watch_nodes(session: Session, options: RunOptions, selection: Selection) -> Exit:
    settings = session.settings
    directory, hosts = inspector_of(options.nccl_inspector, selection.hosts)
    interval_s = options.interval_s or settings.interval_s
    feed = session.live_feed(hosts, interval_s, options.sflow)
    redactor = Redactor(hosts) if options.redact else None
    title = REDACTED_TITLE if redactor else selection.title
    facts = RunFacts(
        title,
        options.color or settings.color,
        ask_burst=_burst(feed, redactor),
        ask_retry=feed.retry,
        nodes_options=options.nodes_options(),
        age_s=feed.age_s,
        key_priority=feed.key_priority,
        thresholds=settings.thresholds,
    )
    feed.redact_log(redactor)
    with redacted_log(redactor):
        async with (
            aclosing(feed),
            session.with_jobs(feed, selection.jobs, options.redact) as ticks,
        ):
            feed.start(is_screen(options))
            if is_screen(options):
                await load_screen()
            return await WatchedFeed(
                session.redacted(redactor),
                options,
                facts,
                redacted(with_collectives(ticks, directory), redactor),
                shown_hosts(hosts, redactor),
                interval_s,
                cluster=title,
                known_from=kept_by(selection.known_from, hosts, redactor),
                ras_hosts=() if redactor else hosts,
            ).show()


async def record_nodes(
    session: Session,
    selection: Selection,
    interval_s: float,
    recorder: Recorder,
    duration_s: float | None,
    sflow: str | None = None,
    nccl_inspector: str | None = None,
) -> Exit:
    """Record nodes without a screen until SIGINT, SIGTERM or the end of the duration.

    Alerts are sent if receivers are configured.
    """
    with EndSignals((signal.SIGINT, signal.SIGTERM)) as signals:
        directory, hosts = inspector_of(nccl_inspector, selection.hosts)
        feed = session.live_feed(hosts, interval_s, sflow)
        alerts = session.alerts(selection.title, selection.known_from)
        kept = None if alerts is None else session.kept_findings(selection.known_from)
        limit = AnalysisTime(interval_s)
        pipeline = session.pipeline(hosts, interval_s, recorder, limit, kept)
        closing: list[asyncio.Task[None]] = []

        def stop(status: Exit = Exit.OK) -> None:
            closing.append(asyncio.create_task(feed.aclose()))

        signals.on_end(stop)
        if duration_s is not None:
            asyncio.get_running_loop().call_later(duration_s, stop)
        reached = NodesReached()
        async with (
            aclosing(feed),
            session.with_jobs(feed, selection.jobs) as ticks,
            aclosing(
                scenes_of(pipeline, with_collectives(ticks, directory), None, alerts, kept)
            ) as scenes,
        ):
            async for scene in scenes:
                reached.accept(scene)
        await asyncio.gather(*closing)
        return reached.status(signals)


def _burst(feed: LiveFeed, redactor: Redactor | None) -> AskBurst:
    """Asks a node for fast samples, by the name that is shown."""
    if redactor is None:
        return feed.burst

    def burst(node: str, ports: Sequence[str], seconds: float, hz: float) -> str:
        return redactor.text(feed.burst(redactor.original(node), ports, seconds, hz))

    return burst
