"""Runs an agent: the probe of this machine, and the HTTP server that answers from its lines."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import NoReturn

import msgspec

from collectors import wire
from fabmon.agent.listen_address import ListenAddress, explain_bind_error
from fabmon.agent.server import Server
from fabmon.agent.streams import ProbeState, Streams
from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wire.messages import WireError
from fabmon.feeds.errors import Ended, Misbehaved, NodeError
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.process import LocalTransport
from fabmon.feeds.transports.transport import Transport
from fabmon.http_server import http_server

_LOG = logging.getLogger("fabmon.agent")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_SILENCE_S = 30.0
_PROBE = "probe"


class ProbeReader:
    """Keeps a probe of this machine running and passes its lines on.

    The probe is the one that fabmon sends to every node, in a process of its own: a counter that
    takes long to read never delays an answer of the agent. A probe that ends is started again:
    after `first_pause_s`, then after twice as long each time, up to 30 s. `silence_s` is how long a
    probe may be silent, at least 10 intervals.
    """

    def __init__(
        self,
        transport: Transport,
        state: ProbeState,
        streams: Streams,
        interval_s: float,
        first_pause_s: float = _FIRST_PAUSE_S,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self._transport = transport
        self._state = state
        self._streams = streams
        self._silence_s = max(silence_s, 10 * interval_s)
        self._first_pause_s = first_pause_s
        self._failures = 0

    async def run(self) -> NoReturn:
        """Read until cancelled. Raises NodeError when the first probe ends before its hello."""
        while True:
            try:
                await self._listen()
            except NodeError as error:
                if self._state.hello is None:
                    raise
                if not self._failures:
                    self._report_lost(error)
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
            raise Ended(
                f"the probe was silent for {interval(self._silence_s)}", "timeout"
            ) from None
        except WireError as error:
            raise Misbehaved(str(error)) from None
        finally:
            await session.close()

    def _take(self, raw: bytes) -> None:
        line = self._state.take(raw, time.monotonic_ns())
        self._streams.put(line)
        if raw.startswith(b'["frame"') and self._failures:
            self._failures = 0
            _LOG.warning("the probe reads again")
            self._put_notice("recovered", "reads again")

    def _report_lost(self, error: NodeError) -> None:
        _LOG.warning("%s", error)
        self._state.forget()
        self._put_notice("lost", str(error), "failed")

    def _put_notice(self, event: str, text: str, reason: str = "") -> None:
        raw = wire.notice(event, _PROBE, text, reason=reason)
        self._streams.put(self._state.take(raw, time.monotonic_ns()))


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of an agent. `sources` and `root` are passed to the probe."""

    address: ListenAddress
    token: str
    tls: ssl.SSLContext | None = None
    interval_s: float = 1.0
    sources: tuple[str, ...] | None = None
    root: str = "/"


async def serve(options: AgentOptions, ready: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM. `ready` is called with the URL once the agent listens.

    Raises AgentError when it cannot listen, NodeError when the machine cannot be read at all.
    """
    state, streams = ProbeState(), Streams()
    # No lease: when this process ends, the pipe to the probe closes.
    settings = ProbeSettings(options.interval_s, 0.0, options.sources, options.root)
    reader = ProbeReader(LocalTransport(settings), state, streams, options.interval_s)
    server = Server(state, streams, options.token, options.interval_s)
    async with AsyncExitStack() as stack:
        try:
            listener = http_server(
                server.app(),
                options.address.host,
                options.address.port,
                server.asked,
                server.holders,
                options.tls,
            )
            port = await stack.enter_async_context(listener)
        except OSError as error:
            raise explain_bind_error(error, options.address) from None
        scheme = "http" if options.tls is None else "https"
        ready(f"{scheme}://{options.address._replace(port=port)}")
        await _until_stopped(reader)


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
