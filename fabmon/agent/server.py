"""What the agent answers: GET only, to who knows the token."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
import time
from weakref import WeakSet

from aiohttp import web
from aiohttp.typedefs import Handler

from collectors import wire
from fabmon import __version__
from fabmon.agent import exposition
from fabmon.agent.exposition import Exposition
from fabmon.agent.streams import ProbeState, Streams, TooManyReaders
from fabmon.fabric.wire.messages import Hello
from fabmon.feeds.access import AGENT_STREAM_TYPE

_FRESH_INTERVALS = 3
_LAST_WORDS_S = 5.0
_SEND_BUFFER = 256 * 1024
_OPEN = "/healthz"


class Server:
    """Answers from `latest`; `token` is asked for everywhere but on /healthz.

    `asked` are the connections that have sent a request. Strangers keep none: those that do not
    know the token, and those that ask for /healthz, are closed after their answer.
    `last_words_s` is how long a reader that is dropped may take to read why.
    """

    def __init__(
        self,
        latest: ProbeState,
        streams: Streams,
        token: str,
        interval_s: float,
        last_words_s: float = _LAST_WORDS_S,
    ) -> None:
        self._latest = latest
        self._streams = streams
        self._token = token.encode()
        self._fresh_ns = int(_FRESH_INTERVALS * interval_s * 1e9)
        self._interval_s = interval_s
        self._last_words_s = last_words_s
        self._exposition: tuple[Hello, Exposition] | None = None
        self.asked: WeakSet[asyncio.BaseTransport] = WeakSet()

    def app(self) -> web.Application:
        """The application, to be run."""
        app = web.Application(middlewares=[self._admit])
        app.router.add_get("/stream", self._stream, allow_head=False)
        app.router.add_get("/metrics", self._metrics, allow_head=False)
        app.router.add_get(_OPEN, self._healthz, allow_head=False)
        app.on_response_prepare.append(_sign)
        app.on_shutdown.append(self._say_goodbye)
        return app

    @web.middleware
    async def _admit(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.transport is not None:
            self.asked.add(request.transport)
        if request.path != _OPEN and not self._knows_the_token(request):
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

    def _knows_the_token(self, request: web.Request) -> bool:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        said = given.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(said, self._token)

    async def _metrics(self, request: web.Request) -> web.Response:
        hello = self._latest.hello
        if hello is None:
            return web.Response(status=503, text="the first frame has not come yet\n")
        if self._exposition is None or self._exposition[0] is not hello:
            self._exposition = (hello, Exposition(hello))
        content_type = exposition.choose_content_type(request.headers.get("Accept", ""))
        text = self._exposition[1].text(
            self._latest, content_type, time.monotonic_ns(), is_fresh=self._is_fresh()
        )
        return web.Response(body=text.encode(), headers={"Content-Type": content_type})

    async def _healthz(self, request: web.Request) -> web.Response:
        at = self._latest.frame_at_ns
        age_s = None if at is None else round((time.monotonic_ns() - at) / 1e9, 3)
        is_fresh = self._is_fresh()
        said = {
            "status": "ok" if is_fresh else "no frames",
            "frame_age_s": age_s,
            "interval_s": self._interval_s,
        }
        return web.Response(
            status=200 if is_fresh else 503,
            text=json.dumps(said) + "\n",
            content_type="application/json",
        )

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        asked = [name for text in request.query.getall("encoding", []) for name in text.split(",")]
        response = web.StreamResponse(headers={"Content-Type": AGENT_STREAM_TYPE})
        try:
            with self._streams.reader(
                self._latest.greeting(), wire.choose_encoding(asked)
            ) as stream:
                transport = request.transport
                if transport is not None:
                    _bound_buffer(transport)
                    loop = asyncio.get_running_loop()
                    stream.ended = lambda: loop.call_later(self._last_words_s, transport.abort)
                await response.prepare(request)
                async for line in stream.lines():
                    await response.write(line)
        except TooManyReaders as error:
            return web.Response(status=503, text=f"{error}: no place for another reader\n")
        return response

    def _is_fresh(self) -> bool:
        at = self._latest.frame_at_ns
        return at is not None and time.monotonic_ns() - at <= self._fresh_ns

    async def _say_goodbye(self, app: web.Application) -> None:
        self._streams.end("the agent is stopping")


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = f"fabmon/{__version__}"
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"


def _bound_buffer(transport: asyncio.Transport) -> None:
    """What waits for a reader waits in its queue, where it is bounded, not with the kernel."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
