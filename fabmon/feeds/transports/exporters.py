"""Exporters that a cluster runs already: their metrics fetched over HTTP, as any node's frames."""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import aiohttp
from yarl import URL

from fabmon.fabric.hosts.hosts_file import tells_its_secret_aloud
from fabmon.fabric.model import Host
from fabmon.feeds import http_client
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import LoginRefused, Misbehaved, NodeError
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.scrape.exporter_tables import ExporterTables, tables
from fabmon.feeds.scrape.page_reader import PageReader, PageReading
from fabmon.feeds.transports.polled import NodeReading, PolledSession, SourceBlock, SourceFailure
from fabmon.feeds.transports.transport import ProbeSession

# What to fetch from a host: `scrape=[KIND:]PORT[/PATH],...` of the hosts file.


_ENDPOINT = re.compile(r"(?:(?P<kind>[a-z_][a-z0-9_]*):)?(?P<port>\d{1,5})(?P<path>/[!-~]*)?")
_PATH = "/metrics"
_USUAL = 9100


class BadEndpoint(NodeError):
    """A `scrape=` that cannot be used; the message says what to write."""

    cause = "hosts file"


class ScrapeEndpoint(NamedTuple):
    """One exporter to ask. `source` is what it is called; `tables` are those that may fit it.

    `period_s` is how often to ask it at most, 0 for as often as one likes.
    """

    source: str
    port: int
    path: str
    tables: ExporterTables
    period_s: float


def endpoints(
    scrape: Sequence[str], tables: ExporterTables, port: int | None = None
) -> list[ScrapeEndpoint]:
    """The endpoints of a host, the usual one when it names none. Raises BadEndpoint.

    With a KIND only that exporter's metrics are read there. Without, all that fabmon knows, and the
    endpoint is called by the exporter that usually listens on its port.
    """
    found = [_endpoint(text, tables) for text in scrape or (str(port or _USUAL),)]
    names = Counter(each.source for each in found)
    return [
        each if names[each.source] == 1 else each._replace(source=f"{each.source}:{each.port}")
        for each in found
    ]


def _endpoint(text: str, tables: ExporterTables) -> ScrapeEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise BadEndpoint(f"scrape={text} is not [KIND:]PORT[/PATH], as in 9100 or 9400/metrics")
    kind, port, path = match["kind"], int(match["port"]), match["path"] or _PATH
    usual = kind or tables.at(port)
    try:
        fit = tables if kind is None else tables.of(kind)
    except KeyError:
        known = ", ".join(tables.by_name)
        raise BadEndpoint(f"scrape={text}: no exporter {kind}: one of {known}") from None
    period_s = tables.by_name[usual].period_s if usual is not None else 0.0
    return ScrapeEndpoint(usual or f"port_{port}", port, path, fit, period_s)


_TIMEOUT_SHARE = 0.9
_LONGEST_TIMEOUT_S = 10.0
_NEW_AT_ONCE = 64
"""First pages fetched at the same time: each takes milliseconds to learn, and all wait for all."""

_BIG_PAGE = 256 * 1024
"""Bytes of a page that takes long enough to be felt on the screen: it is read in a thread."""

_MAX_PAGE = 32 * 1024 * 1024
"""Bytes of the largest page, unpacked: that of a fabric of 900 hosts is 7.5 MB."""

_ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_OPENMETRICS = "application/openmetrics-text"

_HOLDS = "secret= is a file with the bearer token"


class ExportersTransport:
    """Fetches what `scrape` names from each host, once an interval: `[KIND:]PORT[/PATH]`.

    Nothing is fetched that is not named, but port 9100 for a host that names nothing. `secret` is a
    file with a bearer token, `tls` as in web.trust; without it none.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._client: aiohttp.ClientSession | None = None
        self._trusted: dict[str, ssl.SSLContext | None] = {}
        self._places = asyncio.Semaphore(_NEW_AT_ONCE)

    async def open(self, host: Host) -> ProbeSession:
        """Make ready to ask; the first questions are the session's. Raises NodeError."""
        address, interval_s = host.address or host.name, self._interval_s
        asked = endpoints(host.scrape, tables(), host.port)
        tls = await self._trust(host.tls or "no", address)
        headers = {"Accept": _ACCEPT}
        if tells_its_secret_aloud(host):
            raise BadEndpoint(f"secret= goes to {address} as clear text: say tls=yes, or tls=no")
        if host.secret is not None:
            token = await asyncio.to_thread(read_secret, host.secret, _HOLDS)
            headers["Authorization"] = f"Bearer {token}"
        fetcher = _Fetcher(self._ready(), tls, headers)
        exporters = [
            _Exporter(endpoint, fetcher.url(address, endpoint), fetcher, self._places, interval_s)
            for endpoint in asked
        ]
        return PolledSession(_Poller(exporters), host.name, interval_s)

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
            self._trusted[tls] = await asyncio.to_thread(http_client.trust, tls, address)
        return self._trusted[tls]


