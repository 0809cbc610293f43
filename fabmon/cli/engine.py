"""What `--prometheus` shows: an engine's feed, and its past before it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fabmon.cli.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.analyst import Analyst
    from fabmon.analysis.scene import Scene
    from fabmon.fabric.model import Host
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.history.history import History


class EngineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [prometheus] of fabmon.toml."""

    match: tuple[str, ...] = ()
    node_label: str = "instance"
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None
    history_minutes: float = 15.0


def feed_of(
    url: str,
    config: EngineConfig,
    *,
    matches: Sequence[str],
    token_file: Path | None,
    hosts: Sequence[Host],
    interval_s: float | None,
) -> PrometheusFeed:
    """The feed that the options name. Raises UsageError."""
    from fabmon.feeds.prometheus.access import Access, BadAccess
    from fabmon.feeds.prometheus.client import Engine
    from fabmon.feeds.prometheus.feed import PrometheusFeed
    from fabmon.feeds.prometheus.selector import label, matchers

    given = str(token_file) if token_file is not None else None
    try:
        access = Access(
            url=url,
            token_file=given or config.token_file,
            password_file=None if given else config.password_file,
            ca_file=config.ca_file,
            insecure=config.insecure,
            tenant=config.tenant,
        )
        return PrometheusFeed(
            Engine(access),
            hosts=[msgspec.structs.replace(host, via="exporters") for host in hosts],
            selections=[matchers(each) for each in matches or config.match],
            node=label(config.node_label),
            interval_s=interval_s,
        )
    except BadAccess as error:
        raise UsageError(str(error)) from None


async def scenes(
    feed: PrometheusFeed, history: History, analyst: Analyst, past_s: float
) -> AsyncGenerator[Scene, None]:
    """Scenes from now on; the past has gone through the house before the first of them."""
    from fabmon.analysis.analyst import watch

    async for tick in feed.past(past_s):
        analyst.accept(history.accept(tick))
        await asyncio.sleep(0)
    async for scene in watch(feed, history, analyst):
        yield scene
