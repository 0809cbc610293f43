"""The agent's HTTP server: GET only, and only with the token."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Handler

from collectors import wire
from collectors.catalog import CATALOG
from fabmon import __version__
from fabmon.agent.streams import ProbeState, Streams, TooManyReaders
from fabmon.fabric.openmetrics import (
    EXPOSED,
    OPENMETRICS,
    PREFIX,
    PROMETHEUS,
    SamplePosition,
    choose_content_type,
    family_lines,
    head,
    maximum,
    sample_positions,
)
from fabmon.fabric.wire.messages import Hello
from fabmon.feeds.access import AGENT_STREAM_TYPE

_FACTS = (
    "netdev",
    "rdma",
    "rdma_port",
    "link_layer",
    "driver",
    "pci",
    "pcie_speed_gtps",
    "pcie_width",
    "numa_node",
    "mac",
    "guid",
    "hca_type",
    "board_id",
    "fw_ver",
    "bytes_from",
    "pcie_from",
)
"""Labels of `fabmon_port_info`, where known; collectors/readers/device_facts.py describes them."""

_SATURATED = f"{PREFIX}saturated"
_SATURATED_HELP = "the counter is at its maximum, where it sticks: its true value is not known"


class _Family(NamedTuple):
    """One metric: its head lines, and the positions of its values.

    `maximum` is the value at which a counter sticks; there its true value is not known.
    """

    heads: Mapping[str, str]
    sample: str
    metric: str
    factor: float
    maximum: int | None
    places: list[SamplePosition]


class Exposition:
    """The text of the values that follow one hello. `content_type` is OPENMETRICS or PROMETHEUS."""

    def __init__(self, hello: Hello) -> None:
        self._sources = [block.source for block in hello.blocks]
        self._families = list(_families(hello))
        self._infos = {style: _infos(hello, style) for style in (OPENMETRICS, PROMETHEUS)}

    def text(self, state: ProbeState, content_type: str, now_ns: int, *, is_fresh: bool) -> str:
        """The page at `now_ns`. Without fresh frames it has no values, and no source is up."""
        parts = [self._infos[content_type]]
        parts += self._state(state, content_type, now_ns, is_fresh=is_fresh)
        if is_fresh:
            parts += self._values(state, content_type)
        if content_type == OPENMETRICS:
            parts.append("# EOF\n")
        return "".join(parts)

    def _values(self, state: ProbeState, content_type: str) -> Iterator[str]:
        blocks = state.blocks
        saturated = []
        for family in self._families:
            lines = []
            for place in family.places:
                block = blocks[place.block]
                value = None if block is None else block[place.position]
                if value is None:
                    continue
                if value == family.maximum:
                    saturated.append(
                        f'{_SATURATED}{{metric="{family.metric}",{place.labels[1:]} 1\n'
                    )
                    continue
                shown = value if family.factor == 1 else value / family.factor
                lines.append(f"{family.sample}{place.labels} {shown}\n")
            if lines:
                yield family.heads[content_type]
                yield from lines
        if saturated:
            yield head(_SATURATED, "gauge", "", _SATURATED_HELP, content_type)
            yield from saturated

    def _state(
        self, state: ProbeState, content_type: str, now_ns: int, *, is_fresh: bool
    ) -> list[str]:
        is_up = []
        for source in sorted({*self._sources, *state.lost}):
            notice = state.lost.get(source)
            reason = notice.reason if notice is not None else "" if is_fresh else "late"
            is_up.append(({"source": source, "reason": reason}, 0 if reason else 1))
        help_ = "1 when the source is read; 0 with the reason when not"
        lines = family_lines("source_up", "gauge", "", help_, is_up, content_type)
        ages = (
            ({"source": source}, f"{max(0, now_ns - at) / 1e9:.3f}")
            for source, at in sorted(state.read_at_ns.items())
            if source in self._sources
        )
        help_ = "time since the source was read"
        return lines + family_lines(
            "source_age_seconds", "gauge", "seconds", help_, ages, content_type
        )


def _families(hello: Hello) -> Iterator[_Family]:
    """The metrics of a hello in the catalog's order, so that samples of a metric are adjacent."""
    places = sample_positions(hello)
    for name, row in CATALOG.items():
        if name in places:
            shown = EXPOSED[name]
            heads = {
                style: head(shown.family, shown.type, shown.unit, row.meaning, style)
                for style in (OPENMETRICS, PROMETHEUS)
            }
            yield _Family(heads, shown.sample, name, shown.factor, maximum(row.kind), places[name])


