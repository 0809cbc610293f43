"""Asking squeue: one that hangs, fails, floods, or speaks another JSON costs a line, not a tick."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from fabmon.fabric.jobs.job import HOSTFILE, Job, JobReport
from fabmon.fabric.tick import Tick
from fabmon.feeds.job_command import run_command
from fabmon.feeds.squeue import Squeue
from tests.fixtures.slurm import fake_squeue
from tests.unit.jobs.test_squeue_output import new_json

LINES = """
mark=${3#--format=}; mark=${mark%%|*}
echo "$mark|8801|8801|anna|train|RUNNING|2026-11-22T07:40:50|gpu[001-003]|llama-70b"
"""


async def ticks(are_enough: Callable[[], object], every_s: float = 0.02) -> AsyncIterator[Tick]:
    """Ticks until there are enough, and for a moment after it: nothing more is to come."""
    seq, left = 0, 15
    async with asyncio.timeout(240):
        while left:
            await asyncio.sleep(every_s)
            seq += 1
            yield Tick(seq, time.time_ns())
            left -= bool(are_enough())


class Watched:
    """What was reported while ticks passed, the times between two of them, what was logged, and the
    times at which squeue answered."""

    def __init__(
        self, reports: list[JobReport], gaps_s: list[float], logged: list[str], read_ns: list[int]
    ) -> None:
        self.reports = reports
        self.read_ns = read_ns
        self.gaps_s = gaps_s
        self.logged = logged


def watched(
    squeue: Squeue,
    caplog: pytest.LogCaptureFixture,
    are_enough: Callable[[list[JobReport]], object] = bool,
) -> Watched:
    """What is reported until that is enough: where nothing else is said, the first report."""

    read_ns: list[int] = []

    async def watch() -> tuple[list[JobReport], list[float]]:
        reports: list[JobReport] = []
        gaps_s, last_s = [], time.monotonic()
        async with squeue:
            async for tick in squeue.with_jobs(ticks(lambda: are_enough(reports))):
                gaps_s.append(time.monotonic() - last_s)
                last_s = time.monotonic()
                if tick.jobs is not None:
                    reports.append(tick.jobs)
                if tick.jobs_read_ns:
                    read_ns.append(tick.jobs_read_ns)
        return reports, gaps_s

    caplog.set_level(logging.INFO, "fabmon.feeds")
    reports, gaps_s = asyncio.run(watch())
    # asyncio warns of a child that ended just as it was killed: the kill has waited for it.
    ours = [each for each in caplog.records if each.name.startswith("fabmon")]
    return Watched(reports, gaps_s, [each.getMessage() for each in ours], read_ns)


def asked(directory: Path) -> list[str]:
    path = directory / "asked"
    return path.read_text().splitlines() if path.exists() else []


def test_jobs_are_reported_once_while_they_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    squeue = Squeue(fake_squeue(tmp_path, LINES), period_s=0.1)
    seen = watched(squeue, caplog, lambda _: len(asked(tmp_path)) > 3)

    (report,) = seen.reports
    assert [job.label for job in report.jobs] == ["job 8801 llama-70b (anna)"]
    assert report.read_ns == seen.read_ns[0] > 0
    # It is passed on that they stay, too.
    assert len(seen.read_ns) > 2
    assert sorted(set(seen.read_ns)) == seen.read_ns
    assert not report.reason
    assert not seen.logged


def test_it_is_not_asked_more_often_than_every_period(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    began_s = time.monotonic()
    squeue = Squeue(fake_squeue(tmp_path, "exit 1"), period_s=0.4)
    watched(squeue, caplog, lambda _: len(asked(tmp_path)) >= 3)

    assert len(asked(tmp_path)) <= 1 + (time.monotonic() - began_s) / 0.4


def test_a_squeue_that_hangs_is_killed_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = f"sleep 600 & echo $! >> {tmp_path}/children; wait"
    squeue = Squeue(fake_squeue(tmp_path, script), period_s=0.3, timeout_s=1)
    seen = watched(squeue, caplog, lambda _: len(asked(tmp_path)) >= 3)

    # Ticks go on while it hangs for a second, three times: a busy machine does not stop all three.
    assert sum(gap_s >= 1 for gap_s in seen.gaps_s) < 3
    assert seen.logged == ["jobs are not known: squeue has not answered for 1 s"]
    assert [each.reason for each in seen.reports] == ["squeue has not answered for 1 s"]
    assert seen.read_ns == []
    until_s = time.monotonic() + 240
    for child in (tmp_path / "children").read_text().split():
        while is_running(int(child)):
            assert time.monotonic() < until_s
            time.sleep(0.05)


def test_one_that_fails_keeps_the_jobs_that_were_read_and_is_logged_once_and_on_recovery(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = f"""
n=$(wc -l < {tmp_path}/asked)
[ $n -gt 1 ] && [ $n -lt 6 ] && echo "squeue: error: cannot contact controller" >&2 && exit 1
{LINES}"""
    squeue = Squeue(fake_squeue(tmp_path, script), period_s=0.1)
    seen = watched(squeue, caplog, lambda found: len(found) > 2)

    first, failed, again = seen.reports
    assert failed.reason == ("squeue ended with status 1: squeue: error: cannot contact controller")
    assert failed.jobs == first.jobs == again.jobs
    assert failed.read_ns == first.read_ns
    assert not again.reason
    assert seen.logged == [f"jobs are not known: {failed.reason}", "jobs are known again"]


def test_one_that_floods_is_killed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    squeue = Squeue(fake_squeue(tmp_path, "yes"), period_s=0.3)
    seen = watched(squeue, caplog, lambda _: len(asked(tmp_path)) > 2)

    assert [each.reason for each in seen.reports] == ["squeue printed more than 8,192 KiB"]
    assert len(seen.logged) == 1
    assert max(seen.gaps_s) < 20


def test_errors_without_end_are_a_flood_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = watched(Squeue(fake_squeue(tmp_path, "yes >&2"), period_s=0.3), caplog)

    assert [each.reason for each in seen.reports] == ["squeue printed more than 64 KiB"]


def test_one_that_is_stopped_while_it_is_killed_leaves_no_process(tmp_path: Path) -> None:
    started = tmp_path / "process"
    program = fake_squeue(tmp_path, f"echo $$ > {started}.new; mv {started}.new {started}; sleep 9")

    async def ask_and_stop() -> None:
        asking = asyncio.create_task(run_command([program], 60, dict(os.environ), "squeue"))
        while not started.exists():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(ask_and_stop())

    assert not Path("/proc", started.read_text().strip()).exists()


def test_one_that_has_json_only_is_read_at_the_next_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "jobs.json").write_bytes(new_json())
    script = (
        f'[ "$1" = --json ] && exec cat {tmp_path}/jobs.json; echo "no such option" >&2; exit 1'
    )
    squeue = Squeue(fake_squeue(tmp_path, script), period_s=0.1)
    seen = watched(squeue, caplog, lambda _: len(asked(tmp_path)) > 4)

    assert [each.reason for each in seen.reports] == [
        "squeue ended with status 1: no such option",
        "",
    ]
    assert [job.id for job in seen.reports[-1].jobs] == ["8801"]
    assert asked(tmp_path)[2:] == ["--json"] * len(asked(tmp_path)[2:])


def test_output_that_is_no_list_of_jobs_is_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    squeue = Squeue(fake_squeue(tmp_path, "echo welcome"), period_s=0.1)
    seen = watched(squeue, caplog, lambda _: len(asked(tmp_path)) > 2)

    assert [each.reason for each in seen.reports] == [
        "squeue printed no list of jobs: squeue printed 'welcome'"
    ]
    assert len(seen.logged) == 1


def test_a_machine_without_slurm_has_a_reason_and_logs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unconfigured = "echo 'squeue: fatal: Could not establish a configuration source' >&2; exit 1"

    missing = watched(Squeue("no-such-squeue", period_s=0.1), caplog)
    fresh = watched(Squeue(fake_squeue(tmp_path, unconfigured), period_s=0.1), caplog)

    assert [each.reason for each in missing.reports] == [
        "no-such-squeue is not on the PATH of this machine"
    ]
    assert [each.reason for each in fresh.reports] == ["Slurm is not configured on this machine"]
    assert len(asked(tmp_path)) == 1
    assert not missing.logged
    assert not fresh.logged


def test_what_squeue_says_is_not_quoted_where_names_are_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    squeue = Squeue(fake_squeue(tmp_path, "echo pod7 >&2; exit 3"), quotes_errors=False)

    seen = watched(squeue, caplog)

    assert [each.reason for each in seen.reports] == ["squeue ended with status 3"]
    assert "pod7" not in "".join(seen.logged)


def test_jobs_of_hostfiles_remain_beside_those_of_slurm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Job(id="7", nodes=("gpu001",))
    named = Job(scheduler=HOSTFILE, name="llama", nodes=("gpu009",))

    squeue = Squeue(fake_squeue(tmp_path, LINES), known=[own, named])
    at_first = squeue.take()
    seen = watched(squeue, caplog)

    assert at_first is not None
    assert [job.number for job in at_first.jobs] == ["7", "llama"]
    assert [[job.number for job in each.jobs] for each in seen.reports] == [["8801", "llama"]]


def is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
