"""NCCL Inspector's files on the nodes: read there, counted in frames, joined on the console."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest

from collectors.hostfs import HostFS
from collectors.source import SourceError
from collectors.sources.nccl_inspector import NcclInspector
from fabmon.fabric.hosts.hosts_file import read
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import BlockInfo, Frame, Hello, ObjectInfo
from fabmon.feeds.inspector.reports import NodeCollectives, with_collectives
from fabmon.feeds.live import LiveFeed
from fabmon.session.errors import UsageError
from fabmon.session.node_selection import inspector_of
from tests.unit.inspector.dumps import bare, collective, header, line, marker, metadata


def now(perf: dict[str, object], ago_s: float = 0.0, **of: object) -> bytes:
    """A record that was written just now."""
    written_us = int((time.time() - ago_s) * 1e6)
    return line(
        header=header(**of),  # type: ignore[arg-type]
        metadata=metadata("v4.2", "gpu001", written_us),
        coll_perf=perf,
    )


def append(path: Path, *lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as stream:
        stream.write(b"".join(each + b"\n" for each in lines))


class Node:
    """A node with a directory, and the console that it reports to."""

    def __init__(self, root: Path, name: str = "gpu001") -> None:
        self.source = NcclInspector(HostFS("/"))
        self.source.argument = str(root / "scratch" / "inspector")
        self.directory = root / "scratch" / "inspector"
        self.name = name
        self._known: object = None
        self._seq = 0

    def tick(self) -> Tick:
        hellos: tuple[tuple[str, Hello], ...] = ()
        values = self.source.read({}) if self._known is not None else []
        if self.source.signature() != self._known:
            found = self.source.discover()
            self._known = self.source.signature()
            objects = tuple(
                ObjectInfo(each.id, each.kind, each.port, each.info, each.metrics) for each in found
            )
            block = BlockInfo("nccl_inspector", 10, objects)
            hellos = ((self.name, Hello(1, "x", (block,), {}, 1.0)),)
            values = self.source.read({})
        self._seq += 1
        frame = Frame(self._seq, time.time_ns(), self._seq, ([self._seq, *values],))
        return Tick(self._seq, time.time_ns(), hellos=hellos, frames=((self.name, frame),))


def report_of(console: NodeCollectives, ticks: Sequence[Tick]) -> CollectiveReport:
    found = [report for tick in ticks if (report := console.take(tick)) is not None]
    return found[-1]


def test_nodes_count_the_calls_in_their_files_and_the_console_has_the_means(tmp_path: Path) -> None:
    one, two = Node(tmp_path / "a"), Node(tmp_path / "b", "gpu002")
    append(one.directory / "8801" / "gpu001-pid1.log", now(collective(300)), now(collective(320)))
    append(two.directory / "8801" / "gpu002-pid1.log", now(collective(200)))
    console = NodeCollectives(0)

    (found,) = report_of(console, [one.tick(), two.tick()]).collectives

    assert (found.job, found.communicator, found.operation) == ("8801", "DP Group 0", "AllReduce")
    assert (found.size, found.ranks, found.nodes, found.calls) == ("256 MiB", 128, 16, 3)
    assert found.busbw == pytest.approx((300 + 320 + 200) / 3 * 1e9, rel=1e-3)
    assert (found.lowest_host, found.hosts) == ("gpu002", ("gpu001", "gpu002"))
    assert found.time_s == pytest.approx(0.0016)


def test_a_new_operation_is_announced_after_a_minute_and_only_what_is_new_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its calls are counted meanwhile."""
    node, console = Node(tmp_path), NodeCollectives(0)
    path = node.directory / "gpu001-pid1.log"
    append(path, now(collective(300)))
    first = report_of(console, [node.tick()])
    assert console.take(node.tick()) is None, "nothing is new"
    append(path, now(collective(300)), now(collective(50, name="AllGather")))
    waiting = report_of(console, [node.tick()])
    assert [each.operation for each in waiting.collectives] == ["AllReduce"]
    monkeypatch.setattr("collectors.sources.nccl_inspector._ANNOUNCE_NS", 0)
    second = report_of(console, [node.tick()])
    assert [each.calls for each in first.collectives] == [1]
    assert {each.operation: each.calls for each in second.collectives} == {
        "AllReduce": 2,
        "AllGather": 1,
    }


