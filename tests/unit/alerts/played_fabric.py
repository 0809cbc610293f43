"""A simulated fabric that is watched and sends alerts, as a process of its own to be killed.

python -m tests.unit.alerts.played_fabric fabmon.toml scenario.toml SPEED SECONDS
"""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import aclosing
from pathlib import Path

from fabmon.feeds.demo import scenario as scenarios
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.report.scene_report import finding_lines
from fabmon.session.config import load
from fabmon.session.printing import log_to_stderr
from fabmon.session.session import Session, scenes_of


async def play(config: Path, scenario: Path, speed: float, seconds: float) -> None:
    """Watch `seconds` of a scenario at `speed`; the simulated clock is never ahead of the real."""
    session = Session(load(config))
    start_ns = time.time_ns() - int(seconds * 1e9)
    feed = DemoFeed(scenarios.read(scenario), speed=speed, start_ns=start_ns)
    alerts, kept = session.alerts("lab", "lab"), session.kept_findings("lab")
    pipeline = session.pipeline(feed.hosts, kept=kept)
    async with aclosing(scenes_of(pipeline, feed, alerts=alerts, kept=kept)) as scenes:
        async for scene in scenes:
            print("".join(finding_lines(scene)), end="", flush=True)
            if scene.snapshot.time_ns >= start_ns + seconds * 1e9:
                break


if __name__ == "__main__":
    log_to_stderr()
    config, scenario, speed, seconds = sys.argv[1:]
    asyncio.run(play(Path(config), Path(scenario), float(speed), float(seconds)))
