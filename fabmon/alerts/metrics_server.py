"""Serves findings as metrics over HTTP, for `fabmon watch --metrics`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from fabmon.analysis.scene import Scene
from fabmon.report.watch_metrics import OPENMETRICS, PROMETHEUS, watch_metrics

Publish = Callable[[Scene], None]


@asynccontextmanager
async def metrics_server(host: str, port: int) -> AsyncIterator[Publish]:
    """Serve `/metrics` at an address; what is published last is what is served.

    Raises OSError if the address cannot be listened on.
    """
    last: Scene | None = None

    def publish(scene: Scene) -> None:
        nonlocal last
        last = scene

    async def answer(request: web.Request) -> web.Response:
        accept = request.headers.get("Accept", "")
        kind = OPENMETRICS if "application/openmetrics-text" in accept else PROMETHEUS
        body = watch_metrics(last, time.process_time(), kind).encode()
        return web.Response(body=body, headers={"Content-Type": kind})

    app = web.Application(client_max_size=1024)
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield publish
    finally:
        await runner.cleanup()
