"""Runs of the simulated fabric as recordings, and series of synthetic noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fabmon.analysis.fluctuation.study import Study
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario, parse
from fabmon.history.chunk_rates import RateChunk, RateChunkBuilder
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.raw_chunks import raw_chunks
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer

Values = NDArray[np.float64]

SHARED = """
title = "a job of four hosts, and another one on the same uplinks"
[topology]
hosts = 8
rails = 2
routing = "spray"
oversubscription = 2.0
[[job]]
name = "mine"
hosts = 4
payload_gb = 80
compute_s = 1.0
demand = {demand}
jitter = 0.03
[[job]]
name = "theirs"
hosts = 4
collective = "all-to-all"
payload_gb = 60
compute_s = 9.0
demand = 0.5
jitter = 0.3
"""


def shared(seed: int, demand: float = 0.8) -> Scenario:
    """A training job that shares its uplinks; `demand` is how fast its NICs are fed."""
    return parse(f"seed = {seed}\n{SHARED.format(demand=demand)}")


def record(path: Path, scenario: Scenario, seconds: int, start_ns: int | None = None) -> Path:
    """So many seconds of a scenario in a file."""
    feed = DemoFeed(scenario) if start_ns is None else DemoFeed(scenario, start_ns=start_ns)
    history = History(feed.hosts)
    first = feed.step()
    hosts = tuple(feed.hosts)
    session = SessionRecord(started_ns=first.time_ns, interval_s=1.0, hosts=hosts, tool="test")
    writer = Writer.create(path, session)
    writer.write(first, history.accept(first))
    for _ in range(seconds - 1):
        tick = feed.step()
        writer.write(tick, history.accept(tick))
    writer.close()
    return path


def rate_chunks(path: Path) -> list[RateChunk]:
    """All of a recording."""
    with Timeline([path]) as timeline:
        return list(RateChunkBuilder().of(raw_chunks(timeline)))


def studied(path: Path, **options: object) -> Study:
    """A study of all of a recording."""
    study = Study(**options)  # type: ignore[arg-type]
    for rate_chunk in rate_chunks(path):
        study.accept(rate_chunk)
    return study


def noisy(
    rng: np.random.Generator, count: int, autocorrelation: float, spread: float = 0.05
) -> Values:
    """A level of 100 with log-normal noise of that first autocorrelation (AR(1))."""
    pushes = rng.standard_normal(count + 200)
    noise = np.zeros(len(pushes))
    for place in range(1, len(pushes)):
        noise[place] = autocorrelation * noise[place - 1] + pushes[place]
    level: Values = 100 * np.exp(spread * (1 - autocorrelation**2) ** 0.5 * noise[200:])
    return level
