"""The probe beside prometheus-node-exporter: the same tree of 8 HCAs, the same counters, 1 Hz."""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.measure import tell
from tests.bench.process import cpu_s, rss_mb
from tests.fixtures.hosts import ib_host

SECONDS, RUNS = 12, 3
EVERY_COUNTER = "ib,ib_errors"


def main() -> None:
    """Print CPU per sample of both, CPU of the whole probe at 1 Hz, and its first frame."""
    with tempfile.TemporaryDirectory() as folder:
        ib_host(folder)
        (Path(folder) / "proc").mkdir(exist_ok=True)
        first_frame(folder)
        whole = [probe(folder, 1.0, None) for _ in range(RUNS)]
        one = statistics.median(run["cpu_ms_per_frame"] for run in whole)
        tell(
            "probe",
            {
                "hcas": 8,
                "values_per_frame": whole[0]["values_per_frame"],
                "cpu_ms_per_frame": round(one, 3),
                "percent_of_a_core_at_1hz": round(one / 10, 3),
                "rss_mb": max(run["rss_mb"] for run in whole),
            },
        )
        if shutil.which("prometheus-node-exporter") is None:
            tell("probe_vs_node_exporter", {"skipped": "apt install prometheus-node-exporter"})
            return
        pairs = [
            (probe(folder, 1.0, EVERY_COUNTER, all_at_once=True), exporter(folder))
            for _ in range(RUNS)
        ]
        ratios = [ours["cpu_us_per_sample"] / theirs["cpu_us_per_sample"] for ours, theirs in pairs]
        tell(
            "probe_vs_node_exporter",
            {
                "samples_ours": pairs[0][0]["values_per_frame"],
                "samples_theirs": pairs[0][1]["samples"],
                "us_per_sample_ours": round(
                    statistics.median(o["cpu_us_per_sample"] for o, _ in pairs), 3
                ),
                "us_per_sample_theirs": round(
                    statistics.median(t["cpu_us_per_sample"] for _, t in pairs), 3
                ),
                "ratio_median": round(statistics.median(ratios), 4),
                "ratio_min": round(min(ratios), 4),
                "ratio_max": round(max(ratios), 4),
                "rss_mb_ours": pairs[0][0]["rss_mb"],
                "rss_mb_theirs": pairs[0][1]["rss_mb"],
            },
        )


_ALL_AT_ONCE = """
import sys
from collectors import registry
load = registry.load
def eager(name):
    source = load(name)
    source.every = 1
    return source
registry.load = eager
from collectors.__main__ import run
run()
"""
"""node_exporter reads every counter at every scrape; so does the probe here, for once."""


def probe(
    root: str, interval_s: float, sources: str | None, *, all_at_once: bool = False
) -> dict[str, float]:
    """Run a real probe for some seconds; its CPU in the steady state."""
    how = ["-c", _ALL_AT_ONCE] if all_at_once else ["-m", "collectors"]
    chosen = ["--sources", sources] if sources else []
    command = [sys.executable, *how, "--root", root, "--interval", str(interval_s), *chosen]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        _next_frame(process.stdout.readline)
        start_s, values, frames = cpu_s(process.pid), 0, 0
        for _ in range(SECONDS):
            frame = _next_frame(process.stdout.readline)
            frames += 1
            values += sum(sum(v is not None for v in block[1:]) for block in frame[4][:-1] if block)
        used_s, rss = cpu_s(process.pid) - start_s, rss_mb(process.pid)
        process.kill()
    return {
        "cpu_ms_per_frame": used_s / frames * 1e3,
        "cpu_us_per_sample": used_s / values * 1e6,
        "values_per_frame": round(values / frames),
        "rss_mb": round(rss, 1),
    }


def _next_frame(readline: Callable[[], bytes]) -> list[Any]:
    while True:
        line: list[Any] = json.loads(readline())
        if line[0] == "frame":
            return line


def first_frame(root: str) -> None:
    """From the start of the process to its first frame."""
    taken = []
    for _ in range(RUNS + 2):
        start_s = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "collectors", "--root", root, "--once"],
            capture_output=True,
            check=True,
        )
        taken.append(time.monotonic() - start_s)
    tell("probe_first_frame", {"wall_ms": round(statistics.median(taken) * 1e3)}, taken)


def exporter(root: str) -> dict[str, float]:
    """Scrape a real node_exporter once a second for some seconds; its CPU in the steady state."""
    with _running_exporter(root) as (process, url):
        samples = _scrape(url)
        start_s = cpu_s(process.pid)
        for _ in range(SECONDS):
            time.sleep(1)
            _scrape(url)
        used_s = cpu_s(process.pid) - start_s
        return {
            "samples": samples,
            "cpu_us_per_sample": used_s / (samples * SECONDS) * 1e6,
            "rss_mb": round(rss_mb(process.pid), 1),
        }


@contextmanager
def _running_exporter(root: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    with socket.socket() as probe_socket:
        probe_socket.bind(("127.0.0.1", 0))
        port = probe_socket.getsockname()[1]
    command = [
        "prometheus-node-exporter",
        f"--path.sysfs={root}/sys",
        f"--path.procfs={root}/proc",
        "--collector.disable-defaults",
        "--collector.infiniband",
        "--web.disable-exporter-metrics",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}/metrics"
        for _ in range(50):
            try:
                _scrape(url)
                break
            except OSError:
                time.sleep(0.1)
        try:
            yield process, url
        finally:
            process.kill()


def _scrape(url: str) -> int:
    """Read a page of metrics; the number of InfiniBand counters on it."""
    with urllib.request.urlopen(url, timeout=5) as page:
        lines = page.read().decode().splitlines()
    return sum(line.startswith("node_infiniband_") and "_info" not in line for line in lines)


if __name__ == "__main__":
    main()
