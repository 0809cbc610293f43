"""Keeps a probe of this machine running, and hands on what it says.

The probe is the one that fabmon sends to every node, in a process of its own: a counter that takes
long to read never delays an answer of the agent.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import NoReturn

from collectors import wire
from fabmon.agent.latest import Latest
from fabmon.agent.streams import Streams
from fabmon.fabric.messages import WireError
from fabmon.fabric.model import Host
from fabmon.feeds.errors import Ended, Misbehaved, NodeError
from fabmon.feeds.transports.base import Transport

_LOG = logging.getLogger("fabmon.agent")

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0
_SILENCE_S = 30.0
_PROBE = "probe"


class Reader:
    """Reads this machine for as long as it runs; a probe that ends is started again.

    `first_pause_s` is waited before the first new start, then twice as long each time, up to 30 s;
    `silence_s` is how long a probe may say nothing, at least 10 intervals.
    """

    def __init__(
        self,
        transport: Transport,
        latest: Latest,
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
