"""NVIDIA UFM: a whole InfiniBand fabric from its manager, without access to the switches.

Telemetry (HTTP, CSV) has the counters, every 30 or 300 s, each with the time of its sample. The
REST API (HTTPS, with `secret=`) has names, states and cables. Without it a port is named after its
GUID, or after the node description where telemetry has one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.fabric.time_wording import interval
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import LoginRefused, NodeError, Unreachable
from fabmon.feeds.http_client import ApiServer, HttpClient, basic_authorization
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.token_bucket import TokenBucket, in_thread
from fabmon.feeds.transports import ufm_formats
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    PolledTransport,
    SampleClock,
    SourceBlock,
    SourceFailure,
    end_of_pause_s,
    newest_change,
    poll_duration,
)
from fabmon.feeds.transports.transport import ProbeSession
from fabmon.feeds.transports.ufm_formats import Telemetry, TelemetryRow, UfmFabric

_REST_PORT = 443
_TELEMETRY = "9001/csv/metrics"
"""Endpoint of UFM Enterprise's primary telemetry; the default of `scrape=`."""

_TELEMETRY_PATH = "/csv/metrics"
_SCRAPE = re.compile(r"(?:(http|https):)?(\d{1,5})(/.*)?")
_DEADLINE_S = 30.0
MIN_POLL_S = 5.0
"""Shortest time between two requests for telemetry, which changes every 30 s or less often."""

_REST_S = 60.0
"""Seconds between two reads of names and cables."""

_REJECTED_S = 300.0
"""Seconds after which a login that the REST API rejected is tried again."""

_PERIOD_S = 30.0
"""The period that telemetry is assumed to have at first."""

_LONGER_PERIOD = 1.3
"""A gap between two changes of this many periods shows that the period is longer."""

LATE_PERIODS = 4
"""Periods without new telemetry after which it is reported as late."""

_CLOCK_TOLERANCE_S = 60.0
_CONNECTIONS_PER_MANAGER = 4


class UfmTransport(PolledTransport):
    """Polls fabric managers. `secret` is a token or `user:password`; only REST receives it."""

    def __init__(self, settings: ProbeSettings) -> None:
        super().__init__(settings, HttpClient(per_server=_CONNECTIONS_PER_MANAGER))

    async def open(self, host: Host) -> ProbeSession:
        """A session with a manager. Raises BadSecret, BadTrust, Unreachable for `scrape`, and
        Misbehaved where the last session used up the CPU time of the manager."""
        cpu = self._budgets.of(host.name)
        rest = None
        if host.secret is not None:
            hint = "secret= is a file with a token or user:password"
            secret = await asyncio.to_thread(read_secret, host.secret, hint)
            # UFM takes a token as Basic credentials, under a path of its own.
            is_token = ":" not in secret
            authorization = f"Basic {secret}" if is_token else basic_authorization(secret)
            server = await self._client.server(
                host, host.port or _REST_PORT, host.tls or "yes", authorization
            )
            path = "ufmRestV3" if is_token else "ufmRest"
            rest = server._replace(base=f"{server.base}/{path}/resources")
        endpoints = [await self._endpoint(host, text) for text in host.scrape or (_TELEMETRY,)]
        poller = UfmPoller(self._client, endpoints, rest, self._interval_s, cpu)
        return PolledSession(poller, host.name, self._interval_s)

    async def _endpoint(self, host: Host, text: str) -> TelemetryEndpoint:
        match = _SCRAPE.fullmatch(text)
        if match is None:
            example = f"write [https:]PORT/PATH, as in {_TELEMETRY}"
            raise Unreachable(f"scrape={text}: {example}", "scrape")
        tls = host.tls or "yes" if match[1] == "https" else "no"
        server = await self._client.server(host, int(match[2]), tls)
        return TelemetryEndpoint(server, match[3] or _TELEMETRY_PATH, text)


