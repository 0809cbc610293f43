"""The HTTP client of all feeds: TLS as the hosts file asks for it, size limits, errors with causes.

Redirects are never followed: they would send the token or password to another address.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from functools import partial
from typing import Any, NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler

from fabmon.fabric.model import Host
from fabmon.fabric.names import is_loopback
from fabmon.fabric.time_wording import interval
from fabmon.feeds.errors import (
    BadTrust,
    LoginRefused,
    Misbehaved,
    NodeError,
    Unreachable,
    connect_error,
    with_check,
)
from fabmon.secret_files import secrets_in, without_secrets
from fabmon.trusted_certificates import context_trusting

MAX_BODY_BYTES = 64 * 1024 * 1024
"""The largest body accepted where the caller sets no limit."""


_MOST_QUEUED = 100
"""Replies of a server that wait to be read."""
_MOST_AROUND_BYTES = 1 << 20
_MOST_AROUND_SHARE = 2
"""What a server sends for a reply, at most so many times its content, and 1 MiB: chunks of a byte
have six times as much, extensions of a chunk and empty lines have no content and no end."""


class ApiServer(NamedTuple):
    """An HTTP server: `base` URL without a final slash, aiohttp's `ssl` argument, credentials.

    `authorization` is the value of that header; empty to send none.
    """

    base: str
    tls: ssl.SSLContext | bool
    authorization: str = ""

    @property
    def where(self) -> str:
        """`address:port`, for messages."""
        return self.base.partition("//")[2].partition("/")[0]


class HttpReply(NamedTuple):
    """A successful reply."""

    body: bytes
    content_type: str


class HttpStatusError(Misbehaved):
    """The server replied with an HTTP status other than 200; `status` is the number."""

    cause = "http status"

    def __init__(self, url: str, status: int, reason: str | None = None) -> None:
        super().__init__(f"{url} replied with HTTP {status} {reason or ''}".rstrip())
        self.status = status


class _OneReply(ResponseHandler):
    """A connection. aiohttp keeps all that a server sends on one that is idle: it is closed where
    these are more than the few replies 1xx that may precede the one that was asked for, and where
    far more is received for a reply than its content."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._received = 0

    def set_response_params(self, **options: Any) -> None:
        """Begin a reply."""
        self._received = 0
        super().set_response_params(**options)

    def data_received(self, data: bytes) -> None:
        """Take a part of a reply."""
        super().data_received(data)
        self._received += len(data)
        content = self._payload.total_bytes if self._payload is not None else 0
        is_too_much = self._received > _MOST_AROUND_SHARE * content + _MOST_AROUND_BYTES
        if is_too_much and self.transport is not None:
            # Not abort() of this class, which would leave the reader waiting.
            self.transport.abort()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take the head of a reply."""
        super().feed_data(data, size)
        if len(self) > _MOST_QUEUED:
            self.close()


class Connector(aiohttp.TCPConnector):
    """Connections on which a server sends what it was asked for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        protocol: type[ResponseHandler] = _OneReply
        self._factory = partial(protocol, loop=self._loop)


