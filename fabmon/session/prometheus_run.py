"""Runs that watch what a Prometheus-compatible server has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor, redacted
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import interval
from fabmon.feeds.inspector.reports import with_collectives
from fabmon.session.config import PrometheusConfig
from fabmon.session.errors import Exit, UsageError
from fabmon.session.node_selection import inspector_of, selected_hosts
from fabmon.session.presentation import RunOptions
from fabmon.session.printing import redacted_log
from fabmon.session.session import Session
from fabmon.session.stderr_lines import say
from fabmon.session.watched_feed import REDACTED_TITLE, WatchedFeed, kept_by, shown_hosts
from fabmon.tui.run_facts import RunFacts

if TYPE_CHECKING:
    from fabmon.feeds.prometheus.feed import PrometheusFeed

_RING_TICKS_OF_LARGE_SITES = 240
"""As many as the analysis of iterations looks at: 900 ticks of 80,000 ports would take 600 MB."""


async def watch_prometheus(session: Session, options: RunOptions, url: str) -> Exit:
    """Watch what a server has, with the names of a redactor if asked. Raises UsageError."""
    directory, _ = inspector_of(options.nccl_inspector, [])
    if options.nccl_inspector is not None and directory is None:
        raise UsageError(
            f"--nccl-inspector {options.nccl_inspector}: with --prometheus no node is connected to:"
            " what the server has of NCCL Inspector is asked for without an option"
        )
    is_named = options.hosts is not None or bool(options.nodesets)
    hosts = selected_hosts(options.hosts, options.nodesets) if is_named else []
    feed = prometheus_feed(url, session.settings.prometheus, options, hosts)
    redactor = Redactor(hosts) if options.redact else None
    if redactor is not None:
        redactor.node(urlsplit(url).hostname or "")
    feed.redact_log(redactor)
    with redacted_log(redactor):
        async with aclosing(feed), session.with_jobs(feed, redact=options.redact) as ticks:
            ticks = with_collectives(ticks, directory)
            return await _show_prometheus(session, options, feed, ticks, redactor)


async def _show_prometheus(
    session: Session,
    options: RunOptions,
    feed: PrometheusFeed,
    ticks: AsyncIterator[Tick],
    redactor: Redactor | None,
) -> Exit:
    from fabmon.feeds.prometheus.responses import PrometheusError

    settings = session.settings
    is_drawn = options.style is None and not options.once
    past_s = settings.prometheus.history_minutes * 60 if is_drawn else 0.0

    def shown(text: str) -> str:
        return text if redactor is None else redactor.text(text)

    try:
        await feed.open()
    except PrometheusError as error:
        say(shown(str(error)))
        return Exit.NO_NODE
    title = REDACTED_TITLE if redactor else feed.title
    facts = RunFacts(
        f"every {interval(feed.interval_s)}: {title}",
        options.color or settings.color,
        nothing=lambda: shown(feed.why_empty),
        on_open=_opener(feed, redactor),
        data_age_s=feed.data_age_s,
        thresholds=settings.thresholds,
    )
    asked = (options.prometheus, str(options.hosts or ""), *options.nodesets, *options.matches)
    session = session.redacted(redactor)
    if feed.is_large:
        session = replace(session, ring_ticks=_RING_TICKS_OF_LARGE_SITES)
    return await WatchedFeed(
        session,
        options,
        facts,
        redacted(ticks, redactor),
        shown_hosts(feed.hosts, redactor),
        feed.interval_s,
        redacted(feed.past(past_s), redactor),
        cluster=title,
        known_from=kept_by(" ".join(filter(None, asked)), feed.hosts, redactor),
    ).show()


def prometheus_feed(
    url: str, config: PrometheusConfig, options: RunOptions, hosts: Sequence[Host]
) -> PrometheusFeed:
    """The feed that the options and the configuration describe. Raises UsageError."""
    from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.feeds.prometheus.responses import BadAccess
    from fabmon.feeds.prometheus.series_selection import parse_label, parse_matchers

    token_file = str(options.token_file) if options.token_file is not None else None
    try:
        access = PrometheusAccess(
            url=url,
            token_file=token_file or config.token_file,
            password_file=None if token_file else config.password_file,
            ca_file=config.ca_file,
            insecure=config.insecure,
            tenant=config.tenant,
        )
        return PrometheusFeed(
            PrometheusClient(access),
            hosts=[msgspec.structs.replace(host, via="exporters") for host in hosts],
            selections=[parse_matchers(each) for each in options.matches or config.match],
            node=parse_label(config.node_label),
            interval_s=options.interval_s,
        )
    except BadAccess as error:
        raise UsageError(str(error)) from None


def _opener(feed: PrometheusFeed, redactor: Redactor | None) -> Callable[[str], None]:
    """Opens a node of a feed, by the name that is shown."""
    return lambda node: feed.open_node(node if redactor is None else redactor.original(node))
