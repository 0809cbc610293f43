"""An agent from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import ssl
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from collectors import wire
from fabmon.agent.connection_limits import LimitedListener, log_file_exhaustion_once
from fabmon.agent.listen_address import AgentError, ListenAddress, explain_bind_error
from fabmon.agent.server import Server
from fabmon.agent.streams import ProbeState, Streams
from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import WireError
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret, Ended, Misbehaved, NodeError
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.process import LocalTransport
from fabmon.feeds.transports.transport import Transport

# Keeps a probe of this machine running, and hands on what it says.
#
# The probe is the one that fabmon sends to every node, in a process of its own: a counter that
# takes long to read never delays an answer of the agent.


_LOG = logging.getLogger("fabmon.agent")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_SILENCE_S = 30.0
_PROBE = "probe"


class ProbeReader:
    """Reads this machine for as long as it runs; a probe that ends is started again.

    `first_pause_s` is waited before the first new start, then twice as long each time, up to 30 s;
    `silence_s` is how long a probe may say nothing, at least 10 intervals.
    """

    def __init__(
        self,
        transport: Transport,
        latest: ProbeState,
        streams: Streams,
        interval_s: float,
        first_pause_s: float = _FIRST_PAUSE_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._transport = transport
        self._latest = latest
        self._streams = streams
        self._silence_s = max(silence_s, 10 * interval_s)
        self._first_pause_s = first_pause_s
        self._failures = 0

    async def run(self) -> NoReturn:
        """Read until cancelled. Raises NodeError when the first probe does not even say hello."""
        while True:
            try:
                await self._listen()
            except NodeError as error:
                if self._latest.hello is None:
                    raise
                if not self._failures:
                    self._lost(error)
            pause_s = min(_LONGEST_PAUSE_S, self._first_pause_s * 2.0 ** min(self._failures, 10))
            self._failures += 1
            await asyncio.sleep(pause_s)

    async def _listen(self) -> NoReturn:
        session = await self._transport.open(Host(name="localhost", via="local"))
        try:
            while True:
                async with asyncio.timeout(self._silence_s):
                    raw = await session.readline()
                self._take(raw)
        except TimeoutError:
            raise Ended(f"the probe said nothing for {self._silence_s:g} s", "timeout") from None
        except WireError as error:
            raise Misbehaved(str(error)) from None
        finally:
            await session.close()

    def _take(self, raw: bytes) -> None:
        line = self._latest.take(raw, time.monotonic_ns())
        self._streams.put(line)
        if raw.startswith(b'["frame"') and self._failures:
            self._failures = 0
            _LOG.warning("the probe reads again")
            self._tell("recovered", "reads again")

    def _lost(self, error: NodeError) -> None:
        _LOG.warning("%s", error)
        self._latest.forget()
        self._tell("lost", str(error), "failed")

    def _tell(self, event: str, text: str, reason: str = "") -> None:
        raw = wire.notice(event, _PROBE, text, reason=reason)
        self._streams.put(self._latest.take(raw, time.monotonic_ns()))


_GOODBYE_S = 1.0
_IDLE_S = 75.0
"""Between two requests; Prometheus asks every minute or oftener."""


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent was asked to run. `sources` and `root` are what the probe is told."""

    place: ListenAddress
    token: str
    tls: ssl.SSLContext | None = None
    interval_s: float = 1.0
    sources: tuple[str, ...] | None = None
    root: str = "/"


async def serve(options: AgentOptions, ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is told the address once it can be asked.

    Raises AgentError when it cannot listen, NodeError when the machine cannot be read at all.
    """
    latest, streams = ProbeState(), Streams()
    # The lease would be for a console that goes away; here the pipe closes with this process.
    settings = ProbeSettings(options.interval_s, 0.0, options.sources, options.root)
    reader = ProbeReader(LocalTransport(settings), latest, streams, options.interval_s)
    server = Server(latest, streams, options.token, options.interval_s)
    runner = web.AppRunner(
        server.app(),
        access_log=None,
        logger=_log(),
        handler_cancellation=True,
        shutdown_timeout=_GOODBYE_S,
        keepalive_timeout=_IDLE_S,
    )
    await runner.setup()
    assert runner.server is not None
    log_file_exhaustion_once(asyncio.get_running_loop())
    door = LimitedListener(runner.server, server.asked)
    try:
        try:
            port = await door.open(options.place.address, options.place.port, options.tls)
        except OSError as error:
            raise explain_bind_error(error, options.place) from None
        scheme = "http" if options.tls is None else "https"
        ready(f"{scheme}://{options.place._replace(port=port)}")
        await _until_stopped(reader)
    finally:
        door.close()
        await runner.cleanup()


def _log() -> logging.Logger:
    """A log of faults of ours: what strangers send that is not HTTP must not fill it."""
    log = logging.getLogger("fabmon.agent.http")
    log.addFilter(_is_our_fault)
    return log


def _is_our_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def _until_stopped(reader: ProbeReader) -> None:
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


# The agent's token: made on the first start, in a file that only its owner can read.


_BYTES = 32


def token_at(path: Path) -> str:
    """The token in `path`, made now if there is no such file. Blocks.

    Raises AgentError for a file that cannot be used, or that others can read.
    """
    try:
        if not path.exists():
            _make(path)
        return read_secret(path)
    except BadSecret as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(f"{error.filename or path}: {error.strerror}") from None


def _make(path: Path) -> None:
    """Write a token so that nobody ever sees half of it, nor one that is there replaced."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token", delete=True) as file:
        file.write(secrets.token_urlsafe(_BYTES) + "\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)