def _infos(hello: Hello, style: str) -> str:
    """The info metrics: of the node, and of each port the facts of all its sources together."""
    node = {"hostname": hello.hostname, "kernel": hello.kernel, "probe": hello.probe}
    ports: dict[tuple[str | None, str], dict[str, Any]] = {}
    for block in hello.blocks:
        for item in block.objects:
            if item.port is not None:
                facts = ports.setdefault((item.node, item.port), {"kind": item.kind})
                facts.update({key: item.info[key] for key in _FACTS if key in item.info})
    help_ = "the node, and the probe that reads it"
    lines = family_lines("node", "info", "", help_, [(node, 1)], style)
    named = (
        ({**({} if other is None else {"node": other}), "port": port, **facts}, 1)
        for (other, port), facts in ports.items()
    )
    help_ = "a port, and the known facts about it"
    return "".join(lines + family_lines("port", "info", "", help_, named, style))


_FRESH_INTERVALS = 3
_LAST_LINE_S = 5.0
_SEND_BUFFER = 256 * 1024
_OPEN = "/healthz"


class Server:
    """Answers from `state`; `token` is required everywhere but on /healthz.

    `asked` are the connections that have sent a request, `holders` those that sent one with the
    token. Connections without the token, and those that request /healthz, are closed after their
    answer. `last_line_s` is how long a reader that is dropped may take to read the reason.
    """

    def __init__(
        self,
        state: ProbeState,
        streams: Streams,
        token: str,
        interval_s: float,
        last_line_s: float = _LAST_LINE_S,
    ) -> None:
        self._state = state
        self._streams = streams
        self._token = token.encode()
        self._fresh_ns = int(_FRESH_INTERVALS * interval_s * 1e9)
        self._interval_s = interval_s
        self._last_line_s = last_line_s
        self._exposition: tuple[Hello, Exposition] | None = None
        self.asked: WeakSet[asyncio.BaseTransport] = WeakSet()
        self.holders: WeakSet[asyncio.BaseTransport] = WeakSet()

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._admit])
        app.router.add_get("/stream", self._stream, allow_head=False)
        app.router.add_get("/metrics", self._metrics, allow_head=False)
        app.router.add_get(_OPEN, self._healthz, allow_head=False)
        app.on_response_prepare.append(_set_headers)
        app.on_shutdown.append(self._end_streams)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None:
            self.asked.add(request.transport)
        has_token = self._has_token(request)
        if has_token and request.transport is not None:
            self.holders.add(request.transport)
        if request.path != _OPEN and not has_token:
            refused = web.Response(
                status=401,
                text="the token is missing or wrong: Authorization: Bearer TOKEN\n",
                headers={"WWW-Authenticate": 'Bearer realm="fabmon agent"'},
            )
            refused.force_close()
            return refused
        response = await handler(request)
        if request.path == _OPEN:
            response.force_close()
        return response

    def _has_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        token = given.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(token, self._token)

    async def _metrics(self, request: web.Request) -> web.Response:
        hello = self._state.hello
        if hello is None:
            return web.Response(status=503, text="no frame has arrived yet\n")
        if self._exposition is None or self._exposition[0] is not hello:
            self._exposition = (hello, Exposition(hello))
        content_type = choose_content_type(request.headers.get("Accept", ""))
        text = self._exposition[1].text(
            self._state, content_type, time.monotonic_ns(), is_fresh=self._is_fresh()
        )
        return web.Response(body=text.encode(), headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.Response:
        at = self._state.frame_at_ns
        age_s = None if at is None else round((time.monotonic_ns() - at) / 1e9, 3)
        is_fresh = self._is_fresh()
        health = {
            "status": "ok" if is_fresh else "no frames",
            "frame_age_s": age_s,
            "interval_s": self._interval_s,
        }
        return web.Response(
            status=200 if is_fresh else 503,
            text=json.dumps(health) + "\n",
            content_type="application/json",
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        asked = [name for text in request.query.getall("encoding", []) for name in text.split(",")]
        response = web.StreamResponse(headers={"Content-Type": AGENT_STREAM_TYPE})
        try:
            with self._streams.reader(
                self._state.greeting(), wire.choose_encoding(asked)
            ) as stream:
                transport = request.transport
                if transport is not None:
                    _bound_buffer(transport)
                    loop = asyncio.get_running_loop()
                    stream.ended = lambda: loop.call_later(self._last_line_s, transport.abort)
                await response.prepare(request)
                async for line in stream.lines():
                    await response.write(line)
        except ConnectionError:
            pass  # The reader is gone: nobody is left to answer, and nothing is wrong here.
        except TooManyReaders as error:
            return web.Response(status=503, text=f"{error}: no room for another reader\n")
        return response

    def _is_fresh(self) -> bool:
        at = self._state.frame_at_ns
        return at is not None and time.monotonic_ns() - at <= self._fresh_ns

    async def _end_streams(self, app: web.Application) -> None:
        self._streams.end("the agent is stopping")


async def _set_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = f"fabmon/{__version__}"
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"


def _bound_buffer(transport: asyncio.Transport) -> None:
    """Bound the kernel's send buffer: lines wait in the reader's queue, which is bounded."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