def test_what_is_lost_unreadable_or_grows_too_fast_is_counted(tmp_path: Path) -> None:
    node, console = Node(tmp_path), NodeCollectives(0)
    path = node.directory / "gpu001-pid1.log"
    append(path, marker(collectives=1, lost=7), bare(collective()), b"{", now(collective()))
    report = report_of(console, [node.tick()])
    assert (report.lost, report.unread, report.skipped) == (7, 1, 0)
    append(path, *[now(collective())] * 6000)
    report = report_of(console, [node.tick()])
    assert report.skipped > 1 << 20
    assert 0 < report.collectives[0].calls < 6000


def test_at_most_a_mebibyte_is_read_at_a_time_and_each_file_gets_its_share(tmp_path: Path) -> None:
    node = Node(tmp_path)
    paths = [node.directory / f"gpu001-pid{number}.log" for number in range(8)]
    for path in paths:
        append(path, now(collective()))
    node.source.discover()
    for path in paths:
        append(path, *[now(collective())] * 900)
    node.source.read({})
    read = sum(each.size_read for each in node.source._files.values())
    assert (1 << 20) - (1 << 18) < read < (1 << 20) + 8 * 600
    for _ in range(4):
        values = node.source.read({})
    assert values[3] == 8 * 901
    assert values[2] == 0, "nothing is skipped"


def test_old_records_are_not_of_now(tmp_path: Path) -> None:
    node, console = Node(tmp_path), NodeCollectives(0)
    append(node.directory / "gpu001-pid1.log", now(collective(), ago_s=3600))
    assert console.take(node.tick()) is None


def test_operations_without_end_are_bounded(tmp_path: Path) -> None:
    node = Node(tmp_path)
    append(
        node.directory / "gpu001-pid1.log",
        *[now(collective(size=number)) for number in range(1, 300)],
    )
    assert len(node.source.discover()) == 65


def test_a_directory_that_is_missing_is_named_and_found_when_it_appears(tmp_path: Path) -> None:
    node = Node(tmp_path)
    with pytest.raises(SourceError, match="scratch/inspector"):
        node.source.discover()
    before = node.source.signature()
    node.directory.mkdir(parents=True)
    assert node.source.signature() != before
    assert len(node.source.discover()) == 1


def test_without_a_directory_nothing_is_read(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no directory is named"):
        NcclInspector(HostFS(str(tmp_path))).discover()


def test_a_new_probe_begins_at_0(tmp_path: Path) -> None:
    console = NodeCollectives(0)
    node = Node(tmp_path)
    append(node.directory / "gpu001-pid1.log", *[now(collective())] * 5)
    assert report_of(console, [node.tick()]).collectives[0].calls == 5
    append(node.directory / "gpu001-pid1.log", now(collective()))
    again = Node(tmp_path)
    assert report_of(console, [again.tick()]).collectives[0].calls == 11


@pytest.mark.parametrize(
    "info",
    [
        {"job": 7},
        {"operation": ["x"]},
        {"ranks": -1},
        {"operation": "All\x1b[31mReduce", "ranks": 2**60},
    ],
)
def test_a_node_that_lies_costs_its_operations(info: dict[str, object]) -> None:
    metrics = ("nccl_calls", "nccl_time_us", "nccl_bus_bytes")
    bad = ObjectInfo("a", "nccl_operation", None, info, metrics)
    good = ObjectInfo("b", "nccl_operation", None, {"operation": "All\x1b[31mGather"}, metrics)
    hello = Hello(1, "x", (BlockInfo("nccl_inspector", 10, (bad, good)),), {}, 1.0)
    frame = Frame(1, 2**62, 1, ([1, 5, 10**9, 10**9, None, 2**64 - 1, 3],))
    console = NodeCollectives(0)
    assert console.take(Tick(1, 1, (("n", hello),), (("n", frame),))) is None
    frame = Frame(2, 1, 2, ([1, 5, 10**9, 10**9, 1, 2**64 - 1, 3],))
    report = console.take(Tick(2, 2, (), (("n", frame),)))
    assert report is not None
    assert [each.operation for each in report.collectives] == ["All[31mGather"]


def test_a_node_that_reports_operations_without_end_is_read_in_part() -> None:
    metrics = ("nccl_calls", "nccl_time_us", "nccl_bus_bytes")
    objects = tuple(
        ObjectInfo(str(n), "nccl_operation", None, {"operation": f"op{n}"}, metrics)
        for n in range(10_000)
    )
    hello = Hello(1, "x", (BlockInfo("nccl_inspector", 10, objects),), {}, 1.0)
    frame = Frame(1, 1, 1, ([1, *[1, 1000, 1] * 10_000],))
    console = NodeCollectives(0)
    report = console.take(Tick(1, 1, (("n", hello),), (("n", frame),)))
    assert report is not None
    assert len(report.collectives) <= 64
    assert len(console._means._means) <= 65


async def test_a_probe_reads_the_directory_that_the_hosts_file_names(tmp_path: Path) -> None:
    append(tmp_path / "files" / "8801" / "gpu001-pid1.log", now(collective(300)))
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"gpu001 via=local nccl_inspector={tmp_path}/files\n")
    feed = LiveFeed(read(hosts), interval_s=0.1)
    feed.start(False)
    found: list[CollectiveReport] = []
    async with aclosing(feed), asyncio.timeout(240):
        async for tick in with_collectives(feed, None):
            if tick.collectives is not None:
                found.append(tick.collectives)
                break
    (each,) = found[0].collectives
    assert (each.job, each.operation, each.lowest_host) == ("8801", "AllReduce", "gpu001")


