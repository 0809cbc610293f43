"""The live feed and its node watches, on a clock that the test advances."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, Tick
from fabmon.fabric.wire.messages import Hello, Message, decode
from fabmon.feeds import session_reader
from fabmon.feeds.errors import Ended, LoginRefused, Unreachable
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.ticks import TickSchedule
from tests.builders import SECOND_NS
from tests.unit.feeds.fakes import FakeClock, FakeNodes
from tests.unit.feeds.wire_lines import frame_line, frames_of, hello_line


class Rig:
    """A feed with its nodes and its clock, which starts on a whole second."""

    def __init__(self, *names: str, interval_s: float = 1.0) -> None:
        self.clock = FakeClock()
        self.nodes = FakeNodes()
        hosts = [Host(name=name) for name in names]
        self.feed = LiveFeed(hosts, interval_s=interval_s, transports=self.nodes, clock=self.clock)
        self.ticks: list[Tick] = []
        self.accept: Callable[[Tick], None] = self.ticks.append
        self._taking: asyncio.Task[None] | None = None

    async def _take(self) -> None:
        async for tick in self.feed:
            self.accept(tick)

    async def run(self, seconds: float) -> list[Tick]:
        """The ticks of so many seconds."""
        if self._taking is None:
            self._taking = asyncio.create_task(self._take())
        before = len(self.ticks)
        await self.clock.run(seconds)
        return self.ticks[before:]

    async def seconds(self, count: int, *names: str) -> list[Tick]:
        """So many seconds in which these nodes send a frame each second."""
        before = len(self.ticks)
        for _ in range(count):
            for name in names:
                self.nodes.sessions[name].put(frame_line(1))
            await self.clock.run(1.0)
        return self.ticks[before:]

    def state(self, name: str) -> str:
        return next(status.state.value for status in self.feed.statuses if status.node == name)

    def states(self, name: str) -> list[str]:
        statuses = [status for tick in self.ticks for status in tick.statuses]
        return [status.state.value for status in statuses if status.node == name]

    async def close(self) -> None:
        await self.feed.aclose()
        if self._taking is not None:
            await self._taking


@pytest.fixture
async def two() -> AsyncIterator[Rig]:
    made = Rig("a", "b")
    yield made
    await made.close()


async def test_the_first_tick_comes_at_once_and_the_second_with_the_first_frames(two: Rig) -> None:
    first = await two.run(0.0)
    assert [status.state for status in first[0].statuses] == [NodeState.QUEUED] * 2
    two.nodes.sessions["a"].greet()
    await two.run(0.06)
    assert frames_of(two.ticks, "a") == [0]
    assert two.states("a") == ["queued", "connecting", "starting", "up"]
    assert two.states("b") == ["queued", "connecting", "starting"]


async def test_ticks_come_a_little_after_each_second(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    ticks = await two.run(5.0)
    seconds = [tick.time_ns / 1e9 % 1000 for tick in ticks[1:]]
    assert seconds == pytest.approx([0.3, 1.3, 2.3, 3.3, 4.3], abs=0.01)
    assert [tick.seq for tick in two.ticks] == list(range(len(two.ticks)))


async def test_states_come_every_second_at_first_if_the_interval_is_long() -> None:
    rig = Rig("a", interval_s=10.0)
    ticks = await rig.run(14.9)
    assert 14 <= len(ticks) <= 17
    await rig.run(5.0)
    assert len(await rig.run(30.0)) == 3
    await rig.close()


async def test_times_follow_a_clock_that_was_set_and_ages_do_not(
    two: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    """400 days ahead for 4 s: after it the times are right again, and states as old as they are."""
    days_s = 400 * 86_400
    await two.run(3.0)
    two.clock.step_wall(days_s)
    ahead = await two.run(4.0)
    two.clock.step_wall(-days_s)
    after = await two.run(3.0)
    jumps = [
        (tick.seq, round(tick.clock_jumped_ns / 1e9)) for tick in two.ticks if tick.clock_jumped_ns
    ]
    assert jumps == [(ahead[0].seq, days_s), (after[0].seq, -days_s)]
    for ticks, offset_s in ((ahead, days_s), (after, 0)):
        assert all(abs(tick.time_ns / 1e9 - (1_000_000 + offset_s)) < 11 for tick in ticks)
        starts_s = [status.since_ns / 1e9 for status in ticks[0].statuses]
        assert len(starts_s) == 2
        assert all(abs(each - (1_000_000 + offset_s)) < 1 for each in starts_s)
    said = "the clock of this machine moved {} by 400 d"
    assert [each.getMessage() for each in caplog.records] == [
        said.format("forward"), said.format("back")
    ]  # fmt: skip
    await two.close()


def test_a_clock_before_1970_has_not_been_set(caplog: pytest.LogCaptureFixture) -> None:
    """It was said to have moved back by all the years to 1970."""
    clock = FakeClock(wall_s=-1e8)
    schedule = TickSchedule(clock, 1.0, 0.0)
    first_ns = schedule.now_ns()
    clock.suspend(2)
    assert (first_ns, schedule.now_ns()) == (-(10**17), -(10**17) + 2 * SECOND_NS)
    assert not caplog.messages
    clock.step_wall(-50)
    schedule.now_ns()
    assert caplog.messages == ["the clock of this machine moved back by 50 s"]


async def test_times_wait_for_a_clock_that_was_set_back_a_little(two: Rig) -> None:
    await two.run(3.0)
    two.clock.step_wall(-1.5)
    await two.run(6.0)
    times_ns = [tick.time_ns for tick in two.ticks]
    assert times_ns == sorted(times_ns)
    assert not any(tick.clock_jumped_ns for tick in two.ticks)
    assert abs(two.ticks[-1].time_ns - two.clock.wall_ns()) < 2 * SECOND_NS


async def test_a_late_node_is_stale_and_does_not_delay_others(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    two.nodes.sessions["b"].greet()
    await two.run(1.0)
    ticks = await two.seconds(4, "a")
    assert len(frames_of(ticks, "a")) == 4
    assert (two.state("a"), two.state("b")) == ("up", "stale")
    status = two.feed.statuses[1]
    assert status.reason.startswith("no frame for ")
    assert status.cause == "stale"
    await two.seconds(1, "a", "b")
    assert two.states("b")[-2:] == ["stale", "up"]


async def test_a_node_with_a_longer_interval_is_not_stale(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].put(hello_line(interval_s=10.0), frame_line(0))
    await two.run(24.0)
    assert two.state("a") == "up"
    await two.run(2.0)
    assert two.state("a") == "stale"
    await two.run(60.0)
    assert two.nodes.opened.count("a") == 1


async def test_a_silent_session_is_closed_and_opened_again(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    await two.run(29.0)
    assert two.state("a") == "stale"
    first = two.nodes.sessions["a"]
    await two.run(4.0)
    assert "lost" in two.states("a")
    assert first.closed
    assert two.nodes.opened.count("a") == 2


async def test_a_suspended_console_loses_no_node_that_kept_sending(two: Rig) -> None:
    await two.run(0.0)
    for name in ("a", "b"):
        two.nodes.sessions[name].greet()
    await two.seconds(3, "a", "b")
    two.clock.suspend(40.0)
    await two.run(0.6)  # Nodes are checked before what waits in the pipes is read.
    two.nodes.sessions["a"].put(*[frame_line(1)] * 40)
    await two.run(2.0)
    assert two.state("a") == two.state("b") == "up"
    assert not {"stale", "lost"} & {*two.states("a"), *two.states("b")}
    await two.seconds(3, "a")
    assert two.state("b") == "stale"
    await two.seconds(32, "a")
    assert two.state("a") == "up"
    assert "lost" in two.states("b")


async def test_the_lease_is_renewed_four_times_per_lease(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    await two.seconds(62, "a")
    assert two.nodes.sessions["a"].sent == [b"{}\n"] * 4


async def test_a_reboot_is_a_new_hello_and_its_frames_come_after_it(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet("boot-1")
    await two.seconds(2, "a")
    two.nodes.sessions["a"].put(frame_line(7))
    two.nodes.reboot("a")
    ticks = await two.run(1.2)
    assert two.state("a") == "lost"
    two.nodes.sessions["a"].greet("boot-2")
    ticks = await two.run(1.0)
    boots = [hello.boot_id for tick in ticks for _, hello in tick.hellos]
    assert boots == ["boot-2"]
    assert two.state("a") == "up"


async def test_frames_of_an_earlier_layout_never_share_a_tick_with_a_later_hello(two: Rig) -> None:
    await two.run(0.0)
    session = two.nodes.sessions["a"]
    session.greet()
    await two.run(1.0)
    wide = hello_line(layout="f" * 16, metrics=("a", "b", "c"))
    session.put(frame_line(5), frame_line(6), wide, frame_line(7, (1, 2, 3)))
    ticks = await two.run(1.0)
    assert frames_of(ticks, "a") == [7]
    session.put(frame_line(8, (1, 2, 3)), wide, frame_line(9, (1, 2, 3)))
    ticks = await two.run(1.0)
    assert frames_of(ticks, "a") == [8, 9]


async def test_a_layout_with_the_same_hash_and_another_shape_is_a_new_one(two: Rig) -> None:
    await two.run(0.0)
    session = two.nodes.sessions["a"]
    session.greet()
    await two.run(1.0)
    wide = hello_line(metrics=("a", "b", "c", "d"))
    session.put(frame_line(5), wide, frame_line(6, (1, 2, 3, 4)), hello_line(), frame_line(7))
    ticks = await two.run(1.0)
    assert frames_of(ticks, "a") == [7]


async def test_notices_from_before_a_hello_are_dropped(two: Rig) -> None:
    await two.run(0.0)
    session = two.nodes.sessions["a"]
    session.greet()
    await two.run(1.0)
    lost = [b'["notice",{"event":"lost","source":"%s"}]\n' % name for name in (b"ib", b"rdma")]
    session.put(lost[0], hello_line(), lost[1], frame_line(1))
    ticks = await two.run(1.0)
    assert [notice.source for tick in ticks for _, notice in tick.notices] == ["rdma"]


async def test_failures_are_failed_before_the_first_frame_and_lost_after(two: Rig) -> None:
    two.nodes.errors["b"] = Unreachable("connection refused by 10.0.0.2:22", "refused")
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    await two.run(1.0)
    assert two.feed.statuses[1].reason == "connection refused by 10.0.0.2:22"
    assert (two.state("a"), two.state("b")) == ("up", "failed")
    two.nodes.errors["a"] = two.nodes.errors["b"]
    two.nodes.reboot("a")
    await two.run(60.0)
    assert two.states("a")[-2:] == ["lost", "lost"], "the reason changed once"
    assert two.states("b") == ["queued", "connecting", "failed"], (
        "reported once, not at every attempt"
    )
    del two.nodes.errors["a"]
    await two.run(31.0)
    two.nodes.sessions["a"].greet()
    await two.run(1.0)
    assert two.state("a") == "up"


async def test_attempts_become_rarer_down_to_one_in_30_s(two: Rig) -> None:
    two.nodes.errors["a"] = Unreachable("no", "refused")
    await two.run(10.0)
    early = two.nodes.opened.count("a")
    await two.run(290.0)
    late = two.nodes.opened.count("a") - early
    assert 4 <= early <= 7
    assert 290 / 30 - 1 <= late <= 290 / 15 + 2


async def test_a_refused_login_is_tried_more_rarely(two: Rig) -> None:
    two.nodes.errors["a"] = LoginRefused("permission denied", "permission denied")
    await two.run(300.0)
    assert 3 <= two.nodes.opened.count("a") <= 7


async def test_a_login_that_is_refused_waits_for_other_keys(two: Rig) -> None:
    """fail2ban bans an address after 5 attempts in 10 minutes."""
    keys_changed = asyncio.Event()

    async def until_changed() -> None:
        await keys_changed.wait()

    refusal = LoginRefused("permission denied", "permission denied")
    refusal.until_changed = until_changed
    two.nodes.errors["a"] = refusal
    await two.run(840.0)
    assert two.nodes.opened.count("a") == 1
    del two.nodes.errors["a"]
    keys_changed.set()
    await two.run(1.0)
    assert two.nodes.opened.count("a") == 2


async def test_a_login_that_is_refused_is_tried_again_on_request(two: Rig) -> None:
    """The key was added to the node, which the console cannot see."""
    forgotten: list[str] = []
    refusal = LoginRefused("permission denied", "permission denied")
    refusal.until_changed = asyncio.Event().wait  # type: ignore[assignment]
    refusal.forget = lambda: forgotten.append("jump host")
    two.nodes.errors["a"] = refusal
    await two.run(60.0)
    two.nodes.sessions["b"].greet()
    await two.run(1.0)
    assert two.nodes.opened.count("a") == 1
    assert two.feed.retry() == "connecting to 1 node"
    await two.run(1.0)
    assert (two.nodes.opened.count("a"), forgotten) == (2, ["jump host"])
    # Attempts in quick succession get an address banned.
    assert two.feed.retry() == "tried 1 s ago: again in 9 s"
    await two.run(10.0)
    assert two.feed.retry() == "connecting to 1 node"


async def test_there_is_no_lost_node_to_connect_to(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    two.nodes.sessions["b"].greet()
    await two.run(1.0)
    assert two.feed.retry() == "no node is lost or failed"


async def test_a_login_that_is_refused_is_tried_again_without_a_change(two: Rig) -> None:
    """The key may have been added to the node."""
    refusal = LoginRefused("permission denied", "permission denied")
    refusal.until_changed = asyncio.Event().wait  # type: ignore[assignment]
    two.nodes.errors["a"] = refusal
    await two.run(1801.0)
    assert two.nodes.opened.count("a") in (2, 3)


async def test_an_internal_error_affects_one_node(
    two: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    two.nodes.errors["a"] = RuntimeError("surprise")
    await two.run(0.0)
    two.nodes.sessions["b"].greet()
    await two.run(20.0)
    assert (two.state("a"), two.state("b")) == ("failed", "stale")
    assert "surprise" in two.feed.statuses[0].reason
    assert sum("Traceback" in (record.exc_text or "") for record in caplog.records) == 1


async def test_loss_and_recovery_are_logged_once_and_grouped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "fabmon.feeds")
    names = [f"gpu{number:03}" for number in range(1, 17)]
    rig = Rig(*names)
    for number, name in enumerate(names):
        rig.nodes.errors[name] = Unreachable(f"connection refused by 10.0.0.{number}", "refused")
    await rig.run(40.0)
    rig.nodes.errors.clear()
    await rig.run(31.0)
    for name in names:
        rig.nodes.sessions[name].greet()
    await rig.run(1.0)
    assert [record.getMessage() for record in caplog.records] == [
        "gpu[001-016]: connection refused by 10.0.0.[0-15]",
        "gpu[001-016]: recovered",
    ]
    await rig.close()


async def test_memory_is_bounded_while_no_ticks_are_taken() -> None:
    nodes, clock = FakeNodes(), FakeClock()
    feed = LiveFeed([Host(name="a")], transports=nodes, clock=clock)
    await anext(feed)
    await clock.run(0.0)
    session = nodes.sessions["a"]
    session.greet()
    for seq in range(100):
        session.put(*[frame_line(seq)] * 50)
        await clock.run(1.0)
    assert session.lines.qsize() > 3000
    tick = await _next(feed, clock)
    assert len(tick.frames) <= 1000
    await feed.aclose()


async def _next(feed: LiveFeed, clock: FakeClock) -> Tick:
    taking = asyncio.ensure_future(anext(feed))
    await clock.run(2.0)
    return await taking


async def test_closing_ends_the_ticks_and_every_session(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    await two.run(1.0)
    await two.close()
    assert two.nodes.sessions["a"].closed
    assert two.nodes.sessions["b"].closed
    assert two.nodes.closed
    await two.feed.aclose()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([hello_line(layout=f"{number:016}") for number in range(50)], "again and again"),
        ([b'["notice",{"event":"lost","source":"ib"}]\n'] * 9000, "500 lines a second"),
        ([frame_line(1)] * 2000, "100 frames a second"),
        ([b"[" + b" " * 200_000 + b"]\n"] * 400, "not a wire message"),
        ([frame_line(1)[:-1] + b" " * 200_000 + b"\n"] * 400, "8,000,000 bytes a second"),
    ],
)
async def test_a_flood_ends_the_session_of_that_node(
    two: Rig, lines: list[bytes], reason: str
) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].greet()
    two.nodes.sessions["b"].greet()
    await two.run(1.0)
    two.nodes.sessions["a"].put(*lines)
    for _ in range(9):
        two.nodes.sessions["b"].put(frame_line(1))
        await two.clock.run(1.0)
    status = next(
        status
        for tick in two.ticks
        for status in tick.statuses
        if status.node == "a" and status.state is NodeState.LOST
    )
    assert reason in status.reason
    assert two.state("b") == "up"


def megabyte(port: str) -> tuple[bytes, bytes]:
    """A hello of 1.3 MB and its frame: one port in 2,000 objects."""
    item = {"kind": "ethernet", "port": port, "info": {"serial": "x" * 200}}
    metrics = [
        f"ib_{direction}_{what}" for direction in ("tx", "rx") for what in ("bytes", "packets")
    ]
    objects = [{**item, "id": f"{port}/{n}", "metrics": 8 * metrics} for n in range(2000)]
    blocks = [{"source": "ib", "every": 1, "objects": objects}]
    return hello_line(blocks=blocks), frame_line(0, [1] * 64_000)


async def test_a_hello_of_a_megabyte_is_read(two: Rig) -> None:
    await two.run(0.0)
    hello, frame = megabyte("mlx5_0")
    assert len(hello) > 1_000_000
    two.nodes.sessions["a"].put(hello, frame)
    # It is read in a thread.
    async with asyncio.timeout(240):
        while two.state("a") != "up":
            await asyncio.sleep(0.01)
            await two.run(0.0)
    await two.run(1.0)


async def test_a_hello_with_too_many_ports_ends_the_session(two: Rig) -> None:
    await two.run(0.0)
    ports = [
        {"id": str(n), "kind": "ethernet", "port": str(n), "info": {}, "metrics": []}
        for n in range(3000)
    ]
    line = hello_line(blocks=[{"source": "s", "every": 1, "objects": ports}])
    two.nodes.sessions["a"].put(line)
    await two.run(1.0)
    assert two.state("a") == "failed"
    assert two.feed.statuses[0].reason == "hello: 3000 ports of one node, 2048 at most"


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"kind": "ecmp", "port": None, "info": {"members": 5}}, "info: Expected `array | null`"),
        ({"info": {"pfc": "on", "pfc_priorities": 3}}, "info: Expected `array | null`"),
        ({"info": {"netdev": {}}}, "netdev: o: info: Expected `str | null`"),
    ],
)
async def test_an_unusable_hello_ends_the_session(
    two: Rig, lie: dict[str, object], reason: str
) -> None:
    honest = {"id": "o", "kind": "ethernet", "port": "p", "info": {}, "metrics": ["netdev_up"]}
    blocks = [{"source": "netdev", "every": 1, "objects": [{**honest, **lie}]}]
    await two.run(0.0)
    two.nodes.sessions["a"].put(hello_line(blocks=blocks), *[frame_line(1, [1])] * 20)
    two.nodes.sessions["b"].greet()
    await two.run(1.0)
    assert (two.state("a"), two.state("b")) == ("failed", "up")
    assert reason in two.feed.statuses[0].reason
    assert all(node == "b" for tick in two.ticks for node, _ in tick.hellos)


async def test_a_session_that_ends_by_itself_gives_its_reason(two: Rig) -> None:
    await two.run(0.0)
    two.nodes.sessions["a"].put(b"last words\n", Ended("the probe ended with status 1"))
    await two.run(1.0)
    assert (
        two.feed.statuses[0].reason == "the probe ended with status 1; its output was: last words"
    )


def test_an_unknown_via_is_rejected() -> None:
    with pytest.raises(ValueError, match="no transport 'pigeon'"):
        LiveFeed([Host(name="a", via="pigeon")])


@pytest.mark.parametrize("where", ["decoded", "processed"])
async def test_a_node_that_costs_too_much_cpu_is_left_alone_for_a_while_which_is_said_once(
    where: str, two: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def costly(line: bytes) -> Message:
        message = decode(line)
        if isinstance(message, Hello) and message.hostname == "costly" and where == "decoded":
            two.clock.used_s += 3.0
        return message

    def process(tick: Tick) -> None:
        two.ticks.append(tick)
        costs = any(hello.hostname == "costly" for _, hello in tick.hellos)
        two.clock.used_s += 3.0 if costs and where == "processed" else 0.01

    monkeypatch.setattr(session_reader, "decode", costly)
    two.accept = process
    caplog.set_level(logging.INFO, "fabmon.feeds")
    await two.run(0.1)
    two.nodes.sessions["b"].greet()
    for _ in range(33):
        two.nodes.sessions["a"].put(hello_line(hostname="costly"))
        await two.seconds(3, "a", "b")
    taken = [node for tick in two.ticks for node, hello in tick.hellos if node == "a"]
    assert 4 <= len(taken) <= 8, "10 s of CPU time, and 0.1 a second"
    assert set(two.states("b")) <= {"queued", "connecting", "starting", "up"}
    said = [each.message for each in caplog.records if each.name.startswith("fabmon.feeds")]
    lost = "a: costs the console more than 0.1 s of CPU time a second"
    assert said == [lost, "a: recovered"] * (len(said) // 2) + [lost] * (len(said) % 2)
    assert len(said) <= 4, "a line on loss, and one on recovery"
