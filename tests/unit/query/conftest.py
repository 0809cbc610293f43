from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path

import pytest

from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import parse
from fabmon.scenes.pipeline import AnalysisTime
from fabmon.session.recorder_setup import recorder_for
from tests.tui.recordings import COLLISION, Watching, session


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """100 s with a collision on leaf1 up3 from 20 to 45 s; one job, 8801."""
    path = tmp_path_factory.mktemp("query") / "incident.fabrec"
    Watching().record(path, 100)
    return path


@pytest.fixture(scope="session")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same of a recorder that is too slow to analyse every tick."""
    path = tmp_path_factory.mktemp("busy") / "incident.fabrec"
    feed = DemoFeed(parse(COLLISION))
    recorder = recorder_for(path, feed.hosts, 1.0, "pod7")
    limit = AnalysisTime(1.0, partial(next, count(0.0, 0.7)))
    pipeline = session().pipeline(feed.hosts, 1.0, recorder, limit)
    for _ in range(100):
        pipeline.accept(feed.step())
    recorder.close()
    return path
