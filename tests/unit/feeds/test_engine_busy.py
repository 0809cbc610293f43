"""Engines that are busy, broken or lie for a moment: a sham one that answers what a test says."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from fabmon.fabric.tick import NodeState, Tick
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.feeds.prometheus.responses import NoResponse, PrometheusError, QueryRefused

Reply = tuple[int, dict[str, Any]]
_PORT = {"instance": "a:9100", "device": "mlx5_0", "port": "1", "job": "ib"}


def failure(status: int, kind: str = "") -> Reply:
    return status, {"status": "error", "errorType": kind, "error": "of the engine's own"}


class Sham:
    """Scrapes one port every second; `fails` may answer a query in its place."""

    def __init__(self) -> None:
        self.fails: Callable[[str], Reply | None] = lambda query: None
        self.labels: dict[str, Any] = _PORT

    async def query(self, request: web.Request) -> web.Response:
        asked = await request.post()
        query, at_s = str(asked["query"]), float(str(asked.get("time", time.time())))
        status, said = self.fails(query) or (200, self._answer(query, at_s))
        return web.json_response(said, status=status)

    async def names(self, request: web.Request) -> web.Response:
        data = ["node_infiniband_port_data_received_bytes_total", "up"]
        return web.json_response({"status": "success", "data": data})

    def _answer(self, query: str, at_s: float) -> dict[str, Any]:
        labels = self.labels
        if "[5m]" in query:
            values = [[int(at_s) - age, "1"] for age in range(20, 0, -1)]
            labels = {"instance": labels["instance"]}
            result: list[dict[str, Any]] = [{"metric": labels, "values": values}]
        else:
            value = 1.0 if "up{" in query else float(int(at_s))
            if query == "vector(time())":
                value, labels = time.time(), {}
            result = [{"metric": labels, "value": [at_s, str(value)]}]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


@asynccontextmanager
async def served(sham: Sham) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/api/v1/query", sham.query)
    app.router.add_get("/api/v1/label/__name__/values", sham.names)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (failure(400, "bad_data"), QueryRefused),
        (failure(422, "422"), QueryRefused),
        (failure(422, "execution"), NoResponse),
        (failure(422, "timeout"), NoResponse),
        (failure(429, "too_many_requests"), NoResponse),
        (failure(500, "internal"), NoResponse),
        (failure(503, "timeout"), NoResponse),
        (failure(504), NoResponse),
    ],
)
async def test_only_what_is_wrong_with_the_question_is_a_refusal(
    reply: Reply, error: type[PrometheusError]
) -> None:
    sham = Sham()
    sham.fails = lambda query: reply
    async with served(sham) as url, PrometheusClient(PrometheusAccess(url=url)) as engine:
        with pytest.raises(error, match="of the engine's own") as caught:
            await engine.instant("up", time.time())
        assert type(caught.value) is error


@pytest.mark.parametrize("reply", [failure(503, "timeout"), failure(400, "bad_data")])
async def test_a_clock_that_is_not_told_for_a_moment_is_asked_for_again(reply: Reply) -> None:
    sham = Sham()
    asked = []

    def fails_once(query: str) -> Reply | None:
        if "timestamp(" in query:
            asked.append(query)
            return reply if len(asked) == 1 else None
        return None

    async with served(sham) as url:
        feed = PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5)
        async with feed:
            await feed.open()
            assert await _state(feed) is NodeState.UP
            sham.fails = fails_once
            ticks = [await feed.look() for _ in range(3)]
        assert asked[1:], "never asked for again"
        states = [status.state for tick in ticks for status in tick.statuses]
        assert NodeState.LOST not in states
        assert states[-1:] in ([], [NodeState.UP])


async def _state(feed: PrometheusFeed) -> NodeState | None:
    tick: Tick = await feed.look()
    return tick.statuses[-1].state if tick.statuses else None


@pytest.mark.parametrize("labels", [{"instance": 5, "device": "mlx5_0", "port": "1"}, None])
async def test_labels_that_are_no_labels_are_those_of_no_engine(labels: Any) -> None:
    sham = Sham()
    async with (
        served(sham) as url,
        PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5) as feed,
    ):
        await feed.open()
        assert await _state(feed) is NodeState.UP
        sham.labels = labels
        tick = await feed.look()
    assert [status.state for status in tick.statuses] == [NodeState.STALE]
    assert "labels of a series" in tick.statuses[0].reason
