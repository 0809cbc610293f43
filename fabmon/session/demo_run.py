"""Runs that watch a simulated fabric."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fabmon.fabric.routing_mode import HASHED, STATIC
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.session import event_loop
from fabmon.session.config import load
from fabmon.session.errors import Exit, UsageError
from fabmon.session.presentation import (
    RunOptions,
    check_writable,
    is_report,
    is_screen,
    warn_of_simulation,
)
from fabmon.session.recorder_setup import DEMO_MARK
from fabmon.session.session import Session
from fabmon.session.stderr_lines import say
from fabmon.session.watched_feed import WatchedFeed
from fabmon.tui.run_facts import RunFacts

if TYPE_CHECKING:
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.scenario import Scenario

_AS_ASKED = 0.95
"""Share of the wanted speed from which on it was reached: a run ends between two ticks."""

_SEEN_AFTER_S = 15
"""How long after the first fault begins a single report is made: most findings need 10 s."""
_LONGEST_LEAD_S = 120
"""Before a single report no more is simulated: at 1,024 hosts a tick takes a second."""

_FAST_HOSTS = 32
"""Larger demos take so long to start that a line says so."""


def watch_demo(
    options: RunOptions,
    scenario: Path | None = None,
    topology: str | None = None,
    hosts: int | None = None,
    seed: int | None = None,
    speed: float = 1.0,
) -> Exit:
    """Watch a simulated fabric: that of a scenario file, else the tour on a topology.

    `hosts` and `seed` change those of the scenario; `speed` is in simulated seconds a second.
    Raises UsageError.
    """
    from fabmon.feeds.demo import scenario as scenarios
    from fabmon.feeds.demo.feed import DemoFeed
    from fabmon.feeds.demo.random_faults import with_random_faults

    settings = load(options.config, options.model)
    session = Session(settings, hints=settings.hints)
    if options.picture is not None:
        check_writable(options.picture)
    try:
        played = scenarios.read(scenario) if scenario else scenarios.tour(topology or "leaf-spine")
        played = scenarios.resized(played, hosts, seed)
        played = played if scenario else with_random_faults(played)
        has_terminal = sys.stderr.isatty()
        if played.topology.hosts > _FAST_HOSTS and has_terminal:
            say(f"simulating {played.topology.hosts} hosts …")
        # One report shows the first fault: what comes before is simulated without waiting.
        is_single = is_report(options) and options.duration_s is None
        lead_s = _lead_s(played) if is_single else 0
        if lead_s and speed != 1:
            say(f"--speed {speed:g} has no effect: one report is simulated as fast as possible")
        feed = DemoFeed(
            played, speed=None if lead_s else speed, start_ns=time.time_ns() - lead_s * SECOND_NS
        )
        return event_loop.run(_watch_simulation(session, options, feed, played, speed, lead_s))
    except scenarios.ScenarioError as error:
        where = f"{scenario}: " if scenario and str(scenario) not in str(error) else ""
        raise UsageError(f"{where}{error}") from None
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _lead_s(scenario: Scenario) -> int:
    """Seconds until the first fault is found; 0 without one, or if it is late."""
    first = min(scenario.fault, key=lambda each: each.at, default=None)
    lead_s = 0 if first is None else int(min(first.at + _SEEN_AFTER_S, first.until - 1))
    return lead_s if 0 < lead_s <= _LONGEST_LEAD_S else 0


async def _watch_simulation(
    session: Session,
    options: RunOptions,
    feed: DemoFeed,
    scenario: Scenario,
    speed: float,
    lead_s: int,
) -> Exit:
    """Watch the feed; of the first `lead_s` seconds nothing is shown."""
    from fabmon.analysis.causes import title_at
    from fabmon.feeds.demo.random_faults import captions as fault_captions
    from fabmon.tui.run_facts import Tip

    if not is_screen(options) and options.picture is None:
        warn_of_simulation()
    tour_s = max((each.at + each.duration for each in scenario.caption), default=math.inf)
    is_ib = feed.world.hardware.is_ib
    title = partial(title_at, mode=STATIC if is_ib else HASHED, has_credits=is_ib)
    lines = [*scenario.caption, *fault_captions(feed.world, tour_s, title)]
    captions = [Tip(each.at, each.duration, each.text) for each in lines]
    color = options.color or session.settings.color
    starting = f"simulating {scenario.topology.hosts} hosts; the first tick takes some seconds"
    facts = RunFacts(
        scenario.title,
        color,
        DEMO_MARK,
        captions,
        nothing=lambda: starting,
        age_s=feed.age_s,
        nodes_options=None,
        thresholds=session.settings.thresholds,
    )

    async def past() -> AsyncIterator[Tick]:
        for _ in range(lead_s):
            yield await anext(feed)

    shown = WatchedFeed(session, options, facts, feed, feed.hosts, 1.0, past(), speed=speed)
    async with aclosing(feed):
        status = await shown.show()
    reached = feed.reached_speed()
    if speed != 1 and reached and not lead_s:
        slower = ", which is as fast as this machine is" if reached < _AS_ASKED * speed else ""
        say(f"--speed {speed:g}: reached {reached:.3g} simulated seconds a second{slower}")
    return status
