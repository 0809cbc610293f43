"""Exporters that a cluster runs already: their metrics fetched over HTTP, as any node's frames."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

import aiohttp
from yarl import URL

from fabmon.fabric.model import Host
from fabmon.feeds import web
from fabmon.feeds.bootstrap import Settings
from fabmon.feeds.errors import LoginRefused, Misbehaved, NodeError
from fabmon.feeds.scrape.endpoints import Endpoint, endpoints
from fabmon.feeds.scrape.reader import Reader
from fabmon.feeds.scrape.tables import tables
from fabmon.feeds.secrets import token_from
from fabmon.feeds.transports.base import Session
from fabmon.feeds.transports.polled import Answer, Part, PolledSession, Trouble

_TIMEOUT_SHARE = 0.9
_LONGEST_TIMEOUT_S = 10.0
_NEW_AT_ONCE = 64
"""First pages fetched at the same time: each takes milliseconds to learn, and all wait for all."""

_MAX_PAGE = 32 * 1024 * 1024
"""Bytes of the largest page, unpacked: that of a fabric of 900 hosts is 7.5 MB."""

_ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_OPENMETRICS = "application/openmetrics-text"


class ExportersTransport:
    """Fetches what `scrape` names from each host, once an interval: `[KIND:]PORT[/PATH]`.

    Nothing is fetched that is not named, but port 9100 for a host that names nothing. `secret` is a
    file with a bearer token, `tls` as in web.trust; without it none.
    """

    def __init__(self, settings: Settings) -> None:
        self._interval_s = settings.interval_s
        self._client: aiohttp.ClientSession | None = None
        self._trusted: dict[str, ssl.SSLContext | None] = {}
        self._places = asyncio.Semaphore(_NEW_AT_ONCE)

    async def open(self, host: Host) -> Session:
        """Make ready to ask; the first questions are the session's. Raises NodeError."""
        address = host.address or host.name
        asked = endpoints(host.scrape, tables(), host.port)
        tls = await self._trust(host.tls or "no", address)
        headers = {"Accept": _ACCEPT}
        if host.secret is not None:
            token = await asyncio.to_thread(token_from, host.secret)
            headers["Authorization"] = f"Bearer {token}"
        timeout_s = min(_TIMEOUT_SHARE * self._interval_s, _LONGEST_TIMEOUT_S)
        fetcher = _Fetcher(self._ready(), tls, headers, timeout_s)
        exporters = [_Exporter(endpoint, address, fetcher, self._places) for endpoint in asked]
        return PolledSession(_Poller(exporters, self._interval_s), host.name, self._interval_s)

    async def close(self) -> None:
        """Close all connections."""
        if self._client is not None:
            await self._client.close()

    def _ready(self) -> aiohttp.ClientSession:
        if self._client is None:
            # Connections are kept from one scrape to the next.
            keep_s = 3 * self._interval_s + 15.0
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=keep_s),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._client

    async def _trust(self, tls: str, address: str) -> ssl.SSLContext | None:
        if tls not in self._trusted:
            self._trusted[tls] = await asyncio.to_thread(web.trust, tls, address)
        return self._trusted[tls]


