"""`fabmon`: the fabric live, on the screen or printed."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fabmon.analysis.analyst import Analyst, watch
from fabmon.analysis.scene import Scene
from fabmon.cli import config, headless
from fabmon.cli.errors import Exit, UsageError
from fabmon.cli.hosts import named
from fabmon.fabric.model import Host
from fabmon.feeds.live import LiveFeed
from fabmon.history.history import History

if TYPE_CHECKING:
    from textual.pilot import Pilot

    from fabmon.tui.app import FabmonApp

_PICTURE_SIZE = (120, 32)
_PICTURE_AFTER_S = 10.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line said; None where it said nothing."""

    hosts: Path | None
    nodesets: tuple[str, ...]
    prometheus: str | None
    matches: tuple[str, ...]
    token_file: Path | None
    style: str | None
    once: bool
    duration_s: float | None
    interval_s: float | None
    config: Path | None
    ssh_config: Path | None
    color: str | None
    picture: Path | None


def run(options: Options) -> Exit:
    """Watch as the options say. Raises UsageError before anything is connected to."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: there is nowhere to show anything")
    settings = config.load(options.config)
    is_named = options.hosts is not None or bool(options.nodesets)
    hosts = [] if options.prometheus and not is_named else named(options.hosts, options.nodesets)
    try:
        if options.prometheus is not None:
            return asyncio.run(_watch_engine(options, settings, hosts, options.prometheus))
        return asyncio.run(_watch(options, settings, hosts))
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


async def _watch(options: Options, settings: config.Config, hosts: list[Host]) -> Exit:
    interval_s = options.interval_s or settings.interval_s
    ssh_config = str(options.ssh_config) if options.ssh_config else settings.ssh_config
    feed = LiveFeed(hosts, interval_s=interval_s, ssh_config=ssh_config)
    history = History(hosts, interval_s, settings.management_ports)
    async with (
        aclosing(feed),
        aclosing(watch(feed, history, Analyst(settings.thresholds))) as scenes,
    ):
        title = options.hosts.stem if options.hosts else ",".join(options.nodesets)
        return await _show(scenes, options, settings, title or socket.gethostname())


async def _watch_engine(
    options: Options, settings: config.Config, hosts: list[Host], url: str
) -> Exit:
    from fabmon.cli import engine
    from fabmon.feeds.prometheus.errors import EngineError

    feed = engine.feed_of(
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
        except EngineError as error:
            print(f"fabmon: {error}", file=sys.stderr)
            return Exit.NO_NODE
        history = History(feed.hosts, feed.interval_s, settings.management_ports)
        analyst = Analyst(settings.thresholds)
        async with aclosing(engine.scenes(feed, history, analyst, past_s)) as scenes:
            title = f"{feed.interval_s:g} s of {feed.title}"
            return await _show(scenes, options, settings, title)


async def _show(
    scenes: AsyncIterator[Scene], options: Options, settings: config.Config, title: str
) -> Exit:
    """Show scenes as the options say, under a title."""
    if options.style == "jsonl":
        headless.log_to_stderr()
        return await headless.stream(scenes, options.duration_s)
    if options.picture is None and (options.once or not _can_paint()):
        headless.log_to_stderr()
        return await headless.once(scenes, options.style or "table", options.duration_s)
    from fabmon.tui.app import FabmonApp

    app = FabmonApp(scenes, title=title, color=options.color or settings.color)
    if options.picture is not None:
        return await _take_picture(app, options.picture, options.duration_s)
    if options.duration_s is not None:
        asyncio.get_running_loop().call_later(options.duration_s, app.exit)
    await app.run_async()
    return Exit.OK


async def _take_picture(app: FabmonApp, path: Path, after_s: float | None) -> Exit:
    """Run the screen without a terminal for a while, then keep what it shows as SVG."""

    async def take(pilot: Pilot[None]) -> None:
        await asyncio.sleep(_PICTURE_AFTER_S if after_s is None else after_s)
        await pilot.pause()
        svg = _without_web_fonts(app.export_screenshot(title="fabmon"))
        await asyncio.to_thread(path.write_text, svg, "utf-8")
        app.exit()

    await app.run_async(headless=True, size=_PICTURE_SIZE, auto_pilot=take)
    return Exit.OK


def _without_web_fonts(svg: str) -> str:
    """A picture must not make its reader fetch anything: any monospaced font will do."""
    return re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)


def _can_paint() -> bool:
    """Whether the screen can be drawn; says on standard error when it cannot.

    Textual reads keys from standard input and draws on standard error.
    """
    streams = (sys.stdin, sys.stdout, sys.stderr)
    if os.environ.get("TERM") == "dumb" or not all(each and each.isatty() for each in streams):
        if sys.stderr is not None:
            print("fabmon: not on a terminal: one report instead of the screen", file=sys.stderr)
        return False
    return True
