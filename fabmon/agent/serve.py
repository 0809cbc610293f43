"""An agent from its start to its end."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from fabmon.agent.latest import Latest
from fabmon.agent.place import Place, explain
from fabmon.agent.reader import Reader
from fabmon.agent.server import Server
from fabmon.agent.streams import Streams
from fabmon.feeds.bootstrap import Settings
from fabmon.feeds.transports.local import LocalTransport

_GOODBYE_S = 1.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent was asked to run. `sources` and `root` are what the probe is told."""

    place: Place
    token: str
    tls: ssl.SSLContext | None = None
    interval_s: float = 1.0
    sources: tuple[str, ...] | None = None
    root: str = "/"


async def serve(options: Options, ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is told the address once it can be asked.

    Raises AgentError when it cannot listen, NodeError when the machine cannot be read at all.
    """
    latest, streams = Latest(), Streams()
    # The lease would be for a console that goes away; here the pipe closes with this process.
    settings = Settings(options.interval_s, 0.0, options.sources, options.root)
    reader = Reader(LocalTransport(settings), latest, streams, options.interval_s)
    server = Server(latest, streams, options.token, options.interval_s)
    runner = web.AppRunner(
        server.app(),
        access_log=None,
        logger=_log(),
        handler_cancellation=True,
        shutdown_timeout=_GOODBYE_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(
            runner, options.place.address, options.place.port, ssl_context=options.tls
        )
        try:
            await site.start()
        except OSError as error:
            raise explain(error, options.place) from None
        scheme = "http" if options.tls is None else "https"
        ready(f"{scheme}://{options.place._replace(port=runner.addresses[0][1])}")
        await _until_stopped(reader)
    finally:
        await runner.cleanup()


def _log() -> logging.Logger:
    """A log of faults of ours: what strangers send that is not HTTP must not fill it."""
    log = logging.getLogger("fabmon.agent.http")
    log.addFilter(_is_our_fault)
    return log


def _is_our_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def _until_stopped(reader: Reader) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    reading = asyncio.create_task(reader.run())
    stopping = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            reading.result()
    finally:
        for task in (reading, stopping):
            task.cancel()
        await asyncio.gather(reading, stopping, return_exceptions=True)
