"""Prometheus as a feed: real servers that scrape agents and exporters, or import samples."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState, Tick
from fabmon.feeds.prometheus.client import PrometheusAccess
from fabmon.feeds.prometheus.client import PrometheusClient as Client
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.feeds.prometheus.responses import AccessDenied, NoResponse, NotPrometheus, QueryRefused
from fabmon.feeds.prometheus.series_selection import parse_matchers
from fabmon.history.history import History
from tests.fixtures.hosts import HOSTS
from tests.unit.feeds.prometheus_servers import (
    PASSWORD,
    Agent,
    NodeExporter,
    Prometheus,
    PrometheusServer,
    Target,
    VictoriaMetrics,
    free_port,
)
from tests.unit.inspector.dumps import metrics

GBPS = 1e9


class Watching:
    """A feed and the history behind it."""

    def __init__(self, feed: PrometheusFeed) -> None:
        self.feed = feed
        self.history = History(feed.hosts, feed.interval_s)
        self.ticks: list[Tick] = []

    async def until(self, is_so: Callable[[Snapshot], bool], within_s: float = 240) -> Snapshot:
        """The first snapshot for which `is_so` is true."""
        async with asyncio.timeout(within_s):
            async for tick in self.feed:
                snapshot = self.take(tick)
                if is_so(snapshot):
                    return snapshot
        raise AssertionError("the feed ended")

    def take(self, tick: Tick) -> Snapshot:
        self.ticks.append(tick)
        return self.history.accept(tick)


def rates(snapshot: Snapshot, what: str = "tx_bps") -> dict[str, float]:
    """Rates of a HEAT column by port, of those that have one."""
    column = snapshot.heat[HEAT.index(what)]
    ports = [port for port in snapshot.fabric.ports if port.node]
    return {port.id: float(column[port.row]) for port in ports if not np.isnan(column[port.row])}


def state(snapshot: Snapshot, node: str) -> NodeState | None:
    status = snapshot.statuses.get(node)
    return None if status is None else status.state


def sample(
    name: str, age_s: float, values: dict[str, float], at_s: float, **more: str
) -> list[str]:
    """The samples of one scrape of an agent that read its source `age_s` before."""
    labels = "".join(f',{key}="{value}"' for key, value in more.items())
    target = f'instance="{name}:9838",job="fabmon",source="ib"{labels}'
    stamp = round(at_s * 1000)
    lines = [
        f"fabmon_source_age_seconds{{{target}}} {age_s} {stamp}",
        f'up{{instance="{name}:9838",job="fabmon"}} 1 {stamp}',
    ]
    lines += [
        f'{metric}{{{target},port="mlx5_0",kind="infiniband"}} {value:.0f} {stamp}'
        for metric, value in values.items()
    ]
    return lines


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def server(tmp_path: Path, stack: ExitStack) -> VictoriaMetrics:
    """A server that scrapes nothing; tests import samples."""
    return stack.enter_context(VictoriaMetrics(tmp_path / "server"))


@pytest.fixture(params=[Prometheus, VictoriaMetrics])
def kind(request: pytest.FixtureRequest) -> type[PrometheusServer]:
    found: type[PrometheusServer] = request.param
    return found


async def test_agents_and_exporters_become_nodes_with_their_ports(
    tmp_path: Path, stack: ExitStack, kind: type[PrometheusServer]
) -> None:
    HOSTS["roce"](tmp_path / "roce")
    HOSTS["ib"](tmp_path / "ib")
    agent = stack.enter_context(Agent(tmp_path / "agent", tmp_path / "roce"))
    exporter = stack.enter_context(NodeExporter(tmp_path / "exporter", tmp_path / "ib"))
    targets: list[Target] = [
        ("fabmon", "gpu001:9838", agent.port, {}),
        ("node", "gpu002:9100", exporter.port, {"rack": "r1"}),
        ("node", "gpu003:9100", free_port(), {}),
    ]
    server = stack.enter_context(kind(tmp_path / "server", targets))
    server.until_scraped(3, times=6)
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        assert feed.interval_s == pytest.approx(1, abs=0.3)
        watching = Watching(feed)
        snapshot = await watching.until(
            lambda snapshot: (
                {"gpu001", "gpu002"} <= {each.partition("/")[0] for each in rates(snapshot)}
                and state(snapshot, "gpu001") is state(snapshot, "gpu002") is NodeState.UP
            )
        )
        names = {node.name: [port.name for port in node.ports] for node in snapshot.fabric.nodes}
        assert names["gpu001"] == [f"mlx5_{rail}" for rail in range(8)]
        assert names["gpu002"] == [f"mlx5_{rail}" for rail in range(8)]
        # An agent also reports facts about the node.
        assert snapshot.fabric.node("gpu001").ports[7].info["pcie_width"] == 8
        assert snapshot.fabric.node("gpu002").ports[0].kind == "infiniband"
        assert snapshot.line_rate_bps[snapshot.fabric.node("gpu002").ports[0].row] == 400 * GBPS
        # Counters that do not change: the rate is 0, which differs from an unknown rate.
        assert set(rates(snapshot).values()) == {0.0}
        assert state(snapshot, "gpu003") is NodeState.FAILED
        assert snapshot.statuses["gpu003"].reason == "Prometheus cannot scrape it (node)"

        exporter.stop()
        snapshot = await watching.until(
            lambda snapshot: (
                state(snapshot, "gpu002") is NodeState.LOST
                and state(snapshot, "gpu001") is NodeState.UP
            )
        )
        assert snapshot.statuses["gpu002"].reason == "Prometheus cannot scrape it (node)"
        exporter.start()
        await watching.until(lambda snapshot: state(snapshot, "gpu002") is NodeState.UP)


async def test_metrics_of_nccl_inspector_are_means_of_collectives(
    tmp_path: Path, stack: ExitStack, kind: type[PrometheusServer]
) -> None:
    HOSTS["ib"](tmp_path / "ib")
    for gpu, busbw in ((0, 300), (1, 320)):
        page = metrics(gpu=gpu, busbw=busbw, lost=10)
        (tmp_path / f"nccl_inspector_metrics_GPU-{gpu}.prom").write_text(page)
    exporter = stack.enter_context(NodeExporter(tmp_path / "exporter", tmp_path / "ib", tmp_path))
    target: Target = ("node", "gpu001:9100", exporter.port, {})
    server = stack.enter_context(kind(tmp_path / "server", [target]))
    server.until_scraped(1)
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        async with asyncio.timeout(240):
            report = await anext(tick.collectives async for tick in feed if tick.collectives)
            silent = [await anext(feed) for _ in range(3)]
    found = {each.operation: each for each in report.collectives}
    assert found["AllReduce"].busbw == pytest.approx(310e9)
    assert (found["AllReduce"].job, found["AllReduce"].size) == ("8801", "256-257MB")
    assert (found["AllReduce"].hosts, found["AllReduce"].nodes) == (("gpu001",), 16)
    assert found["Send"].busbw == pytest.approx(464.9e9)
    assert (report.lost, report.reason) == (0, "")
    assert not any(tick.collectives for tick in silent), "it is asked every 30 s"


async def test_while_prometheus_is_down_nodes_are_stale_and_not_lost(
    tmp_path: Path, stack: ExitStack, kind: type[PrometheusServer]
) -> None:
    HOSTS["bnxt"](tmp_path / "tree")
    agent = stack.enter_context(Agent(tmp_path / "agent", tmp_path / "tree"))
    server = stack.enter_context(
        kind(tmp_path / "server", [("fabmon", "gpu001:9838", agent.port, {})])
    )
    server.until_scraped(1)
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        watching = Watching(feed)
        await watching.until(lambda snapshot: state(snapshot, "gpu001") is NodeState.UP)
        server.stop()
        snapshot = await watching.until(
            lambda snapshot: state(snapshot, "gpu001") is not NodeState.UP
        )
        status = snapshot.statuses["gpu001"]
        assert (status.state, status.cause) == (NodeState.STALE, "prometheus")
        assert "refused" in status.reason
        server.start()
        await watching.until(
            lambda snapshot: bool(rates(snapshot)) and state(snapshot, "gpu001") is NodeState.UP
        )


async def test_rates_use_the_time_of_the_read_and_not_of_the_scrape(
    server: VictoriaMetrics,
) -> None:
    # Reads are 8.75 s apart, scrapes 10 s: with the times of these the rate would be wrong by an
    # eighth. The third scrape is 2 s old; those of the next 90 s are there too, for a machine on
    # which it takes long to ask.
    first_s = time.time() - 2 - 2 * 10
    for number in range(12):
        age_s, sent = 0.5 + number * 1.25, number * 8.75 * 10e9
        metrics = {"fabmon_ib_tx_bytes_total": sent, "fabmon_ib_rate_bytes_per_second": 50e9}
        server.store(sample("gpu001", age_s, metrics, first_s + number * 10))
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        watching = Watching(feed)
        assert feed.interval_s == pytest.approx(8.8, abs=0.2)
        past = [watching.take(tick) async for tick in feed.past(0)]
        assert [state(snapshot, "gpu001") for snapshot in past] == [NodeState.STARTING]
        snapshot = await watching.until(lambda snapshot: state(snapshot, "gpu001") is NodeState.UP)
        assert rates(snapshot) == {"gpu001/mlx5_0": pytest.approx(80 * GBPS, rel=1e-3)}


async def test_a_round_without_a_new_sample_makes_no_frame(server: VictoriaMetrics) -> None:
    now_s = time.time() - 1
    server.store(sample("gpu001", 0, {"fabmon_ib_tx_bytes_total": 1}, now_s - 10))
    server.store(sample("gpu001", 0, {"fabmon_ib_tx_bytes_total": 2}, now_s))
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url)), interval_s=0.5) as feed:
        await feed.open()
        watching = Watching(feed)
        for _ in range(3):
            await watching.until(lambda _: True)
        assert [len(tick.frames) for tick in watching.ticks] == [1, 0, 0]


async def test_the_last_minutes_come_before_the_first_live_tick(
    server: VictoriaMetrics,
) -> None:
    now_s = time.time() - 1
    for step in range(60, -1, -1):
        sent = {"fabmon_ib_tx_bytes_total": (60 - step) * 1e9}
        server.store(sample("gpu001", 0, sent, now_s - step * 5))
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        watching = Watching(feed)
        async for tick in feed.past(240):
            watching.take(tick)
        snapshot = await watching.until(lambda snapshot: bool(rates(snapshot)))
        row = snapshot.fabric.node("gpu001").ports[0].row
        drawn = snapshot.window("tx_bps", [row], len(watching.ticks))[0]
        assert len(drawn) >= 45
        # VictoriaMetrics before 1.85.2 leaves the last 30 s out of a range; the rest is checked.
        known = ~np.isnan(drawn)
        assert known[2:-8].all()
        assert known[-2:].all()
        assert drawn[known] == pytest.approx(8e9 / 5, rel=1e-3)
        times = [tick.time_ns for tick in watching.ticks]
        assert times == sorted(times)
        assert [tick.seq for tick in watching.ticks] == list(range(len(times)))


async def test_only_selected_series_are_watched(server: VictoriaMetrics) -> None:
    now_s = time.time() - 1
    for node, cluster in (("a1", "a"), ("b1", "b"), ("c1", "c")):
        server.store(sample(node, 0, {"fabmon_ib_tx_bytes_total": 1}, now_s, cluster=cluster))
    selections = [parse_matchers('{cluster="a"}'), parse_matchers("cluster=~'c.*'")]
    async with PrometheusFeed(
        Client(PrometheusAccess(url=server.url)), selections=selections
    ) as feed:
        await feed.open()
        snapshot = await Watching(feed).until(
            lambda snapshot: state(snapshot, "a1") is NodeState.UP
        )
        assert [node.name for node in snapshot.fabric.nodes] == ["a1", "c1"]


async def test_named_hosts_match_with_a_domain_and_others_are_left_out(
    server: VictoriaMetrics,
) -> None:
    now_s = time.time() - 1
    for node in ("gpu001.cluster.example", "gpu002.cluster.example"):
        server.store(sample(node, 0, {"fabmon_ib_tx_bytes_total": 1}, now_s))
    hosts = [Host(name="gpu001", group="rack1"), Host(name="gpu009")]
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url)), hosts=hosts) as feed:
        await feed.open()
        snapshot = await Watching(feed).until(
            lambda snapshot: state(snapshot, "gpu001") is NodeState.UP
        )
        assert [node.name for node in snapshot.fabric.nodes] == ["gpu001", "gpu009"]
        assert snapshot.fabric.node("gpu001").group == "rack1"
        assert len(snapshot.fabric.node("gpu001").ports) == 1
        assert snapshot.statuses["gpu009"].state is NodeState.FAILED
        assert snapshot.statuses["gpu009"].cause == "no target"


async def test_another_node_of_an_agent_is_distinguished_from_a_label_of_the_target(
    server: VictoriaMetrics,
) -> None:
    now_s = time.time() - 1
    server.store(sample("gpu001", 0, {"fabmon_ib_tx_bytes_total": 1}, now_s))
    server.store(sample("gpu001", 0, {"fabmon_ib_rx_bytes_total": 1}, now_s, node="ibsw1"))
    # Here Prometheus adds a label `node` to the target.
    server.store(sample("gpu002", 0, {"fabmon_ib_tx_bytes_total": 1}, now_s, node="gpu002-x"))
    info = 'instance="gpu002:9838",node="gpu002-x",hostname="gpu002"'
    other = 'instance="gpu001:9838",hostname="gpu001"'
    server.store([f"fabmon_node_info{{{each}}} 1 {round(now_s * 1000)}" for each in (info, other)])
    async with PrometheusFeed(Client(PrometheusAccess(url=server.url))) as feed:
        await feed.open()
        snapshot = await Watching(feed).until(
            lambda snapshot: state(snapshot, "gpu002") is NodeState.UP
        )
        assert sorted(node.name for node in snapshot.fabric.nodes) == ["gpu001", "gpu002", "ibsw1"]
        assert snapshot.fabric.node("ibsw1").ports[0].name == "mlx5_0"


@pytest.mark.parametrize("kind", [Prometheus, VictoriaMetrics])
async def test_a_missing_or_wrong_password_is_an_access_error(
    tmp_path: Path, stack: ExitStack, kind: type[PrometheusServer]
) -> None:
    running = stack.enter_context(kind(tmp_path / "server", secret=True))
    secret = tmp_path / "secret"
    secret.write_text("fabmon:not this\n")
    secret.chmod(0o600)
    with pytest.raises(AccessDenied, match="access denied"):
        await check(PrometheusAccess(url=running.url))
    with pytest.raises(AccessDenied):
        await check(PrometheusAccess(url=running.url, password_file=str(secret)))
    secret.write_text(f"fabmon:{PASSWORD}\n")
    await check(PrometheusAccess(url=running.url, password_file=str(secret)))


async def test_a_server_without_the_query_api_is_an_error(server: VictoriaMetrics) -> None:
    with pytest.raises(NotPrometheus, match="is a path missing, as in /select/0/prometheus"):
        await check(PrometheusAccess(url=f"{server.url}/nowhere"))
    with pytest.raises(NoResponse, match="refused"):
        await check(PrometheusAccess(url=f"http://127.0.0.1:{free_port()}"))
    # A path before the API is accepted, as in a VictoriaMetrics cluster, and so is the API's own.
    await check(PrometheusAccess(url=f"{server.url}/prometheus/"))
    await check(PrometheusAccess(url=f"{server.url}/api/v1/query"))


async def test_the_error_of_the_server_is_passed_on(
    tmp_path: Path, stack: ExitStack, kind: type[PrometheusServer]
) -> None:
    running = stack.enter_context(kind(tmp_path / "server"))
    async with Client(PrometheusAccess(url=running.url)) as client:
        with pytest.raises(QueryRefused, match=r"(?i)pars"):
            await client.instant("max by (", time.time())


async def check(access: PrometheusAccess) -> None:
    async with Client(access) as client:
        await client.check()
