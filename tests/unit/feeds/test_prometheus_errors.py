"""A Prometheus that is overloaded or broken for a moment, played by a fake server."""

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
from fabmon.feeds.prometheus.responses import (
    NoResponse,
    NotPrometheus,
    PrometheusError,
    QueryRefused,
)

Reply = tuple[int, dict[str, Any]]
_PORT = {"instance": "a:9100", "device": "mlx5_0", "port": "1", "job": "ib"}


def failure(status: int, kind: str = "") -> Reply:
    return status, {"status": "error", "errorType": kind, "error": "the server's own words"}


class FakePrometheus:
    """Scrapes one port every second; `fails` may give the reply to a query instead."""

    def __init__(self) -> None:
        self.fails: Callable[[str], Reply | None] = lambda query: None
        self.labels: dict[str, Any] = _PORT
        self.also: list[str] = []
        self.clock_s = time.time

    async def query(self, request: web.Request) -> web.Response:
        form = await request.post()
        query, at_s = str(form["query"]), float(str(form.get("time", self.clock_s())))
        status, body = self.fails(query) or (200, self._result(query, at_s))
        return web.json_response(body, status=status)

    async def names(self, request: web.Request) -> web.Response:
        data = ["node_infiniband_port_data_received_bytes_total", "up", *self.also]
        return web.json_response({"status": "success", "data": data})

    def _result(self, query: str, at_s: float) -> dict[str, Any]:
        labels = self.labels
        if "[5m]" in query:
            values = [[int(at_s) - age, "1"] for age in range(20, 0, -1)]
            labels = {"instance": labels["instance"]}
            result: list[dict[str, Any]] = [{"metric": labels, "values": values}]
        else:
            value = 1.0 if "up{" in query else float(int(at_s))
            if query == "vector(time())":
                value, labels = self.clock_s(), {}
            # What is asked of the future has no samples.
            is_known = at_s < self.clock_s() + 60
            result = [{"metric": labels, "value": [at_s, str(value)]}] if is_known else []
        return {"status": "success", "data": {"resultType": "vector", "result": result}}


@asynccontextmanager
async def served(fake: FakePrometheus) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/api/v1/query", fake.query)
    app.router.add_get("/api/v1/label/__name__/values", fake.names)
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
async def test_only_an_error_in_the_query_counts_as_a_refusal(
    reply: Reply, error: type[PrometheusError]
) -> None:
    fake = FakePrometheus()
    fake.fails = lambda query: reply
    async with served(fake) as url, PrometheusClient(PrometheusAccess(url=url)) as client:
        with pytest.raises(error, match="the server's own words") as caught:
            await client.instant("up", time.time())
        assert type(caught.value) is error


@pytest.mark.parametrize("reply", [failure(503, "timeout"), failure(400, "bad_data")])
async def test_a_failed_query_for_read_times_is_tried_again(reply: Reply) -> None:
    fake = FakePrometheus()
    queries = []

    def fails_once(query: str) -> Reply | None:
        if "timestamp(" in query:
            queries.append(query)
            return reply if len(queries) == 1 else None
        return None

    async with served(fake) as url:
        feed = PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5)
        async with feed:
            await feed.open()
            assert await _state(feed) is NodeState.UP
            fake.fails = fails_once
            ticks = [await feed.poll() for _ in range(3)]
        assert queries[1:], "not tried again"
        states = [status.state for tick in ticks for status in tick.statuses]
        assert NodeState.LOST not in states
        assert states[-1:] in ([], [NodeState.UP])


@pytest.mark.parametrize("reply", [failure(503, "timeout"), failure(400, "bad_data")])
async def test_a_failed_query_for_collectives_costs_the_other_metrics_nothing(
    reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePrometheus()
    fake.also = ["nccl_bus_bandwidth_gbs"]
    fake.fails = lambda query: reply if "nccl_" in query else None
    async with (
        served(fake) as url,
        PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5) as feed,
    ):
        await feed.open()
        tick = await feed.poll()
    assert tick.frames
    assert tick.collectives is not None
    assert tick.collectives.reason in ("Prometheus: no answer", "Prometheus: query refused")
    assert "the server's own words" in caplog.text, "they may hold names: only the log has them"


async def _state(feed: PrometheusFeed) -> NodeState | None:
    tick: Tick = await feed.poll()
    return tick.statuses[-1].state if tick.statuses else None


@pytest.mark.parametrize("labels", [{"instance": 5, "device": "mlx5_0", "port": "1"}, None])
async def test_malformed_labels_are_an_error_of_the_server(labels: Any) -> None:
    fake = FakePrometheus()
    async with (
        served(fake) as url,
        PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5) as feed,
    ):
        await feed.open()
        assert await _state(feed) is NodeState.UP
        fake.labels = labels
        tick = await feed.poll()
    assert [status.state for status in tick.statuses] == [NodeState.STALE]
    assert "labels of a series" in tick.statuses[0].reason


@pytest.mark.parametrize("time_s", [1e300, 1e18, float("nan"), float("inf"), -5.0])
async def test_a_time_that_no_clock_shows_is_refused(time_s: float) -> None:
    fake = FakePrometheus()
    result = [{"metric": {}, "value": [0, str(time_s)]}]
    fake.fails = lambda query: (200, {"status": "success", "data": {"result": result}})
    async with served(fake) as url, PrometheusClient(PrometheusAccess(url=url)) as client:
        with pytest.raises(NotPrometheus, match="does not report its time"):
            await client.check()


@pytest.mark.parametrize("by_s", [7200, -7200])
async def test_a_clock_that_is_set_loses_no_node_and_states_stay_as_old(
    monkeypatch: pytest.MonkeyPatch, by_s: int
) -> None:
    fake, off_s = FakePrometheus(), 0
    true_s, true_ns = time.time, time.time_ns
    fake.clock_s = true_s
    monkeypatch.setattr("time.time", lambda: true_s() + off_s)
    monkeypatch.setattr("time.time_ns", lambda: true_ns() + off_s * 10**9)
    async with (
        served(fake) as url,
        PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5) as feed,
    ):
        await feed.open()
        (before,) = (await feed.poll()).statuses
        off_s = by_s
        tick = await feed.poll()
    assert abs(tick.clock_jumped_ns / 1e9 - by_s) < 1
    (after,) = tick.statuses
    assert (before.state, after.state) == (NodeState.UP, NodeState.UP)
    assert after.since_ns - before.since_ns == tick.clock_jumped_ns
