"""Reading agents over HTTP: the stream, and the exact reason of each failure."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from blockbuster import BlockBuster

from collectors import wire
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState
from fabmon.fabric.wire.messages import Frame, Hello, decode
from fabmon.feeds.errors import (
    BadSecret,
    BadTrust,
    Ended,
    LoginRefused,
    Misbehaved,
    NodeError,
    Unreachable,
)
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports.http import HttpTransport
from tests.unit.agent.certificates import pair
from tests.unit.feeds.wire_lines import are, frame_line, frames_of, hello_line, watch


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_text("s3cret\n")
    return str(path)


class FakeAgent:
    """A server whose reply to /stream is set by the test; records the requests."""

    def __init__(
        self, *lines: bytes, status: int = 200, kind: str = "application/x-ndjson"
    ) -> None:
        self.lines = lines
        self.status = status
        self.kind = kind
        self.headers: dict[str, str] = {}
        self.requests: list[web.Request] = []
        self.ends = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request)
        response = web.StreamResponse(
            status=self.status, headers={"Content-Type": self.kind, **self.headers}
        )
        await response.prepare(request)
        for line in self.lines:
            await response.write(line)
        if self.status == 200:
            await self.ends.wait()
        return response


@asynccontextmanager
async def served(fake: FakeAgent, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve it; yields the port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def raw(answer: bytes) -> AsyncIterator[int]:
    """Serve bytes that are no HTTP; yields the port."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def agent_at(port: int, secret: str | None, tls: str | None = None) -> Host:
    address = "127.0.0.1"
    return Host(name="gpu1", address=address, via="http", port=port, secret=secret, tls=tls)


async def failure(host: Host, timeout_s: float = 10.0) -> NodeError:
    """The error of opening a host's stream."""
    transport = HttpTransport(ProbeSettings(), timeout_s)
    try:
        with pytest.raises(NodeError) as caught:
            await transport.open(host)
        return caught.value
    finally:
        await transport.close()


async def test_lines_arrive_unchanged_without_blocking_the_loop(secret: str) -> None:
    fake = FakeAgent(hello_line(), frame_line(0), frame_line(1)[:20], frame_line(1)[20:])
    async with served(fake) as port:
        transport = HttpTransport(ProbeSettings())
        guard = BlockBuster()
        guard.activate()
        try:
            session = await transport.open(agent_at(port, secret))
            messages = [decode(await session.readline()) for _ in range(3)]
            await session.close()
        finally:
            guard.deactivate()
        await transport.close()
    assert [type(message) for message in messages] == [Hello, Frame, Frame]
    (request,) = fake.requests
    assert request.headers["Authorization"] == "Bearer s3cret"
    assert request.query.getall("encoding") == ["delta-deflate"]


async def test_the_end_of_a_stream_is_reported(secret: str) -> None:
    fake = FakeAgent(hello_line())
    fake.ends.set()
    async with served(fake) as port:
        transport = HttpTransport(ProbeSettings())
        session = await transport.open(agent_at(port, secret))
        await session.readline()
        with pytest.raises(Ended, match=f"127.0.0.1:{port} ended the stream"):
            await session.readline()
        await session.close()
        await transport.close()


async def test_the_last_notice_of_an_agent_is_the_reason(secret: str) -> None:
    last = wire.notice("lost", "agent", "dropped for reading too slowly; ask again", reason="late")
    async with served(FakeAgent(hello_line(), last)) as port:
        transport = HttpTransport(ProbeSettings())
        session = await transport.open(agent_at(port, secret))
        await session.readline()
        with pytest.raises(Ended, match="the agent ended the stream: dropped for reading too"):
            await session.readline()
        await session.close()
        await transport.close()


