"""What `--prometheus` shows: an engine's feed, and its past before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.analyst import Analyst
    from fabmon.analysis.scene import Scene
    from fabmon.fabric.model import Host
    from fabmon.fabric.redaction import Redactor
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.history.history import History
    from fabmon.recording.writing.recorder import Recorder


Minutes = Annotated[float, msgspec.Meta(ge=0, le=1440, description="0 to 1440 minutes")]


class PrometheusConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [prometheus] of fabmon.toml."""

    match: tuple[str, ...] = ()
    node_label: str = "instance"
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None
    history_minutes: Minutes = 15.0


def prometheus_feed(
    url: str,
    config: PrometheusConfig,
    *,
    matches: Sequence[str],
    token_file: Path | None,
    hosts: Sequence[Host],
    interval_s: float | None,
) -> PrometheusFeed:
    """The feed that the options name. Raises UsageError."""
    from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.feeds.prometheus.queries import parse_label, parse_matchers
    from fabmon.feeds.prometheus.responses import BadAccess

    given = str(token_file) if token_file is not None else None
    try:
        access = PrometheusAccess(
            url=url,
            token_file=given or config.token_file,
            password_file=None if given else config.password_file,
            ca_file=config.ca_file,
            insecure=config.insecure,
            tenant=config.tenant,
        )
        return PrometheusFeed(
            PrometheusClient(access),
            hosts=[msgspec.structs.replace(host, via="exporters") for host in hosts],
            selections=[parse_matchers(each) for each in matches or config.match],
            node=parse_label(config.node_label),
            interval_s=interval_s,
        )
    except BadAccess as error:
        raise UsageError(str(error)) from None


async def scenes(
    feed: PrometheusFeed,
    history: History,
    analyst: Analyst,
    past_s: float,
    recorder: Recorder | None = None,
    redactor: Redactor | None = None,
) -> AsyncGenerator[Scene, None]:
    """Scenes from now on; the past has gone through the house before the first of them."""
    from fabmon.fabric.redaction import redacted
    from fabmon.session.recorder_setup import finding_notes, watch

    async for tick in redacted(feed.past(past_s), redactor):
        scene = analyst.accept(history.accept(tick))
        if recorder is not None:
            recorder.accept(tick, scene.snapshot, finding_notes(scene))
        await asyncio.sleep(0)
    async for scene in watch(redacted(feed, redactor), history, analyst, recorder):
        yield scene
