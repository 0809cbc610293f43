"""The interface of transports, their registry, and the line buffer that sessions share."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from collectors.wire import MAX_LINE
from fabmon.fabric.model import VIAS, Host
from fabmon.feeds.errors import Misbehaved, NodeError
from fabmon.feeds.probe_input import ProbeSettings

if TYPE_CHECKING:
    from fabmon.feeds.sflow.receiver import SflowReceiver

_TRANSPORTS = {
    "ssh": "fabmon.feeds.transports.ssh:SshTransport",
    "exec": "fabmon.feeds.transports.process:ExecTransport",
    "local": "fabmon.feeds.transports.process:LocalTransport",
    "http": "fabmon.feeds.transports.http:HttpTransport",
    "exporters": "fabmon.feeds.transports.exporters:ExportersTransport",
    "eapi": "fabmon.feeds.transports.eapi:EapiTransport",
    "snmp": "fabmon.feeds.transports.snmp:SnmpTransport",
    "gnmi": "fabmon.feeds.transports.gnmi:GnmiTransport",
    "sflow": "fabmon.feeds.transports.sflow:SflowTransport",
    "ufm": "fabmon.feeds.transports.ufm:UfmTransport",
}
"""`via` -> its class. A class is imported when a host needs it: asyncssh alone takes 0.2 s."""

_TAKE_SSH_CONFIG = ("ssh", "exec")

_HIGH_WATER_BYTES = 512 * 1024
_LOW_WATER_BYTES = 64 * 1024
_MAX_STRAY_LINE_BYTES = 64 * 1024
_TAIL_BYTES = 2048
_MAX_STDERR_BYTES = 16 * 1024 * 1024


class ProbeSession(Protocol):
    """A running probe, or a poller in place of one: lines of the wire."""

    async def readline(self) -> bytes:
        """The next line, with its newline. Raises NodeError when the session ends or misbehaves."""

    def send(self, data: bytes) -> None:
        """Queue bytes for the probe's standard input; never blocks."""

    async def close(self) -> None:
        """End the session and, with it, the probe."""


class Transport(Protocol):
    """A way to start probes. One instance serves all its hosts and may share connections."""

    async def open(self, host: Host) -> ProbeSession:
        """Start the probe on a host. Raises NodeError."""

    async def close(self) -> None:
        """Release everything that the transport has open, sessions included."""


class Transports:
    """One transport for each `via` among `hosts`. Raises ValueError for an unknown `via`.

    `ssh_config` replaces the user's and the system's ssh_config; `receiver` is for via=sflow.
    """

    def __init__(
        self,
        hosts: Iterable[Host],
        settings: ProbeSettings,
        ssh_config: str | None = None,
        receiver: SflowReceiver | None = None,
    ) -> None:
        # What each takes beside the settings.
        beside = {**dict.fromkeys(_TAKE_SSH_CONFIG, ssh_config), "sflow": receiver}
        self._by_via = {
            via: _make(via, settings, *([beside[via]] if via in beside else []))
            for via in sorted({host.via for host in hosts})
        }

    def of(self, host: Host) -> Transport:
        """The transport that reaches a host."""
        return self._by_via[host.via]

    async def close(self) -> None:
        """Close all transports."""
        await asyncio.gather(*(transport.close() for transport in self._by_via.values()))


def _make(via: str, settings: ProbeSettings, *beside: object) -> Transport:
    if via not in VIAS:
        raise ValueError(f"no transport {via!r}: use one of {', '.join(VIAS)}")
    module, _, name = _TRANSPORTS[via].partition(":")
    kind = getattr(importlib.import_module(module), name)
    made: Transport = kind(settings, *beside)
    return made


class LineBuffer:
    """Splits a byte stream from a possibly hostile node into lines, with bounded memory.

    `pause` and `resume` stop and start the stream: it is paused while more than 512 KiB of complete
    lines wait to be read. A line over wire.MAX_LINE, or one over 64 KiB that does not begin as the
    wire does, ends the stream with Misbehaved.
    """

    def __init__(self, pause: Callable[[], object], resume: Callable[[], object]) -> None:
        self._pause = pause
        self._resume = resume
        self._partial = bytearray()
        self._ready: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._paused = False
        self._end: NodeError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def ended(self) -> bool:
        """Whether the stream has ended; lines from before the end may still wait to be read."""
        return self._end is not None

    @property
    def is_ready(self) -> bool:
        """Whether `readline` returns or raises at once."""
        return bool(self._ready) or self._end is not None

    def feed(self, data: bytes) -> None:
        """Add bytes from the node; ignored after the end."""
        if self._end is not None:
            return
        if b"\n" not in data:
            self._partial += data
            self._check_partial()
            return
        # Only the first piece continues an earlier line, only the last waits for its newline.
        pieces = data.split(b"\n")
        self._partial += pieces[0]
        self._add(bytes(self._partial))
        for piece in pieces[1:-1]:
            self._add(piece)
        self._partial = bytearray(pieces[-1])
        self._check_partial()
        if self._waiting_bytes > _HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._pause()
        self._wake()

    def end(self, reason: NodeError) -> None:
        """End the stream. Of several calls the first gives the reason."""
        if self._end is None:
            self._end = reason
            self._partial.clear()
            self._wake()

    async def readline(self) -> bytes:
        """The next line with its newline. After the last one, raises the reason of `end`."""
        while not self._ready:
            if self._end is not None:
                raise self._end
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        line = self._ready.popleft()
        self._waiting_bytes -= len(line)
        if self._paused and self._waiting_bytes < _LOW_WATER_BYTES:
            self._paused = False
            self._resume()
        return line

    def _add(self, line: bytes) -> None:
        if len(line) > MAX_LINE:
            self._too_long(len(line))
            return
        self._ready.append(line + b"\n")
        self._waiting_bytes += len(line) + 1

    def _check_partial(self) -> None:
        size = len(self._partial)
        if size > MAX_LINE or (size > _MAX_STRAY_LINE_BYTES and not self._partial.startswith(b"[")):
            self._too_long(size)

    def _too_long(self, size: int) -> None:
        self.end(Misbehaved(f"sent a line of more than {size // 1024} KiB, which is not the wire"))

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LineSession:
    """Base of sessions over a byte stream: its lines, and the end of standard error."""

    def __init__(self, pause: Callable[[], object], resume: Callable[[], object]) -> None:
        self._lines = LineBuffer(pause, resume)
        self._stderr = StderrTail()

    async def readline(self) -> bytes:
        """The next line. Raises NodeError when the session ended or sent too long a line."""
        return await self._lines.readline()


class StderrTail:
    """The last 2 KiB that a probe wrote on standard error; more than 16 MiB is a flood."""

    def __init__(self) -> None:
        self._data = b""
        self._total_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add bytes; only the last 2 KiB are kept."""
        self._data = (self._data + data)[-_TAIL_BYTES:]
        self._total_bytes += len(data)

    @property
    def is_flood(self) -> bool:
        """Whether more than 16 MiB were written."""
        return self._total_bytes > _MAX_STDERR_BYTES

    @property
    def text(self) -> str:
        """The bytes kept, decoded; not yet safe to print."""
        return self._data.decode(errors="replace")

    @property
    def last_line(self) -> str:
        """The last line that is not blank, or an empty string."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else ""
