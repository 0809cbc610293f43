"""The rhythm of training below the findings, whole in the view of findings, and on the timeline."""

from __future__ import annotations

import msgspec
import pytest

from fabmon.analysis.iteration.results import IterationReport, JobHints
from fabmon.analysis.scene import Scene
from fabmon.tui.palette import Depth, palette
from fabmon.tui.text import iteration
from tests.tui import golden
from tests.tui.running import running
from tests.tui.worlds import HEALTHY
from tests.unit.iteration.recorded_jobs import Play


@pytest.fixture(scope="module")
def slowed() -> Scene:
    """A minute and a half after a receiver became slow."""
    return Play(hints=JobHints(70e9, "bf16", dp=8, tp=8)).scenes(200)[-1]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (240, 70)])
async def test_the_overview_has_the_steps_where_there_is_room(
    slowed: Scene, size: tuple[int, int]
) -> None:
    async with running(size=size) as run:
        await run.send(slowed)
        golden.check(f"rhythm-{size[0]}x{size[1]}", run.text)
        # On a small terminal the findings have the room.
        assert ("step " in run.text) is (size[1] > 24)
        if size[1] > 24:
            assert "(was 5.5" in run.text
            assert "steps over 3 s" in run.text


async def test_the_view_of_findings_has_every_job(slowed: Scene) -> None:
    async with running(size=(80, 24)) as run:
        await run.send(slowed)
        await run.press("4")
        golden.check("rhythm-findings-80x24", run.text)
        assert "only steps over 3 s are told" in run.text
        assert run.text.count(" comm ") >= 3


async def test_without_a_rhythm_the_panel_is_not_there() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        assert "Rhythm" not in run.text


def test_what_is_not_sure_is_said(slowed: Scene) -> None:
    told = slowed.iteration_report.jobs[1]
    unsure = msgspec.structs.replace(told, resolved=False, hosts_sure=False)
    lines = iteration.page(
        IterationReport(3.0, 16, 200, (unsure,)), 100, palette(Depth.TRUECOLOR, "blue")
    )
    text = "\n".join(line.text for line in lines)
    assert "or under 2 s: faster steps look the same; B on a port tells" in text
    assert "another job moves so alike that hosts may be mixed up" in text
    assert "to" in iteration.step(told)
    nothing = iteration.page(IterationReport(3.0, 16, 200), 100, palette(Depth.TRUECOLOR, "blue"))
    assert "none yet: five steps or more" in "\n".join(line.text for line in nothing)
