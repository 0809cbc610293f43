"""A Prometheus whose answers are well-formed and hostile, played by a fake server."""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import numpy as np
import pytest

from fabmon.fabric.tick import NodeState
from fabmon.feeds import token_bucket
from fabmon.feeds.prometheus import responses
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.feeds.prometheus.metric_names import known_metrics, other_exporters
from fabmon.feeds.prometheus.queries import QueryRound
from fabmon.feeds.prometheus.responses import QueryRefused
from fabmon.feeds.prometheus.series_table import SeriesTable
from fabmon.feeds.prometheus.target_blocks import PageInterpreter
from fabmon.feeds.prometheus.tick_builder import TickBuilder
from fabmon.feeds.token_bucket import CpuBudgets, TokenBucket
from tests.unit.feeds.test_prometheus_errors import FakePrometheus, Reply, served

_TIMES = ["1e300", "Inf", "-Inf", "NaN", "1e12", "-1e12"]


def vector(*series: tuple[dict[str, Any], float | str]) -> Reply:
    result = [{"metric": labels, "value": [0, str(value)]} for labels, value in series]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}


def matrix(values: list[list[object]]) -> Reply:
    result = [{"metric": {"instance": "a:9100"}, "values": values}]
    return 200, {"status": "success", "data": {"resultType": "matrix", "result": result}}


@asynccontextmanager
async def feed_of(fake: FakePrometheus) -> AsyncIterator[PrometheusFeed]:
    async with (
        served(fake) as url,
        PrometheusFeed(PrometheusClient(PrometheusAccess(url=url)), interval_s=0.5) as feed,
    ):
        yield feed


