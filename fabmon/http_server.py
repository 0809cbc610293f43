"""Serves an aiohttp application with limits on connections: for an agent, and for metrics."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakSet

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fabmon.connection_limits import LimitedListener, log_file_exhaustion_once

_SHUTDOWN_S = 1.0
_KEEPALIVE_S = 75.0
"""Between two requests of a connection; Prometheus scrapes at least every minute."""


@asynccontextmanager
async def http_server(
    app: web.Application,
    address: str,
    port: int,
    asked: WeakSet[asyncio.BaseTransport],
    holders: WeakSet[asyncio.BaseTransport],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """Serve an application with the limits of LimitedListener; yields the port. Raises OSError."""
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_log(),
        handler_cancellation=True,
        shutdown_timeout=_SHUTDOWN_S,
        keepalive_timeout=_KEEPALIVE_S,
        lingering_time=0.0,  # No request needs a body, and one may have no end.
    )
    await runner.setup()
    assert runner.server is not None
    log_file_exhaustion_once(asyncio.get_running_loop())
    listener = LimitedListener(runner.server, asked, holders)
    try:
        yield await listener.open(address, port, tls)
    finally:
        listener.close()
        await runner.cleanup()


def _log() -> logging.Logger:
    """A log of the server's own faults: invalid HTTP from strangers must not fill it."""
    log = logging.getLogger("fabmon.connections.http")
    log.addFilter(_is_own_fault)
    return log


def _is_own_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)
