"""Large sites from Prometheus and VictoriaMetrics: what a tick costs fabmon and the server.

`--server`, `--nodes` and `--ticks` are options. The server is a real one on the same cores, and
gets a scrape of the whole site before every tick (tests/bench/site.py).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from fabmon import __version__
from fabmon.analysis.analyst import Analyst
from fabmon.feeds.prometheus.client import PrometheusAccess, PrometheusClient
from fabmon.feeds.prometheus.feed import PrometheusFeed
from fabmon.history.history import History
from fabmon.session.config import load
from tests.bench.process import cpu_s, rss_mb
from tests.bench.site import OVERVIEW, PORTS, ImportWriter, RemoteWriter, Site
from tests.unit.feeds.prometheus_servers import Prometheus, PrometheusServer, VictoriaMetrics

SCRAPE_S = 15.0
_PAST_SCRAPES = 5
_AGE_S = 0.5
"""How old a scrape is when fabmon queries it."""


class ReceivingPrometheus(Prometheus):
    """Prometheus with its remote-write receiver."""

    def command(self) -> list[str]:
        return [*super().command(), "--web.enable-remote-write-receiver", "--log.level=warn"]


async def measure(server: PrometheusServer, nodes: int, ticks: int) -> dict[str, float]:
    """Medians over some ticks of fabmon without a screen, and of the server."""
    site = Site(nodes)
    is_vm = isinstance(server, VictoriaMetrics)
    writer = (ImportWriter if is_vm else RemoteWriter)(server.url, site)
    start_s = time.time() - _PAST_SCRAPES * SCRAPE_S
    for scrape in range(_PAST_SCRAPES):
        site.advance(SCRAPE_S)
        writer.store(start_s + scrape * SCRAPE_S)
    async with PrometheusFeed(
        PrometheusClient(PrometheusAccess(url=server.url)), interval_s=SCRAPE_S
    ) as feed:
        before = time.perf_counter()
        await feed.open()
        history, analyst = History([], SCRAPE_S), Analyst(load(None).thresholds)
        async for tick in feed.past(900):
            analyst.accept(history.accept(tick))
        analyst.accept(history.accept(await feed.poll()))
        first_s = time.perf_counter() - before
        rows = []
        for _ in range(ticks):
            await asyncio.sleep(SCRAPE_S - time.time() % SCRAPE_S)
            site.advance(SCRAPE_S)
            writer.store(time.time())
            await asyncio.sleep(_AGE_S + 0.1)
            server_s = cpu_s(server.pid)
            wall, cpu = time.perf_counter(), time.process_time()
            tick = await feed.poll()
            feed_wall, feed_cpu = time.perf_counter(), time.process_time()
            analyst.accept(history.accept(tick))
            done_wall, done_cpu = time.perf_counter(), time.process_time()
            rows.append(
                {
                    "frames": len(tick.frames),
                    "feed_wall_s": feed_wall - wall,
                    "wall_s": done_wall - wall,
                    "feed_cpu_s": feed_cpu - cpu,
                    "console_cpu_s": done_cpu - cpu,
                    "server_cpu_s": cpu_s(server.pid) - server_s,
                }
            )
            print(json.dumps({k: round(v, 2) for k, v in rows[-1].items()}), flush=True)
    medians = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
    return medians | {
        "first_s": first_s,
        "rss_mb": rss_mb(os.getpid()),
        "server_rss_mb": rss_mb(server.pid),
    }


def main() -> None:
    """Print a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", choices=("prometheus", "victoria-metrics"), required=True)
    parser.add_argument("--nodes", type=int, default=1024)
    parser.add_argument("--ticks", type=int, default=5)
    options = parser.parse_args()
    kind = VictoriaMetrics if options.server == "victoria-metrics" else ReceivingPrometheus
    with (
        tempfile.TemporaryDirectory(prefix="fabmon-bench-") as folder,
        kind(Path(folder) / "server") as server,
    ):
        load_before = os.getloadavg()[0]
        figures = asyncio.run(measure(server, options.nodes, options.ticks))
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    about = {
        "bench": "growth",
        "server": options.server,
        "nodes": options.nodes,
        "series": options.nodes * PORTS * len(OVERVIEW),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "version": __version__,
        "commit": commit.stdout.strip(),
        "machine": f"{os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": round(load_before, 1),
    }
    print(json.dumps(about | {key: round(value, 3) for key, value in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
