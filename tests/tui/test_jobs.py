"""The view of jobs: a row for each, what is special about one, and the overview filtered to it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from rich.style import Style

from fabmon.analysis import job_summary
from fabmon.analysis.causes import sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.jobs.collectives import Collective, CollectiveReport
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.model import RAIL
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wording import Unit, rate
from fabmon.feeds.demo.scenario import Fault
from fabmon.tui.text.heatmap_row_layout import as_many_as_fit
from tests.tui import golden
from tests.tui.running import Running, running
from tests.tui.worlds import HEALTHY
from tests.unit.jobs.worlds import pairs_of_many, scene_of_jobs


@cache
def slowed() -> Scene:
    return scene_of_jobs(70, Fault(kind="slow_receiver", at=5, where="gpu001/r1"))


def job_8801(scene: Scene) -> Job:
    return next(each for each in scene.snapshot.jobs.jobs if each.number == "8801")


def with_jobs(report: JobReport | None) -> Scene:
    scene = HEALTHY.scene(70)
    hosts = [node.name for node in scene.snapshot.fabric.nodes]
    return replace(scene, snapshot=replace(scene.snapshot, jobs=JobTable(report, hosts)))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 48)])
async def test_every_job_has_a_row_and_the_selected_one_its_place_and_finding(
    size: tuple[int, int],
) -> None:
    async with running(size=size) as run:
        await run.send(slowed())
        await run.press("7")
        golden.check(f"jobs-{size[0]}x{size[1]}", run.text)


async def test_the_traffic_of_a_job_is_over_the_window_of_the_header() -> None:
    scene = slowed()
    rows = [
        port.row
        for port in scene.snapshot.fabric.ports
        if port.role == RAIL and port.node in scene.snapshot.jobs.nodes_of(job_8801(scene))
    ]
    sent_bps = np.nansum(scene.snapshot.window("tx_bps", rows, 60), axis=0)
    of_window = {
        "max of 10 s": sent_bps[-10:].max(),
        "mean of 10 s": sent_bps[-10:].mean(),
        "mean of 60 s": sent_bps.mean(),
        "this tick": sent_bps[-1],
    }
    assert len({rate(each, 0, Unit.GBIT) for each in of_window.values()}) > 2
    async with running(size=(120, 40)) as run:
        await run.send(scene)
        await run.press("7")
        for _ in range(5):
            name = next((each for each in of_window if each in run.lines[0]), None)
            if name is not None:
                row = next(each for each in run.lines if "llama-70b" in each)
                assert rate(of_window.pop(name), 0, Unit.GBIT) in row
            await run.press("p")
        assert not of_window


async def test_the_fluctuation_of_jobs_has_the_names_of_the_scheduler() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        await run.press("6")
        await run.shows(" Jobs  ", "job 8801 llama-70b (anna)")
        assert "correlates" not in run.text


async def test_enter_filters_the_overview_to_the_job_and_esc_shows_all_again() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        await run.press("7", "j", "enter")
        assert run.view == "overview"
        assert run.app.screen_state.choices.filter == "job:8802"
        assert "filter: job:8802" in run.text
        await run.press("escape", "escape", "escape")
        assert run.app.screen_state.choices.filter == ""


async def test_nothing_that_is_said_of_a_job_is_cut() -> None:
    async with running(size=(80, 24)) as run:
        await run.send(slowed())
        await run.press("7")
        said = " ".join("".join(run.text.splitlines()[-5:-1]).split())
        assert "…" not in said
        assert "Slow receiver: gpu001 r1 cannot keep up" in said


async def test_the_finding_of_a_job_is_said_at_the_moment_that_the_other_views_show() -> None:
    scene = slowed()
    (finding,) = scene.findings
    worst = msgspec.structs.replace(
        finding,
        seen_ns=scene.snapshot.time_ns - 9 * SECOND_NS,
        lost=0.8,
        text="gpu001 r1 cannot keep up: it pauses its switch 80 % of the time, and so do "
        + ", ".join(f"leaf{number} dn1" for number in range(1, 25)),
    )
    faded = msgspec.structs.replace(finding, lost=0.3, text="it pauses 30 %", worst=worst)
    said = sentence(faded, scene.snapshot)
    assert said.endswith("; now 30 % lost")
    async with running(size=(80, 24)) as run:
        await run.send(replace(scene, findings=(faded,)))
        for view in "47":
            await run.press(view)
            assert said in " ".join(run.text.split()), view


async def test_what_nccl_measured_is_shown_beside_the_links_that_carry_it() -> None:
    scene = slowed()
    latest_ns = scene.snapshot.time_ns
    measured = Collective(
        job="8801",
        operation="AllReduce",
        size="256 MiB",
        ranks=32,
        nodes=4,
        time_s=0.002,
        busbw=75e9,
        lowest=70e9,
        lowest_host="gpu003",
        hosts=("gpu001", "gpu003"),
        latest_ns=latest_ns,
    )
    inside = Collective(
        job="8801", operation="AllGather", ranks=8, nodes=1, time_s=1, busbw=400e9, latest_ns=1
    )
    report = CollectiveReport(
        lost=512, unread=3, skipped=12_000_000, collectives=(measured, inside)
    )
    shown = replace(scene, snapshot=replace(scene.snapshot, collectives=report))
    async with running(size=(120, 40)) as run:
        await run.send(shown)
        await run.press("7")
        text = " ".join(run.text.split())
        assert "NCCL Inspector: 512 records lost by full rings of communicators; 12.0 MB" in text
        assert "12.0 MB skipped: its files grow faster than they may be read; 3 lines" in text
        assert "NCCL: AllReduce 256 MiB 75.0 GB/s busbw, " in text
        assert "% of a node's NICs, on 4 nodes, lowest gpu003 70.0 GB/s; busiest link" in text
        assert "NCCL: AllGather 400 GB/s busbw, inside the node (8 ranks), as of 00:00:00Z" in text


def style_of(run: Running, host: str) -> Style | None:
    """The style of a host's name in the heatmap."""
    strips = run.app.screen._compositor.render_strips()
    return next(part.style for strip in strips for part in strip if part.text.strip() == host)