@pytest.mark.parametrize("time_s", _TIMES)
async def test_a_read_time_that_is_none_or_of_the_future_is_not_used_and_said(
    time_s: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakePrometheus()
    async with feed_of(fake) as feed:
        await feed.open()
        assert (await feed.poll()).frames
        fake.fails = lambda query: vector((fake.labels, time_s)) if "timestamp" in query else None
        assert not (await feed.poll()).frames
        assert "not used" in caplog.text
        fake.fails = lambda query: None
        caplog.clear()
        while not (await feed.poll()).frames:
            pass
        assert "not used" not in caplog.text


async def test_a_time_of_the_future_keeps_no_node_up() -> None:
    fake = FakePrometheus()
    other = {**fake.labels, "instance": "b:9100"}

    def reply(query: str) -> Reply | None:
        at_s = fake.clock_s()
        if "timestamp" in query:
            return vector((fake.labels, math.floor(at_s)), (other, at_s + 1e6))
        return vector((fake.labels, 1), (other, 1)) if "max by" in query else None

    fake.fails = reply
    async with feed_of(fake) as feed:
        await feed.open()
        states = {each.node: each.state for each in (await feed.poll()).statuses}
    assert states["a"] is NodeState.UP
    assert states.get("b") is not NodeState.UP


@pytest.mark.parametrize("time_s", [*_TIMES, "1e9"])
async def test_stored_samples_of_any_times_give_an_interval_that_a_hello_may_have(
    time_s: str,
) -> None:
    fake = FakePrometheus()
    values: list[list[object]] = [[time_s, "NaN"], [1_000.0, "1"], [time_s, "-Inf"], [5.0, "2"]]
    fake.fails = lambda query: matrix(values) if "[5m]" in query else None
    async with feed_of(fake) as feed:
        await feed.open()
        tick = await feed.poll()
    assert tick.frames


@pytest.mark.parametrize("time_s", _TIMES)
def test_points_of_a_range_without_a_step_are_left_out(time_s: str) -> None:
    body = (
        '{"status":"success","data":{"result":[{"metric":{},"values":'
        f'[["{time_s}","5"],[1030,"3"],[1000,"1"]]}}]}}}}'
    )
    found, _ = responses.parse_matrix(body.encode(), 1000.0, 15.0, 3)
    assert np.array_equal(found.values, [[1.0, math.nan, 3.0]], equal_nan=True)


def agents(fake: FakePrometheus, facts: dict[str, str], ports: int = 1) -> None:
    """Let a server have an agent `bad` of some ports with facts, and an agent `good`."""
    fake.also = [_AGE, _INFO, _RX]

    def reply(query: str) -> Reply | None:
        if "[5m]" in query:
            return None
        if _AGE in query:
            read_s = math.floor(fake.clock_s())
            return vector(*(({"instance": each, "source": "ib"}, read_s) for each in _AGENTS))
        if _INFO in query:
            return vector((port_of("bad", 0) | facts, 1), (port_of("good", 0), 1))
        if _RX in query:
            bad = [(port_of("bad", number), 5) for number in range(ports)]
            return vector(*bad, (port_of("good", 0), 5))
        return vector()

    fake.fails = lambda query: reply(query) if query != "vector(time())" else None


def port_of(agent: str, number: int) -> dict[str, str]:
    kind = {"source": "ib", "kind": "infiniband"}
    return {"instance": agent, "port": f"mlx5_{number}", "object": f"mlx5_{number}", **kind}


_AGENTS = ("bad", "good")
_AGE, _INFO, _RX = "fabmon_source_age_seconds", "fabmon_port_info", "fabmon_ib_rx_bytes_total"


@pytest.mark.parametrize("number", ["NaN", "Inf", "-1e300", "9" * 4000, "²", "-7"])
async def test_facts_that_are_not_what_their_name_says_are_left_out(number: str) -> None:
    numbers = dict.fromkeys(("pcie_speed_gtps", "pcie_width", "numa_node", "rdma_port"), number)
    others = dict.fromkeys(("peer", "members", "addresses", "pfc_priorities", "hash_policy"), "x")
    fake = FakePrometheus()
    agents(fake, {**numbers, **others, "pci": "0000:01:00.0"})
    async with feed_of(fake) as feed:
        await feed.open()
        tick = await feed.poll()
    hellos = dict(tick.hellos)
    assert hellos.keys() == {"bad", "good"}
    info = hellos["bad"].blocks[0].objects[0].info
    assert info == {"object": "mlx5_0", "pci": "0000:01:00.0"}


async def test_a_node_of_too_many_ports_is_refused_with_the_reason_and_no_other_one() -> None:
    fake = FakePrometheus()
    agents(fake, {}, ports=16_385)
    async with feed_of(fake) as feed:
        await feed.open()
        ticks = [await feed.poll()]
        while not ticks[-1].frames:  # The whole second of its read may be that of the round before.
            ticks.append(await feed.poll())
        assert [name for tick in ticks for name, _ in tick.hellos] == ["good"]
        assert [name for name, _ in ticks[-1].frames] == ["good"]
        said = [each for tick in ticks for each in tick.statuses]
        states = {each.node: (each.state, each.reason) for each in said}
        assert states["good"][0] is NodeState.UP
        assert states["bad"][0] is NodeState.FAILED
        assert "16385 ports of one node, 16384 at most" in states["bad"][1]


def test_an_answer_of_too_many_series_is_refused_before_it_is_decoded() -> None:
    point = '{"metric":{"instance":"a"},"value":[0,"1"]}'
    body = f'{{"status":"success","data":{{"result":[{",".join([point] * 262_145)}]}}}}'.encode()
    tracemalloc.start()
    with pytest.raises(QueryRefused, match="an answer of 262145 series, 262144 at most"):
        responses.parse_vector(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


@pytest.mark.parametrize(
    ("parse", "body"),
    [
        (responses.parse_samples, b'{"data":{"result":[{"metric":{},"values":[%b]}]}}'),
        (responses.parse_vector, b'{"warnings":[%b]}'),
    ],
)
def test_an_answer_of_too_many_values_is_refused_before_it_is_decoded(
    parse: Callable[[bytes], object], body: bytes
) -> None:
    """512 MiB of them, of one series, took 6 GB."""
    body %= b",".join([b'[1,"1"]'] * 5_000_000)
    tracemalloc.start()
    with pytest.raises(QueryRefused, match="an answer of more than 10,000,000 values"):
        parse(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


def test_more_names_or_warnings_than_any_server_has_are_not_gone_through() -> None:
    """Ten million names, or warnings, took half a minute in which no key was heard."""
    with pytest.raises(QueryRefused, match="more than 262,144 names of metrics"):
        responses.parse_names(b'{"data":[' + b",".join([b'"a"'] * 262_146) + b"]}")
    warnings = b",".join(b'"%d"' % number for number in range(1000))
    found = responses.parse_vector(b'{"status":"success","warnings":[' + warnings + b"]}")
    assert len(found[1]) == 64


def test_labels_longer_than_any_series_has_are_refused() -> None:
    metric = '{"metric":{"instance":"%s"},"value":[0,"1"],"values":[]}' % ("a" * 70_000)
    body = f'{{"status":"success","data":{{"result":[{metric}]}}}}'.encode()
    for parse in (
        responses.parse_vector,
        responses.parse_samples,
        lambda body: responses.parse_matrix(body, 0.0, 1.0, 10),
    ):
        with pytest.raises(QueryRefused, match="labels of more than 65,536 bytes"):
            parse(body)


async def test_the_parts_of_an_export_are_no_larger_together_than_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = PrometheusClient(PrometheusAccess(url="http://127.0.0.1:1"))
    monkeypatch.setattr("fabmon.feeds.prometheus.client._MAX_BODY_BYTES", 1000)

    async def part(*_: object) -> bytes:
        return b"1,2,m\n" * 100

    monkeypatch.setattr(client, "_export", part)
    assert len((await client.export(["a"], ["__name__"], 0.0, 1.0)).keys) == 100
    with pytest.raises(QueryRefused, match="an export of more than 1,000 bytes"):
        await client.export(["a", "b"], ["__name__"], 0.0, 1.0)


async def test_other_labels_of_a_state_each_time_take_no_more_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fabmon.feeds.prometheus.queries._MOST_PARSED", 50)
    monkeypatch.setattr("fabmon.feeds.prometheus.queries._MOST_JOBS", 50)
    fake = FakePrometheus()
    ticks = count()

    def reply(query: str) -> Reply | None:
        if "up{" not in query and "timestamp" not in query:
            return None
        at_s, tick = math.floor(fake.clock_s()), next(ticks)
        others = [
            ({**fake.labels, "job": f"j{tick}-{number}", "x": "y"}, at_s) for number in range(20)
        ]
        return vector((fake.labels, at_s), *others)

    fake.fails = reply
    async with feed_of(fake) as feed:
        await feed.open()
        for _ in range(10):
            await feed.poll()
        runner = feed._runner
    assert len(runner._parsed) <= 50
    assert len(runner._jobs) <= 50


def test_a_range_of_more_series_than_were_asked_for_takes_no_memory() -> None:
    line = '{"metric":{"instance":"a"},"values":[]}'
    body = f'{{"status":"success","data":{{"result":[{",".join([line] * 10_000)}]}}}}'.encode()
    with pytest.raises(QueryRefused, match="10000 series of 3600 values"):
        responses.parse_matrix(body, 0.0, 1.0, 3600)


def of(instance: str, port: str) -> bytes:
    labels = {"instance": instance, "port": port, "source": "ib", "kind": "infiniband"}
    return json.dumps(labels).encode()


def test_series_with_other_labels_each_time_take_no_more_room() -> None:
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    metric = known_metrics()[_RX]
    sizes = []
    for tick in range(40):
        keys = [of("a", f"p{tick}-{number}") for number in range(50)]
        table.clear()
        table.store(metric, keys, np.ones(50))
        table.settle()
        table.frames({("a", "ib"): tick})
        table.sweep()
        sizes.append(len(table._series.values))
    assert table.size <= 6 * 50
    assert sizes[-1] == sizes[20]


def test_series_with_other_labels_each_time_are_read_as_the_budget_of_their_node_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """20,000 of one node took 1.6 s of each tick, in which no key was heard."""
    monkeypatch.setattr(token_bucket, "CPU_BURST_S", 0.05)
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    table.budgets._cpu = CpuBudgets(1e-6)
    builder = TickBuilder(table, 1.0, {})
    metric = known_metrics()[_RX]

    def tick(number: int, keys: list[bytes]) -> set[str]:
        table.clear()
        table.store(metric, [*keys, of("b", "p")], np.ones(len(keys) + 1))
        times = {("a", "ib"): 100.0 + number, ("b", "ib"): 100.0 + number}
        found = builder.build(QueryRound(100.0 + number, times, frozenset(), {}, {}))
        table.sweep()
        return {name for name, _ in found[1]}

    for number in range(300):
        read = tick(number, [of("a", f"p{number}-{port}") for port in range(500)])
        if "a" in builder.refused:
            break
    assert "costs the console more than" in builder.refused["a"]
    assert read == {"b"}
    for number in range(300, 320):
        assert tick(number, [of("a", f"p{number}-{port}") for port in range(500)]) == {"b"}
    assert table.size == 1, "nothing is kept of a node that is not read"
    stable = [of("a", f"p{port}") for port in range(5)]
    assert tick(320, stable) == {"b"}
    table.budgets._cpu._buckets["a"] = TokenBucket(10.0, 0.1, time.monotonic())
    assert tick(321, stable) == {"b"}
    assert tick(322, stable) == {"a", "b"}
    assert not builder.refused


def test_series_that_had_no_room_are_taken_once_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fabmon.feeds.prometheus.series_table._MOST_OF_NODE", 9)
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    metric = known_metrics()[_RX]
    many = [of("a", f"p{port}") for port in range(20)]
    for keys in [many, *[many[15:]] * 9]:
        table.clear()
        table.store(metric, keys, np.ones(len(keys)))
        table.settle()
        table.frames({("a", "ib"): 1})
        table.sweep()
    assert table.size == 5


def test_more_nodes_than_any_site_has_are_left_out_and_counted() -> None:
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    keys = [of(f"n{number}", "p") for number in range(16_484)]
    table.store(known_metrics()[_RX], keys, np.ones(len(keys)))
    assert (table.size, table.left_out) == (16_384, 100)
    unknown = [json.dumps({"instance": f"n{number}"}).encode() for number in range(90_000)]
    table.store(known_metrics()[_RX], unknown, np.ones(len(unknown)))
    table.store(known_metrics()[_RX], keys, np.ones(len(keys)))
    assert len(table._slots[_RX]) <= len(keys)


def test_series_that_have_no_room_in_the_whole_table_are_not_tried_again_in_each_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes that have room were taken for ready: the labels of all that is not used were parsed
    in each tick, and a hello was sent."""
    monkeypatch.setattr("fabmon.feeds.prometheus.series_table._MOST_BLOCKS", 5)
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    metric = known_metrics()[_RX]
    keys = [of(f"node{number}", f"p{port}") for number in range(10) for port in range(2)]
    for changed in (5, 0, 0):
        table.clear()
        table.store(metric, keys, np.ones(len(keys)))
        table.settle()
        assert len(table.changed) == changed
        table.changed.clear()
    assert table.left_out == 11


async def test_labels_that_are_others_in_each_answer_keep_no_key_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """200,000 series of a page, each with another name of a device in each scrape, took 2 s of the
    screen's loop for each metric, in each tick."""
    fake = FakePrometheus()
    rounds = count()

    def series(number: int) -> bytes:
        labels = b'"instance":"a:9100","port":"1","device":"d%d-' % number
        each = (b'{"metric":{%s%d"},"value":[0,"1"]}' % (labels, port) for port in range(100_000))
        return b'{"status":"success","data":{"result":[%s]}}' % b",".join(each)

    answers = [series(number) for number in range(3)]
    request = PrometheusClient._request

    async def answer(
        self: PrometheusClient, path: str, fields: dict[str, str], **how: str
    ) -> bytes:
        query = fields.get("query", "")
        if "max by" in query and "timestamp" not in query and "up{" not in query:
            return answers[next(rounds) % 3]
        return await request(self, path, fields, **how)

    monkeypatch.setattr(PrometheusClient, "_request", answer)
    async with feed_of(fake) as feed:
        await feed.open()
        for _ in range(2):
            began_s = time.thread_time()
            await feed.poll()
            assert time.thread_time() - began_s < 0.2
