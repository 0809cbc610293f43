"""Replies that unpack to far more than is sent, in every encoding that is asked for."""

from __future__ import annotations

import asyncio
import importlib
import time
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from aiohttp import web

from fabmon.feeds.errors import Misbehaved, Unreachable
from fabmon.feeds.http_client import MAX_BODY_BYTES, ApiServer, HttpClient
from fabmon.recording.format.sections import compress

MB = bytes(1 << 20)
UNPACKED_MB = 512


def bomb(encoding: str) -> bytes:
    """Half a GiB of zeros."""
    if encoding == "zstd":
        return compress(MB) * UNPACKED_MB
    if encoding == "br":
        packer = importlib.import_module("brotli").Compressor(quality=5)
        return b"".join([packer.process(MB) for _ in range(UNPACKED_MB)]) + bytes(packer.finish())
    bits = zlib.MAX_WBITS + (16 if encoding == "gzip" else 0)
    deflate = zlib.compressobj(1, wbits=bits)
    return b"".join([deflate.compress(MB) for _ in range(UNPACKED_MB)]) + deflate.flush()


async def test_a_bomb_is_refused_at_the_limit_of_a_reply() -> None:
    asked: list[str] = []
    bombs: dict[str, bytes] = {}

    async def reply(request: web.Request) -> web.Response:
        asked.append(request.headers["Accept-Encoding"])
        encoding = request.path[1:]
        return web.Response(body=bombs[encoding], headers={"Content-Encoding": encoding})

    app = web.Application()
    app.router.add_get("/{encoding}", reply)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = ApiServer(f"http://127.0.0.1:{runner.addresses[0][1]}", True)
    client = HttpClient()
    bombs["gzip"] = bomb("gzip")
    with pytest.raises(Misbehaved, match="more than 64 MiB"):
        await client.fetch(server, "/gzip", 60)
    bombs |= {each: bomb(each) for each in asked[0].split(", ")}
    for encoding in bombs:
        tracemalloc.start()
        with pytest.raises(Misbehaved, match="more than 64 MiB"):
            await client.fetch(server, f"/{encoding}", 60)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 2.5 * MAX_BODY_BYTES, encoding
    await client.close()
    await runner.cleanup()


async def test_a_connection_on_which_more_replies_come_than_were_asked_for_is_closed() -> None:
    """aiohttp keeps what comes on an idle connection: 150 MB a second."""
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"
    sent_bytes = asyncio.get_running_loop().create_future()
    is_idle = asyncio.Event()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await is_idle.wait()
        sent = 0
        with suppress(ConnectionError):
            while sent < MAX_BODY_BYTES:
                writer.write(reply * 1000)
                await writer.drain()
                sent += 1000 * len(reply)
        sent_bytes.set_result(sent)
        writer.close()

    async with await asyncio.start_server(flood, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        client = HttpClient(keep_alive_s=3600)
        fetched = await client.fetch(ApiServer(f"http://127.0.0.1:{port}", True), "/", 60)
        assert fetched.body == b"x"
        is_idle.set()
        assert await sent_bytes < MAX_BODY_BYTES
        await client.close()


_OK = b"HTTP/1.1 200 OK\r\n"
_CHUNKED = _OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b"\r\n" * 30_000),
        (b"HTTP/1.1 200 ", b"a" * 65_536),
        (_OK + b"X: ", b"a" * 65_536),
        (_OK, b"Set-Cookie: a=b\r\n" * 4_000),
        (_CHUNKED, b"1\r\na\r\n" * 10_000),
        (_CHUNKED, b"0" * 65_536),
        (_CHUNKED + b"1;", b"a" * 65_536),
        (_CHUNKED + b"1\r\na\r\n0\r\n", b"T: a\r\n" * 9_000),
    ],
    ids=["blank", "reason", "header", "headers", "chunks", "size", "extension", "trailers"],
)
async def test_a_reply_without_end_and_content_ends_the_connection(
    first: bytes, then: bytes
) -> None:
    """Long before its time is over, whatever it is that has no end."""
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(first)
        with suppress(ConnectionError):
            while True:
                writer.write(then)
                await writer.drain()
                sent += len(then)

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = HttpClient()
    began_s = time.monotonic()
    with pytest.raises((Misbehaved, Unreachable), match=r"no end|speak HTTP|without an answer"):
        await client.fetch(ApiServer(f"http://127.0.0.1:{port}", True), "/", 120)
    assert time.monotonic() - began_s < 60
    # What the sockets hold is sent and not received.
    assert sent < 32 << 20
    await client.close()
    server.close()


async def test_a_reply_in_small_chunks_is_one() -> None:
    """As an agent's stream is, with a line in each, for days."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(40_000):
            await response.write(b"x" * 100)
        return response

    app = web.Application()
    app.router.add_get("/", reply)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    client = HttpClient()
    found = await client.fetch(
        ApiServer(f"http://127.0.0.1:{runner.addresses[0][1]}", True), "/", 99
    )
    assert len(found.body) == 4_000_000
    await client.close()
    await runner.cleanup()
