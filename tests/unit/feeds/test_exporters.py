"""via=exporters: real HTTP, real pages, and what an exporter can do wrong."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest
from aiohttp import web

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Frame, Hello, Message, Notice, decode
from fabmon.feeds import token_bucket
from fabmon.feeds.errors import BadSecret, LoginRefused, Misbehaved, NodeError, Unreachable
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import exporters, polled
from fabmon.feeds.transports.exporters import ExportersTransport
from fabmon.feeds.transports.transport import ProbeSession

PAGES = Path(__file__).parent / "scrape" / "pages"
INTERVAL_S = 0.5

Answer = Callable[[web.Request], Awaitable[web.Response]]


def page(name: str) -> Answer:
    text = (PAGES / f"{name}.prom").read_bytes()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=text, content_type="text/plain")

    return answer


class Server:
    """One exporter on a port of this machine; `answer` may be replaced."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.port = 0
        self.requests: list[web.Request] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> Server:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _handle(self, request: web.Request) -> web.Response:
        self.requests.append(request)
        return await self.answer(request)


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[Answer], Awaitable[Server]]]:
    """Starts exporters, and stops them at the end."""
    running: list[Server] = []

    async def start(answer: Answer) -> Server:
        running.append(await Server(answer).start())
        return running[-1]

    yield start
    for server in running:
        await server.stop()


@pytest.fixture
async def transport() -> AsyncIterator[ExportersTransport]:
    made = ExportersTransport(ProbeSettings(interval_s=INTERVAL_S))
    yield made
    await made.close()


def host(*scrape: str, secret: str | None = None) -> Host:
    return Host(name="gpu001", address="127.0.0.1", via="exporters", scrape=scrape, secret=secret)


async def read_messages(session: ProbeSession, count: int) -> list[Message]:
    async with asyncio.timeout(240):
        return [decode(await session.readline()) for _ in range(count)]


Serve = Callable[[Answer], Awaitable[Server]]


async def test_two_exporters_are_one_node(serve: Serve, transport: ExportersTransport) -> None:
    node, dcgm = await serve(page("node_exporter")), await serve(page("dcgm_exporter"))
    scrape = (f"node_exporter:{node.port}", f"dcgm_exporter:{dcgm.port}/gpu/metrics?a=1")
    session = await transport.open(host(*scrape))
    hello, frame = await read_messages(session, 2)
    assert isinstance(hello, Hello)
    assert isinstance(frame, Frame)
    assert [(block.source, block.every) for block in hello.blocks] == [
        ("node_exporter", 1),
        ("dcgm_exporter", 60),
    ]
    assert {item.port for item in hello.blocks[1].objects} == {"gpu0", "gpu1", "gpu0/nv3"}
    assert [block is None for block in frame.blocks] == [False, False]
    assert dcgm.requests[0].path_qs == "/gpu/metrics?a=1"
    assert node.requests[0].path_qs == "/metrics"
    await session.close()


