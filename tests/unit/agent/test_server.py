"""Readers that do not read, and more of them than there are places: the server itself."""

from __future__ import annotations

import asyncio
import errno
import itertools
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import pytest
from aiohttp import web
from blockbuster import BlockBuster

from fabmon.agent.server import Server
from fabmon.agent.streams import ProbeState, Streams
from fabmon.connection_limits import LimitedListener, log_file_exhaustion_once
from fabmon.http_server import http_server
from tests.unit.agent.probe_lines import NOW_NS, frame_line, hello_line, layout

WIDE = layout("netdev", *(["netdev_rx_bytes"] * 5000))


@pytest.fixture(autouse=True)
def nothing_blocks() -> Iterator[None]:
    """A blocking call inside the event loop raises."""
    guard = BlockBuster()
    guard.activate()
    yield
    guard.deactivate()


class Running(NamedTuple):
    state: ProbeState
    streams: Streams
    server: Server
    port: int

    def say(self, raw: bytes) -> None:
        self.streams.put(self.state.take(raw, NOW_NS))

    def frame(self, seq: int) -> None:
        self.say(frame_line(seq, [1, *[seq] * 5000]))

    async def reader(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A reader of the stream that takes little before it is asked to read."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=2048)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n")
        return reader, writer


@asynccontextmanager
async def running(
    streams: Streams, last_line_s: float, most: int = 256, first_request_s: float = 20
) -> AsyncIterator[Running]:
    state = ProbeState()
    server = Server(state, streams, "s3cret", 1.0, last_line_s)
    runner = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    assert runner.server is not None
    door = LimitedListener(runner.server, server.asked, server.holders, most, first_request_s)
    try:
        yield Running(state, streams, server, await door.open("127.0.0.1", 0))
    finally:
        door.close()
        await runner.cleanup()


async def readers(agent: Running, count: int) -> None:
    """Wait until so many read."""
    async with asyncio.timeout(240):
        while len(agent.streams) != count:  # noqa: ASYNC110 - the server is not to know of tests
            await asyncio.sleep(0.01)


async def dropped_while_another_reads(agent: Running) -> None:
    """Say frames until somebody is dropped; the one who reads gets all of them."""
    reader, writer = await agent.reader()
    await readers(agent, 2)
    async with asyncio.timeout(240):
        for seq in itertools.count():
            agent.frame(seq)
            text = b""
            while f'["frame",{seq},'.encode() not in text:
                text = text[-100:] + await reader.read(65536)
            if agent.streams.ended:
                break
    writer.close()


async def test_a_reader_that_never_reads_is_hung_up_on() -> None:
    async with running(Streams(max_lines=5), last_line_s=0.1) as agent:
        agent.say(hello_line(WIDE))
        _, stuck = await agent.reader()
        await dropped_while_another_reads(agent)
        await readers(agent, 0)
        stuck.close()


async def test_a_reader_that_was_too_slow_finds_out_why() -> None:
    async with running(Streams(max_lines=5), last_line_s=20) as agent:
        agent.say(hello_line(WIDE))
        reader, slow = await agent.reader()
        await dropped_while_another_reads(agent)
        text = b""
        async with asyncio.timeout(240):
            while not text.endswith(b"0\r\n\r\n"):
                more = await reader.read(65536)
                assert more, text[-300:]
                text = text[-2000:] + more
        assert b'"source":"agent"' in text
        assert b"dropped for reading too slowly; connect again" in text
        slow.close()


async def test_the_reader_above_the_limit_gets_an_error() -> None:
    async with running(Streams(max_readers=1), last_line_s=1) as agent:
        agent.say(hello_line(WIDE))
        first, one = await agent.reader()
        assert b"200 OK" in await first.readline()
        second, other = await agent.reader()
        assert b"503" in await second.readline()
        async with asyncio.timeout(240):
            while (
                b"1 readers are connected: no room for another reader"
                not in await second.readline()
            ):
                pass
        one.close()
        other.close()


async def test_a_reader_that_leaves_gives_its_place_back() -> None:
    async with running(Streams(), last_line_s=1) as agent:
        agent.say(hello_line(WIDE))
        reader, writer = await agent.reader()
        await reader.readline()
        assert len(agent.streams) == 1
        writer.close()
        await readers(agent, 0)


async def test_a_reader_that_leaves_while_a_line_is_written_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(Streams(), last_line_s=1) as agent:
        agent.say(hello_line(WIDE))
        reader, writer = await agent.reader()
        await reader.readline()
        (transport,) = agent.server.holders
        agent.frame(1)
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
        await readers(agent, 0)
        writer.close()
    assert not caplog.records


