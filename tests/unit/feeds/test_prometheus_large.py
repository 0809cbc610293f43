"""Large sites: config/prometheus, the metrics of the overview, opened nodes, exports of samples."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fabmon.fabric.openmetrics import EXPOSED
from fabmon.feeds.prometheus import discovery, queries
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.export_rounds import ExportRunner
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.feeds.prometheus.metric_names import (
    RECORDED,
    known_metrics,
    other_exporters,
    overview_metrics,
    without_sums,
)
from fabmon.feeds.prometheus.responses import (
    NotPrometheus,
    QueryRefused,
    parse_export,
    parse_exported_labels,
)
from fabmon.feeds.prometheus.series_table import SeriesTable
from fabmon.feeds.prometheus.target_blocks import PageInterpreter
from fabmon.history.derived_metrics import DAMAGE
from tests.fixtures.hosts import HOSTS
from tests.requirements import need_command
from tests.unit.alerts.test_alertmanager import until
from tests.unit.feeds.prometheus_servers import (
    TOKEN,
    Agent,
    Prometheus,
    PrometheusServer,
    Target,
    VictoriaMetrics,
)
from tests.unit.feeds.test_prometheus import Watching, kind, rates, sample, server, stack

__all__ = ["kind", "server", "stack"]

CONFIG = Path(__file__).parents[3] / "config/prometheus"
RULES = CONFIG / "fabmon.rules.yml"


def feed_of(server: PrometheusServer, interval_s: float | None = None) -> PrometheusFeed:
    client = PrometheusClient(PrometheusAccess(url=server.url))
    return PrometheusFeed(client, interval_s=interval_s)


def promtool(*arguments: str) -> None:
    need_command("promtool", "prometheus")
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_shipped_rules_and_scrapes_are_valid_and_record_what_fabmon_reads() -> None:
    promtool("check", "rules", str(RULES))
    promtool("check", "config", "--syntax-only", str(CONFIG / "scrape.yml"))
    recorded = dict(re.findall(r"- record: (\S+)\n +expr: >-\n((?: {10}.*\n)+)", RULES.read_text()))
    assert recorded.keys() == RECORDED.keys()
    for name, rule in RECORDED.items():
        parts = "|".join(EXPOSED[part].sample for part in rule.parts)
        assert f'{{__name__=~"{parts}"}}' in recorded[name]
    assert {*RECORDED["fabmon:port_errors:sum"].parts, "port_errors"} == set(DAMAGE)


def test_a_real_server_takes_the_shipped_scrapes_and_rules(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """config/prometheus as it is, but for files of /etc, TLS and the time between scrapes."""
    HOSTS["ib"](tmp_path / "ib")
    agent = stack.enter_context(Agent(tmp_path / "agent", tmp_path / "ib"))
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "fabmon.token").write_text(TOKEN)
    (etc / "fabmon-targets.json").write_text(json.dumps([{"targets": [f"localhost:{agent.port}"]}]))
    (etc / RULES.name).write_text(RULES.read_text().replace("interval: 15s", "interval: 1s"))
    scrapes = (CONFIG / "scrape.yml").read_text()
    for shipped, here in (
        ("/etc/prometheus/", f"{etc}/"),
        ("    scheme: https\n    tls_config: {ca_file: " + f"{etc}/cluster-ca.pem" + "}\n", ""),
        ("scrape_interval: 15s", "scrape_interval: 1s"),
        ("scrape_timeout: 5s", "scrape_timeout: 1s"),
    ):
        assert shipped in scrapes
        scrapes = scrapes.replace(shipped, here)
    (etc / "scrape.yml").write_text(scrapes)
    promtool("check", "config", str(etc / "scrape.yml"))
    monkeypatch.setattr(Prometheus, "_configured", lambda _: etc / "scrape.yml")
    server = stack.enter_context(Prometheus(tmp_path / "server"))
    server.until_scraped(1)

    def health() -> dict[str, str]:
        rules = server.answer("/api/v1/rules")["groups"][0]["rules"]
        return {rule["name"]: rule["health"] for rule in rules}

    def stored() -> set[str]:
        return set(server.answer("/api/v1/label/__name__/values"))

    # The agent answers before its first frame, and rules are evaluated after scrapes.
    until(lambda: "unknown" not in health().values())
    assert health() == dict.fromkeys(RECORDED, "ok")
    until(lambda: {"fabmon_ib_tx_bytes_total", "fabmon:port_errors:sum"} <= stored())
    names = stored()
    assert not [name for name in names if re.match(r"fabmon_(probe|.*_packets)", name)]
    assert server.answer("/api/v1/label/instance/values") == ["localhost"]


def test_where_sums_are_recorded_their_parts_are_read_of_opened_nodes_only() -> None:
    known = known_metrics()
    parts = ["fabmon_ib_symbol_errors_total", "fabmon_ib_tx_bytes_total", "fabmon_ib_state"]
    packets = "fabmon_ib_tx_packets_total"
    overview, others = overview_metrics([known[name] for name in (*parts, packets)])
    assert [each.name for each in overview] == parts
    assert [each.name for each in others] == [packets]
    sums = ["fabmon:port_errors:sum", "fabmon:port_drops:sum"]
    overview, others = overview_metrics([known[name] for name in (*parts, packets, *sums)])
    assert [each.name for each in overview] == [*parts[1:], *sums]
    assert [each.name for each in others] == [parts[0], packets]


def test_where_all_parts_are_read_their_sums_are_not() -> None:
    """A sum is older than its parts by the interval of its rule. Without the parts it is read."""
    known = known_metrics()
    part, total = known["fabmon_ib_symbol_errors_total"], known["fabmon:port_errors:sum"]
    assert without_sums([part, total]) == [part]
    assert without_sums([total]) == [total]


async def test_a_real_server_records_the_sums_and_they_become_errors_of_the_port(
    tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_LARGE_NODES", 0)
    HOSTS["ib"](tmp_path / "ib")
    agent = stack.enter_context(Agent(tmp_path / "agent", tmp_path / "ib"))
    fast = tmp_path / "rules.yml"
    fast.write_text(RULES.read_text().replace("interval: 15s", "interval: 1s"))
    targets: list[Target] = [("fabmon", "gpu001:9838", agent.port, {})]
    server = stack.enter_context(Prometheus(tmp_path / "server", targets, rules=fast))
    server.until_scraped(1)
    async with PrometheusClient(PrometheusAccess(url=server.url)) as client:
        for name in ("fabmon:port_errors:sum", "fabmon:port_drops:sum", "fabmon_ib_tx_bytes_total"):
            while not (await client.instant(name, time.time())).keys:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    async with feed_of(server) as feed:
        await feed.open()
        watching = Watching(feed)
        snapshot = await watching.until(lambda snapshot: bool(rates(snapshot, "damage")))
        # The fixture's counters stand still; what matters is that the sum is what is read.
        assert set(rates(snapshot, "damage").values()) == {0.0}
        columns = set(snapshot.columns)
        assert {"port_errors", "port_drops", "ib_tx_bytes"} <= columns
        assert "ib_symbol_errors" not in columns
        assert "ib_tx_packets" not in columns


async def test_the_other_metrics_of_a_node_are_read_when_it_is_opened(
    tmp_path: Path,
    server: VictoriaMetrics,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "_LARGE_NODES", 0)
    start_s = round(time.time() - 61, 3)

    def scrape(at_s: float) -> None:
        at_s = round(at_s, 3)  # Of milliseconds, as it is stored: two are 0.8 s apart.
        for node in ("gpu001", "gpu002"):
            metrics = {
                "fabmon_ib_tx_bytes_total": (at_s - start_s) * 1e8,
                "fabmon_ib_tx_packets_total": (at_s - start_s) * 1e5,
            }
            server.store(sample(node, 0, metrics, at_s))

    for number in range(5):
        scrape(start_s + number * 10)
    async with feed_of(server, interval_s=0.5) as feed:
        await feed.open()
        watching = Watching(feed)
        async for tick in feed.past(0):
            watching.take(tick)
        scrape(time.time() - 1)
        snapshot = watching.take(await feed.poll())
        assert rates(snapshot)["gpu001/mlx5_0"] == pytest.approx(8e8, rel=1e-3)
        assert "ib_tx_packets" not in snapshot.columns
        feed.open_node("gpu001")
        await asyncio.sleep(0.5)
        scrape(time.time() - 0.7)
        snapshot = watching.take(await feed.poll())
        packets = snapshot.column("ib_tx_packets")
        rows = {port.id: port.row for port in snapshot.fabric.ports}
        assert packets[rows["gpu001/mlx5_0"]] == pytest.approx(1e5, rel=1e-2)
        assert np.isnan(packets[rows["gpu002/mlx5_0"]])
        # Its traffic stays known although its hello is a new one.
        assert rates(snapshot)["gpu001/mlx5_0"] == pytest.approx(8e8, rel=1e-3)


async def test_values_that_nearly_all_series_have_are_left_out_of_queries(
    server: VictoriaMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_MANY_SERIES", 5)

    async def exports_nothing(self: PrometheusClient, at_s: float) -> bool:
        return False

    monkeypatch.setattr(PrometheusClient, "exports", exports_nothing)
    sent: list[str] = []
    instant = PrometheusClient.instant

    async def noted(self: PrometheusClient, query: str, at_s: float) -> object:
        sent.append(query)
        return await instant(self, query, at_s)

    monkeypatch.setattr(PrometheusClient, "instant", noted)
    start_s = time.time() - 40

    def scrape(number: int, states: dict[str, int]) -> None:
        for node in range(6):
            name = f"gpu{node}"
            metrics = {
                "fabmon_ib_tx_bytes_total": number * 1e9 + node,
                "fabmon_ib_state": states.get(name, 4),
            }
            server.store(sample(name, 0, metrics, start_s + number * 10))

    scrape(0, {})
    scrape(1, {})
    async with feed_of(server, interval_s=10) as feed:
        await feed.open()
        watching = Watching(feed)
        async for tick in feed.past(0):
            watching.take(tick)
        assert not any("!=" in query for query in sent)
        scrape(2, {"gpu3": 1})
        snapshot = watching.take(await feed.poll())
        assert any("fabmon_ib_state" in query and "!= 4.0" in query for query in sent)
        assert not any("tx_bytes" in query and "!=" in query for query in sent)
        up = {port.id: float(snapshot.up[port.row]) for port in snapshot.fabric.ports}
        assert up == {f"gpu{node}/mlx5_0": float(node != 3) for node in range(6)}


def test_exported_samples_are_parsed_whatever_their_numbers() -> None:
    body = b"12,1795402423450,m,a:1\n1.5e+17,1795402423451,m,b:1\nNaN,1,m,\n"
    samples = parse_export(body)
    assert samples.keys == [b"m,a:1", b"m,b:1", b"m,"]
    assert samples.values[:2].tolist() == [12, 1.5e17]
    assert np.isnan(samples.values[2])
    assert samples.times_s.tolist() == [1795402423.450, 1795402423.451, 0.001]
    assert parse_exported_labels(b"m,a:1", ("__name__", "instance")) == {
        "__name__": "m",
        "instance": "a:1",
    }
    assert parse_exported_labels(b"m,", ("__name__", "instance")) == {"__name__": "m"}
    # A comma in a label is not quoted: which label it belongs to is not known.
    assert parse_exported_labels(b"m,a,b", ("__name__", "instance")) is None


@pytest.mark.parametrize(
    "body", [b"<html>\n", b"1,2\n3,4,m\n", b"x,2,m\n", b"1,2,m", b"1" * 40 + b",2,m\n"]
)
def test_what_is_no_export_is_refused(body: bytes) -> None:
    with pytest.raises(NotPrometheus):
        parse_export(body)


def test_an_export_larger_than_that_of_any_cluster_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """512 MiB of one line, or of the shortest lines, took gigabytes."""
    with pytest.raises(QueryRefused, match="a line of more than 65,536 bytes"):
        parse_export(b"1,2,m" + b"," * (2 << 20) + b"\n")
    with pytest.raises(QueryRefused, match="a line of more than 65,536 bytes"):
        parse_export((b"1,2,m" + b"x" * 70_000 + b"\n") * 5)
    monkeypatch.setattr("fabmon.feeds.prometheus.responses._MOST_SAMPLES", 2)
    assert len(parse_export(b"1,2,m\n" * 2).keys) == 2
    with pytest.raises(QueryRefused, match="more than 2 samples"):
        parse_export(b"1,2,m\n" * 3)


async def test_only_victoria_metrics_exports(tmp_path: Path, kind: type[PrometheusServer]) -> None:
    with kind(tmp_path / "server") as server:
        async with PrometheusClient(PrometheusAccess(url=server.url)) as client:
            assert await client.exports(time.time()) is (kind is VictoriaMetrics)


async def test_a_scrape_of_which_a_part_is_stored_is_read_when_it_is_complete(
    server: VictoriaMetrics,
) -> None:
    start_s = time.time() - 40
    full = {"fabmon_ib_tx_bytes_total": 1e9, "fabmon_ib_rx_bytes_total": 1e9}
    for number in range(3):
        server.store(sample("gpu001", 0, full, start_s + number * 10))
    async with feed_of(server, interval_s=10) as feed:
        await feed.open()
        watching = Watching(feed)
        async for tick in feed.past(0):
            watching.take(tick)
        await feed.poll()
        late = sample("gpu001", 0, full, time.time() - 1)
        server.store(late[:3])
        assert not (await feed.poll()).frames
        server.store(late[3:])
        tick = await feed.poll()
        (block,) = tick.frames[0][1].blocks
        assert block is not None
        assert None not in block


async def test_samples_that_are_stored_late_are_read_from_then_on(server: VictoriaMetrics) -> None:
    # As by a remote write that is 12 s behind: later than the samples are usually looked for.
    start_s = time.time() - 100

    def scrape(number: int) -> None:
        full = {"fabmon_ib_tx_bytes_total": number * 1e9}
        server.store(sample("gpu001", 0, full, start_s + number * 2))

    for number in range(30):
        scrape(number)
    async with feed_of(server, interval_s=2) as feed:
        await feed.open()
        watching = Watching(feed)
        async for tick in feed.past(0):
            watching.take(tick)
        read = []
        for number in range(30, 34):
            scrape(number)
            read.append(len((await feed.poll()).frames))
        assert read[-2:] == [1, 1]
        assert isinstance(feed._runner, ExportRunner)
        looked_back_s = feed._runner.lateness_s
        assert 30 < looked_back_s < 60 + (time.time() - start_s - 100)
        # The samples come in time again: it does not look back that far for ever.
        for _ in range(4):
            server.store(sample("gpu001", 0, {"fabmon_ib_tx_bytes_total": 1e12}, time.time() - 1))
            await feed.poll()
        assert feed._runner.lateness_s < looked_back_s / 3


def test_a_port_that_is_gone_has_no_usual_value() -> None:
    """Its series end, and it is dropped like any other that was missing too often."""
    table = SeriesTable("instance", PageInterpreter(other_exporters()))
    metric = known_metrics()["fabmon_ib_state"]
    keys = [
        f'{{"instance":"gpu001:9838","port":"mlx5_{n}","source":"ib"}}'.encode() for n in range(2)
    ]
    block = ("gpu001", "ib")
    table.store(metric, keys, np.array([4.0, 4.0]))
    table.clear()
    table.store(metric, keys[:1], np.array([4.0]))
    table.clear()
    table.store_unusual(metric, 4.0, [], np.empty(0))
    table.settle()
    (values,) = table.frames({block: 1})["gpu001"]
    assert values == [1, 4, None]
