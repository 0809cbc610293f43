"""Serves findings as metrics over HTTP, for `fabmon watch --metrics`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from weakref import WeakSet

from aiohttp import web

from fabmon.analysis.scene import Scene
from fabmon.fabric.openmetrics import choose_content_type
from fabmon.http_server import http_server
from fabmon.report.watch_metrics import watch_metrics

Publish = Callable[[Scene], None]


@asynccontextmanager
async def metrics_server(host: str, port: int) -> AsyncIterator[Publish]:
    """Serve `/metrics` at an address; what is published last is what is served.

    Connections have the limits of those to an agent; none has a token. Raises OSError if the
    address cannot be listened on.
    """
    last: Scene | None = None

    def publish(scene: Scene) -> None:
        nonlocal last
        last = scene

    asked: WeakSet[asyncio.BaseTransport] = WeakSet()

    async def answer(request: web.Request) -> web.Response:
        if request.transport is not None:
            asked.add(request.transport)
        kind = choose_content_type(request.headers.get("Accept", ""))
        body = watch_metrics(last, time.process_time(), kind).encode()
        return web.Response(body=body, headers={"Content-Type": kind})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", answer)
    async with http_server(app, host, port, asked, WeakSet()):
        yield publish
