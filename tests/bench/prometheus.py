"""A thousand nodes from Prometheus: a real VictoriaMetrics serves 164,000 series a tick."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.fabric.openmetrics import EXPOSED
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.history.history import History
from fabmon.session.config import load
from tests.bench.measure import tell
from tests.bench.process import cpu_s, rss_mb
from tests.unit.feeds.prometheus_servers import VictoriaMetrics

NODES, PORTS, METRICS, TICKS = 1024, 8, 20, 8
SCRAPE_S = 15

_FIRST = ("ib_tx_bytes", "ib_rx_bytes", "ib_rate_bps", "ib_state")


def main() -> None:
    """Print the time and CPU of a tick, of console and server, also for a thousand nodes."""
    with (
        tempfile.TemporaryDirectory(prefix="fabmon-bench-") as folder,
        VictoriaMetrics(Path(folder) / "server") as server,
    ):
        asyncio.run(_measure(server))


async def _measure(server: VictoriaMetrics) -> None:
    start_s = time.time() - 4 * SCRAPE_S
    for scrape in range(4):
        _scrape(server, scrape, start_s + scrape * SCRAPE_S)
    async with PrometheusFeed(
        PrometheusClient(PrometheusAccess(url=server.url)), interval_s=SCRAPE_S
    ) as feed:
        began = time.perf_counter()
        await feed.open()
        history, analyst = History([], SCRAPE_S), Analyst(load(None).thresholds)
        async for tick in feed.past(900):
            analyst.accept(history.accept(tick))
        analyst.accept(history.accept(await feed.poll()))
        first_s = time.perf_counter() - began
        rows = []
        for scrape in range(4, 4 + TICKS):
            _scrape(server, scrape, time.time() - 1)
            await asyncio.sleep(0.5)
            server_s = cpu_s(server.pid)
            wall, cpu = time.perf_counter(), time.process_time()
            tick = await feed.poll()
            feed_wall, feed_cpu = time.perf_counter(), time.process_time()
            analyst.accept(history.accept(tick))
            done = time.process_time()
            assert len(tick.frames) == NODES
            rows.append(
                {
                    "wall_ms": (feed_wall - wall) * 1e3,
                    "feed_cpu_ms": (feed_cpu - cpu) * 1e3,
                    "console_cpu_ms": (done - cpu) * 1e3,
                    "server_cpu_ms": (cpu_s(server.pid) - server_s) * 1e3,
                }
            )
        parts = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        tell(
            "prometheus",
            {
                "nodes": NODES,
                "series": NODES * PORTS * METRICS,
                "first_screen_s": round(first_s, 2),
                **{key: round(value, 1) for key, value in parts.items()},
                **{
                    f"{key}_per_1000_nodes": round(value * 1000 / NODES, 1)
                    for key, value in parts.items()
                },
                "cores_at_15s_per_1000_nodes": round(
                    parts["console_cpu_ms"] / 1e3 / SCRAPE_S * 1000 / NODES, 4
                ),
                "rss_mb": round(rss_mb(os.getpid()), 1),
            },
            [row["wall_ms"] / 1e3 for row in rows],
        )


def _scrape(server: VictoriaMetrics, number: int, at_s: float) -> None:
    """One scrape of every agent, as the server would have it."""
    stamp = round(at_s * 1000)
    for name in _names():
        value = {"ib_state": 4, "ib_rate_bps": 50e9}.get(name, number * 4e11)
        server.store(
            f'{EXPOSED[name].sample}{{instance="gpu{node:04}:9838",job="fabmon",'
            f'port="mlx5_{port}",kind="infiniband",source="ib"}} {value + node:.0f} {stamp}'
            for node in range(NODES)
            for port in range(PORTS)
        )
    for what in ('fabmon_source_age_seconds{{{},source="ib"}} 0.3 {}', "up{{{}}} 1 {}"):
        server.store(
            what.format(f'instance="gpu{node:04}:9838",job="fabmon"', stamp)
            for node in range(NODES)
        )


def _names() -> list[str]:
    rest = [name for name in EXPOSED if name.startswith("ib_") and name not in _FIRST]
    return [*_FIRST, *rest][:METRICS]


if __name__ == "__main__":
    main()