async def test_pages_whose_labels_change_each_time_are_read_as_the_budget_allows(
    serve: Serve, transport: ExportersTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """65,536 series mapped anew in each tick kept a core busy for as long as they were watched."""
    monkeypatch.setattr(token_bucket, "CPU_BURST_S", 0.05)
    monkeypatch.setattr(transport, "_budgets", token_bucket.CpuBudgets(1e-6))
    monkeypatch.setattr(polled, "_MAX_FAILURES", 1)
    asked = count()

    async def renamed(request: web.Request) -> web.Response:
        line = 'node_network_receive_bytes_total{{device="eth{}",x="{}"}} 1\n'
        tick = next(asked)
        return web.Response(text="".join(line.format(number, tick) for number in range(2000)))

    node = host(str((await serve(renamed)).port))
    session = await transport.open(node)
    with pytest.raises(Misbehaved, match="costs the console more than"):
        await read_messages(session, 1000)
    assert next(asked) < 100
    with pytest.raises(Misbehaved, match="not asked for"):
        await transport.open(node)


async def test_a_failed_endpoint_affects_only_its_own_source(
    serve: Serve, transport: ExportersTransport
) -> None:
    node, dcgm = await serve(page("node_exporter")), await serve(page("dcgm_exporter"))
    session = await transport.open(host(f"{node.port}", f"dcgm_exporter:{dcgm.port}"))
    await read_messages(session, 2)
    await dcgm.stop()
    lines = await read_messages(session, 2)
    while not any(isinstance(line, Notice) for line in lines):
        lines += await read_messages(session, 1)
    lost = next(line for line in lines if isinstance(line, Notice))
    assert (lost.event, lost.source, lost.reason) == ("lost", "dcgm_exporter", "failed")
    assert lost.text.startswith(f"connection refused by 127.0.0.1:{dcgm.port}: is the server")
    (frame,) = await read_messages(session, 1)
    assert isinstance(frame, Frame)
    assert [block is None for block in frame.blocks] == [False, True]
    await dcgm.start()
    lines = [frame]
    while not any(isinstance(line, Notice) for line in lines):
        lines += await read_messages(session, 1)
    assert not any(isinstance(line, Hello) for line in lines)
    await session.close()


async def test_an_endpoint_that_is_down_at_first_is_reported_and_appears_later(
    serve: Serve, transport: ExportersTransport
) -> None:
    node, dcgm = await serve(page("node_exporter")), await serve(page("dcgm_exporter"))
    await dcgm.stop()
    session = await transport.open(host(f"{node.port}", f"{dcgm.port}"))
    hello, lost, _ = await read_messages(session, 3)
    assert isinstance(hello, Hello)
    assert isinstance(lost, Notice)
    assert [block.source for block in hello.blocks] == [f"port_{node.port}"]
    assert lost.source == f"port_{dcgm.port}"
    await dcgm.start()
    lines: list[Message] = []
    while not any(isinstance(line, Hello) for line in lines):
        lines += await read_messages(session, 1)
    grown = lines[-1]
    assert isinstance(grown, Hello)
    assert [block.source for block in grown.blocks][1:] == [f"port_{dcgm.port}"]
    await session.close()


async def refused(transport: ExportersTransport, given: Host) -> NodeError:
    with pytest.raises(NodeError) as caught:
        await read_messages(await transport.open(given), 1)
    return caught.value


async def test_the_node_fails_when_all_endpoints_fail(
    serve: Serve, transport: ExportersTransport
) -> None:
    server = await serve(page("moneo"))
    await server.stop()
    error = await refused(transport, host(f"{server.port}"))
    assert isinstance(error, Unreachable)
    assert error.cause == "refused"
    assert str(error).startswith(f"connection refused by 127.0.0.1:{server.port}: is the server")


def replying(status: int = 200, **keys: object) -> Answer:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, **keys)  # type: ignore[arg-type]

    return answer


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (replying(401), LoginRefused, "rejected the login (HTTP 401): set secret=FILE"),
        (replying(503), Misbehaved, "replied with HTTP 503 Service Unavailable"),
        (
            replying(302, headers={"Location": "http://127.0.0.9/"}),
            Misbehaved,
            "replied with HTTP 302 Found",
        ),
        (replying(text="<html>\n"), Misbehaved, "line 1: neither a comment nor a name, labels"),
        (replying(text="up 1\nup"), Misbehaved, "line 2: the page breaks off"),
        (replying(text="up 1\n"), Misbehaved, "has none of the metrics that fabmon knows"),
        (replying(text=""), Misbehaved, "has none of the metrics that fabmon knows"),
    ],
)
async def test_a_bad_reply_has_its_reason(
    serve: Serve, transport: ExportersTransport, answer: Answer, kind: type[NodeError], text: str
) -> None:
    server = await serve(answer)
    error = await refused(transport, host(f"{server.port}"))
    assert type(error) is kind or isinstance(error, kind)
    assert text in str(error)


