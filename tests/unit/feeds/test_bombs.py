"""Replies that unpack to far more than is sent, in every encoding that is asked for."""

from __future__ import annotations

import importlib
import tracemalloc
import zlib

import pytest
from aiohttp import web

from fabmon.feeds.errors import Misbehaved
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