class _Fetcher:
    """Fetches pages of one host."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
        timeout_s: float,
    ) -> None:
        self._client = client
        self._tls = tls
        self._headers = headers
        self._timeout_s = timeout_s

    def url(self, address: str, endpoint: Endpoint) -> URL:
        """Where an endpoint is."""
        scheme = "http" if self._tls is None else "https"
        path, _, query = endpoint.path.partition("?")
        base = URL.build(scheme=scheme, host=address, port=endpoint.port, path=path)
        return base.with_query(query) if query else base

    async def page(self, url: URL) -> tuple[bytes, bool]:
        """A page, and whether it is OpenMetrics. Raises NodeError."""
        where = f"{url.host}:{url.port}"
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.get(
                    url,
                    headers=self._headers,
                    ssl=True if self._tls is None else self._tls,
                    # The token is for this address, and for no other that it names.
                    allow_redirects=False,
                ) as reply,
            ):
                self._check(reply, f"{where}{url.path}")
                page = await _bounded(reply.content, where)
                return page, reply.content_type == _OPENMETRICS
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise web.explain(error, where, self._timeout_s) from None

    def _check(self, reply: aiohttp.ClientResponse, where: str) -> None:
        if reply.status in (401, 403):
            hint = "check the token in the file of secret="
            if "Authorization" not in self._headers:
                hint = "secret=FILE names a file with a token"
            raise LoginRefused(f"{where} does not let us in ({reply.status}): {hint}")
        if reply.status != 200:
            raise Misbehaved(f"{where} answers {reply.status} {reply.reason}", "http status")


async def _bounded(content: aiohttp.StreamReader, where: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in content.iter_any():
        size += len(piece)
        if size > _MAX_PAGE:
            raise Misbehaved(f"{where}: a page of more than {_MAX_PAGE >> 20} MiB")
        pieces.append(piece)
    return b"".join(pieces)


class _Exporter:
    """One endpoint of one host."""

    def __init__(
        self, endpoint: Endpoint, address: str, fetcher: _Fetcher, places: asyncio.Semaphore
    ) -> None:
        self.source = endpoint.source
        self.reader = Reader(endpoint.tables)
        self._url = fetcher.url(address, endpoint)
        self._fetcher = fetcher
        self._places = places

    async def ask(self, interval_s: float) -> Part:
        """What it says now. Raises NodeError."""
        if self.reader.objects:
            return await self._ask(interval_s)
        async with self._places:
            return await self._ask(interval_s)

    async def _ask(self, interval_s: float) -> Part:
        page, is_openmetrics = await self._fetcher.page(self._url)
        reading = self.reader.read(page, openmetrics=is_openmetrics)
        if not reading.objects:
            raise Misbehaved(f"{self._url} has none of the metrics that fabmon knows", "nothing")
        return Part(
            self.source, reading.objects, reading.values, reading.mono_ns, self.every(interval_s)
        )

    def silent(self, interval_s: float) -> Part | None:
        """The same ports without values; None when it never told of any."""
        objects = self.reader.objects
        return Part(self.source, objects, None, 0, self.every(interval_s)) if objects else None

    def every(self, interval_s: float) -> int:
        """How many intervals it may answer from the same snapshot."""
        return max(1, round(self.reader.refresh_s / interval_s))


class _Poller:
    """Asks all endpoints of one host at the same time."""

    def __init__(self, exporters: list[_Exporter], interval_s: float) -> None:
        self._exporters = exporters
        self._interval_s = interval_s

    async def poll(self) -> Answer:
        """Ask once. An endpoint that fails costs its own source; NodeError when all do."""
        asked = (self._ask(exporter) for exporter in self._exporters)
        answers = await asyncio.gather(*asked)
        errors = [answer for answer in answers if isinstance(answer, NodeError)]
        if len(errors) == len(answers):
            raise errors[0]
        parts: list[Part] = []
        troubles: dict[str, Trouble] = {}
        for exporter, answer in zip(self._exporters, answers, strict=True):
            if isinstance(answer, Part):
                parts.append(answer)
                continue
            troubles[exporter.source] = Trouble(_reason(answer), str(answer))
            part = exporter.silent(self._interval_s)
            if part is not None:
                parts.append(part)
        return Answer(parts, {}, troubles)

    async def close(self) -> None:
        """Nothing is held: the connections are the transport's."""

    async def _ask(self, exporter: _Exporter) -> Part | NodeError:
        try:
            return await exporter.ask(self._interval_s)
        except NodeError as error:
            return error


def _reason(error: NodeError) -> str:
    """The wire's word for it."""
    if isinstance(error, LoginRefused):
        return "denied"
    return {"timeout": "late", "nothing": "absent"}.get(error.cause, "failed")