async def test_before_the_first_frame_there_are_no_metrics_and_no_health() -> None:
    async with running(Streams(), last_line_s=1) as agent:
        for path in ("/metrics", "/healthz"):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n"
            writer.write(request.encode())
            assert b" 503 " in await reader.readline()
            writer.close()


async def test_metrics_and_health() -> None:
    async with running(Streams(), last_line_s=1) as agent:
        agent.say(hello_line(WIDE))
        agent.frame(0)
        agent.state.frame_at_ns = time.monotonic_ns()
        for path in ("/metrics", "/healthz"):
            reader, writer = await asyncio.open_connection("127.0.0.1", agent.port)
            request = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\r\n"
            writer.write(request.encode())
            assert b" 200 " in await reader.readline()
            writer.close()


async def test_a_stranger_that_asks_nothing_is_hung_up_on() -> None:
    async with running(Streams(), last_line_s=1, first_request_s=1.0) as agent:
        agent.say(hello_line(WIDE))
        reader, reading = await agent.reader()
        assert b"200 OK" in await reader.readline()
        silent, one = await asyncio.open_connection("127.0.0.1", agent.port)
        slow, other = await asyncio.open_connection("127.0.0.1", agent.port)
        other.write(b"GET /healthz HT")
        async with asyncio.timeout(240):
            assert await end(silent) == await end(slow) == b""
        assert len(agent.streams) == 1
        for writer in (reading, one, other):
            writer.close()


async def test_strangers_who_occupy_all_places_do_not_keep_a_holder_of_the_token_out() -> None:
    async with running(Streams(), last_line_s=1, most=4) as agent:
        agent.say(hello_line(WIDE))
        strangers = [await asyncio.open_connection("127.0.0.1", agent.port) for _ in range(20)]
        async with asyncio.timeout(240):
            reader, reading = await agent.reader()
            assert b"200 OK" in await reader.readline()
            strangers += [await asyncio.open_connection("127.0.0.1", agent.port) for _ in range(20)]
            # The last four at most are still open, and the reader still reads.
            closed = [await end(silent) for silent, _ in strangers[:36]]
            agent.frame(7)
            text = b""
            while b'["frame",7,' not in text:
                text = text[-100:] + await reader.read(65536)
        assert closed == [b""] * 36
        for writer in (reading, *(each for _, each in strangers)):
            writer.close()


async def test_where_all_places_are_taken_by_holders_of_the_token_one_more_is_closed() -> None:
    async with running(Streams(), last_line_s=1, most=3) as agent:
        agent.say(hello_line(WIDE))
        async with asyncio.timeout(240):
            holders = [await agent.reader() for _ in range(3)]
            await readers(agent, 3)
            over, one = await asyncio.open_connection("127.0.0.1", agent.port)
            assert await end(over) == b""
            for _, writer in holders:
                writer.close()
            while not (said := await health(agent.port)):  # noqa: ASYNC110 - until they are gone
                await asyncio.sleep(0.01)
        assert b" 503 " in said
        one.close()


async def end(reader: asyncio.StreamReader) -> bytes:
    """The rest of the response; empty where the connection was aborted."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


async def health(port: int) -> bytes:
    """All that an agent says of its health; it closes after it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
    said = await end(reader)
    writer.close()
    return said


async def test_that_there_are_no_files_left_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    log_file_exhaustion_once(loop)
    for _ in range(100):
        error = OSError(errno.EMFILE, "Too many open files")
        loop.call_exception_handler({"message": "accept", "exception": error})
    assert [record.message for record in caplog.records] == [
        "no further connections for now: Too many open files"
    ]


@pytest.mark.parametrize("token", ["s3cret", "wrong"])
async def test_a_body_without_end_is_not_read(token: str) -> None:
    """It was read for 10 s, a gigabyte a second, and cost a node that trains a third of a core."""
    server = Server(ProbeState(), Streams(), "s3cret", 1.0)
    asked, holders = server.asked, server.holders
    async with http_server(server.app(), "127.0.0.1", 0, asked, holders) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        writer.write(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        async with asyncio.timeout(30):
            with suppress(ConnectionError):
                while sent < 100_000_000:
                    writer.write(b"10000\r\n" + bytes(65536) + b"\r\n")
                    await writer.drain()
                    sent += 65536
        assert sent < 20_000_000
        writer.close()
        with suppress(ConnectionError):
            await reader.read()