class TelemetryEndpoint:
    """One telemetry endpoint: its last content, and the period in which the content changes."""

    def __init__(self, server: ApiServer, path: str, name: str) -> None:
        self.path = path
        self.source = "ufm" if name == _TELEMETRY else f"ufm {name}"
        self.period_s = _PERIOD_S
        self.next_poll_s = 0.0
        self._server = server
        self._changed_s: float | None = None
        self._body = b""
        self._clocks: dict[str, SampleClock] = {}
        self._sampled_us: dict[str, int] = {}

    async def read(
        self, client: HttpClient, fabric: UfmFabric, interval_s: float, cpu: TokenBucket
    ) -> list[SourceBlock] | None:
        """One block for each node; None when the content did not change. Raises NodeError."""
        body, _ = await client.fetch(self._server, self.path, _DEADLINE_S)
        now_ns = time.monotonic_ns()
        if body == self._body:
            return None
        url = self._server.base + self.path
        telemetry = await in_thread(cpu, ufm_formats.parse_telemetry, body, url)
        self._body = body
        gap_s = now_ns / 1e9 - (self._changed_s or now_ns / 1e9)
        if gap_s > _LONGER_PERIOD * self.period_s:
            # A new period is a new layout, which restarts all rates: the period only grows.
            self.period_s = float(round(gap_s))
        self._changed_s = now_ns / 1e9
        return await in_thread(cpu, self._blocks, telemetry, fabric, interval_s, now_ns)

    def late_s(self, now_s: float) -> float | None:
        """Seconds since the content changed; None while that is at most four periods."""
        unchanged_s = 0.0 if self._changed_s is None else now_s - self._changed_s
        return unchanged_s if unchanged_s > LATE_PERIODS * self.period_s else None

    def _blocks(
        self, telemetry: Telemetry, fabric: UfmFabric, interval_s: float, now_ns: int
    ) -> list[SourceBlock]:
        """A block for each node, with the clock of that node's samples."""
        nodes: dict[str, list[tuple[TelemetryRow, Object]]] = {}
        for row in telemetry.rows:
            node, port, role = fabric.name_of(row)
            info = {"rdma": port, "guid": row.port_guid or row.node_guid, "node_role": role}
            id_ = f"{row.node_guid}_{row.number}"
            item = Object(id_, "infiniband", port, info, telemetry.metrics, node)
            nodes.setdefault(node, []).append((row, item))
        every = max(1, round(self.period_s / interval_s))
        # Nothing is kept of nodes and ports that are gone.
        ids = {item.id for entries in nodes.values() for _, item in entries}
        self._clocks = {node: clock for node, clock in self._clocks.items() if node in nodes}
        self._sampled_us = {id_: us for id_, us in self._sampled_us.items() if id_ in ids}
        return [
            # What is not read is the same for all nodes: it is reported once.
            self._block(node, entries, every, now_ns)._replace(
                coverage=() if place else telemetry.coverage,
                limits=() if place else telemetry.limits,
            )
            for place, (node, entries) in enumerate(sorted(nodes.items(), key=lambda item: item[0]))
        ]

    def _block(
        self, node: str, entries: Sequence[tuple[TelemetryRow, Object]], every: int, now_ns: int
    ) -> SourceBlock:
        times_us = {item.id: row.time_us for row, item in entries}
        newest_us = newest_change(self._sampled_us, times_us)
        clock = self._clocks.setdefault(node, SampleClock(_CLOCK_TOLERANCE_S))
        clock_ns = None if newest_us is None else clock.at(newest_us * 1000, now_ns)
        values: list[int | None] = []
        for row, item in entries:
            # A port without a new sample has no rate: its values belong to an earlier time.
            is_old = self._sampled_us.get(item.id) == row.time_us
            values += [None] * len(row.values) if is_old else row.values
            self._sampled_us[item.id] = row.time_us
        objects = tuple(item for _, item in entries)
        sampled = None if clock_ns is None else values
        return SourceBlock(self.source, objects, sampled, clock_ns or now_ns, every)


