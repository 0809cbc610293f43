"""What all that is read over HTTP has in common: TLS as a hosts file asks for it, and reasons."""

from __future__ import annotations

import asyncio
import base64
import errno
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.names import is_loopback
from fabmon.feeds.errors import BadTrust, LoginRefused, Misbehaved, NodeError, Unreachable

_CAUSES = {
    errno.ECONNREFUSED: ("connection refused by", "refused"),
    errno.ECONNRESET: ("connection reset by", "reset"),
    errno.ENETUNREACH: ("no route to", "no route"),
    errno.EHOSTUNREACH: ("no route to", "no route"),
    errno.ETIMEDOUT: ("no answer to the TCP connection from", "timeout"),
    errno.EMFILE: ("too many open files (raise ulimit -n) to reach", "files"),
}


def trust(tls: str | None, address: str) -> ssl.SSLContext | None:
    """The TLS that a host's `tls` means, None for none. Blocks: it reads certificates.

    `no`: none. `yes`: the certificates that this machine trusts. `insecure`: anybody. Else a file
    of certificates to trust. Without a `tls`: none on this machine, `yes` beyond it. Raises
    BadTrust.
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
    file = Path(tls).expanduser()
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        why = "holds no certificate in PEM"
    except OSError as error:
        why = error.strerror or str(error)
    raise BadTrust(f"{file}: {why}; tls= is yes, no, insecure or a file with certificates")


def explain(error: Exception, where: str, timeout_s: float) -> NodeError:
    """What an error of aiohttp's client means, for the server at `where` (`address:port`).

    `timeout_s` is the time that there was, for its end. Another exception is raised as it is.
    """
    if isinstance(error, TimeoutError):
        return Unreachable(f"no answer from {where} in {timeout_s:g} s", "timeout")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = getattr(error.certificate_error, "verify_message", "") or error.certificate_error
        fix = "tls=FILE names the certificates to trust"
        return Unreachable(f"the certificate of {where} is not trusted: {why}; {fix}", "tls")
    if isinstance(error, (aiohttp.ClientSSLError, ssl.SSLError)):
        return Unreachable(f"no TLS at {where}; tls=no goes without it", "tls")
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return Unreachable(f"no address for {error.host}: {error.strerror}", "unknown name")
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return Unreachable(f"{where} hung up without an answer; does it want tls=yes?", "ended")
    if isinstance(error, (aiohttp.ClientResponseError, aiohttp.InvalidURL)):
        return Misbehaved(f"{where} does not answer in HTTP; does it want tls=yes?", "not http")
    if isinstance(error, aiohttp.ClientOSError):
        words, cause = _CAUSES.get(error.errno or 0, ("", "unreachable"))
        text = f"{words} {where}" if words else f"{where}: {error.strerror or error}"
        return Unreachable(text, cause)
    if isinstance(error, aiohttp.ClientError):
        return Unreachable(f"{where}: {error}", "unreachable")
    raise error


# HTTP to nodes that are asked: one client, bounded answers, true reasons.


_MAX_BODY = 64 * 1024 * 1024


class ApiServer(NamedTuple):
    """Where a node's API is: `base` without a slash at its end, what TLS trusts, and who we are.

    `authorization` is the value of that header; empty to send none.
    """

    base: str
    tls: ssl.SSLContext | bool
    authorization: str = ""


class HttpStatusError(NodeError):
    """The node answered with an HTTP status that is not success. `status` is the number."""

    cause = "http status"

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered HTTP {status}")
        self.status = status


async def api_server_of(
    host: Host, port: int, authorization: str = "", tls: str = "yes"
) -> ApiServer:
    """The site of a host; `port` and `tls` where it says nothing. Raises BadTrust."""
    name = host.address or host.name
    place = f"[{name}]" if ":" in name else name
    certificates = await asyncio.to_thread(trust, host.tls or tls, name)
    scheme = "http" if certificates is None else "https"
    return ApiServer(f"{scheme}://{place}:{host.port or port}", certificates or True, authorization)


def basic(user_and_password: str) -> str:
    """The header for `user:password`."""
    return "Basic " + base64.b64encode(user_and_password.encode()).decode()


class HttpClient:
    """The client of one transport. All its methods belong to one event loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def get(self, site: ApiServer, path: str, deadline_s: float) -> bytes:
        """The body at a path. Raises Refused for a status, else NodeError."""
        return await self._fetch("GET", site, path, None, deadline_s)

    async def post(self, site: ApiServer, path: str, body: Any, deadline_s: float) -> bytes:
        """The body that answers `body`, which is sent as JSON. Raises as `get` does."""
        return await self._fetch("POST", site, path, msgspec.json.encode(body), deadline_s)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _fetch(
        self, method: str, site: ApiServer, path: str, body: bytes | None, deadline_s: float
    ) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, limit_per_host=4),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),
            )
        headers = {"Authorization": site.authorization} if site.authorization else {}
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = site.base + path
        try:
            async with (
                asyncio.timeout(deadline_s),
                # A redirect would take the password to somewhere else.
                self._session.request(
                    method, url, data=body, headers=headers, ssl=site.tls, allow_redirects=False
                ) as reply,
            ):
                if reply.status in (401, 403):
                    raise LoginRefused(_not_let_in(url, reply.status, site), "login refused")
                if reply.status != 200:
                    raise HttpStatusError(url, reply.status)
                return await _bounded(url, reply.content)
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise explain(error, site.base.partition("//")[2], deadline_s) from None


async def _bounded(url: str, content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for piece in content.iter_chunked(1 << 16):
        data += piece
        if len(data) > _MAX_BODY:
            raise Misbehaved(f"{url} answered with more than {_MAX_BODY >> 20} MiB")
    return bytes(data)


def _not_let_in(url: str, status: int, site: ApiServer) -> str:
    hint = "check the file of secret=" if site.authorization else "set secret= to a file"
    return f"{url} does not let us in (HTTP {status}): {hint}"
