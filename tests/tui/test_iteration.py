"""The iterations of training: below the findings, in the view of findings, on the timeline."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from fabmon.analysis.iteration.model_arithmetic import ExpectedTraffic, JobHints
from fabmon.analysis.iteration.results import IterationReport, JobIteration, best_step_s
from fabmon.analysis.scene import Scene
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import iteration
from tests.tui.running import running
from tests.tui.worlds import HEALTHY
from tests.unit.iteration.recorded_jobs import Play


@pytest.fixture(scope="module")
def slowed() -> Scene:
    """A minute and a half after a receiver became slow."""
    return Play(
        hints=JobHints(params=70e9, dp=8, tp=8, seq_len=8192, global_batch=32, peak_tflops=989)
    ).scenes(200)[-1]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (240, 70)])
async def test_the_overview_has_the_steps_where_there_is_room(
    slowed: Scene, size: tuple[int, int]
) -> None:
    async with running(size=size) as run:
        await run.send(slowed)
        if size == (120, 40):
            await run.looks_like(f"iteration-{size[0]}x{size[1]}")
        # On a small terminal the findings have the room.
        assert ("step " in run.text) is (size[1] > 24)
        if size[1] > 24:
            assert "(was 5.5" in run.text
            assert "steps over 3 s" in run.text


async def test_the_view_of_findings_has_every_job(slowed: Scene) -> None:
    async with running(size=(80, 24)) as run:
        await run.send(slowed)
        await run.press("4")
        await run.looks_like("iteration-findings-80x24")
        assert run.text.count(" comm ") >= 3


async def test_without_iterations_the_panel_is_not_there() -> None:
    async with running(HEALTHY, size=(120, 40)) as run:
        assert "Iterations" not in run.text


def test_the_numbers_of_a_job_with_slowed_exchanges_add_up(slowed: Scene) -> None:
    """125 GB at 66 % of 400 Gb/s take 3.8 s, 63 % of 6.03 s, and 3.1 s at 80 %."""
    job = msgspec.structs.replace(
        slowed.iteration_report.jobs[0],
        step_s=6.03,
        comm_low=0.62,
        comm_high=0.64,
        rail_bytes=(125e9,),
        line_rate_bps=400e9,
        line_share=0.78,
        best_step_s=best_step_s(6.03, 0.63, 125e9, 400e9),
    )
    assert job.mean_line_share == pytest.approx(0.66, abs=0.01)
    text = " ".join(page(slowed, IterationReport(3, 1, jobs=(job,))).split())
    assert "125 GB per rail, at 66 % of line rate on average, step" in text
    assert "78 %" not in text
    assert "step 5.36 s if all of it is at 80 % of line rate" in text
    uncertain = msgspec.structs.replace(job, comm_low=0.4)
    text = " ".join(page(slowed, IterationReport(3, 1, jobs=(uncertain,))).split())
    assert "usually at 78 % of line rate" in text
    assert "66 %" not in text


def test_the_model_on_the_command_line_adds_what_the_job_needs(slowed: Scene) -> None:
    text = page(slowed, slowed.iteration_report)
    assert "only steps over 3 s are measured" in text
    assert "for 64 GPUs expected 30.6 GB per rail, measured 4.54 times that" in text
    assert "a rail to hide communication; a rail delivers 320 Gb/s" in text
    assert "MFU 20 %: at most 80 % of the step waits for data" in text
    job = slowed.iteration_report.jobs[0]
    assert job.expected is not None
    fast = msgspec.structs.replace(job.expected, flops=9.9e15)
    text = page(slowed, IterationReport(3.0, 16, (with_expected(job, fast),)))
    assert "more than the GPU's peak: the options describe another job" in text
    alone = msgspec.structs.replace(job.expected, bytes=0.0)
    text = page(slowed, IterationReport(3.0, 16, (with_expected(job, alone),)))
    assert "expected: no traffic between nodes, all ranks of dp are in one" in text


def with_expected(job: JobIteration, expected: ExpectedTraffic) -> JobIteration:
    """The job with other hints."""
    return msgspec.structs.replace(job, expected=expected)


def test_what_is_not_sure_is_said(slowed: Scene) -> None:
    job = slowed.iteration_report.jobs[1]
    unsure = msgspec.structs.replace(job, resolved=False, hosts_sure=False)
    text = page(slowed, IterationReport(3.0, 16, (unsure,)))
    assert "may be under 2 s: press B on a port to sample at 50 Hz" in text
    assert "another job has a similar pattern: some hosts may be in the wrong job" in text
    assert "to" in iteration.step_text(job)
    assert f"step {unsure.step_text}, comm" in text
    assert unsure.step_text == f"{job.step_text}?"
    assert "None yet: five or more similar steps" in page(slowed, IterationReport(3.0, 16))


def page(scene: Scene, report: IterationReport) -> str:
    """The text on a scene whose jobs are those of a report."""
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    scene = dataclasses.replace(scene, iteration_report=report)
    return "\n".join(line.text for line in iteration.page(screen_state.draw_context(scene, 100)))
