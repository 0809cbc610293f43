"""Readers of a stream: each at its own pace, none of them in the way of another."""

from __future__ import annotations

import asyncio

import pytest

from collectors import wire
from fabmon.agent.streams import ProbeState, Stream, Streams, TooManyReaders, WireLine
from fabmon.fabric.wire.messages import Frame, Hello, Notice, Packed, decode
from fabmon.fabric.wire.unpacking import Unpacker
from tests.unit.agent.probe_lines import NOW_NS, frame_line, hello_line, layout

ETH = layout("netdev", "netdev_rx_bytes", "netdev_tx_bytes")


class Source:
    """A probe that says what the test wants it to."""

    def __init__(self, streams: Streams) -> None:
        self.state = ProbeState()
        self.streams = streams
        self.seq = 0

    def say(self, raw: bytes) -> None:
        self.streams.put(self.state.take(raw, NOW_NS))

    def hello(self) -> None:
        self.say(hello_line(ETH))

    def frames(self, count: int) -> None:
        for _ in range(count):
            self.say(frame_line(self.seq, [self.seq * 10**9, self.seq * 1000, None]))
            self.seq += 1


async def taken(stream: Stream, count: int | None = None) -> list[bytes]:
    """The next lines, or all to the end."""
    found: list[bytes] = []
    async with asyncio.timeout(240):
        async for line in stream.lines():
            found.append(line)
            if len(found) == count:
                break
    return found


def greeting(source: Source) -> list[WireLine]:
    return source.state.greeting()


async def test_a_newcomer_hears_what_was_then_what_comes() -> None:
    source = Source(streams := Streams())
    source.hello()
    source.frames(3)
    with streams.reader(greeting(source), wire.PLAIN) as stream:
        source.frames(2)
        hello, *frames = [decode(line) for line in await taken(stream, 4)]
    assert isinstance(hello, Hello)
    assert [frame.seq for frame in frames if isinstance(frame, Frame)] == [2, 3, 4]


async def test_a_reader_who_comes_first_waits_for_the_hello() -> None:
    source = Source(streams := Streams())
    with streams.reader(greeting(source), wire.PLAIN) as stream:
        waiting = asyncio.create_task(taken(stream, 1))
        await asyncio.sleep(0)
        source.hello()
        assert isinstance(decode((await waiting)[0]), Hello)


async def test_packed_frames_are_the_same_frames_whenever_one_comes() -> None:
    source = Source(streams := Streams())
    source.hello()
    source.frames(2)
    with streams.reader(greeting(source), "delta-deflate") as stream:
        source.frames(2)
        source.hello()
        source.frames(1)
        found: list[Frame] = []
        for line in await taken(stream, 6):
            message = decode(line)
            if isinstance(message, Hello):
                assert message.encoding == "delta-deflate"
                assert message.hostname == "gpu001"
                unpacker = Unpacker(message.widths())
            else:
                assert isinstance(message, Packed)
                found.append(unpacker.frame(message))
    assert [(frame.seq, frame.blocks) for frame in found] == [
        (seq, [[seq * 10**9, seq * 1000, None]]) for seq in (1, 2, 3, 4)
    ]


async def test_a_slow_reader_is_dropped_with_a_last_line_and_delays_no_other() -> None:
    source = Source(streams := Streams(max_lines=10))
    source.hello()
    ended = []
    with (
        streams.reader(greeting(source), wire.PLAIN) as slow,
        streams.reader(greeting(source), wire.PLAIN) as quick,
    ):
        slow.ended = lambda: ended.append("slow")
        quick.ended = lambda: ended.append("quick")
        quick_lines = quick.lines()
        assert isinstance(decode(await anext(quick_lines)), Hello)
        for seq in range(30):
            source.frames(1)
            frame = decode(await anext(quick_lines))
            assert isinstance(frame, Frame)
            assert frame.seq == seq
        (last,) = [decode(line) for line in await taken(slow)]
    assert isinstance(last, Notice)
    assert (last.event, last.source, last.reason) == ("lost", "agent", "late")
    assert last.text == "dropped for reading too slowly; connect again"
    assert ended == ["slow"]


async def test_a_long_greeting_does_not_count_as_reading_slowly() -> None:
    source = Source(streams := Streams(max_lines=2))
    source.hello()
    for number in range(20):
        source.say(wire.notice("absent", "netdev", "", f"eth{number}", "netdev_up", "failed"))
    with streams.reader(greeting(source), wire.PLAIN) as stream:
        source.frames(2)
        assert len(await taken(stream, 23)) == 23


async def test_every_reader_gets_a_last_line_when_the_agent_stops() -> None:
    source = Source(streams := Streams())
    source.hello()
    with streams.reader(greeting(source), wire.PLAIN) as stream:
        streams.end("the agent is stopping")
        source.frames(1)
        (last,) = [decode(line) for line in await taken(stream)]
    assert isinstance(last, Notice)
    assert last.text == "the agent is stopping"


async def test_there_are_only_so_many_places() -> None:
    streams = Streams(max_readers=1)
    with (
        streams.reader([], wire.PLAIN),
        pytest.raises(TooManyReaders, match="1 readers are connected"),
        streams.reader([], wire.PLAIN),
    ):
        pass
    with streams.reader([], wire.PLAIN):
        pass
