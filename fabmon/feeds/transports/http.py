"""The stream of a `fabmon agent` over HTTP, for nodes without SSH (see docs/agent.md)."""

from __future__ import annotations

import asyncio
import math
import ssl
from urllib.parse import urlencode

import aiohttp

from fabmon.fabric.model import Host
from fabmon.fabric.names import is_loopback
from fabmon.fabric.wire.messages import Notice, WireError, decode
from fabmon.feeds.access import (
    AGENT_SOURCE,
    AGENT_STREAM_TYPE,
    DEFAULT_AGENT_PORT,
    agent_token_file,
    read_secret,
)
from fabmon.feeds.errors import BadSecret, Ended, LoginRefused, Misbehaved, Unreachable
from fabmon.feeds.http_client import HttpClient, http_error
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.transport import LineBuffer, ProbeSession

_TIMEOUT_S = 10.0
_TOKEN_AGE_S = 1.0
_AGENT_NOTICE = f'"source":"{AGENT_SOURCE}"'.encode()
_MOST_NOTICE_BYTES = 4096
"""A longer line is no notice of an agent. To decode it here would stop the screen, and would not be
charged to the node."""


class HttpTransport:
    """Reads agents at `address`:`port`. `secret` is the file with the token.

    `tls` is as in `http_client.tls_context`.
    """

    def __init__(self, settings: ProbeSettings, timeout_s: float = _TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._client = HttpClient()
        # By file: when it was read, by the loop's clock, and the token in it.
        self._tokens: dict[str | None, tuple[float, str]] = {}

    async def open(self, host: Host) -> ProbeSession:
        """Request the stream. Raises NodeError."""
        token = await self._token(host)
        server = await self._client.server(
            host, host.port or DEFAULT_AGENT_PORT, host.tls, f"Bearer {token}"
        )
        query = urlencode([("encoding", name) for name in self._settings.of(host).encodings])
        path = f"/stream?{query}" if query else "/stream"
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._client.stream(server, path)
                try:
                    await _check(response, server.where, host)
                except BaseException:
                    response.close()
                    raise
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise http_error(error, server.where, self._timeout_s) from None
        return HttpSession(response, server.where)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _token(self, host: Host) -> str:
        """The token of a host; hosts that connect in the same second read a file once."""
        now_s = asyncio.get_running_loop().time()
        read_s, token = self._tokens.get(_token_file(host), (-math.inf, ""))
        if now_s - read_s > _TOKEN_AGE_S:
            token = await asyncio.to_thread(_token, host)
            self._tokens[_token_file(host)] = now_s, token
        return token


class HttpSession:
    """The lines of an agent's stream, read when they are asked for: aiohttp stops reading when
    nobody asks."""

    def __init__(self, response: aiohttp.ClientResponse, where: str) -> None:
        self._response = response
        self._where = where
        self._lines = LineBuffer(_nothing, _nothing)

    async def readline(self) -> bytes:
        """The next line. Raises NodeError, with the agent's own reason if it sent one."""
        while not self._lines.is_ready:
            await self._read()
        line = await self._lines.readline()
        if len(line) < _MOST_NOTICE_BYTES and _AGENT_NOTICE in line:
            reason = _end_reason(line)
            if reason is not None:
                raise Ended(f"the agent ended the stream: {reason}")
        return line

    def send(self, data: bytes) -> None:
        """Do nothing: for an agent the open connection is the lease, and it takes no commands."""

    async def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._lines.end(Ended("closed by the console"))

    async def _read(self) -> None:
        try:
            data = await self._response.content.readany()
        except (aiohttp.ClientError, ConnectionError) as error:
            self._lines.end(Ended(f"connection to {self._where} lost: {error}"))
            return
        if data:
            self._lines.feed(data)
        else:
            self._lines.end(Ended(f"{self._where} ended the stream"))


def _nothing() -> None:
    """Neither pause nor resume: the stream is read on demand."""


async def _check(response: aiohttp.ClientResponse, where: str, host: Host) -> None:
    """Raise NodeError unless the response is an agent's stream."""
    if response.status == 401:
        file = host.secret or str(agent_token_file())
        raise LoginRefused(f"{where} rejected the token: is {file} its token?", "token")
    if response.status == 503:
        reason = (await response.content.read(400)).decode(errors="replace").strip()
        raise Unreachable(f"the agent at {where} is busy: {reason}", "busy")
    if response.status != 200 or response.content_type != AGENT_STREAM_TYPE:
        what = f"{response.status} {response.reason or ''}".strip()
        if response.status == 200:
            what = f"{response.content_type} for /stream"
        raise Misbehaved(f"no fabmon agent at {where}: the reply is {what}", "not an agent")


def _token_file(host: Host) -> str | None:
    """The file with the token of a host; empty for that of this machine's agent, None for none."""
    is_local = is_loopback(host.address or host.name)
    return host.secret or ("" if is_local else None)


def _token(host: Host) -> str:
    if host.secret is not None:
        return read_secret(host.secret, "secret= is the file with the agent's token")
    if is_loopback(host.address or host.name):
        hint = "start fabmon agent, or set secret=FILE, the file with its token"
        return read_secret(agent_token_file(), hint)
    raise BadSecret("via=http needs secret=FILE, the file with the agent's token")


def _end_reason(line: bytes) -> str | None:
    """Why the agent ends the stream; None for any other line."""
    try:
        message = decode(line)
    except WireError:
        return None
    if isinstance(message, Notice) and (message.event, message.source) == ("lost", AGENT_SOURCE):
        return message.text
    return None
