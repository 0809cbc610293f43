"""Runs an agent: where it listens, the probe of this machine, and the server of its lines."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import signal
import ssl
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec

from collectors import wire
from fabmon.agent.server import Server
from fabmon.agent.streams import ProbeState, Streams
from fabmon.fabric.model import Host
from fabmon.fabric.names import is_loopback
from fabmon.fabric.time_wording import interval
from fabmon.fabric.wire.messages import WireError
from fabmon.fabric.wording import file_error
from fabmon.feeds.access import DEFAULT_AGENT_PORT, read_secret
from fabmon.feeds.errors import BadSecret, Ended, Misbehaved, NodeError
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.process import LocalTransport
from fabmon.feeds.transports.transport import Transport
from fabmon.http_server import http_server
from fabmon.private_files import make_directory

_TOKEN_BYTES = 32


class AgentError(Exception):
    """The agent cannot start: an option, a file or the address; the message says what to do."""


class ListenAddress(NamedTuple):
    """An address (or name) and a TCP port, 0 for any that is free."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_AGENT_PORT

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_listen_address(text: str) -> ListenAddress:
    """`ADDR:PORT`, an IPv6 address in brackets. Raises AgentError."""
    address, colon, port = text.rpartition(":")
    bare = address[1:-1] if address.startswith("[") and address.endswith("]") else address
    is_bare_v6 = bare == address and ":" in address
    if not colon or not bare or is_bare_v6 or not port.isdecimal() or int(port[:6]) > 65535:
        raise AgentError(
            f"--listen {text!r}: write ADDR:PORT, as in 127.0.0.1:{DEFAULT_AGENT_PORT} or "
            f"[::1]:{DEFAULT_AGENT_PORT}"
        )
    return ListenAddress(bare, int(port))


def server_tls_context(
    address: ListenAddress, certificate: Path | None, key: Path | None, *, is_insecure: bool
) -> ssl.SSLContext | None:
    """The TLS context to listen with; None for no TLS, which beyond this machine needs consent.

    Raises AgentError, also for files that cannot be used. Blocks: it reads them.
    """
    if certificate is None and key is None:
        if is_loopback(address.host) or is_insecure:
            return None
        raise AgentError(
            f"{address} can be reached from other machines, and without TLS the token can be read "
            "on the network: give --tls-cert and --tls-key (or --insecure on a trusted network)"
        )
    if certificate is None or key is None:
        missing = "--tls-cert" if certificate is None else "--tls-key"
        raise AgentError(f"TLS takes a certificate and its key: {missing} is missing")
    for file in (certificate, key):
        try:
            if file.exists() and not file.is_file():  # TLS reads it twice: not a pipe.
                raise AgentError(f"{file}: not a file")
            file.open("rb").close()
        except OSError as error:
            raise AgentError(f"{file}: {file_error(error)}") from None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # A key with a passphrase is refused: the agent has no terminal to ask on.
        context.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        why = (error.reason or str(error)).replace("_", " ").lower()
        raise AgentError(
            f"{certificate}, {key}: not a certificate and its key in PEM ({why})"
        ) from None
    except OSError as error:
        raise AgentError(f"{certificate}, {key}: {file_error(error)}") from None
    return context


def explain_bind_error(error: OSError, address: ListenAddress) -> AgentError:
    """The AgentError for an address that cannot be listened on, with what to do."""
    reasons = {
        errno.EADDRINUSE: "is in use (by another agent?): choose another with --listen ADDR:PORT",
        errno.EADDRNOTAVAIL: "is not an address of this machine",
        errno.EACCES: "is not allowed for this user: choose a port above 1023",
    }
    what = reasons.get(error.errno or 0, f"cannot be listened on: {error.strerror or error}")
    return AgentError(f"{address} {what}")


def token_at(path: Path) -> str:
    """The token in the file `path`, which is created at the first start. Blocks.

    Only its owner can read the file. Raises AgentError for a file that cannot be used, or that
    others can read.
    """
    try:
        if not path.exists():
            _create_token(path)
        return read_secret(path)
    except BadSecret as error:
        raise AgentError(str(error)) from None
    except OSError as error:
        raise AgentError(f"{error.filename or path}: {file_error(error)}") from None


def _create_token(path: Path) -> None:
    """Write a token at once, so that no reader sees half of it; an existing one stays."""
    make_directory(path.parent)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".token", delete=True) as file:
        file.write(secrets.token_urlsafe(_TOKEN_BYTES) + "\n")
        file.flush()
        with contextlib.suppress(FileExistsError):
            os.link(file.name, path)


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