def test_the_option_names_a_directory_here_or_on_the_nodes() -> None:
    hosts = [
        Host(name="gpu001"),
        Host(name="gpu002", nccl_inspector="/own"),
        Host(name="leaf1", role="switch"),
    ]
    directory, found = inspector_of("nodes:/scratch", hosts)
    assert directory is None
    assert [each.nccl_inspector for each in found] == ["/scratch", "/own", ""]
    assert inspector_of("here", hosts) == (Path("here"), hosts)
    assert inspector_of(None, hosts) == (None, hosts)
    with pytest.raises(UsageError, match="write the whole path"):
        inspector_of("nodes:scratch", hosts)


def test_files_of_jobs_that_ended_do_not_keep_those_that_grow_from_being_read(
    tmp_path: Path,
) -> None:
    """300 files of 300 KB each: the last 256 KiB of all of them take 75 reads."""
    node = Node(tmp_path)
    for number in range(300):
        old = node.directory / str(number) / "gpu001-pid1.log"
        append(old, *[now(collective(), ago_s=3600)] * 600)
        os.utime(old, (time.time() - 3600,) * 2)
    assert len(node.source.discover()) == 1
    append(node.directory / "299" / "gpu001-pid1.log", now(collective()))
    append(node.directory / "999" / "gpu001-pid1.log", now(collective(name="AllGather")))
    names = {each.info["operation"] for each in node.source.discover()[1:]}
    assert names == {"AllReduce", "AllGather"}
    assert len(node.source._files) <= 256


def test_what_was_written_since_the_last_read_counts_at_long_intervals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path)
    path = node.directory / "gpu001-pid1.log"
    append(path, now(collective()))
    node.source.discover()
    later_ns = time.time_ns() + 200 * 10**9
    append(path, now(collective(), ago_s=-50))
    monkeypatch.setattr("collectors.clock.time_ns", lambda: later_ns)
    assert node.source.read({})[3] == 2


def test_reports_of_many_nodes_are_made_every_ten_seconds(tmp_path: Path) -> None:
    node, console = Node(tmp_path), NodeCollectives(60.0)
    path = node.directory / "gpu001-pid1.log"
    append(path, now(collective()))
    assert console.take(node.tick()) is not None
    append(path, now(collective()))
    assert console.take(node.tick()) is None


def test_nodes_whose_clocks_differ_have_one_minute(tmp_path: Path) -> None:
    one, two, console = Node(tmp_path / "a"), Node(tmp_path / "b", "gpu002"), NodeCollectives(0)
    for node in (one, two):
        append(node.directory / "gpu-pid1.log", now(collective()))
    late = two.tick()
    ((name, frame),) = late.frames
    frame = Frame(frame.seq, frame.wall_ns - 3600 * 10**9, frame.mono_ns, frame.blocks)
    late = Tick(late.seq, late.time_ns, hellos=late.hellos, frames=((name, frame),))
    assert report_of(console, [one.tick(), late]).collectives[0].hosts == ("gpu001", "gpu002")
