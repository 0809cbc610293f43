"""NVIDIA UFM: a whole InfiniBand fabric from its manager's telemetry, without touching a switch.

Telemetry (HTTP, CSV) has the counters, every 30 or 300 s, each with the time of its sample. The
REST API (HTTPS, with `secret=`) has names, states and cables; without it ports are called by GUID,
or by the node's description where telemetry has one.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

from collectors.wire import Object
from fabmon.fabric.model import Host
from fabmon.feeds import access, probe_input
from fabmon.feeds.errors import LoginRefused, NodeError, Unreachable
from fabmon.feeds.http_client import ApiServer, HttpClient, api_server_of, basic
from fabmon.feeds.transports import ufm_formats
from fabmon.feeds.transports.polled import (
    NodeReading,
    PolledSession,
    SampleClock,
    SourceBlock,
    SourceFailure,
    poll_duration,
)
from fabmon.feeds.transports.transport import ProbeSession
from fabmon.feeds.transports.ufm_formats import Telemetry, TelemetryRow, UfmFabric

REST_PORT = 443
TELEMETRY = "9001/csv/metrics"
"""Where UFM Enterprise's primary telemetry listens, unless `scrape=` says otherwise."""

_PLACE = re.compile(r"(?:(http|https):)?(\d{1,5})(/.*)?")
_DEADLINE_S = 30.0
_ASK_EVERY_S = 5.0
"""Telemetry is asked as often; it has something new every 30 s or less often."""

_REST = 3
"""The manager rests for so many times as long as an answer took."""

_FABRIC_S = 60.0
_REFUSED_S = 300.0
"""Seconds between two looks at names and cables, and after a refused login."""

_PERIOD_S = 30.0
_LONGER = 1.3
_LATE_PERIODS = 4
_CLOCK_S = 60.0

_HOLDS = "secret= is a file with a token or user:password"


class UfmTransport:
    """Asks fabric managers. `secret` is a token, or `user:password`; it is sent to REST only."""

    def __init__(self, settings: probe_input.ProbeSettings) -> None:
        self._interval_s = settings.interval_s
        self._sites = HttpClient()

    async def open(self, host: Host) -> ProbeSession:
        """A session with a manager. Raises BadSecret, BadTrust, and Unreachable for `scrape`."""
        rest = None
        if host.secret is not None:
            secret = await asyncio.to_thread(access.read_secret, host.secret, _HOLDS)
            # UFM's tokens are sent as if they were passwords, under a path of their own.
            by_token = ":" not in secret
            site = await api_server_of(
                host, REST_PORT, f"Basic {secret}" if by_token else basic(secret)
            )
            base = f"{site.base}/{'ufmRestV3' if by_token else 'ufmRest'}/resources"
            rest = site._replace(base=base)
        feeds = [await _feed(host, place) for place in host.scrape or (TELEMETRY,)]
        poller = UfmPoller(self._sites, feeds, rest, self._interval_s)
        return PolledSession(poller, host.name, self._interval_s)

    async def close(self) -> None:
        """Close the connections."""
        await self._sites.close()


async def _feed(host: Host, place: str) -> TelemetryEndpoint:
    match = _PLACE.fullmatch(place)
    if match is None:
        raise Unreachable(f"scrape={place}: write [https:]PORT/PATH, as in {TELEMETRY}", "scrape")
    there = Host(name=host.name, address=host.address, port=int(match[2]), tls=host.tls)
    site = await api_server_of(
        there if match[1] == "https" else Host(name=host.name, address=host.address, tls="no"),
        int(match[2]),
    )
    return TelemetryEndpoint(site, match[3] or "/csv/metrics", place)


