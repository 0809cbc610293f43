"""Exporters that a cluster runs already: their metrics are fetched over HTTP as a node's frames."""

from __future__ import annotations

import asyncio
import re
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from fabmon.fabric.hosts.hosts_file import sends_secret_in_clear_text
from fabmon.fabric.model import Host
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import LoginRefused, Misbehaved, NodeError
from fabmon.feeds.http_client import ApiServer, HttpClient
from fabmon.feeds.learned_refresh import LearnedRefresh
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.scrape.exporter_tables import ExporterTables, exporter_tables
from fabmon.feeds.scrape.page_coverage import OTHER
from fabmon.feeds.scrape.page_reader import PageReader, PageReading
from fabmon.feeds.scrape.port_mapping import PageTooLarge
from fabmon.feeds.token_bucket import TokenBucket, charged, in_thread, over_budget
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    PolledTransport,
    SourceBlock,
    SourceFailure,
)
from fabmon.feeds.transports.transport import ProbeSession

_ENDPOINT = re.compile(r"(?:(?P<kind>[a-z_][a-z0-9_]*):)?(?P<port>\d{1,5})(?P<path>/[!-~]*)?")
_DEFAULT_PATH = "/metrics"
_DEFAULT_PORT = 9100
"""node_exporter's port, read on a host whose line names no `scrape=`."""

_TIMEOUT_SHARE = 0.9
"""Share of the interval that a page may take."""

_MAX_TIMEOUT_S = 10.0
_MAX_FIRST_PAGES = 64
"""First pages processed at a time: learning the layout of one takes milliseconds of CPU."""

_BIG_PAGE_BYTES = 256 * 1024
"""Larger pages are parsed in a thread, because parsing takes long enough to delay the screen."""

_MAX_PAGE_BYTES = 32 * 1024 * 1024
"""The largest page accepted, unpacked. The page of a fabric of 900 hosts has 7.5 MB."""

_NAMES_SHOWN = 5
"""Names of each exporter in the message about a page of which nothing is known."""

_FIRST_PAUSE_S = 60.0
_MAX_PAUSE_S = 1800.0
"""How long an endpoint is not read after a page that was too large."""

_ACCEPT = "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"
_OPENMETRICS = "application/openmetrics-text"


class BadEndpoint(NodeError):
    """A `scrape=` or `secret=` that cannot be used; the message says what to write."""

    cause = "hosts file"


class ScrapeEndpoint(NamedTuple):
    """One exporter to scrape. `source` names it; `tables` are those that its metrics may match.

    `period_s` is the shortest time between two scrapes, 0 for none.
    """

    source: str
    port: int
    path: str
    tables: ExporterTables
    period_s: float


def scrape_endpoints(
    scrape: Sequence[str], tables: ExporterTables, port: int | None = None
) -> list[ScrapeEndpoint]:
    """The endpoints for `scrape=[KIND:]PORT[/PATH],...` of a host. Raises BadEndpoint.

    A host that names none has one, at `port` or 9100. With a KIND only the metrics of that exporter
    are read. Without one all known metrics are, and the source is named after the exporter that
    usually listens on the port. Sources of the same name get their port appended.
    """
    found = [_endpoint(text, tables) for text in scrape or (str(port or _DEFAULT_PORT),)]
    names = Counter(endpoint.source for endpoint in found)
    return [
        endpoint
        if names[endpoint.source] == 1
        else endpoint._replace(source=f"{endpoint.source}:{endpoint.port}")
        for endpoint in found
    ]


def _endpoint(text: str, tables: ExporterTables) -> ScrapeEndpoint:
    match = _ENDPOINT.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise BadEndpoint(f"scrape={text} is not [KIND:]PORT[/PATH], as in 9100 or 9400/metrics")
    kind, port, path = match["kind"], int(match["port"]), match["path"] or _DEFAULT_PATH
    exporter = kind or tables.at(port)
    try:
        candidates = tables if kind is None else tables.of(kind)
    except KeyError:
        known = ", ".join(tables.by_name)
        raise BadEndpoint(f"scrape={text}: no exporter {kind}: use one of {known}") from None
    period_s = tables.by_name[exporter].period_s if exporter is not None else 0.0
    return ScrapeEndpoint(exporter or f"port_{port}", port, path, candidates, period_s)