@pytest.mark.parametrize("color", ["truecolor", "256", "16", "none"])
async def test_hosts_have_the_colour_of_their_job_and_its_number(color: str) -> None:
    async with running(size=(160, 48), color=color) as run:
        await run.send(slowed())
        assert "8802 vit-22b (ben)" not in run.text
        await run.press("J")
        await run.shows("8801 llama-70b (anna)", "8802 vit-22b (ben)")
        assert style_of(run, "gpu001") == style_of(run, "gpu002")
        assert style_of(run, "gpu001") != style_of(run, "gpu003")
        await run.press("J")
        await run.until(lambda: "8802 vit-22b (ben)" not in run.text)


async def test_rows_of_leaves_have_the_colour_of_the_job_with_most_of_their_hosts() -> None:
    async with running(size=(160, 48)) as run:
        await run.send(slowed())
        await run.press("comma", "J")
        await run.shows("8801 2/4")  # Beside leaf2: leaf1 has a finding there.
        assert style_of(run, "leaf1") == style_of(run, "leaf2")
        await run.press("J")
        await run.until(lambda: "8801 2/4" not in run.text)


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (40, "8801 24/48, 8802 12/48, 9 4/48"),
        (22, "8801 24/48 +2"),
        (13, "8801 24/48 +2"),
        (8, "8801 24…"),
    ],
)
def test_as_many_jobs_of_a_row_as_fit_are_named(room: int, shown: str) -> None:
    assert as_many_as_fit("8801 24/48, 8802 12/48, 9 4/48", room) == shown


async def test_a_job_that_was_requeued_to_nodes_that_are_not_watched_is_named() -> None:
    scene = slowed()
    moved = Job(id="8807", name="bert", user="carl", nodes=("gpu101", "gpu102"))
    jobs = scene.snapshot.jobs
    watched = [node.name for node in scene.snapshot.fabric.nodes]
    before = JobTable(
        JobReport(source="squeue", jobs=(Job(id="8807", nodes=("gpu001",)),)), watched
    )
    report = JobReport(source="squeue", read_ns=1, jobs=(*jobs.jobs, moved))
    table = JobTable(report, watched, before=before)
    async with running(size=(120, 40)) as run:
        await run.send(replace(scene, snapshot=replace(scene.snapshot, jobs=table)))
        await run.press("7")
        assert "job 8807 bert (carl) runs on gpu[101-102] now, which is not watched" in run.text