class TelemetryEndpoint:
    """One telemetry endpoint: what it said last, and how often it has something new."""

    def __init__(self, site: ApiServer, path: str, name: str) -> None:
        self.site = site
        self.path = path
        self.source = "ufm" if name == TELEMETRY else f"ufm {name}"
        self.period_s = _PERIOD_S
        self.rest_until_s = 0.0
        self.new_at_s: float | None = None
        self._data = b""
        self._clocks: dict[str, SampleClock] = {}
        self._seen_us: dict[str, int] = {}

    async def ask(
        self, sites: HttpClient, fabric: UfmFabric, interval_s: float
    ) -> list[SourceBlock] | None:
        """Parts for the nodes, one each; None when there is nothing new. Raises NodeError."""
        data = await sites.get(self.site, self.path, _DEADLINE_S)
        now_ns = time.monotonic_ns()
        if data == self._data:
            return None
        said = await asyncio.to_thread(ufm_formats.read, data, self.site.base + self.path)
        self._data = data
        gap_s = now_ns / 1e9 - (self.new_at_s or now_ns / 1e9)
        if gap_s > _LONGER * self.period_s:
            # Another period is another layout, with which rates begin anew: it is learned once.
            self.period_s = float(round(gap_s))
        self.new_at_s = now_ns / 1e9
        return await asyncio.to_thread(self._parts, said, fabric, interval_s, now_ns)

    def late_s(self, now_s: float) -> float | None:
        """How long there was nothing new, when that is suspiciously long."""
        silent_s = 0.0 if self.new_at_s is None else now_s - self.new_at_s
        return silent_s if silent_s > _LATE_PERIODS * self.period_s else None

    def _parts(
        self, said: Telemetry, fabric: UfmFabric, interval_s: float, now_ns: int
    ) -> list[SourceBlock]:
        """A part for each node, whose clock is that of its own samples."""
        nodes: dict[str, list[tuple[TelemetryRow, Object]]] = {}
        for row in said.rows:
            node, port, role = fabric.name_of(row)
            info = {"rdma": port, "guid": row.port_guid or row.node_guid, "node_role": role}
            made = Object(
                f"{row.node_guid}_{row.number}", "infiniband", port, info, said.metrics, node
            )
            nodes.setdefault(node, []).append((row, made))
        every = max(1, round(self.period_s / interval_s))
        return [
            self._part(node, entries, every, now_ns)
            for node, entries in sorted(nodes.items(), key=lambda item: item[0])
        ]

    def _part(
        self, node: str, entries: Sequence[tuple[TelemetryRow, Object]], every: int, now_ns: int
    ) -> SourceBlock:
        newest_us = max(row.time_us for row, _ in entries)
        clock = self._clocks.setdefault(node, SampleClock(_CLOCK_S))
        clock_ns = clock.at(newest_us * 1000, now_ns)
        values: list[int | None] = []
        for row, made in entries:
            # A port that was not sampled anew has no rate: its value is that of another time.
            again = self._seen_us.get(made.id) == row.time_us
            values += [None] * len(row.values) if again else row.values
            self._seen_us[made.id] = row.time_us
        objects = tuple(made for _, made in entries)
        given = None if clock_ns is None else values
        return SourceBlock(self.source, objects, given, clock_ns or now_ns, every)


class UfmPoller:
    """Asks one manager: telemetry when it may have something new, names once a minute."""

    def __init__(
        self,
        sites: HttpClient,
        feeds: Sequence[TelemetryEndpoint],
        rest: ApiServer | None,
        interval_s: float,
    ) -> None:
        self._sites = sites
        self._feeds = feeds
        self._rest = rest
        self._interval_s = interval_s
        self._fabric = UfmFabric()
        self._fabric_at_s = float("-inf")
        self._parts: dict[str, list[SourceBlock]] = {}
        self._troubles: dict[str, SourceFailure] = {}

    async def poll(self) -> NodeReading:
        """Ask for what is due. Raises NodeError when no telemetry can be had at all."""
        start_ns = time.monotonic_ns()
        self._parts = {
            name: [part._replace(values=None) for part in parts]
            for name, parts in self._parts.items()
        }
        await self._look(start_ns / 1e9)
        failures = [error for feed in self._feeds if (error := await self._ask(feed)) is not None]
        if failures and not any(feed.source in self._parts for feed in self._feeds):
            raise failures[0]
        parts = [part for parts in self._parts.values() for part in parts]
        parts.append(poll_duration(time.monotonic_ns() - start_ns))
        about = {"kernel": "NVIDIA UFM"}
        return NodeReading(parts, about, dict(self._troubles), ufm_formats.KINDS)

    async def close(self) -> None:
        """Nothing is held."""

    async def _ask(self, feed: TelemetryEndpoint) -> NodeError | None:
        now_s = time.monotonic()
        if now_s < feed.rest_until_s:
            return None
        try:
            found = await feed.ask(self._sites, self._fabric, self._interval_s)
        except NodeError as error:
            self._troubles[feed.source] = SourceFailure("failed", str(error))
            return error
        finally:
            end_s = time.monotonic()
            feed.rest_until_s = end_s + max(_ASK_EVERY_S, _REST * (end_s - now_s))
        late_s = feed.late_s(end_s)
        self._troubles.pop(feed.source, None)
        if late_s is not None:
            text = f"{feed.path}: nothing new for {late_s:.0f} s, usual are {feed.period_s:g} s"
            self._troubles[feed.source] = SourceFailure("late", text)
        if found is not None:
            self._parts[feed.source] = found
        return None

    async def _look(self, now_s: float) -> None:
        """Names, states and cables; what was known stays when they cannot be had."""
        if self._rest is None or now_s - self._fabric_at_s < _FABRIC_S:
            return
        self._fabric_at_s = now_s
        try:
            answers = [
                await self._sites.get(self._rest, f"/{what}", _DEADLINE_S)
                for what in ("ports", "systems", "links")
            ]
            self._fabric = await asyncio.to_thread(ufm_formats.fabric_of, *answers)
        except NodeError as error:
            refused = isinstance(error, LoginRefused)
            if refused:
                self._fabric_at_s = now_s + _REFUSED_S - _FABRIC_S
            self._troubles["ufm_rest"] = SourceFailure(
                "denied" if refused else "failed", str(error)
            )
            return
        self._troubles.pop("ufm_rest", None)
        every = max(1, round(_FABRIC_S / self._interval_s))
        mono_ns = time.monotonic_ns()
        fabric = self._fabric
        self._parts["ufm_ports"] = [
            SourceBlock("ufm_ports", fabric.ports, fabric.states, mono_ns, every),
            SourceBlock("ufm_links", fabric.cables, [], mono_ns, every),
        ]
