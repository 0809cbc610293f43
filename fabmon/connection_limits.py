"""A listener with limits: how many connections are open at once, and how long one may stay without
a request.

The number is limited at `accept`, so that it includes connections that are still in TLS handshake.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    # `fabmon query` uses this module, and starts without HTTP.
    from aiohttp import web

MAX_CONNECTIONS = 256
"""Open at once. One more takes the place of one without the token, or is closed when it arrives."""
FIRST_REQUEST_S = 10.0

_LOG = logging.getLogger("fabmon.connections")
_FAMILIES = (socket.AF_INET, socket.AF_INET6)
_BACKLOG = 128
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class LimitedListener:
    """The sockets of an HTTP server; `server` makes the handler of each connection.

    `asked` are the connections that have sent a request, `holders` those that have sent one with
    the token: these are never closed for others. `max_connections` defaults to half of the
    files that the process may open, and to 256 at most.
    """

    def __init__(
        self,
        server: Callable[[], web.RequestHandler],
        asked: WeakSet[asyncio.BaseTransport],
        holders: WeakSet[asyncio.BaseTransport],
        max_connections: int | None = None,
        first_request_s: float = FIRST_REQUEST_S,
    ) -> None:
        self._server = server
        self._asked = asked
        self._first_request_s = first_request_s
        self._connections = Connections(
            max_connections or min(MAX_CONNECTIONS, _max_files() // 2), holders
        )
        self._servers: list[asyncio.Server] = []

    async def open(self, address: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen; the port of the first address, where a name has several. Raises OSError."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = []
        for family, *_, where in dict.fromkeys(found):
            if family in _FAMILIES:
                listening.append(self._listen(family, where))
        for each in listening:
            self._servers.append(
                await loop.create_server(
                    self._admit,
                    sock=each,
                    ssl=tls,
                    backlog=_BACKLOG,
                    ssl_handshake_timeout=None if tls is None else self._first_request_s,
                )
            )
        bound: int = listening[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Accept no further connections."""
        for server in self._servers:
            server.close()

    def _listen(self, family: int, where: Any) -> LimitedSocket:
        listening = LimitedSocket(family, self._connections)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind(where)
            listening.listen(_BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening

    def _admit(self) -> web.RequestHandler:
        handler = self._server()
        loop = asyncio.get_running_loop()
        loop.call_later(self._first_request_s, self._abort_unless_asked, handler)
        return handler

    def _abort_unless_asked(self, handler: web.RequestHandler) -> None:
        transport = handler.transport
        if transport is not None and transport not in self._asked:
            transport.abort()


class Connections:
    """The open connections, `most` of them at most. `holders` are never closed for others."""

    def __init__(self, most: int, holders: WeakSet[asyncio.BaseTransport] | None = None) -> None:
        self._holders = WeakSet() if holders is None else holders
        self._most = most
        self._open: dict[socket.socket, str] = {}

    def add(self, connection: socket.socket, address: str) -> bool:
        """Count a connection from an address; False if there is no place for it."""
        self._open = {each: at for each, at in self._open.items() if each.fileno() != -1}
        if len(self._open) >= self._most and not self._make_place():
            return False
        self._open[connection] = address
        return True

    def _make_place(self) -> bool:
        """Close a connection that has not presented the token: the oldest of the address that has
        most of them, so that whoever opens many closes their own."""
        sockets = (each.get_extra_info("socket") for each in self._holders)
        holding = {each.fileno() for each in sockets if each is not None}
        strangers = [each for each in self._open if each.fileno() not in holding]
        if not strangers:
            return False
        by_address = Counter(self._open[each] for each in strangers)
        most = by_address.most_common(1)[0][0]
        oldest = next(each for each in strangers if self._open[each] == most)
        del self._open[oldest]
        # The event loop closes it when it reads this end.
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)
        return True


class LimitedSocket(socket.socket):
    """Listens, and closes a new connection for which there is no place."""

    def __init__(self, family: int, connections: Connections) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection. Raises ConnectionAbortedError for one that was closed."""
        connection, where = super().accept()
        # The address of a Unix socket's client is empty.
        if not self._connections.add(connection, where[0] if where else ""):
            connection.close()
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        return connection, where


def log_file_exhaustion_once(loop: asyncio.AbstractEventLoop) -> None:
    """Log once, not at every attempt, that there are no files left for connections."""
    logged: set[int] = set()

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in _OUT_OF_FILES:
            loop.default_exception_handler(context)
        elif error.errno not in logged:
            logged.add(error.errno)
            _LOG.warning("no further connections for now: %s", error.strerror)

    loop.set_exception_handler(handle)


def _max_files() -> int:
    """How many files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 2 * MAX_CONNECTIONS