async def test_a_page_that_is_too_large_is_not_read_to_its_end(
    serve: Serve, transport: ExportersTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporters, "_MAX_PAGE_BYTES", 1 << 20)
    bomb = gzip.compress(b"#" * (8 << 20))
    server = await serve(replying(body=bomb, headers={"Content-Encoding": "gzip"}))
    error = await refused(transport, host(f"{server.port}"))
    assert "replied with more than 1 MiB" in str(error)


async def test_an_endpoint_with_too_many_series_is_left_alone_for_a_while(
    serve: Serve, transport: ExportersTransport
) -> None:
    server = await serve(replying(text="a 1\n" * 200_000))
    for _ in range(3):
        error = await refused(transport, host(f"{server.port}"))
        assert "200000 lines, 131072 at most" in str(error)
    assert len(server.requests) == 1


async def test_a_scrape_times_out_before_the_next_one(
    serve: Serve, transport: ExportersTransport
) -> None:
    async def never(request: web.Request) -> web.Response:
        await asyncio.sleep(5)
        return web.Response()

    server = await serve(never)
    error = await refused(transport, host(f"{server.port}"))
    assert (error.cause, str(error)) == (
        "timeout",
        f"no answer from 127.0.0.1:{server.port} in 0.45 s: is it up, does a firewall drop"
        " packets?",
    )


async def test_an_exporter_that_reads_a_fabric_is_scraped_rarely_and_with_patience(
    serve: Serve, transport: ExportersTransport
) -> None:
    go_on = asyncio.Event()
    walk = page("infiniband_exporter")

    async def slow(request: web.Request) -> web.Response:
        await go_on.wait()
        return await walk(request)

    fabric, node = await serve(slow), await serve(page("node_exporter"))
    scrape = (f"infiniband_exporter:{fabric.port}", f"node_exporter:{node.port}")
    session = await transport.open(host(*scrape))
    hello, *_ = await read_messages(session, 3)
    assert isinstance(hello, Hello)
    assert [block.source for block in hello.blocks] == ["node_exporter"]
    go_on.set()
    lines = await read_messages(session, 2)
    while not any(isinstance(line, Hello) for line in lines):
        lines += await read_messages(session, 1)
    lines += await read_messages(session, 4)
    frames = [line for line in lines if isinstance(line, Frame) and len(line.blocks) == 2]
    assert [frame.blocks[0] is None for frame in frames[:3]] == [False, True, True]
    assert not any(isinstance(line, Notice) for line in lines)
    assert len(fabric.requests) == 1
    grown = next(line for line in lines if isinstance(line, Hello))
    assert {item.node for item in grown.blocks[0].objects} >= {"ib-i1l1s01", "o0001"}
    await session.close()


async def test_pages_are_compressed_and_requested_with_a_token(
    serve: Serve, transport: ExportersTransport, tmp_path: Path
) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cret\n")
    secret.chmod(0o600)
    body = gzip.compress((PAGES / "moneo.prom").read_bytes())
    server = await serve(replying(body=body, headers={"Content-Encoding": "gzip"}))
    session = await transport.open(host(f"moneo:{server.port}", secret=str(secret)))
    hello, _ = await read_messages(session, 2)
    assert isinstance(hello, Hello)
    headers = server.requests[0].headers
    assert headers["Authorization"] == "Bearer s3cret"
    assert "gzip" in headers["Accept-Encoding"]
    await session.close()
    secret.chmod(0o644)
    with pytest.raises(BadSecret, match="chmod 600"):
        await transport.open(host("9100", secret=str(secret)))


@pytest.mark.parametrize(
    ("scrape", "text"),
    [
        ("nodeexporter:9100", "no exporter nodeexporter: use one of amd_gpu_exporter, "),
        ("9100metrics", "scrape=9100metrics is not [KIND:]PORT[/PATH], as in 9100"),
        ("http://a/metrics", "is not [KIND:]PORT[/PATH]"),
        ("70000", "is not [KIND:]PORT[/PATH]"),
    ],
)
async def test_what_to_scrape_is_checked(
    transport: ExportersTransport, scrape: str, text: str
) -> None:
    with pytest.raises(NodeError) as caught:
        await transport.open(host(scrape))
    assert text in str(caught.value)
