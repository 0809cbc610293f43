"""A client of the query API of Prometheus, Thanos, Mimir and VictoriaMetrics.

All queries of a tick name the same time, so that they see the same samples. Passwords and tokens
are in files that only their owner can read, because every user can see a command line. Responses
are parsed in threads: half a million series take a second, in which keys are heard.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Self
from urllib.parse import urlsplit, urlunsplit

import aiohttp
import msgspec

from fabmon.fabric.time_wording import LATEST_NS, SECOND_NS
from fabmon.fabric.wire.messages import clean
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.http_client import Connector, basic_authorization, bounded_body, http_error
from fabmon.feeds.prometheus import responses
from fabmon.feeds.prometheus.responses import (
    AccessDenied,
    BadAccess,
    ExportedSamples,
    MatrixResult,
    NoResponse,
    NotPrometheus,
    PrometheusError,
    QueryRefused,
    StoredSamples,
    VectorResult,
)
from fabmon.secret_files import (
    SecretError,
    check_encrypted,
    read_secret,
    secrets_in,
    without_secrets,
)
from fabmon.trusted_certificates import context_trusting

_LOG = logging.getLogger("fabmon.feeds")

_API = "/api/v1"
_TOKEN_HINT = "--prometheus-token-file (token_file) is a file with the bearer token"
_PASSWORD_HINT = "password_file is a file with user:password"

_MAX_BODY_BYTES = 512 * 1024 * 1024
_MAX_SKEW_S = 2.0
"""A smaller clock difference is ignored: VictoriaMetrics reports whole seconds only."""

_MAX_LOGGED_WARNINGS = 100
_TRIED_S = 60.0
"""Length of the export by which it is known whether a server exports."""

_FRESH = {"nocache": "1", "latency_offset": "1ms"}
"""Without these VictoriaMetrics hides its last 30 s. The first suffices for instant queries; the
second, known since 1.85.2, is for range queries. Other servers ignore both."""

_REJECTED = (400, 422)
_TEMPORARY = ("timeout", "execution", "canceled")
"""`errorType`s of a 422 that the same query may not meet the next time."""

_BUSY = (429, 499, 500, 502, 503, 504)


class PrometheusAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a server.

    `url` is the part before `/api/v1`, a path prefix included. `token_file` holds a bearer token,
    `password_file` a line `user:password`; at most one of them is set. `ca_file` holds certificates
    to trust instead of the system's; `insecure` accepts any, and allows secrets over http.
    `tenant` is sent as `X-Scope-OrgID`.
    """

    url: str
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None

    def base_url(self) -> str:
        """The URL before `/api/v1`, without a slash at its end. Raises BadAccess."""
        try:
            parts = urlsplit(self.url)
        except ValueError as error:
            raise BadAccess(f"{self.url}: {error}") from None
        try:
            port = parts.port
        except ValueError:
            raise BadAccess(f"{self.url}: the port of a URL is 1 to 65535") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
            example = "http://prometheus:9090"
            raise BadAccess(f"{self.url}: write the URL of Prometheus, as in {example}")
        if parts.username is not None or parts.password is not None:
            raise BadAccess(
                f"{parts.hostname}: every user of this machine can see a password in a URL: write "
                "user:password into a file, and set password_file under [prometheus] to it"
            )
        if parts.query or parts.fragment:
            raise BadAccess(f"{self.url}: write the URL without a query or fragment")
        path = parts.path.partition(_API)[0].rstrip("/")
        return urlunsplit((parts.scheme, parts.netloc, path, "", ""))

    def headers(self) -> dict[str, str]:
        """The headers that authenticate. Blocks: it reads files. Raises BadAccess."""
        if self.token_file and self.password_file:
            raise BadAccess("token_file and password_file are both set: remove one of them")
        headers = {}
        try:
            if self.token_file:
                token = read_secret(self.token_file, _TOKEN_HINT)
                headers["Authorization"] = f"Bearer {token}"
            if self.password_file:
                pair = read_secret(self.password_file, _PASSWORD_HINT)
                if ":" not in pair:
                    raise BadAccess(f"{self.password_file}: it must hold user:password")
                headers["Authorization"] = basic_authorization(pair)
            if headers:
                check_encrypted(self.url, is_insecure=self.insecure)
        except SecretError as error:
            raise BadAccess(str(error)) from None
        if self.tenant:
            if not (self.tenant.isascii() and self.tenant.isprintable()):
                raise BadAccess(f"tenant {clean(self.tenant)!r}: use printable ASCII only")
            headers["X-Scope-OrgID"] = self.tenant
        return headers

    def tls(self) -> ssl.SSLContext | bool:
        """The trusted certificates as aiohttp's `ssl` argument. Blocks. Raises BadAccess."""
        if self.insecure:
            return False
        if self.ca_file is None:
            return True
        try:
            return context_trusting(self.ca_file)
        except OSError as error:
            hint = "ca_file is a file with certificates to trust, PEM"
            raise BadAccess(f"{self.ca_file}: {error.strerror or error}; {hint}") from None