class ExportersTransport(PolledTransport):
    """Scrapes the endpoints in `scrape=` of each host once an interval, and no others.

    `secret` is a file with a bearer token. `tls` is as in `http_client.tls_context`, `no` by
    default.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        # Connections are kept from one scrape to the next.
        super().__init__(settings, HttpClient(keep_alive_s=3 * settings.interval_s + 15.0))
        self._first_pages = asyncio.Semaphore(_MAX_FIRST_PAGES)
        self._refusals: dict[str, _Refusal] = {}

    async def open(self, host: Host) -> ProbeSession:
        """A session with a host, without connecting yet. Raises NodeError, also where the last
        session used up the CPU time of the node."""
        cpu = self._budgets.of(host.name)
        endpoints = scrape_endpoints(host.scrape, exporter_tables(), host.port)
        authorization = ""
        if sends_secret_in_clear_text(host):
            where = host.address or host.name
            raise BadEndpoint(
                f"secret= would go to {where} in clear text: set tls=yes, or tls=no to allow it"
            )
        if host.secret is not None:
            hint = "secret= is a file with the bearer token"
            token = await asyncio.to_thread(read_secret, host.secret, hint)
            authorization = f"Bearer {token}"
        exporters = []
        for endpoint in endpoints:
            server = await self._client.server(host, endpoint.port, host.tls or "no", authorization)
            exporters.append(
                _Exporter(
                    endpoint,
                    server,
                    self._client,
                    self._first_pages,
                    self._interval_s,
                    self._refusals.setdefault(server.base + endpoint.path, _Refusal()),
                    cpu,
                )
            )
        return PolledSession(_ExportersPoller(exporters, cpu), host.name, self._interval_s)


class _Refusal:
    """Pauses after pages of one endpoint that were too large, over all its sessions.

    Each takes seconds of CPU to refuse.
    """

    def __init__(self) -> None:
        self._error: PageTooLarge | None = None
        self._pause_s = _FIRST_PAUSE_S
        self._until_s = 0.0

    def add(self, error: PageTooLarge) -> None:
        """Begin a pause, twice as long as the last one."""
        self._error, self._until_s = error, time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _MAX_PAUSE_S)

    def check(self, now_s: float) -> None:
        """Raise PageTooLarge during a pause."""
        if self._error is not None and now_s < self._until_s:
            raise PageTooLarge(str(self._error))


class _Exporter:
    """Scrapes one endpoint of one host."""

    def __init__(
        self,
        endpoint: ScrapeEndpoint,
        server: ApiServer,
        client: HttpClient,
        first_pages: asyncio.Semaphore,
        interval_s: float,
        refusal: _Refusal,
        cpu: TokenBucket,
    ) -> None:
        self.source = endpoint.source
        self._refusal = refusal
        self._cpu = cpu
        self._reader = PageReader(
            endpoint.tables, partial(LearnedRefresh, is_trusted=endpoint.period_s > 0)
        )
        self._server = server
        self._path = endpoint.path
        self._client = client
        self._first_pages = first_pages
        self._interval_s = interval_s
        self._timeout_s = min(_TIMEOUT_SHARE * interval_s, _MAX_TIMEOUT_S)
        self._period_s = endpoint.period_s
        self._started_s = float("-inf")
        self._scrape: asyncio.Task[PageReading] | None = None

    async def read(self) -> SourceBlock | None:
        """The block of now; without values when no scrape is due or a slow one is not done.

        None when the endpoint has not been read yet, so that its ports are unknown. Raises
        NodeError.
        """
        now_s = time.monotonic()
        self._refusal.check(now_s)
        if self._scrape is None:
            if now_s - self._started_s < self._period_s - self._interval_s / 2:
                return self.block_without_values()
            self._started_s = now_s
            self._scrape = asyncio.create_task(
                self._fetch_first() if not self._reader.objects else self._fetch(),
                name=f"scrape {self._server.base}{self._path}",
            )
        # A slow exporter must not delay the other exporters of its node.
        await asyncio.wait((self._scrape,), timeout=self._timeout_s if self._period_s else None)
        if not self._scrape.done():
            return self.block_without_values()
        done, self._scrape = self._scrape, None
        return self._block(done.result())

    def block_without_values(self) -> SourceBlock | None:
        """The ports of the last page without values; None before the first page."""
        objects = self._reader.objects
        return self._block(PageReading(objects, None, 0)) if objects else None

    async def close(self) -> None:
        """Cancel the scrape in progress."""
        if self._scrape is not None:
            self._scrape.cancel()
            await asyncio.gather(self._scrape, return_exceptions=True)

    async def _fetch_first(self) -> PageReading:
        async with self._first_pages:
            return await self._fetch()

    async def _fetch(self) -> PageReading:
        # Exporters read when they are asked. The reply may wait here behind those of other nodes.
        asked_ns = time.monotonic_ns()
        page, content_type = await self._client.fetch(
            self._server,
            self._path,
            max(self._timeout_s, self._period_s),
            accept=_ACCEPT,
            max_bytes=_MAX_PAGE_BYTES,
        )
        openmetrics = content_type == _OPENMETRICS
        read = partial(self._reader.read, page, asked_ns, openmetrics=openmetrics)
        try:
            if len(page) < _BIG_PAGE_BYTES:
                reading = charged(self._cpu, read)
            else:
                reading = await in_thread(self._cpu, read)
        except PageTooLarge as error:
            self._refusal.add(error)
            raise
        if not reading.objects:
            url = self._server.base + self._path
            seen = "; ".join(
                f"{each.driver}: {', '.join(each.unmapped[:_NAMES_SHOWN])}"
                for each in self._reader.coverage
            )
            text = f"{url} has none of the metrics that fabmon knows"
            if any(each.driver != OTHER for each in self._reader.coverage):
                text = f"{url} has no port with series that fabmon reads"
            seen = "; ".join(filter(None, (seen, *self._reader.notes)))
            raise Misbehaved(f"{text}, but {seen}" if seen else text, "nothing")
        return reading

    def _block(self, reading: PageReading) -> SourceBlock:
        """A reading as a block; `every` follows the exporter's own refresh, or the period."""
        fresh_s = max(self._reader.refresh_s, self._period_s)
        every = max(1, round(fresh_s / self._interval_s))
        return SourceBlock(
            self.source,
            reading.objects,
            reading.values,
            reading.mono_ns,
            every,
            self._reader.coverage,
            self._reader.notes,
        )


