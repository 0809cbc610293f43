"""Large sites from Prometheus and VictoriaMetrics: what a tick costs fabmon and the server.

`--server`, `--nodes` and `--ticks` are options. The server is a real one on the same cores, and
gets a scrape of the whole site before every tick (tests/bench/site.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabmon.analysis.analyst import Analyst
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.history.history import History
from fabmon.session.config import load
from tests.bench.measure import about
from tests.bench.process import cpu_s, rss_mb
from tests.bench.shipped import HEIGHT, WIDTH, started, watch
from tests.bench.site import OVERVIEW, PORTS, SCRAPE_S, Site, store_past, writer
from tests.terminals import Tmux
from tests.unit.feeds.prometheus_servers import Prometheus, PrometheusServer, VictoriaMetrics

_AGE_S = 0.5
"""How old a scrape is when fabmon queries it."""


class ReceivingPrometheus(Prometheus):
    """Prometheus with its remote-write receiver."""

    def command(self) -> list[str]:
        return [*super().command(), "--web.enable-remote-write-receiver", "--log.level=warn"]


async def measure_ticks(server: PrometheusServer, nodes: int, ticks: int) -> dict[str, float]:
    """Medians over some ticks of fabmon without a screen, and of the server."""
    site = Site(nodes)
    kind = "victoria-metrics" if isinstance(server, VictoriaMetrics) else "prometheus"
    to = writer(kind, server.url, site)
    store_past(site, to)
    async with PrometheusFeed(
        PrometheusClient(PrometheusAccess(url=server.url)), interval_s=SCRAPE_S
    ) as feed:
        await feed.open()
        history, analyst = History([], SCRAPE_S), Analyst(load(None).thresholds)
        async for tick in feed.past(900):
            analyst.accept(history.accept(tick))
        analyst.accept(history.accept(await feed.poll()))
        rows = []
        for _ in range(ticks):
            await asyncio.sleep(SCRAPE_S - time.time() % SCRAPE_S)
            site.advance(SCRAPE_S)
            to.store(time.time())
            await asyncio.sleep(_AGE_S + 0.1)
            server_s = cpu_s(server.pid)
            wall, cpu = time.perf_counter(), time.process_time()
            tick = await feed.poll()
            feed_wall = time.perf_counter()
            analyst.accept(history.accept(tick))
            rows.append(
                {
                    "tick_nodes": len(tick.frames),
                    "tick_feed_s": feed_wall - wall,
                    "tick_s": time.perf_counter() - wall,
                    "tick_console_cpu_s": time.process_time() - cpu,
                    "tick_server_cpu_s": cpu_s(server.pid) - server_s,
                }
            )
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


@contextmanager
def _watched(server: str, url: str, nodes: int) -> Iterator[Tmux]:
    """A terminal in which fabmon watches a site that is scraped every 15 s."""
    with tempfile.TemporaryDirectory(prefix="fabmon-bench-", ignore_cleanup_errors=True) as name:
        command = [sys.executable, "-m", "tests.bench.site", server, url, str(nodes), "--continues"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scraping:
            assert scraping.stdout is not None
            scraping.stdout.readline()
            screen = Tmux(started(["--prometheus", url, "--interval", "15"], name), WIDTH, HEIGHT)
            try:
                yield screen
            finally:
                screen.close()
                scraping.terminate()


def measure_shipped(server: str, url: str, nodes: int, seconds: float) -> dict[str, float]:
    """fabmon as it is started, with screen, findings and recording."""
    with _watched(server, url, nodes) as screen:
        return watch(screen, seconds, settle_s=SCRAPE_S)


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=("prometheus", "victoria-metrics"), required=True)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--ticks", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    kind = VictoriaMetrics if options.server == "victoria-metrics" else ReceivingPrometheus
    load_before = os.getloadavg()[0]
    with (
        tempfile.TemporaryDirectory(prefix="fabmon-bench-") as folder,
        kind(Path(folder) / "server") as server,
    ):
        figures = asyncio.run(measure_ticks(server, options.nodes, options.ticks))
        figures |= measure_shipped(options.server, server.url, options.nodes, options.seconds)
        figures["server_rss_mb"] = rss_mb(server.pid)
    line = {
        "bench": "growth",
        "server": options.server,
        "nodes": options.nodes,
        "series": options.nodes * PORTS * len(OVERVIEW),
        **about(load_before),
        **{key: round(value, 3) for key, value in figures.items()},
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
