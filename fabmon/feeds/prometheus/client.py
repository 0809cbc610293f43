"""Where an engine is and how it is asked: its URL, who we are, whom we trust.

Passwords and tokens are in files that nobody else can read: a command line is seen by everybody.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import ssl
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from fabmon.fabric.wire.messages import clean
from fabmon.feeds.access import read_secret
from fabmon.feeds.errors import NodeError
from fabmon.feeds.http_client import http_error
from fabmon.feeds.prometheus import responses
from fabmon.feeds.prometheus.responses import (
    AccessDenied,
    MatrixResult,
    NoResponse,
    NotPrometheus,
    PrometheusError,
    QueryRefused,
    StoredSamples,
    VectorResult,
)

_API = "/api/v1"
_TOKEN = "--prometheus-token-file (token_file) is a file with the bearer token"
_PASSWORD = "password_file is a file with user:password"


class BadAccess(PrometheusError):
    """A URL, a file or an option cannot be used; the message says which, and what to do."""


class PrometheusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach an engine.

    `url` is what comes before `/api/v1`, a path prefix included. `token_file` holds a bearer token,
    `password_file` a line `user:password`; at most one of them. `ca_file` are certificates to
    trust instead of the system's; `insecure` trusts any. `tenant` is sent as `X-Scope-OrgID`.
    """

    url: str
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None