class PrometheusClient:
    """Sends queries to one server: at most `at_once` at a time, each for at most `timeout_s`.

    Warnings of the server, above all about parts that did not answer, are logged once each.
    """

    def __init__(
        self, access: PrometheusAccess, *, timeout_s: float = 30.0, at_once: int = 16
    ) -> None:
        """Blocks: it reads the files of the secrets. Raises BadAccess."""
        self.url = access.base_url()
        self._headers = access.headers()
        self._tls = access.tls()
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(at_once)
        self._session: aiohttp.ClientSession | None = None
        self._skew_s = 0.0
        self._logged: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def now_s(self) -> float:
        """The server's clock, in seconds since 1970; the console's until `check` was called."""
        return time.time() + self._skew_s

    async def check(self) -> None:
        """Check that the server answers, and measure its clock. Raises PrometheusError."""
        before_s = time.time()
        vector = await self._instant({"query": "vector(time())"})
        after_s = time.time()
        server_s = float(vector.values[0]) if vector.values.size else math.nan
        if not 0 < server_s < LATEST_NS / SECOND_NS:
            raise NotPrometheus(f"{self.url}: the server does not report its time")
        # The reported time may be truncated to whole seconds.
        behind_s, ahead_s = before_s - (server_s + 1.0), server_s - after_s
        if max(behind_s, ahead_s) > _MAX_SKEW_S:
            self._skew_s = server_s - (before_s + after_s) / 2
        else:
            self._skew_s = 0.0

    async def instant(self, query: str, at_s: float) -> VectorResult:
        """The result of an instant query at `at_s`, seconds since 1970. Raises PrometheusError."""
        return await self._instant({"query": query, "time": f"{at_s:.3f}"})

    async def samples(self, query: str, at_s: float) -> list[StoredSamples]:
        """The stored samples of a range selector (`up[5m]`). Raises PrometheusError."""
        fields = {"query": query, "time": f"{at_s:.3f}", **_FRESH}
        body = await self._request("query", fields)
        found, warnings = await asyncio.to_thread(responses.parse_samples, body)
        self._warn(warnings)
        return found

    async def range(self, query: str, start_s: float, step_s: float, steps: int) -> MatrixResult:
        """The result of a query at `steps` times from `start_s` on. Raises PrometheusError."""
        fields = {
            "query": query,
            "start": f"{start_s:.3f}",
            "end": f"{start_s + (steps - 1) * step_s:.3f}",
            "step": f"{step_s:.3f}",
            **_FRESH,
        }
        body = await self._request("query_range", fields)
        parse = responses.parse_matrix
        matrix, warnings = await asyncio.to_thread(parse, body, start_s, step_s, steps)
        self._warn(warnings)
        return matrix

    async def exports(self, at_s: float) -> bool:
        """Whether the server exports stored samples as CSV, as VictoriaMetrics does."""
        try:
            body = await self._export('{__name__="up"}', ("__name__",), at_s - _TRIED_S, at_s)
            responses.parse_export(body)
        except PrometheusError:
            return False
        return True

    async def export(
        self, selectors: Iterable[str], labels: Sequence[str], start_s: float, end_s: float
    ) -> ExportedSamples:
        """The stored samples of some selectors from `start_s` to `end_s`, with some labels.

        VictoriaMetrics takes a tenth of the time of a query for it. Raises PrometheusError.
        """
        parts: list[bytes] = []
        for each in selectors:
            parts.append(await self._export(each, labels, start_s, end_s))
            if sum(map(len, parts)) > _MAX_BODY_BYTES:
                raise QueryRefused(f"an export of more than {_MAX_BODY_BYTES:,} bytes")
        return await asyncio.to_thread(responses.parse_export, b"".join(parts))

    async def _export(
        self, selector: str, labels: Sequence[str], start_s: float, end_s: float
    ) -> bytes:
        fields = {
            "match[]": selector,
            "format": ",".join((*responses.EXPORT_FORMAT, *labels)),
            "start": f"{start_s:.3f}",
            "end": f"{end_s:.3f}",
            "reduce_mem_usage": "1",
        }
        return await self._request("export/csv", fields)

    async def names(self, since_s: float) -> list[str]:
        """The names of all metrics since `since_s`. Raises PrometheusError.

        No selector is used: with one VictoriaMetrics searches all series, and fails when there are
        more than 300,000.
        """
        fields = {"start": f"{since_s:.3f}"}
        body = await self._request("label/__name__/values", fields, method="GET")
        found, warnings = responses.parse_names(body)
        self._warn(warnings)
        return found

    async def _instant(self, fields: dict[str, str]) -> VectorResult:
        body = await self._request("query", {**fields, **_FRESH})
        vector, warnings = await asyncio.to_thread(responses.parse_vector, body)
        self._warn(warnings)
        return vector

    async def _request(self, path: str, fields: dict[str, str], method: str = "POST") -> bytes:
        """The body of a successful response. Raises PrometheusError."""
        if self._session is None:
            # Packed, a tick of 480,000 series would cost either side half a second more.
            headers = {**self._headers, "Accept-Encoding": "identity"}
            self._session = aiohttp.ClientSession(headers=headers, connector=Connector(limit=0))
        url = f"{self.url}{_API}/{path}"
        async with self._slots:
            try:
                async with (
                    asyncio.timeout(self._timeout_s),
                    self._session.request(
                        method,
                        url,
                        data=fields if method == "POST" else None,
                        params=None if method == "POST" else fields,
                        ssl=self._tls,
                        allow_redirects=False,
                    ) as response,
                ):
                    body = await bounded_body(response, _MAX_BODY_BYTES, url)
            except Misbehaved as error:
                raise NotPrometheus(str(error)) from None
            except aiohttp.ClientConnectorCertificateError as error:
                why = getattr(error.certificate_error, "verify_message", "")
                fix = "set ca_file under [prometheus] to the file of its CA"
                raise NoResponse(
                    f"{self.url}: its certificate is not trusted ({why}): {fix}"
                ) from None
            except aiohttp.ClientSSLError:
                raise NoResponse(f"{self.url}: the server has no TLS: write http://") from None
            except (TimeoutError, aiohttp.ClientError) as error:
                raise NoResponse(str(http_error(error, self.url, self._timeout_s))) from None
        if response.status != 200:
            self._raise_for(response, body)
        return body

    def _raise_for(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        """Raise the error of a failed response."""
        status = response.status
        kind, text = responses.parse_error(body)
        text, reason = self._quoted(text), self._quoted(response.reason or "")
        detail = f": {text}" if text else ""
        if status in (401, 403):
            raise AccessDenied(
                f"{self.url}: access denied ({status}{detail}): set --prometheus-token-file, "
                "or password_file or tenant under [prometheus]"
            )
        if text and status in _REJECTED:
            is_permanent = status != 422 or kind not in _TEMPORARY
            raise (QueryRefused if is_permanent else NoResponse)(f"{self.url}: {text}")
        if status in _BUSY:
            raise NoResponse(f"{self.url}: the server replies {status} {reason}{detail}")
        if 300 <= status < 400:
            to = clean(response.headers.get("Location", "another URL"))
            raise NotPrometheus(f"{self.url}: the server redirects to {to}: write that URL")
        raise NotPrometheus(
            f"{self.url}: no query API there ({status}): is a path missing, as in "
            "/select/0/prometheus (VictoriaMetrics cluster) or /prometheus (Mimir)?"
        )

    def _quoted(self, text: str) -> str:
        """What the server says, without the token or the password."""
        return without_secrets(text, secrets_in(self._headers.get("Authorization", "")))

    def _warn(self, warnings: Iterable[str]) -> None:
        """Log each warning of the server once."""
        for text in map(clean, map(self._quoted, warnings)):
            if text not in self._logged and len(self._logged) < _MAX_LOGGED_WARNINGS:
                self._logged.add(text)
                _LOG.warning("%s: %s", self.url, text)