async def test_a_long_line_is_not_decoded_before_its_cost_is_counted(
    secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = hello_line().replace(b'"netdev", "every"', b'"netdev", "source":"agent", "every"')
    large = large.replace(b'"boot-1"', b'"' + b"b" * 100_000 + b'"')
    assert b'"source":"agent"' in large
    async with served(FakeAgent(large)) as port:
        transport = HttpTransport(ProbeSettings())
        session = await transport.open(agent_at(port, secret))
        monkeypatch.setattr("fabmon.feeds.transports.http.decode", None)
        assert await session.readline() == large
        await session.close()
        await transport.close()


async def test_an_agent_that_disappears_is_tried_again(secret: str) -> None:
    fake = FakeAgent(hello_line(), frame_line(0))
    async with served(fake) as port:
        feed = LiveFeed([agent_at(port, secret)], interval_s=0.2)
        await watch(feed, are(NodeState.UP, "gpu1"))
        fake.ends.set()
        latest, _ = await watch(feed, are(NodeState.LOST, "gpu1"))
        assert "ended the stream" in latest["gpu1"].reason
        fake.ends.clear()
        fake.lines = (hello_line(), frame_line(7))
        _, ticks = await watch(feed, are(NodeState.UP, "gpu1"))
        assert frames_of(ticks, "gpu1") == [7]
        await feed.aclose()


async def test_a_rejected_token_is_a_refused_login(secret: str) -> None:
    async with served(FakeAgent(status=401)) as port:
        error = await failure(agent_at(port, secret))
    assert isinstance(error, LoginRefused)
    assert str(error) == f"127.0.0.1:{port} rejected the token: is {secret} its token?"


async def test_the_reason_of_a_busy_agent_is_shown(secret: str) -> None:
    async with served(FakeAgent(b"64 read already\n", status=503)) as port:
        error = await failure(agent_at(port, secret))
    assert isinstance(error, Unreachable)
    assert str(error) == f"the agent at 127.0.0.1:{port} is busy: 64 read already"


@pytest.mark.parametrize(
    ("status", "kind", "what"),
    [
        (404, "text/plain", "404 Not Found"),
        (200, "text/html", "text/html for /stream"),
        (302, "text/plain", "302 Found"),
    ],
)
async def test_another_server_is_not_an_agent(
    secret: str, status: int, kind: str, what: str
) -> None:
    fake = FakeAgent(status=status, kind=kind)
    fake.headers["Location"] = "/elsewhere"
    async with served(fake) as port:
        error = await failure(agent_at(port, secret))
        assert isinstance(error, Misbehaved)
        assert str(error) == f"no fabmon agent at 127.0.0.1:{port}: the reply is {what}"
        assert len(fake.requests) == 1, "the token goes nowhere else"


async def test_a_server_that_speaks_no_http_is_reported(secret: str) -> None:
    async with raw(b"SSH-2.0-OpenSSH_9.2\r\n") as port:
        error = await failure(agent_at(port, secret))
        assert isinstance(error, Misbehaved)
        assert f"127.0.0.1:{port} does not speak HTTP" in str(error)
    async with raw(b"") as port:
        assert "closed the connection without an answer" in str(
            await failure(agent_at(port, secret))
        )


async def test_a_refused_connection(secret: str) -> None:
    async with raw(b"") as port:
        pass
    error = await failure(agent_at(port, secret))
    assert str(error) == (
        f"connection refused by 127.0.0.1:{port}: is the server running, is the port right?"
    )
    assert error.cause == "refused"
    nowhere = Host(name="gpu1", address="gpu1.invalid", via="http", secret=secret)
    error = await failure(nowhere)
    assert "no address for gpu1.invalid" in str(error)
    assert error.cause == "unknown name"


async def test_no_answer_in_time(secret: str) -> None:
    never = asyncio.Event()

    async def wait(request: web.Request) -> web.StreamResponse:
        await never.wait()
        return web.Response()

    fake = FakeAgent()
    fake.answer = wait  # type: ignore[method-assign]
    async with served(fake) as port:
        error = await failure(agent_at(port, secret), timeout_s=0.2)
    assert str(error) == (
        f"no answer from 127.0.0.1:{port} in 0.2 s: is it up, does a firewall drop packets?"
    )
    assert error.cause == "timeout"


async def test_certificates_are_checked_unless_insecure_is_set(secret: str, tmp_path: Path) -> None:
    ours, other = pair(tmp_path), pair(tmp_path, "other")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ours.certificate, ours.key)
    async with served(FakeAgent(hello_line()), context) as port:
        for tls in (str(ours.certificate), "insecure"):
            transport = HttpTransport(ProbeSettings())
            session = await transport.open(agent_at(port, secret, tls))
            assert isinstance(decode(await session.readline()), Hello)
            await session.close()
            await transport.close()
        for tls in ("yes", str(other.certificate)):
            error = await failure(agent_at(port, secret, tls))
            assert error.cause == "tls"
            assert f"the certificate of 127.0.0.1:{port} is not trusted" in str(error)
            assert "tls=FILE names the certificates to trust" in str(error)
        assert "closed the connection" in str(await failure(agent_at(port, secret, "no")))
    async with served(FakeAgent(hello_line())) as port:
        assert str(await failure(agent_at(port, secret, "yes"))) == (
            f"no TLS at 127.0.0.1:{port}; tls=no uses plain HTTP"
        )


async def test_unusable_files_are_named(secret: str, tmp_path: Path) -> None:
    error = await failure(agent_at(1, secret, "/nowhere.pem"))
    assert isinstance(error, BadTrust)
    assert str(error).startswith("/nowhere.pem: No such file or directory; tls= is yes, no,")
    error = await failure(agent_at(1, secret, secret))
    assert "the file has no PEM certificate" in str(error)
    error = await failure(agent_at(1, str(tmp_path / "nowhere")))
    assert isinstance(error, BadSecret)
    assert "secret= is the file with the agent's token" in str(error)
    beyond = Host(name="gpu1", address="192.0.2.1", via="http", tls="no")
    assert str(await failure(beyond)) == (
        "via=http needs secret=FILE, the file with the agent's token"
    )
