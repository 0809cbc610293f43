"""The line buffer: bytes cut anywhere, and hostile streams."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.wire import MAX_LINE
from fabmon.feeds.errors import Ended, Misbehaved
from fabmon.feeds.transports.transport import LineBuffer, StderrTail


class Stream:
    def __init__(self) -> None:
        self.paused = 0
        self.resumed = 0
        self.lines = LineBuffer(self.pause, self.resume)

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None:
        self.resumed += 1


@given(st.lists(st.binary(max_size=20).map(lambda item: item.replace(b"\n", b""))), st.data())
def test_lines_do_not_depend_on_how_the_bytes_were_cut(
    lines: list[bytes], data: st.DataObject
) -> None:
    sent = b"".join(line + b"\n" for line in lines)

    async def read() -> list[bytes]:
        stream = Stream()
        rest = sent
        while rest:
            size = data.draw(st.integers(1, len(rest)))
            stream.lines.feed(rest[:size])
            rest = rest[size:]
        return [await stream.lines.readline() for _ in lines]

    assert asyncio.run(read()) == [line + b"\n" for line in lines]


async def test_a_reader_waits_for_its_line() -> None:
    stream = Stream()
    reading = asyncio.create_task(stream.lines.readline())
    await asyncio.sleep(0)
    stream.lines.feed(b"he")
    stream.lines.feed(b"llo\n")
    assert await reading == b"hello\n"


async def test_lines_before_the_end_are_still_read() -> None:
    stream = Stream()
    stream.lines.feed(b"last\npart")
    stream.lines.end(Ended("first reason"))
    stream.lines.end(Ended("second reason"))
    stream.lines.feed(b"too late\n")
    assert await stream.lines.readline() == b"last\n"
    for _ in range(2):
        with pytest.raises(Ended, match="first reason"):
            await stream.lines.readline()


async def test_a_stream_is_paused_while_it_is_not_read() -> None:
    stream = Stream()
    line = b"x" * 1023 + b"\n"
    for _ in range(600):
        stream.lines.feed(line)
    assert (stream.paused, stream.resumed) == (1, 0)
    for _ in range(600):
        await stream.lines.readline()
    assert (stream.paused, stream.resumed) == (1, 1)


@pytest.mark.parametrize(
    ("start", "size"), [(b"x", 65 * 1024), (b"[", MAX_LINE + 1), (b"[\n[", MAX_LINE + 1)]
)
async def test_a_line_without_end_ends_the_stream(start: bytes, size: int) -> None:
    stream = Stream()
    stream.lines.feed(start)
    for _ in range(size // 65536 + 1):
        stream.lines.feed(b"x" * 65536)
    assert stream.lines.ended
    while start.count(b"\n") and (start := start.partition(b"\n")[2]):
        await stream.lines.readline()
    with pytest.raises(Misbehaved, match="not the wire"):
        await stream.lines.readline()


async def test_a_long_line_of_the_wire_is_accepted() -> None:
    stream = Stream()
    line = b"[" + b"1," * 100_000 + b"1]\n"
    stream.lines.feed(line[:90_000])
    stream.lines.feed(line[90_000:])
    assert await stream.lines.readline() == line


def test_the_end_of_standard_error_is_kept() -> None:
    tail = StderrTail()
    assert tail.last_line == ""
    for number in range(1000):
        tail.feed(f"line {number}\n".encode())
    tail.feed(b"\xff last words \n\n  \n")
    assert len(tail.text) <= 2048
    assert tail.last_line == "\ufffd last words"
