"""Replay gives the same rates and findings as live, at any speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, Tick
from fabmon.feeds.replay import ReplayFeed
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.raw_chunks import PlayedTicks
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from fabmon.report.scene_report import JsonLines
from fabmon.session.session import scenes_of
from tests.builders import SECOND_NS, START_NS, LeafSpine, new_pipeline
from tests.unit.recording.builders import eventful_ticks, long_ticks, quiet_ticks, session, write


async def feed_of(ticks: Sequence[Tick]) -> AsyncIterator[Tick]:
    for tick in ticks:
        yield tick


async def lines_of(ticks: AsyncIterator[Tick], hosts: Sequence[Host]) -> list[bytes]:
    lines = JsonLines()
    output: list[bytes] = []
    async for scene in scenes_of(new_pipeline(hosts), ticks):
        output += lines.lines(scene)
    return output


def collision_ticks() -> list[Tick]:
    """Eventful ticks, then one uplink that both hosts fill for a while."""
    ticks = eventful_ticks()
    fabric = LeafSpine()
    for _ in ticks:
        fabric.step()
    hellos = tuple(fabric.hellos().items())
    for seq in range(40, 90):
        fabric.silence()
        for host in fabric.servers:
            fabric.send(48e6 if 50 < seq < 70 else 5e6, f"{host}/eth0", "leaf1/up1")
        tick = fabric.step()
        ticks.append(msgspec.structs.replace(tick, hellos=hellos if seq == 40 else ()))
    return ticks


async def test_the_past_is_in_the_history_of_the_first_scene_and_is_not_shown() -> None:
    ticks, pipeline = quiet_ticks(20), new_pipeline(LeafSpine().hosts)
    scenes = [each async for each in scenes_of(pipeline, feed_of(ticks[15:]), feed_of(ticks[:15]))]
    whole = new_pipeline(LeafSpine().hosts)
    expected = [each async for each in scenes_of(whole, feed_of(ticks))][15:]
    assert [each.snapshot.seq for each in scenes] == [each.snapshot.seq for each in expected]
    assert np.array_equal(scenes[0].snapshot.heat, expected[0].snapshot.heat, equal_nan=True)
    assert not np.isnan(scenes[0].snapshot.heat).all()


async def test_a_replay_gives_the_same_lines_byte_for_byte(tmp_path: Path) -> None:
    ticks, hosts = collision_ticks(), LeafSpine().hosts
    live = await lines_of(feed_of(ticks), hosts)
    assert any(b'"cause":"ecmp_collision"' in line for line in live)
    write(tmp_path / "a.fabrec", ticks)
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        replayed = await lines_of(ReplayFeed(timeline, speed=None), timeline.hosts)
    assert replayed == live


async def test_a_replay_from_the_middle_begins_with_the_state_then(tmp_path: Path) -> None:
    ticks, hosts = long_ticks(), LeafSpine().hosts
    live = await lines_of(feed_of(ticks), hosts)
    write(tmp_path / "a.fabrec", ticks)
    at = START_NS + 100 * SECOND_NS
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        feed = ReplayFeed(timeline, from_ns=at, until_ns=at + 10 * SECOND_NS, speed=None)
        replayed = await lines_of(feed, timeline.hosts)
    live_ticks = [line for line in live if b'"type":"tick"' in line]
    assert [line for line in replayed if b'"type":"tick"' in line] == live_ticks[99:111]


class FastClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def wall_ns(self) -> int:
        return int(self.now_s * 1e9)

    def cpu_s(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += max(0.0, seconds)


async def test_speed_sets_the_pace(tmp_path: Path) -> None:
    ticks = quiet_ticks(30)
    later = [msgspec.structs.replace(t, time_ns=t.time_ns + 600 * SECOND_NS) for t in ticks[20:]]
    write(tmp_path / "a.fabrec", [*ticks[:20], *later])
    clock = FastClock()
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        feed = ReplayFeed(timeline, speed=2.0, clock=clock)
        times = [clock.now_s async for _ in feed]
    steps = np.diff(times)
    assert steps[:19].tolist() == [0.5] * 19
    assert steps[19] == 2.5
    assert steps[20:].tolist() == [0.5] * 9


async def test_follow_waits_for_a_growing_file(tmp_path: Path) -> None:
    ticks = quiet_ticks(20)
    writer = write(tmp_path / "a.fabrec", ticks[:5], close=False)
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        feed = ReplayFeed(timeline, speed=None, follow=True, clock=FastClock())
        seen = [await anext(feed) for _ in range(5)]
        for tick in ticks[5:]:
            writer.write(tick)
        seen += [await anext(feed) for _ in range(15)]
        await feed.aclose()
        assert [tick async for tick in feed] == []
    writer.abandon()
    assert seen == ticks


async def test_follow_ends_at_until_ns(tmp_path: Path) -> None:
    ticks = quiet_ticks(20)
    writer = write(tmp_path / "a.fabrec", ticks[:5], close=False)
    with Timeline([tmp_path / "a.fabrec"]) as timeline:
        until_ns = ticks[11].time_ns + SECOND_NS // 2
        feed = ReplayFeed(timeline, until_ns=until_ns, speed=None, follow=True, clock=FastClock())
        seen = [await anext(feed) for _ in range(5)]
        for tick in ticks[5:]:
            writer.write(tick)
        async with asyncio.timeout(240):
            seen += [tick async for tick in feed]
    writer.abandon()
    assert seen == ticks[:12]


async def test_several_files_are_one_timeline(tmp_path: Path) -> None:
    ticks = quiet_ticks(60)
    write(tmp_path / "b.fabrec", ticks[:20])
    other = LeafSpine(hosts=1)
    later_ns = START_NS + 100 * SECOND_NS
    record = SessionRecord(started_ns=later_ns, interval_s=1.0, hosts=tuple(other.hosts))
    writer = Writer.create(tmp_path / "a.fabrec", record)
    for _ in range(20):
        tick = other.step()
        writer.write(msgspec.structs.replace(tick, time_ns=tick.time_ns + 100 * SECOND_NS))
    writer.close()
    with Timeline([tmp_path]) as timeline:
        got = list(timeline.ticks())
        assert [t.seq for t in got] == [*range(20), *range(100, 120)]
        assert {h.name for h in timeline.hosts} == {h.name for h in LeafSpine().hosts}
        gone = [s.node for s in got[20].statuses if s.state is NodeState.LOST]
        assert gone == ["gpu002"]
        assert [t.seq for t in timeline.prime(later_ns + 5 * SECOND_NS)] == [104]
        assert (timeline.start_ns, timeline.until_ns) == (START_NS, later_ns + 19 * SECOND_NS)


def test_ticks_of_a_directory_keep_their_numbers_as_it_grows(tmp_path: Path) -> None:
    """Also where the first ticks of a run follow each other faster than later ones, and where a
    run begins right after another: a reader that follows and one that seeks get the same numbers.
    """
    later_s = [0.35, 0.8, *(at + 0.3 for at in range(1, 59))]
    ticks = [
        msgspec.structs.replace(tick, time_ns=START_NS + int(at * SECOND_NS))
        for tick, at in zip(quiet_ticks(60), later_s, strict=True)
    ]
    again_ns = 60 * SECOND_NS
    again = [msgspec.structs.replace(t, time_ns=t.time_ns + again_ns) for t in ticks]
    writer = write(tmp_path / "a.fabrec", ticks[:30], close=False)
    with Timeline([tmp_path]) as timeline:
        played = PlayedTicks(timeline)
        seen = [next(played).seq for _ in range(30)]
        for tick in ticks[30:]:
            writer.write(tick)
        writer.close()
        record = msgspec.structs.replace(session(LeafSpine()), started_ns=START_NS + again_ns)
        writer = Writer.create(tmp_path / "b.fabrec", record)
        for tick in again[:20]:
            writer.write(tick)
        assert played.refresh()
        seen += [next(played).seq for _ in range(50)]
        for tick in again[20:]:
            writer.write(tick)
        assert played.refresh()
        seen += [tick.seq for tick in played]
        assert seen == list(range(120))
        for place in (30, 50, 70, 110):
            at_ns = [*ticks, *again][place].time_ns
            assert [tick.seq for tick in timeline.prime(at_ns)] == [place - 1]
            assert next(timeline.ticks(at_ns)).seq == place
    with Timeline([tmp_path]) as sought:
        assert next(sought.ticks(again[50].time_ns)).seq == 110
    writer.close()


def test_the_strip_and_the_minutes_show_the_busiest_link(tmp_path: Path) -> None:
    fabric = LeafSpine()
    history = History(fabric.hosts)
    writer = Writer.create(tmp_path / "a.fabrec", session(fabric))
    start_ns = START_NS // (60 * SECOND_NS) * 60 * SECOND_NS
    moments = []
    for seq in range(900):
        fabric.sent["leaf1/up2"] = 90e6 if 300 <= seq < 330 else 20e6
        tick = msgspec.structs.replace(fabric.step(), time_ns=start_ns + seq * SECOND_NS)
        moments.append(history.accept(tick))
        writer.write(tick, moments[-1])
    writer.close()
    with Recording(tmp_path / "a.fabrec") as recording:
        strip = recording.strip(recording.start_ns, recording.until_ns, 90)
        assert 0.89 < strip[31] < 0.91
        assert 0.19 < strip[10] < 0.21
        minutes = list(recording.minutes())
        assert len(minutes) == 15
        topology = recording.topology()
        assert topology is not None
        row = next(p.row for p in topology.ports if (p.node, p.name) == ("leaf1", "up2"))
        sixth = minutes[5]
        column = sixth.columns.index("tx_bps")
        np.testing.assert_allclose(sixth.highest[column, row], 90e6, rtol=0.005)
        np.testing.assert_allclose(sixth.mean[column, row], 55e6, rtol=0.02)
        np.testing.assert_allclose(
            sixth.mean_10s()[:, column, row],
            np.array([90, 90, 90, 20, 20, 20]) * 1e6,
            rtol=0.08,
        )
        np.testing.assert_allclose(sixth.line_rate_bps[row], 100e6)