class HttpClient:
    """The connections of one transport. All methods belong to one event loop.

    `keep_alive_s` is how long an idle connection is kept. `per_server` limits the connections to
    one server, 0 for no limit.
    """

    def __init__(self, keep_alive_s: float = 15.0, per_server: int = 0) -> None:
        self._keep_alive_s = keep_alive_s
        self._per_server = per_server
        self._session: aiohttp.ClientSession | None = None
        self._tls: dict[tuple[str | None, bool], ssl.SSLContext | None] = {}

    async def server(
        self, host: Host, port: int, tls: str | None, authorization: str = ""
    ) -> ApiServer:
        """The server at a port of a host. `tls` is as in `tls_context`. Raises BadTrust."""
        address = host.address or host.name
        key = (tls, is_loopback(address))
        if key not in self._tls:
            # Reading certificates takes a while: once for all hosts.
            self._tls[key] = await asyncio.to_thread(client_tls_context, tls, address)
        context = self._tls[key]
        shown = f"[{address}]" if ":" in address else address
        scheme = "http" if context is None else "https"
        return ApiServer(f"{scheme}://{shown}:{port}", context or True, authorization)

    async def fetch(
        self,
        server: ApiServer,
        path: str,
        timeout_s: float,
        *,
        json: Any = None,
        accept: str = "*/*",
        max_bytes: int | None = None,
    ) -> HttpReply:
        """The reply to a GET, or to a POST of `json`. Raises HttpStatusError, else NodeError."""
        url = server.base + path
        try:
            async with (
                asyncio.timeout(timeout_s),
                await self._request(server, path, accept, json) as response,
            ):
                if response.status in (401, 403):
                    why = "check the file of secret=" if server.authorization else "set secret=FILE"
                    raise LoginRefused(f"{url} rejected the login (HTTP {response.status}): {why}")
                if response.status != 200:
                    secrets = secrets_in(server.authorization)
                    reason = without_secrets(response.reason or "", secrets)
                    raise HttpStatusError(url, response.status, reason)
                body = await bounded_body(response, max_bytes or MAX_BODY_BYTES, url)
                return HttpReply(body, response.content_type)
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise http_error(error, server.where, timeout_s) from None

    async def stream(self, server: ApiServer, path: str) -> aiohttp.ClientResponse:
        """An open response of any status, not unpacked, which the caller reads and closes.

        Raises aiohttp's errors, see `http_error`.
        """
        return await self._request(server, path, "*/*", unpack=False)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _request(
        self, server: ApiServer, path: str, accept: str, json: Any = None, unpack: bool = True
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=Connector(
                    limit=0, limit_per_host=self._per_server, keepalive_timeout=self._keep_alive_s
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        headers = {"Accept": accept}
        if server.authorization:
            headers["Authorization"] = server.authorization
        return await self._session.request(
            "GET" if json is None else "POST",
            server.base + path,
            json=json,
            headers=headers,
            ssl=server.tls,
            allow_redirects=False,
            auto_decompress=unpack,
        )


def basic_authorization(user_and_password: str) -> str:
    """The `Authorization` header for `user:password`."""
    return "Basic " + base64.b64encode(user_and_password.encode()).decode()


async def bounded_body(response: aiohttp.ClientResponse, max_bytes: int, url: str) -> bytes:
    """The unpacked body of a response. Raises Misbehaved when it is larger than `max_bytes`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            raise Misbehaved(f"{url} replied with more than {max_bytes >> 20} MiB")
    return bytes(body)


def client_tls_context(tls: str | None, address: str) -> ssl.SSLContext | None:
    """The TLS context for the value of `tls=`; None to use plain HTTP. Blocks: it reads files.

    `no`: plain HTTP. `yes`: the certificates that this machine trusts. `insecure`: any certificate.
    Another value is a file of certificates to trust. None means `no` for a loopback address and
    `yes` for any other. Raises BadTrust.
    """
    if tls == "no" or (tls is None and is_loopback(address)):
        return None
    if tls in (None, "yes"):
        return ssl.create_default_context()
    if tls == "insecure":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        return context_trusting(tls)
    except OSError as error:
        hint = "tls= is yes, no, insecure or a file with certificates"
        raise BadTrust(f"{tls}: {error.strerror or error}; {hint}") from None


def http_error(error: Exception, where: str, timeout_s: float) -> NodeError:
    """The NodeError for an error of aiohttp's client. Any other exception is raised as it is.

    `where` is the server, `address:port`; `timeout_s` is the time that the request had.
    """
    if isinstance(error, TimeoutError):
        text = f"no answer from {where} in {interval(timeout_s)}"
        return Unreachable(with_check(text, "timeout"), "timeout")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        fix = "tls=FILE names the certificates to trust"
        return Unreachable(f"the certificate of {where} is not trusted: {why}; {fix}", "tls")
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Unreachable(f"no TLS at {where}; tls=no uses plain HTTP", "tls")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        text = f"no address for {error.host}: {error.strerror}"
        return Unreachable(with_check(text, "unknown name"), "unknown name")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        why = "closed the connection without an answer; does it need tls=yes?"
        return Unreachable(f"{where} {why}", "closed")
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.InvalidURL)):
        return Misbehaved(f"{where} does not speak HTTP; does it need tls=yes?", "not http")
    if isinstance(error, aiohttp.ClientOSError):
        return connect_error(error, where)
    if isinstance(error, aiohttp.ClientPayloadError):
        return Misbehaved(f"a reply of {where} has no end, or far more around its content", "reply")
    if isinstance(error, aiohttp.ClientError):
        return Unreachable(f"{where}: {error}")
    raise error
