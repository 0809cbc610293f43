"""The query API of a Prometheus-compatible engine: Prometheus, Thanos, Mimir, VictoriaMetrics.

All questions of a tick name the same time, so that they see the same samples.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import aiohttp

from fabmon.fabric.messages import clean
from fabmon.feeds.prometheus import answers
from fabmon.feeds.prometheus.access import Access, base_url, headers, trust
from fabmon.feeds.prometheus.answers import Matrix, Samples, Vector
from fabmon.feeds.prometheus.errors import Denied, NoAnswer, NotAnEngine, QueryRefused
from fabmon.feeds.web import explain

_LOG = logging.getLogger("fabmon.feeds")

_MOST_BYTES = 512 * 1024 * 1024
_SKEW_S = 2.0
"""A clock that differs by less is taken for right: VictoriaMetrics tells whole seconds only."""

_FRESH = {"nocache": "1", "latency_offset": "1ms"}
"""VictoriaMetrics hides its last 30 s otherwise. The first is enough for what is asked of now; the
second, which it knows since 1.85.2, is for ranges. Other engines mind neither."""

_REFUSED = (400, 422)
_GATEWAY = (429, 500, 502, 503, 504)


class Engine:
    """Asks one engine. At most `at_once` questions are open, each for at most `timeout_s`.

    `warnings` are what it warned of, of parts that did not answer above all; whoever reads them
    clears them.
    """

    def __init__(self, access: Access, *, timeout_s: float = 30.0, at_once: int = 16) -> None:
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
            raise NotAnEngine(f"{self.url}: it does not know what time it is")
        said = float(vector.values[0])
        # What it says may be cut to whole seconds.
        behind, ahead = before - (said + 1.0), said - after
        if max(behind, ahead) > _SKEW_S:
            self._skew_s = said - (before + after) / 2
        else:
            self._skew_s = 0.0

    async def instant(self, query: str, at_s: float) -> Vector:
        """The answer to an instant query as of `at_s`, seconds since 1970. Raises EngineError."""
        return await self._instant({"query": query, "time": f"{at_s:.3f}"})

    async def samples(self, query: str, at_s: float) -> list[Samples]:
        """The stored samples that a range selector (`up[5m]`) picks. Raises EngineError."""
        fields = {"query": query, "time": f"{at_s:.3f}", **_FRESH}
        found, warnings = answers.samples(await self._ask("query", fields))
        self._warn(warnings)
        return found

    async def range(self, query: str, start_s: float, step_s: float, steps: int) -> Matrix:
        """The answer at `steps` times from `start_s` on. Raises EngineError."""
        fields = {
            "query": query,
            "start": f"{start_s:.3f}",
            "end": f"{start_s + (steps - 1) * step_s:.3f}",
            "step": f"{step_s:.3f}",
            **_FRESH,
        }
        body = await self._ask("query_range", fields)
        matrix, warnings = answers.matrix(body, start_s, step_s, steps)
        self._warn(warnings)
        return matrix

    async def names(self, since_s: float) -> list[str]:
        """The names of all metrics that there were lately. Raises EngineError.

        Of all, since names by selector are dear: VictoriaMetrics refuses to look for them among
        more than 300,000 series.
        """
        pairs = {"start": f"{since_s:.3f}"}
        body = await self._ask("label/__name__/values", pairs, method="GET")
        found, warnings = answers.names(body)
        self._warn(warnings)
        return found

    async def _instant(self, fields: dict[str, str]) -> Vector:
        body = await self._ask("query", {**fields, **_FRESH})
        vector, warnings = answers.vector(body)
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
                raise NoAnswer(
                    f"{self.url}: its certificate is not trusted ({why}): name the CA's file as "
                    "ca_file under [prometheus]"
                ) from None
            except (TimeoutError, aiohttp.ClientError) as error:
                raise NoAnswer(str(explain(error, self.url, self._timeout_s))) from None
        if response.status != 200:
            self._fail(response, body)
        return body

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise NotAnEngine(f"{self.url}: an answer of more than {_MOST_BYTES >> 20} MiB")
        return bytes(body)

    def _fail(self, response: aiohttp.ClientResponse, body: bytes) -> None:
        """Raise what a failed answer means."""
        status, said = response.status, answers.complaint(body)
        if status in (401, 403):
            how = f": {said}" if said else ""
            raise Denied(
                f"{self.url}: it does not let us in ({status}{how}): give --prometheus-token-file, "
                "or password_file or tenant under [prometheus]"
            )
        if said and (status in _REFUSED or status in _GATEWAY):
            raise QueryRefused(f"{self.url}: {said}")
        if status in _GATEWAY:
            raise NoAnswer(f"{self.url}: it answers {status} {response.reason}")
        if 300 <= status < 400:
            to = response.headers.get("Location", "elsewhere")
            raise NotAnEngine(f"{self.url}: it sends us to {to}: give the URL that it means")
        raise NotAnEngine(
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