class UfmPoller:
    """Polls one manager: telemetry when it may have changed, names once a minute.

    `cpu` is what it may cost this console: while it is used up, nothing is read.
    """

    def __init__(
        self,
        client: HttpClient,
        endpoints: Sequence[TelemetryEndpoint],
        rest: ApiServer | None,
        interval_s: float,
        cpu: TokenBucket,
    ) -> None:
        self._client = client
        self._cpu = cpu
        self._endpoints = endpoints
        self._rest = rest
        self._interval_s = interval_s
        self._fabric = UfmFabric()
        self._rest_read_s = float("-inf")
        self._blocks: dict[str, list[SourceBlock]] = {}
        self._failures: dict[str, SourceFailure] = {}

    async def poll(self) -> NodeReading:
        """Read what is due. Raises NodeError while no telemetry was ever read."""
        start_ns = time.monotonic_ns()
        self._blocks = {
            name: [block._replace(values=None) for block in blocks]
            for name, blocks in self._blocks.items()
        }
        endpoints = () if self._cpu.wait_s(0.0, start_ns / 1e9) else self._endpoints
        if endpoints:
            await self._read_names(start_ns / 1e9)
        errors = [
            error
            for endpoint in endpoints
            if (error := await self._read_telemetry(endpoint)) is not None
        ]
        if errors and not any(endpoint.source in self._blocks for endpoint in self._endpoints):
            raise errors[0]
        blocks = [block for blocks in self._blocks.values() for block in blocks]
        blocks.append(poll_duration(time.monotonic_ns() - start_ns))
        about = {"kernel": "NVIDIA UFM"}
        return NodeReading(blocks, about, dict(self._failures), ufm_formats.KINDS)

    async def close(self) -> None:
        """Do nothing: connections belong to the transport."""

    async def _read_telemetry(self, endpoint: TelemetryEndpoint) -> NodeError | None:
        start_s = time.monotonic()
        if start_s < endpoint.next_poll_s:
            return None
        try:
            blocks = await endpoint.read(self._client, self._fabric, self._interval_s, self._cpu)
        except NodeError as error:
            self._failures[endpoint.source] = SourceFailure("failed", str(error))
            return error
        finally:
            now_s = time.monotonic()
            endpoint.next_poll_s = max(now_s + MIN_POLL_S, end_of_pause_s(start_s))
        late_s = endpoint.late_s(now_s)
        self._failures.pop(endpoint.source, None)
        if late_s is not None:
            usual = f"its period is {interval(endpoint.period_s)}"
            text = f"{endpoint.path}: no new data for {late_s:.0f} s; {usual}"
            self._failures[endpoint.source] = SourceFailure("late", text)
        if blocks is not None:
            self._blocks[endpoint.source] = blocks
        return None

    async def _read_names(self, now_s: float) -> None:
        """Read names, states and cables once a minute; after a failure the last ones are kept."""
        if self._rest is None or now_s - self._rest_read_s < _REST_S:
            return
        self._rest_read_s = now_s
        try:
            replies = [
                (await self._client.fetch(self._rest, f"/{what}", _DEADLINE_S)).body
                for what in ("ports", "systems", "links")
            ]
            self._fabric = await in_thread(self._cpu, ufm_formats.parse_fabric, *replies)
        except NodeError as error:
            is_rejected = isinstance(error, LoginRefused)
            if is_rejected:
                self._rest_read_s = now_s + _REJECTED_S - _REST_S
            reason = "denied" if is_rejected else "failed"
            self._failures["ufm_rest"] = SourceFailure(reason, str(error))
            return
        self._failures.pop("ufm_rest", None)
        every = max(1, round(_REST_S / self._interval_s))
        mono_ns = time.monotonic_ns()
        fabric = self._fabric
        self._blocks["ufm_ports"] = [
            SourceBlock(
                "ufm_ports", fabric.ports, fabric.states, mono_ns, every, limits=fabric.limits
            ),
            SourceBlock("ufm_links", fabric.cables, [], mono_ns, every),
        ]
