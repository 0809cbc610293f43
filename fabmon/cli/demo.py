"""`fabmon demo`: a simulated fabric, to try fabmon on and to learn what its screen means."""

from __future__ import annotations

import asyncio
import math
import sys
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hints import hint_options, hints
from fabmon.cli.hosts import FILE, config_option
from fabmon.cli.shared import (
    color_option,
    duration_option,
    once_option,
    picture_option,
    style_option,
)
from fabmon.session.errors import Exit, UsageError

if TYPE_CHECKING:
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.scenario import Scenario
    from fabmon.recording.reading.timeline import Timeline
    from fabmon.session.run_options import RunOptions

MARK = "SIMULATED"
_STARTS_AT_ONCE = 32
"""Up to so many hosts the screen is there before a line above it can be read."""


@click.command()
@click.option(
    "--topology",
    type=click.Choice(["leaf-spine", "rail", "fat-tree"]),
    help="RoCE with all rails of a host on one leaf, or a leaf a rail; or InfiniBand."
    "  [default: leaf-spine]",
)
@click.option(
    "--hosts",
    type=click.IntRange(4, 1024),
    metavar="N",
    help="Simulated hosts, a multiple of 4.  [default: 16]",
)
@click.option("--scenario", type=FILE, help="What to simulate: a TOML file instead of the tour.")
@click.option("--seed", type=int, help="Another seed: other hashes, other flows.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    show_default=True,
    help="Simulated seconds a second.",
)
@style_option
@once_option
@duration_option
@config_option
@color_option
@picture_option
@hint_options
def demo(
    topology: str | None,
    hosts: int | None,
    scenario: Path | None,
    seed: int | None,
    speed: float,
    style: str | None,
    once: bool,
    duration: float | None,
    config: Path | None,
    color: str | None,
    picture: Path | None,
    model_params: float | None,
    dtype: str | None,
    dp: int | None,
    tp: int | None,
    pp: int | None,
) -> None:
    """A simulated fabric to try fabmon on: jobs train, and things go wrong on a script.

    No node is reached. The header says SIMULATED. The first minute explains what is shown, and
    things go on going wrong for 12 hours, each told as it does; esc ends the explanations.
    """
    if style in ("table", "json") and not once:
        raise UsageError(f"--format {style} prints one report: add --once, or use --format jsonl")
    if style == "jsonl" and once:
        raise UsageError("--once prints a table or json; for lines, use --format jsonl --duration")
    if scenario is not None and topology is not None:
        raise UsageError("--scenario has a topology of its own: leave --topology out")
    told = hints(model_params, dtype, dp, tp, pp)
    from fabmon.feeds.demo import scenario as scenarios
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.random_faults import with_random_faults
    from fabmon.session.run_options import RunOptions

    options = RunOptions(
        style=style,
        once=once,
        duration_s=duration,
        interval_s=1.0,
        config=config,
        color=color,
        picture=picture,
        hints=told,
    )
    try:
        played = scenarios.read(scenario) if scenario else scenarios.tour(topology or "leaf-spine")
        played = scenarios.resized(played, hosts, seed)
        played = played if scenario else with_random_faults(played)
        if played.topology.hosts > _STARTS_AT_ONCE and sys.stderr.isatty():
            print(
                f"fabmon: simulating {played.topology.hosts} hosts …", file=sys.stderr, flush=True
            )
        feed = DemoFeed(played, speed=speed, start_ns=time.time_ns())
        code = asyncio.run(_play(feed, played, options))
    except scenarios.ScenarioError as error:
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        code = Exit.INTERRUPTED
    sys.exit(code)


async def _play(feed: DemoFeed, scenario: Scenario, options: RunOptions) -> Exit:
    from fabmon.analysis.analyst import Analyst
    from fabmon.feeds.demo.random_faults import told
    from fabmon.history.chunk_rates import RateChunkBuilder
    from fabmon.history.history import History
    from fabmon.recording.writing.recorder import Recorder
    from fabmon.session.config import load
    from fabmon.session.presentation import Look, is_screen, show
    from fabmon.session.recorder_setup import made, ring_recorder, watch
    from fabmon.session.saved_files import saves
    from fabmon.session.time_travel import back_through, files_of
    from fabmon.tui.screen_state import Caption

    if not is_screen(options) and options.picture is None:
        print(f"fabmon: {MARK}: nothing in this report is real", file=sys.stderr)
    tour_s = max((each.at + each.duration for each in scenario.caption), default=math.inf)
    lines = [*scenario.caption, *told(feed.world, tour_s)]
    captions = [Caption(each.at, each.duration, each.text) for each in lines]
    settings = load(options.config)
    history = History(feed.hosts, options.interval_s or 1.0, settings.management_ports)
    analyst = Analyst(settings.thresholds, options.hints)
    look = Look(scenario.title, options.color or settings.color, MARK, captions)
    if not is_screen(options):
        async with aclosing(feed), aclosing(watch(feed, history, analyst, None)) as scenes:
            return await show(scenes, options, look)
    title = f"{MARK}: {scenario.title}"
    interval_s = options.interval_s or 1.0
    # Beside the rings of what is real: `fabmon replay` must not take it for the last of them.
    recorder = ring_recorder(settings.recording, feed.hosts, interval_s, title, beside="demo")

    def again(timeline: Timeline) -> History:
        ports, rows = settings.management_ports, history.rows
        return History(timeline.hosts, timeline.interval_s, ports, rows=rows)

    def cut(timeline: Timeline) -> History:
        return History(timeline.hosts, timeline.interval_s, settings.management_ports)

    def rate_chunks() -> RateChunkBuilder:
        return RateChunkBuilder(settings.management_ports)

    travel = back_through(recorder, again, lambda: Analyst(settings.thresholds), rate_chunks)
    scenes = watch(feed, history, analyst, made(recorder))
    try:
        async with aclosing(feed), aclosing(scenes):
            kept = saves(lambda: files_of(recorder), cut)
            look = replace(look, travel=travel, saves=kept)
            return await show(scenes, options, look)
    finally:
        if isinstance(recorder, Recorder):
            recorder.close()
