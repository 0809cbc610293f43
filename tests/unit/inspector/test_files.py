"""A directory that NCCL Inspector writes to, while it is read."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from fabmon.fabric.tick import Tick
from fabmon.feeds.inspector.reports import InspectorFiles, NcclInspector, with_collectives
from tests.unit.inspector.dumps import (
    bare,
    collective,
    header,
    line,
    marker,
    metadata,
    metrics,
    whole,
)


def append(path: Path, *lines: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("ab") as stream:
        stream.write(b"".join(line + b"\n" for line in lines))


def test_the_ranks_of_a_job_are_averaged_and_the_slowest_host_is_named(tmp_path: Path) -> None:
    job = tmp_path / "nccl-inspector-8801"
    append(job / "gpu001-pid1.log", whole(collective(300)), whole(collective(320)))
    append(job / "gpu002-pid1.log", whole(collective(200), host="gpu002"))
    (found,) = InspectorFiles(tmp_path).report().collectives
    assert (found.job, found.communicator, found.calls) == ("8801", "DP Group 0", 3)
    assert found.busbw == pytest.approx((300 + 320 + 200) / 3 * 1e9)
    assert found.lowest_host == "gpu002"
    assert found.lowest == pytest.approx(200e9)
    assert found.hosts == ("gpu001", "gpu002")


def test_a_record_of_a_clock_that_is_ahead_does_not_hide_those_after_it(tmp_path: Path) -> None:
    later_us = (time.time_ns() + 10**15) // 1000
    ahead = line(
        header=header(), metadata=metadata("v4.2", "gpu001", later_us), coll_perf=collective()
    )
    append(tmp_path / "gpu001-pid1.log", ahead)
    files = InspectorFiles(tmp_path)
    assert files.report().collectives[0].latest_ns <= time.time_ns()
    now_us = time.time_ns() // 1000
    now = line(header=header(), metadata=metadata("v4.2", "gpu001", now_us), coll_perf=collective())
    append(tmp_path / "gpu001-pid1.log", now)
    assert files.report().collectives[0].calls == 2


def test_after_the_clock_was_set_back_the_minute_before_does_not_hide_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, now_ns = InspectorFiles(tmp_path), time.time_ns()
    for hours, bandwidth in ((0, 300), (-2, 200)):
        at_ns = now_ns + hours * 3600 * 10**9
        monkeypatch.setattr("fabmon.feeds.inspector.means.time.time_ns", lambda at=at_ns: at)
        about = metadata("v4.2", "gpu001", at_ns // 1000)
        record = line(header=header(), metadata=about, coll_perf=collective(bandwidth))
        append(tmp_path / "gpu001-pid1.log", record)
        (found,) = files.report().collectives
        assert found.busbw == pytest.approx(bandwidth * 1e9)


def test_only_what_is_appended_is_read_and_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    path, files = tmp_path / "gpu001-pid1.log", InspectorFiles(tmp_path)
    append(path, marker(collectives=3, lost=5), bare(collective(100)))
    assert [each.calls for each in files.report().collectives] == [1]
    half = bare(collective(100))
    with path.open("ab") as stream:
        stream.write(half[:40])
    assert files.report().collectives[0].calls == 1
    with path.open("ab") as stream:
        stream.write(half[40:] + b"\n")
    report = files.report()
    assert (report.collectives[0].calls, report.lost, report.unread) == (2, 5, 0)


def test_a_file_that_begins_again_is_read_from_its_start(tmp_path: Path) -> None:
    path, files = tmp_path / "gpu001-pid1.log", InspectorFiles(tmp_path)
    append(path, *[whole(collective(100))] * 5)
    assert files.report().collectives[0].calls == 5
    path.unlink()
    append(path, whole(collective(100)))
    assert files.report().collectives[0].calls == 6


def test_of_a_large_file_from_before_the_end_is_read(tmp_path: Path) -> None:
    path = tmp_path / "gpu001-pid1.log"
    append(path, *[whole(collective(100))] * 2000, marker(collectives=600))
    append(path, *[bare(collective(100, name="ReduceScatter"))] * 600)
    assert path.stat().st_size > 1 << 19
    report = InspectorFiles(tmp_path).report()
    names = {each.operation: each.calls for each in report.collectives}
    assert 0 < sum(names.values()) < 2600
    assert report.unread == 0


def test_metrics_of_the_gpus_of_a_node_and_what_they_lost(tmp_path: Path) -> None:
    files = InspectorFiles(tmp_path)
    for gpu, busbw in ((0, 300), (1, 320)):
        path = tmp_path / f"nccl_inspector_metrics_GPU-{gpu}.prom"
        path.write_text(metrics(gpu=gpu, busbw=busbw, lost=10))
    first = files.report()
    found = {each.operation: each for each in first.collectives}
    assert found["AllReduce"].busbw == pytest.approx(310e9)
    assert (found["AllReduce"].job, found["AllReduce"].size) == ("8801", "256-257MB")
    assert (found["Send"].job, found["Send"].nodes) == ("", 1)
    assert first.lost == 0, "counters from before fabmon"
    path.write_text(metrics(gpu=1, busbw=320, lost=14))
    os.utime(path, (2e9, 2e9))
    assert files.report().lost == 4


def test_what_is_no_record_costs_a_line_or_a_file(tmp_path: Path) -> None:
    append(tmp_path / "gpu001-pid1.log", b"\x00\xff{", whole(collective()))
    (tmp_path / "nccl_inspector_metrics_GPU-1.prom").write_bytes(b"\xff{")
    os.mkfifo(tmp_path / "gpu002-pid1.log")
    (tmp_path / "gpu003-pid1.log").mkdir()
    (tmp_path / "other.txt").write_text("x")
    report = InspectorFiles(tmp_path).report()
    assert len(report.collectives) == 1
    assert report.unread == 4
    assert report.reason == ""


def test_a_file_that_cannot_be_read_is_counted_once(tmp_path: Path) -> None:
    append(tmp_path / "gpu001-pid1.log", whole(collective()))
    os.mkfifo(tmp_path / "gpu002-pid1.log")
    files = InspectorFiles(tmp_path)
    first = files.report()
    again = files.report()
    assert (first.unread, again.unread) == (1, 1)
    assert again.says_the_same(first), "nothing is recorded again"


def test_files_of_jobs_that_ended_are_forgotten_but_not_what_they_lost(tmp_path: Path) -> None:
    files = InspectorFiles(tmp_path)
    for number in range(20):
        path = tmp_path / str(number) / "gpu001-pid1.log"
        append(path, b"{", marker(lost=5))
        report = files.report()
        path.unlink()
        path.parent.rmdir()
    files.report()
    assert (report.lost, report.unread) == (100, 20)
    assert files.report().lost == 100
    assert not files._logs


def test_of_too_many_files_those_written_last_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.inspector.reports._MOST_FILES", 2)
    for number in range(100, 105):
        path = tmp_path / str(number) / "gpu001-pid1.log"
        append(path, whole(collective()))
        os.utime(path, (number, number))
    found = InspectorFiles(tmp_path).report().collectives
    assert {each.job for each in found} == {"103", "104"}


def test_a_file_that_grows_fast_does_not_keep_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.inspector.reports._MOST_ROUND", 2000)
    files = InspectorFiles(tmp_path)
    for _ in range(4):
        append(tmp_path / "gpu001-pid1.log", *[whole(collective())] * 10)
        append(tmp_path / "gpu002-pid1.log", whole(collective(), host="gpu002"))
        report = files.report()
    assert report.collectives[0].hosts == ("gpu001", "gpu002")


def test_what_a_file_that_grows_too_fast_has_too_much_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.feeds.inspector.reports._MOST_BYTES", 20_000)
    path, files = tmp_path / "gpu001-pid1.log", InspectorFiles(tmp_path)
    append(path, marker(collectives=2000), *[bare(collective(100))] * 10)
    first = files.report()
    assert (first.collectives[0].calls, first.skipped) == (10, 0)
    append(path, *[bare(collective(100))] * 1990, marker(collectives=20))
    append(path, *[bare(collective(200, name="Broadcast"))] * 20)
    second = files.report()
    found = {each.operation: each.calls for each in second.collectives}
    assert found == {"AllReduce": 10, "Broadcast": 20}, "those without a marker are left out"
    assert second.skipped > 300_000
    assert (second.lost, second.unread) == (0, 0)
    assert files.report().skipped == second.skipped


def test_a_directory_that_is_missing_or_empty_is_named(tmp_path: Path) -> None:
    assert "no-such" in InspectorFiles(tmp_path / "no-such").report().reason
    assert "no file of NCCL Inspector" in InspectorFiles(tmp_path).report().reason


async def _ticks() -> AsyncGenerator[Tick]:
    for seq in range(200):
        yield Tick(seq, seq)
        await asyncio.sleep(0.01)


async def test_reports_are_added_to_ticks_and_only_news(tmp_path: Path) -> None:
    append(tmp_path / "gpu001-pid1.log", whole(collective()))
    news = [
        tick.collectives
        async for tick in with_collectives(_ticks(), tmp_path)
        if tick.collectives is not None
    ]
    assert [each.collectives[0].operation for each in news] == ["AllReduce"]


async def _until(is_done: Callable[[], bool]) -> None:
    while not is_done():  # noqa: ASYNC110 - the reader is not to know of tests
        await asyncio.sleep(0.01)


async def test_a_directory_that_vanishes_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "inspector"
    append(home / "gpu001-pid1.log", whole(collective()))
    with caplog.at_level(logging.WARNING, "fabmon.feeds"):
        async with NcclInspector(home, period_s=0.02) as inspector, asyncio.timeout(240):
            await _until(lambda: inspector.take() is not None)
            (home / "gpu001-pid1.log").unlink()
            home.rmdir()
            await _until(lambda: bool(caplog.records))
            await asyncio.sleep(0.2)
            assert len(caplog.records) == 1
            append(home / "gpu001-pid1.log", whole(collective()))
            await _until(lambda: len(caplog.records) > 1)
    assert "are read again" in caplog.records[1].message


def test_a_line_without_an_end_is_one_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "gpu001-pid1.log"
    files = InspectorFiles(tmp_path)
    append(path, whole(collective()))
    files.report()
    for _ in range(4):
        with path.open("ab") as stream:
            stream.write(b'{"a": 1' + b"9" * 200_000)
        assert len(files._logs[str(path)]._rest) <= 1 << 17
        files.report()
    append(path, b"", whole(collective()))
    report = files.report()
    assert report.unread == 1
    assert report.collectives[0].calls == 2


def test_a_line_too_long_for_a_record_is_not_parsed(tmp_path: Path) -> None:
    append(tmp_path / "gpu001-pid1.log", b'{"a": ' + b"1" * 200_000 + b"}", whole(collective()))
    report = InspectorFiles(tmp_path).report()
    assert (report.unread, report.collectives[0].calls) == (1, 1)


def test_links_are_not_followed(tmp_path: Path) -> None:
    """A job's user may link a file to a device, which opening it may start."""
    append(tmp_path / "elsewhere", whole(collective()))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "gpu001-pid1.log").symlink_to(tmp_path / "elsewhere")
    report = InspectorFiles(tmp_path / "own").report()
    assert (report.unread, report.collectives) == (1, ())