class _Fetcher:
    """Fetches pages of one host."""

    def __init__(
        self,
        client: aiohttp.ClientSession,
        tls: ssl.SSLContext | None,
        headers: Mapping[str, str],
    ) -> None:
        self._client = client
        self._tls = tls
        self._headers = headers

    def url(self, address: str, endpoint: ScrapeEndpoint) -> URL:
        """Where an endpoint is."""
        scheme = "http" if self._tls is None else "https"
        path, _, query = endpoint.path.partition("?")
        base = URL.build(scheme=scheme, host=address, port=endpoint.port, path=path)
        return base.with_query(query) if query else base

    async def page(self, url: URL, timeout_s: float) -> tuple[bytes, bool]:
        """A page, and whether it is OpenMetrics. Raises NodeError."""
        where = f"{url.host}:{url.port}"
        try:
            async with (
                asyncio.timeout(timeout_s),
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
            raise http_client.explain(error, where, timeout_s) from None

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
        self,
        endpoint: ScrapeEndpoint,
        url: URL,
        fetcher: _Fetcher,
        places: asyncio.Semaphore,
        interval_s: float,
    ) -> None:
        self.source = endpoint.source
        self._reader = PageReader(endpoint.tables)
        self._url = url
        self._fetcher = fetcher
        self._places = places
        self._interval_s = interval_s
        self._patience_s = min(_TIMEOUT_SHARE * interval_s, _LONGEST_TIMEOUT_S)
        self._period_s = endpoint.period_s
        self._asked_at = float("-inf")
        self._asking: asyncio.Task[PageReading] | None = None

    async def ask(self) -> SourceBlock | None:
        """What it says now; without values when it is not asked this time, or takes its time.

        None when it is not known yet what it tells of. Raises NodeError.
        """
        now = time.monotonic()
        if self._asking is None:
            if now - self._asked_at < self._period_s - self._interval_s / 2:
                return self.silent()
            self._asked_at = now
            self._asking = asyncio.create_task(self._read(), name=f"scrape {self._url}")
        # One that takes its time must not hold up the other exporters of its node.
        patience_s = self._patience_s if self._period_s else None
        await asyncio.wait((self._asking,), timeout=patience_s)
        if not self._asking.done():
            return self.silent()
        asking, self._asking = self._asking, None
        return self._part(asking.result())

    def silent(self) -> SourceBlock | None:
        """The same ports without values; None when it never told of any."""
        objects = self._reader.objects
        return self._part(PageReading(objects, None, 0)) if objects else None

    async def close(self) -> None:
        """Stop asking."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)

    async def _read(self) -> PageReading:
        if self._reader.objects:
            return await self._fetched()
        async with self._places:
            return await self._fetched()

    async def _fetched(self) -> PageReading:
        timeout_s = max(self._patience_s, self._period_s)
        page, is_openmetrics = await self._fetcher.page(self._url, timeout_s)
        if len(page) < _BIG_PAGE:
            reading = self._reader.read(page, openmetrics=is_openmetrics)
        else:
            reading = await asyncio.to_thread(self._reader.read, page, openmetrics=is_openmetrics)
        if not reading.objects:
            raise Misbehaved(f"{self._url} has none of the metrics that fabmon knows", "nothing")
        return reading

    def _part(self, reading: PageReading) -> SourceBlock:
        """A reading as a block that comes as often as the exporter measures, or is asked."""
        fresh_s = max(self._reader.refresh_s, self._period_s)
        every = max(1, round(fresh_s / self._interval_s))
        return SourceBlock(self.source, reading.objects, reading.values, reading.mono_ns, every)


class _Poller:
    """Asks all endpoints of one host at the same time."""

    def __init__(self, exporters: list[_Exporter]) -> None:
        self._exporters = exporters

    async def poll(self) -> NodeReading:
        """Ask once. An endpoint that fails costs its own source; NodeError when all do."""
        answers = await asyncio.gather(*(self._ask(exporter) for exporter in self._exporters))
        errors = [answer for answer in answers if isinstance(answer, NodeError)]
        if len(errors) == len(answers):
            raise errors[0]
        parts: list[SourceBlock | None] = []
        troubles: dict[str, SourceFailure] = {}
        for exporter, answer in zip(self._exporters, answers, strict=True):
            if isinstance(answer, NodeError):
                troubles[exporter.source] = SourceFailure(_reason(answer), str(answer))
                parts.append(exporter.silent())
            else:
                parts.append(answer)
        return NodeReading([part for part in parts if part is not None], {}, troubles)

    async def close(self) -> None:
        """Stop asking; the connections are the transport's."""
        await asyncio.gather(*(exporter.close() for exporter in self._exporters))

    async def _ask(self, exporter: _Exporter) -> SourceBlock | NodeError | None:
        try:
            return await exporter.ask()
        except NodeError as error:
            return error


def _reason(error: NodeError) -> str:
    """The wire's word for it."""
    if isinstance(error, LoginRefused):
        return "denied"
    return {"timeout": "late", "nothing": "absent"}.get(error.cause, "failed")
