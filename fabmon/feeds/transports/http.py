"""An agent: its stream over HTTP, where there is no SSH (docs/metrics.md tells how to run one)."""

from __future__ import annotations

import asyncio
import ssl

import aiohttp
from yarl import URL

from fabmon.fabric.model import Host
from fabmon.fabric.names import is_loopback
from fabmon.fabric.wire.messages import Notice, WireError, decode
from fabmon.feeds import access, http_client
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import BadSecret, Ended, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.transport import LineBuffer, ProbeSession

_TIMEOUT_S = 10.0
_MARK = f'"source":"{access.AGENT_SOURCE}"'.encode()


class HttpTransport:
    """Reads agents at `address`:`port`. `secret` is the file with the token, `tls` as web.trust."""

    def __init__(self, settings: ProbeSettings, timeout_s: float = _TIMEOUT_S) -> None:
        self._settings = settings
        self._timeout_s = timeout_s
        self._client: aiohttp.ClientSession | None = None
        self._trusted: dict[tuple[str | None, bool], ssl.SSLContext | None] = {}

    async def open(self, host: Host) -> ProbeSession:
        """Ask for the stream. Raises NodeError."""
        address, port = host.address or host.name, host.port or access.DEFAULT_AGENT_PORT
        tls = await self._trust(host.tls, address)
        token = await asyncio.to_thread(_token, host, address)
        url = URL.build(
            scheme="http" if tls is None else "https",
            host=address,
            port=port,
            path="/stream",
            query=[("encoding", name) for name in self._settings.of(host).encodings],
        )
        where = f"{address}:{port}"
        try:
            async with asyncio.timeout(self._timeout_s):
                answer = await self._ready().get(
                    url,
                    headers={"Authorization": f"Bearer {token}"},
                    ssl=True if tls is None else tls,
                    # The token is for this address, and for no other that it names.
                    allow_redirects=False,
                )
                try:
                    await _check(answer, where, host)
                except BaseException:
                    answer.close()
                    raise
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise http_client.explain(error, where, self._timeout_s) from None
        return HttpSession(answer, where)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    def _ready(self) -> aiohttp.ClientSession:
        if self._client is None:
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=True),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client

    async def _trust(self, tls: str | None, address: str) -> ssl.SSLContext | None:
        """One context for all hosts alike: reading the certificates takes a while."""
        key = (tls, is_loopback(address))
        if key not in self._trusted:
            self._trusted[key] = await asyncio.to_thread(http_client.trust, tls, address)
        return self._trusted[key]


class HttpSession:
    """An agent's answer, line by line."""

    def __init__(self, answer: aiohttp.ClientResponse, where: str) -> None:
        self._answer = answer
        self._where = where
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._lines = LineBuffer(self._may_read.clear, self._may_read.set)
        self._pump = asyncio.create_task(self._read(), name=f"read {where}")

    async def readline(self) -> bytes:
        """The next line. Raises NodeError, with what the agent said for a reason if it did."""
        line = await self._lines.readline()
        if _MARK in line:
            last = _last_words(line)
            if last is not None:
                raise Ended(f"the agent ended the stream: {last}")
        return line

    def send(self, data: bytes) -> None:
        """Signs of life mean nothing to an agent: the connection is the sign."""

    async def close(self) -> None:
        """Hang up."""
        self._pump.cancel()
        await asyncio.gather(self._pump, return_exceptions=True)
        self._answer.close()
        self._lines.end(Ended("closed by the console"))

    async def _read(self) -> None:
        end: NodeError
        try:
            async for data in self._answer.content.iter_any():
                self._lines.feed(data)
                await self._may_read.wait()
            end = Ended(f"{self._where} ended the stream")
        except (aiohttp.ClientError, ConnectionError) as error:
            end = Ended(f"connection to {self._where} lost: {error}")
        self._lines.end(end)


async def _check(answer: aiohttp.ClientResponse, where: str, host: Host) -> None:
    """Raise NodeError unless the answer is an agent's stream."""
    if answer.status == 401:
        named = host.secret or str(access.agent_token_file())
        raise LoginRefused(f"the token is refused by {where}: is {named} its token?", "token")
    if answer.status == 503:
        said = (await answer.content.read(400)).decode(errors="replace").strip()
        raise Unreachable(f"the agent at {where} is busy: {said}", "busy")
    if answer.status != 200 or answer.content_type != access.AGENT_STREAM_TYPE:
        what = f"{answer.status} {answer.reason or ''}".strip()
        if answer.status == 200:
            what = f"{answer.content_type} for /stream"
        raise Misbehaved(f"no fabmon agent at {where}: it answers {what}", "not an agent")


_HOLDS = "secret= is the file with the agent's token"


def _token(host: Host, address: str) -> str:
    if host.secret is not None:
        return read_secret(host.secret, _HOLDS)
    if is_loopback(address):
        usual = "start fabmon agent, or give secret=FILE, the file with its token"
        return read_secret(access.agent_token_file(), usual)
    raise BadSecret("via=http needs secret=FILE, the file with the agent's token")


def _last_words(line: bytes) -> str | None:
    """Why an agent ends a stream, if this is the line that says so."""
    try:
        message = decode(line)
    except WireError:
        return None
    if isinstance(message, Notice) and (message.event, message.source) == (
        "lost",
        access.AGENT_SOURCE,
    ):
        return message.text
    return None
