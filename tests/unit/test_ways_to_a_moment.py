"""A moment of a recording is the same whichever way it was reached: by a jump, by playing on from
before it, or back from after it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fabmon.analysis.finding import to_stored
from fabmon.analysis.scene import Scene
from fabmon.fabric.heat_columns import HEAT
from fabmon.scenes import lead_in
from fabmon.scenes.recorded_past import RecordedPast
from tests.tui.recordings import Watching, at, past_of

SHOWN_S = (15, 24, 40, 46, 50, 70, 95)
"""Before, during and after the collision from 20 to 45 s; its end is known at 62 s."""
MINUTE = 60

Way = Callable[[RecordedPast, int], Coroutine[Any, Any, Scene]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ways") / "collision.fabrec"
    Watching().record(path, 100)
    return path


async def jump(past: RecordedPast, time_ns: int) -> Scene:
    """As after the time bar was clicked, once the minutes before are analysed."""
    scene = await past.seek(time_ns)
    assert scene is not None
    settled = await past.settle(scene.snapshot.time_ns)
    assert settled is not None
    return settled


async def play_on(past: RecordedPast, time_ns: int) -> Scene:
    """From up to 30 s before, tick by tick."""
    scene = await jump(past, max(at(1), time_ns - 30 * 10**9))
    while scene.snapshot.time_ns < time_ns:
        following = await past.step(scene.snapshot.time_ns, 1)
        assert following is not None
        scene = following
    return scene


async def back_from_later(past: RecordedPast, time_ns: int) -> Scene:
    """As `{` does after some ticks were played."""
    scene = await jump(past, time_ns + 3 * 10**9)
    await past.step(scene.snapshot.time_ns, 1)
    return await jump(past, time_ns)


async def there_and_back(past: RecordedPast, time_ns: int) -> Scene:
    """Ticks forward, and as many back."""
    scene = await jump(past, time_ns)
    later = await past.step(scene.snapshot.time_ns, 3)
    assert later is not None
    before = await past.step(later.snapshot.time_ns, -3)
    assert before is not None
    return before


@asynccontextmanager
async def reader_of(path: Path) -> AsyncIterator[RecordedPast]:
    past = past_of(path)
    try:
        yield past
    finally:
        await past.close()


def shown(scene: Scene) -> dict[str, Any]:
    """What a screen shows of a scene, comparable."""
    snapshot = scene.snapshot
    rows = list(range(len(snapshot.up)))
    return {
        "time": (snapshot.time_ns, snapshot.seq),
        "ports": [port.id for port in snapshot.fabric.ports],
        **{name: snapshot.column(name).tobytes() for name in HEAT},
        "up": snapshot.up.tobytes(),
        "line rates": snapshot.line_rate_bps.tobytes(),
        "last minute": {
            name: np.asarray(snapshot.window(name, rows, MINUTE)).tobytes() for name in HEAT
        },
        "nodes": (snapshot.nodes_up, snapshot.statuses),
        "jobs": snapshot.jobs.jobs,
        "findings": [to_stored(each) for each in scene.findings],
        "events": [(each.time_ns, each.text) for each in scene.events],
        "iterations": scene.iteration_report,
    }


@pytest.mark.parametrize("way", [play_on, back_from_later, there_and_back])
async def test_a_moment_is_the_same_whichever_way_leads_to_it(way: Way, recorded: Path) -> None:
    for second in SHOWN_S:
        async with reader_of(recorded) as one, reader_of(recorded) as other:
            expected, found = (
                shown(await jump(one, at(second))),
                shown(await way(other, at(second))),
            )
        for what in expected:
            assert found[what] == expected[what], (what, second)


@pytest.mark.parametrize("way", [jump, play_on])
async def test_a_finding_opens_once_on_the_timeline(
    way: Way, recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many nodes only a minute before is analysed, here some seconds: it began before these,
    and the analysis opened it again, at its own begin."""
    monkeypatch.setattr(lead_in, "_READS", 0)
    monkeypatch.setattr(lead_in, "_LEAST_TICKS", 10)
    for second in SHOWN_S[1:]:
        async with reader_of(recorded) as past:
            scene = await way(past, at(second))
        opened = [each for each in scene.events if each.text.startswith("open ecmp_collision")]
        assert len(opened) == len({each.text for each in opened}) == (second > 24), second
        assert {each.since_ns for each in scene.findings} <= {each.time_ns for each in opened}