async def test_a_job_is_found_by_its_name() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        await run.press("colon", *"vit", "enter")
        assert run.app.screen_state.choices.filter == "job:8802"


async def test_findings_name_the_jobs_that_they_affect() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        assert "job 8801 llama-70b (anna)" in run.text
        await run.press("enter")
        assert "Affected jobs: job 8801 llama-70b (anna)" in run.text


async def test_only_jobs_that_match_the_filter_are_listed() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        await run.press("7", "slash", *"user:ben", "enter")
        assert "vit-22b" in run.text
        assert "llama-70b" not in run.text


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (None, "No process that uses RDMA belongs to a Slurm job"),
        (JobReport(source="squeue", read_ns=1), "No job runs on the watched nodes"),
        (
            JobReport(source="squeue", reason="squeue is not on the PATH of this machine"),
            "Numbers of jobs alone, from processes that use RDMA: squeue is not on the PATH",
        ),
        (
            JobReport(
                source="squeue",
                read_ns=1_795_333_250 * 10**9,
                reason="squeue has not answered for 20 s",
                jobs=(Job(id="8801", name="llama", nodes=("gpu001", "gpu099")),),
            ),
            "As of 07:40:50Z: squeue has not answered for 20 s",
        ),
    ],
)
async def test_why_jobs_are_not_known_or_old_is_said(report: JobReport | None, said: str) -> None:
    async with running(size=(120, 40)) as run:
        await run.send(with_jobs(report))
        await run.press("7")
        assert said in run.text
        assert ("1/2" in run.text) is (report is not None and bool(report.jobs))


async def test_of_thousands_of_jobs_as_many_are_summarised_as_have_a_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    summarised, original = 0, job_summary._summary

    def counted(*args: Any) -> job_summary.JobSummary:
        nonlocal summarised
        summarised += 1
        return original(*args)

    monkeypatch.setattr(job_summary, "_summary", counted)
    scene = HEALTHY.scene(70)
    hosts = [node.name for node in scene.snapshot.fabric.nodes]
    many = tuple(Job(id=str(number), name="x", nodes=("gpu001",)) for number in range(3000))
    invented = {"gpu002": pairs_of_many(4096)}
    table = JobTable(JobReport(source="squeue", read_ns=1, jobs=many), hosts, invented)
    async with running(size=(120, 40)) as run:
        await run.send(replace(scene, snapshot=replace(scene.snapshot, jobs=table)))
        summarised = 0
        await run.press("7")
        assert "3512 jobs" in run.text
        assert "gpu002 reports 4096 jobs of its processes: 512 are shown" in run.text
        await run.press("G")
        assert "3256 more jobs: / filters" in run.text
        assert summarised <= 256 * 10, "a few drawings of 256 rows"


async def test_u_changes_the_unit_of_what_jobs_send() -> None:
    async with running(size=(160, 48)) as run:
        await run.send(slowed())
        await run.press("7")
        shown = []
        for _ in range(3):
            row = next(each for each in run.lines if re.match(r"\W*8801 ", each))
            shown.append(row.partition("anna")[2])
            await run.press("u")
    units = [re.findall(r"[\d.]+\u00a0?\s?([kMGT]?b/s|[kMGT]?B/s|%)", each)[0] for each in shown]
    assert sorted(unit[-3:] for unit in units) == ["%", "B/s", "b/s"]


async def test_what_a_job_sent_and_its_findings_are_below_it_where_there_is_room() -> None:
    async with running(size=(120, 40)) as run:
        await run.send(slowed())
        await run.press("7")
        lines = run.lines
        job = next(place for place, line in enumerate(lines) if line.startswith(" ▲ 8801 "))
        below = lines[job + 1 : job + 6]
        assert "sent in 1 min" in below[0]
        assert below[0].rstrip().endswith("max 4.48 Tb/s")
        assert below[-1].split("▲ ")[1].startswith("Slow receiver gpu001 r1 → leaf1, ")
        await run.press("u", "u")
        await run.shows("max 35.0 %")
    async with running(size=(80, 12)) as run:
        await run.send(slowed())
        await run.press("7")
        assert "sent in" not in run.text