class _ExportersPoller:
    """Scrapes all endpoints of one host at the same time. `cpu` is what their pages may cost this
    console: while it is used up, nothing is read."""

    def __init__(self, exporters: list[_Exporter], cpu: TokenBucket) -> None:
        self._exporters = exporters
        self._cpu = cpu

    async def poll(self) -> NodeReading:
        """Scrape once. A failure affects one source; raises NodeError when all fail, or when the
        CPU time of the node is used up."""
        if self._cpu.wait_s(0.0, time.monotonic()):
            raise over_budget(self._cpu)
        results = await asyncio.gather(
            *(exporter.read() for exporter in self._exporters), return_exceptions=True
        )
        blocks: list[SourceBlock | None] = []
        failures: dict[str, SourceFailure] = {}
        for exporter, result in zip(self._exporters, results, strict=True):
            if isinstance(result, NodeError):
                failures[exporter.source] = SourceFailure(_reason(result), str(result))
                blocks.append(exporter.block_without_values())
            elif isinstance(result, BaseException):
                raise result
            else:
                blocks.append(result)
        if len(failures) == len(self._exporters):
            raise next(result for result in results if isinstance(result, NodeError))
        return NodeReading([block for block in blocks if block is not None], {}, failures)

    async def close(self) -> None:
        """Cancel the scrapes in progress; the connections belong to the transport."""
        await asyncio.gather(*(exporter.close() for exporter in self._exporters))


def _reason(error: NodeError) -> str:
    """The wire's reason for an error."""
    if isinstance(error, LoginRefused):
        return "denied"
    return {"timeout": "late", "nothing": "unsupported"}.get(error.cause, "failed")