def base_url(text: str) -> str:
    """The URL before `/api/v1`, without a slash at its end. Raises BadAccess."""
    parts = urlsplit(text)
    try:
        port = parts.port
    except ValueError:
        raise BadAccess(f"{text}: the port of a URL is 1 to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadAccess(f"{text}: write the engine's URL, as in http://prometheus:9090")
    if parts.username is not None or parts.password is not None:
        raise BadAccess(
            f"{parts.hostname}: a password in a URL is seen by everybody on this machine: write "
            "user:password into a file of yours, and name it as password_file under [prometheus]"
        )
    if parts.query or parts.fragment:
        raise BadAccess(f"{text}: write the URL without what follows its path")
    path = parts.path.partition(_API)[0].rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def headers(access: PrometheusAccess) -> dict[str, str]:
    """Who we are. Blocks: it reads files. Raises BadAccess."""
    if access.token_file and access.password_file:
        raise BadAccess("a token or a password, not both: leave token_file or password_file out")
    said = {}
    try:
        if access.token_file:
            said["Authorization"] = f"Bearer {read_secret(access.token_file, _TOKEN)}"
        if access.password_file:
            pair = read_secret(access.password_file, _PASSWORD)
            if ":" not in pair:
                raise BadAccess(f"{access.password_file}: write user:password into it")
            said["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    except NodeError as error:
        raise BadAccess(str(error)) from None
    if access.tenant:
        if not (access.tenant.isascii() and access.tenant.isprintable()):
            raise BadAccess(f"tenant {clean(access.tenant)!r}: printable ASCII only")
        said["X-Scope-OrgID"] = access.tenant
    return said


def trust(access: PrometheusAccess) -> ssl.SSLContext | bool:
    """Whose certificates are taken: an aiohttp `ssl` argument. Blocks. Raises BadAccess."""
    if access.insecure:
        return False
    if access.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=access.ca_file)
    except (OSError, ssl.SSLError) as error:
        why = getattr(error, "strerror", None) or "no certificates in it"
        raise BadAccess(
            f"{access.ca_file}: {why}; ca_file is a file with certificates to trust, PEM"
        ) from None


# The query API of a Prometheus-compatible engine: Prometheus, Thanos, Mimir, VictoriaMetrics.
#
# All questions of a tick name the same time, so that they see the same samples.


_LOG = logging.getLogger("fabmon.feeds")

_MOST_BYTES = 512 * 1024 * 1024
_SKEW_S = 2.0
"""A clock that differs by less is taken for right: VictoriaMetrics tells whole seconds only."""

_FRESH = {"nocache": "1", "latency_offset": "1ms"}
"""VictoriaMetrics hides its last 30 s otherwise. The first is enough for what is asked of now; the
second, which it knows since 1.85.2, is for ranges. Other engines mind neither."""

_REFUSED = (400, 422)
_OF_THE_MOMENT = ("timeout", "execution", "canceled")
"""`errorType`s of a 422 that the same question may not meet the next time."""
_BUSY = (429, 499, 500, 502, 503, 504)


class PrometheusClient:
    """Asks one engine. At most `at_once` questions are open, each for at most `timeout_s`.

    `warnings` are what it warned of, of parts that did not answer above all; whoever reads them
    clears them.
    """

    def __init__(
        self, access: PrometheusAccess, *, timeout_s: float = 30.0, at_once: int = 16
    ) -> None:
        """Blocks for a moment: it reads the secrets' files. Raises BadAccess."""
        self.url = base_url(access.url)
        self._headers = headers(access)
        self._trust = trust(access)
        self._timeout_s = timeout_s
        self._places = asyncio.Semaphore(at_once)
        self._session: aiohttp.ClientSession | None = None
        self._skew_s = 0.0
        self._warned: set[str] = set()
        self.warnings: dict[str, None] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def now_s(self) -> float:
        """The engine's clock, in seconds since 1970; ours until `meet`."""
        return time.time() + self._skew_s

    async def meet(self) -> None:
        """See that it is there and answers, and how its clock differs. Raises EngineError."""
        before = time.time()
        vector = await self._instant({"query": "vector(time())"})
        after = time.time()
        if not vector.values.size or not math.isfinite(float(vector.values[0])):
            raise NotPrometheus(f"{self.url}: it does not know what time it is")
        said = float(vector.values[0])
        # What it says may be cut to whole seconds.
        behind, ahead = before - (said + 1.0), said - after
        if max(behind, ahead) > _SKEW_S:
            self._skew_s = said - (before + after) / 2
        else:
            self._skew_s = 0.0

    async def instant(self, query: str, at_s: float) -> VectorResult:
        """The answer to an instant query as of `at_s`, seconds since 1970. Raises EngineError."""
        return await self._instant({"query": query, "time": f"{at_s:.3f}"})

    async def samples(self, query: str, at_s: float) -> list[StoredSamples]:
        """The stored samples that a range selector (`up[5m]`) picks. Raises EngineError."""
        fields = {"query": query, "time": f"{at_s:.3f}", **_FRESH}
        found, warnings = responses.samples(await self._ask("query", fields))
        self._warn(warnings)
        return found

    async def range(self, query: str, start_s: float, step_s: float, steps: int) -> MatrixResult:
        """The answer at `steps` times from `start_s` on. Raises EngineError."""
        fields = {
            "query": query,
            "start": f"{start_s:.3f}",
            "end": f"{start_s + (steps - 1) * step_s:.3f}",
            "step": f"{step_s:.3f}",
            **_FRESH,
        }
        body = await self._ask("query_range", fields)
        matrix, warnings = responses.matrix(body, start_s, step_s, steps)
        self._warn(warnings)
        return matrix

    async def names(self, since_s: float) -> list[str]:
        """The names of all metrics that there were lately. Raises EngineError.

        Of all, since names by selector are dear: VictoriaMetrics refuses to look for them among
        more than 300,000 series.
        """
        pairs = {"start": f"{since_s:.3f}"}
        body = await self._ask("label/__name__/values", pairs, method="GET")
        found, warnings = responses.names(body)
        self._warn(warnings)
        return found

    async def _instant(self, fields: dict[str, str]) -> VectorResult:
        body = await self._ask("query", {**fields, **_FRESH})
        vector, warnings = responses.vector(body)
        self._warn(warnings)
        return vector

    async def _ask(
        self,
        path: str,
        fields: dict[str, str],
        method: str = "POST",
    ) -> bytes:
        """The body of a successful answer. Raises EngineError."""
        url = f"{self.url}/api/v1/{path}"
        posted, queried = (fields, None) if method == "POST" else (None, fields)
        async with self._places:
            try:
                async with (
                    asyncio.timeout(self._timeout_s),
                    self._connection().request(
                        method,
                        url,
                        data=posted,
                        params=queried,
                        ssl=self._trust,
                        allow_redirects=False,
                    ) as response,
                ):
                    body = await self._body(response)
            except aiohttp.ClientConnectorCertificateError as error:
                why = getattr(error.certificate_error, "verify_message", "")
                raise NoResponse(
                    f"{self.url}: its certificate is not trusted ({why}): name the CA's file as "
                    "ca_file under [prometheus]"
                ) from None
            except aiohttp.ClientSSLError:
                raise NoResponse(f"{self.url}: it speaks no TLS: write http://") from None
            except (TimeoutError, aiohttp.ClientError) as error:
                raise NoResponse(str(http_error(error, self.url, self._timeout_s))) from None
        if response.status != 200:
            self._fail(response, body)
        return body

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise NotPrometheus(f"{self.url}: an answer of more than {_MOST_BYTES >> 20} MiB")
        return bytes(body)

    def _fail(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        """Raise what a failed answer means."""
        status = response.status
        kind, said = responses.complaint(body)
        if status in (401, 403):
            how = f": {said}" if said else ""
            raise AccessDenied(
                f"{self.url}: it does not let us in ({status}{how}): give --prometheus-token-file, "
                "or password_file or tenant under [prometheus]"
            )
        if said and status in _REFUSED:
            refused = status != 422 or kind not in _OF_THE_MOMENT
            raise (QueryRefused if refused else NoResponse)(f"{self.url}: {said}")
        if status in _BUSY:
            how = f": {said}" if said else ""
            raise NoResponse(f"{self.url}: it answers {status} {response.reason}{how}")
        if 300 <= status < 400:
            to = response.headers.get("Location", "elsewhere")
            raise NotPrometheus(f"{self.url}: it sends us to {to}: give the URL that it means")
        raise NotPrometheus(
            f"{self.url}: no query API there ({status}): is a path missing, as in "
            "/select/0/prometheus (VictoriaMetrics cluster) or /prometheus (Mimir)?"
        )

    def _connection(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers=self._headers, connector=aiohttp.TCPConnector(limit=0)
            )
        return self._session

    def _warn(self, warnings: Iterable[str]) -> None:
        """Keep what the engine warns of, and log each once."""
        for text in map(clean, warnings):
            self.warnings[text] = None
            if text not in self._warned and len(self._warned) < 100:
                self._warned.add(text)
                _LOG.warning("%s: %s", self.url, text)
