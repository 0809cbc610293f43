"""Recordings for tests: a small fabric with every kind of event."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Notice
from fabmon.feeds.demo import scenario as scenarios
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.reader import Recording
from fabmon.recording.writing.recorder import Recorder
from fabmon.recording.writing.segments import Rotation, Segments
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, START_NS, LeafSpine, frame, hello, port


def session(fabric: LeafSpine) -> SessionRecord:
    return SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=tuple(fabric.hosts))


def quiet_ticks(count: int) -> list[Tick]:
    """Ticks with changing traffic and no events."""
    return list(_quiet_ticks(-(-count // 1000) * 1000)[:count])


@functools.cache
def _quiet_ticks(count: int) -> tuple[Tick, ...]:
    fabric = LeafSpine()
    ticks = []
    for seq in range(count):
        fabric.sent["leaf1/up1"] = fabric.received["gpu001/eth0"] = 1e6 * (seq % 7)
        ticks.append(fabric.step())
    return tuple(ticks)


def long_ticks() -> list[Tick]:
    """Eventful ticks, then quiet ones: a full block and the ticks after it."""
    ticks = [*eventful_ticks(), *quiet_ticks(330)[40:]]
    again = dict(ticks[0].hellos)["gpu001"]
    ticks[40] = msgspec.structs.replace(ticks[40], hellos=(("gpu001", again),))
    return ticks


def eventful_ticks() -> list[Tick]:
    """Every kind of event: several frames in a tick, absent values, a lost node, a new layout."""
    ticks = quiet_ticks(40)
    two_ports = hello(port("eth0", "gpu001-eth0"), port("eth1", "gpu001-eth1"))

    def with_frames(seq: int, node: str, *frames: Frame) -> None:
        others = tuple(each for each in ticks[seq].frames if each[0] != node)
        ours = tuple((node, each) for each in frames)
        ticks[seq] = msgspec.structs.replace(ticks[seq], frames=(*others, *ours))

    with_frames(5, "gpu001")
    with_frames(6, "gpu001", frame(5, 1, 10, 20, 0), frame(6, 1, 11, 21, 0), frame(7, 1, 12, 22, 0))
    with_frames(8, "gpu002", frame(8, 1, None, 7, None))
    with_frames(9, "gpu002", frame(9, 1, (1 << 64) - 1, 8, None))
    with_frames(10, "gpu002", Frame(10, START_NS, 11 * SECOND_NS, [None]))
    for seq in range(20, 40):
        with_frames(seq, "gpu001", frame(seq, 1, seq, seq, 0, 0, seq * 2, 3, 4))
    ticks[20] = msgspec.structs.replace(ticks[20], hellos=(("gpu001", two_ports),))
    lost = NodeStatus("spine2", NodeState.LOST, START_NS, "no route", "no route")
    ticks[12] = msgspec.structs.replace(ticks[12], statuses=(lost,), frames=())
    notice = Notice("absent", "netdev", "eth0", "netdev_tx_drops", "denied", "\u26a0 needs a group")
    ticks[13] = msgspec.structs.replace(ticks[13], notices=(("gpu001", notice),))
    ticks[14] = Tick(14, START_NS + 14 * SECOND_NS)
    return ticks


def write(path: Path, ticks: Iterable[Tick], *, close: bool = True) -> Writer:
    """Write a recording; unless it is closed it is left as after a `kill -9`."""
    writer = Writer.create(path, session(LeafSpine()))
    for tick in ticks:
        writer.write(tick)
    if close:
        writer.close()
    return writer


def ticks_in(path: Path) -> list[Tick]:
    with Recording(path) as recording:
        return list(recording.ticks())


def values(frame: Frame) -> list[int | None]:
    """The values of all blocks of a frame."""
    return [value for block in frame.blocks for value in block or ()]


def last_values(known: Tick) -> dict[str, list[int]]:
    """The last read of every node, from a tick of `prime`."""
    return {node: reads.now.tolist() for node, reads in known.reads}


def by_node(ticks: Iterable[Tick]) -> list[Tick]:
    """The same ticks with frames sorted by node: a recording keeps no order between nodes."""
    return [
        msgspec.structs.replace(
            tick, frames=tuple(sorted(tick.frames, key=lambda each: (each[0], each[1].seq)))
        )
        for tick in ticks
    ]


def demo_recording(
    path: Path,
    seconds: int,
    topology: str = "leaf-spine",
    start_ns: int | None = None,
    faults_at_s: tuple[int, ...] = (),
) -> Path:
    """Record the tour of the simulated fabric, begun `seconds` ago or at `start_ns`; with only its
    first faults, at other times, if these are given."""
    scenario = scenarios.tour(topology)
    # Single NVLinks are nine tenths of the ports, and of the time.
    plain = msgspec.structs.replace(scenario.topology, nvlinks=0)
    scenario = msgspec.structs.replace(scenario, topology=plain)
    if faults_at_s:
        faults = tuple(
            msgspec.structs.replace(fault, at=at)
            for fault, at in zip(scenario.fault, faults_at_s, strict=False)
        )
        scenario = msgspec.structs.replace(scenario, fault=faults, caption=())
    feed = DemoFeed(
        scenario,
        start_ns=time.time_ns() - seconds * SECOND_NS if start_ns is None else start_ns,
    )
    record = SessionRecord(
        started_ns=0,
        interval_s=1.0,
        hosts=tuple(feed.hosts),
        recorder="login7.example.org",
        title="pod7",
    )
    history = History(feed.hosts)
    writer = Writer.create(path, record)
    for _ in range(seconds):
        tick = feed.step()
        writer.write(tick, history.accept(tick))
    writer.close()
    return path


def record(path: Path, ticks: list[Tick], rotation: Rotation | None = None) -> Recorder:
    """A recorder that has written these ticks."""
    recorder = Recorder(Segments(path, rotation or Rotation()), session(LeafSpine()))
    for tick in ticks:
        wait_for(lambda: recorder.waiting < 30)
        recorder.accept(tick)
    wait_for(lambda: not recorder.waiting)
    return recorder


def wait_for(condition: Callable[[], bool]) -> None:
    """Return once a condition holds; fails after minutes."""
    until = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.0005)
