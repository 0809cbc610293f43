"""HTTP to nodes that are asked: one client, bounded answers, true reasons."""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import Any, NamedTuple

import aiohttp
import msgspec

from fabmon.fabric.model import Host
from fabmon.feeds import web
from fabmon.feeds.errors import LoginRefused, Misbehaved, NodeError

_MAX_BODY = 64 * 1024 * 1024


class Site(NamedTuple):
    """Where a node's API is: `base` without a slash at its end, what TLS trusts, and who we are.

    `authorization` is the value of that header; empty to send none.
    """

    base: str
    tls: ssl.SSLContext | bool
    authorization: str = ""


class Refused(NodeError):
    """The node answered with an HTTP status that is not success. `status` is the number."""

    cause = "http status"

    def __init__(self, url: str, status: int) -> None:
        super().__init__(f"{url} answered HTTP {status}")
        self.status = status


async def site_of(host: Host, port: int, authorization: str = "", tls: str = "yes") -> Site:
    """The site of a host; `port` and `tls` where it says nothing. Raises BadTrust."""
    name = host.address or host.name
    place = f"[{name}]" if ":" in name else name
    trust = await asyncio.to_thread(web.trust, host.tls or tls, name)
    scheme = "http" if trust is None else "https"
    return Site(f"{scheme}://{place}:{host.port or port}", trust or True, authorization)


def basic(user_and_password: str) -> str:
    """The header for `user:password`."""
    return "Basic " + base64.b64encode(user_and_password.encode()).decode()


class Sites:
    """The client of one transport. All its methods belong to one event loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def get(self, site: Site, path: str, deadline_s: float) -> bytes:
        """The body at a path. Raises Refused for a status, else NodeError."""
        return await self._fetch("GET", site, path, None, deadline_s)

    async def post(self, site: Site, path: str, body: Any, deadline_s: float) -> bytes:
        """The body that answers `body`, which is sent as JSON. Raises as `get` does."""
        return await self._fetch("POST", site, path, msgspec.json.encode(body), deadline_s)

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _fetch(
        self, method: str, site: Site, path: str, body: bytes | None, deadline_s: float
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
                    raise Refused(url, reply.status)
                return await _bounded(url, reply.content)
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError) as error:
            raise web.explain(error, site.base.partition("//")[2], deadline_s) from None


async def _bounded(url: str, content: aiohttp.StreamReader) -> bytes:
    data = bytearray()
    async for piece in content.iter_chunked(1 << 16):
        data += piece
        if len(data) > _MAX_BODY:
            raise Misbehaved(f"{url} answered with more than {_MAX_BODY >> 20} MiB")
    return bytes(data)


def _not_let_in(url: str, status: int, site: Site) -> str:
    hint = "check the file of secret=" if site.authorization else "set secret= to a file"
    return f"{url} does not let us in (HTTP {status}): {hint}"
