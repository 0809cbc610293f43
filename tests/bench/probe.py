"""The probe beside prometheus-node-exporter: the same tree of 8 HCAs, the same counters.

At one sample a second every cache is cold for both; back to back they are warm for both.
"""

from __future__ import annotations

import json
import os
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

from fabmon.feeds.probe_input import archive
from tests.bench.measure import tell
from tests.bench.process import cpu_s, rss_mb
from tests.fixtures import nvml
from tests.fixtures.hosts import hgx_host, ib_host
from tests.fixtures.interpreters import VERSIONS, interpreter

SECONDS, RUNS, BACK_TO_BACK = 12, 3, 200


def main() -> None:
    """Print CPU per sample of both, CPU of the whole probe at 1 Hz, and its first frame."""
    with tempfile.TemporaryDirectory() as folder:
        ib_host(folder)
        (Path(folder) / "proc").mkdir(exist_ok=True)
        first_frame(folder)
        whole(folder)
        whole_gpu_host()
        older_pythons(folder)
        if shutil.which("prometheus-node-exporter") is None:
            tell("probe_vs_node_exporter", {"skipped": "apt install prometheus-node-exporter"})
            return
        beside("probe_vs_node_exporter_at_1hz", folder, 1.0, SECONDS)
        beside("probe_vs_node_exporter_back_to_back", folder, 0.0, BACK_TO_BACK)


def whole(folder: str) -> None:
    """All sources at one tick a second, as it is in use."""
    runs = [probe(folder, SECONDS) for _ in range(RUNS)]
    cpu_ms = statistics.median(run["cpu_ms_per_frame"] for run in runs)
    tell(
        "probe",
        {
            "hcas": 8,
            "values_per_frame": runs[0]["values_per_frame"],
            "cpu_ms_per_frame": round(cpu_ms, 3),
            "percent_of_a_core_at_1hz": round(cpu_ms / 10, 3),
            "rss_mb": max(run["rss_mb"] for run in runs),
        },
    )


def whole_gpu_host() -> None:
    """8 HCAs, 8 GPUs of 18 NVLinks and 10 plain NICs, against the stand-in for NVML."""
    with tempfile.TemporaryDirectory() as folder:
        hgx_host(folder, netdevs=10)
        os.environ[nvml.VARIABLE] = str(Path(folder) / nvml.SCENARIO)
        runs = [probe(folder, SECONDS) for _ in range(RUNS)]
        cpu_ms = statistics.median(run["cpu_ms_per_frame"] for run in runs)
        wall_ms = statistics.median(run["wall_ms_per_frame"] for run in runs)
        tell(
            "probe_gpu_host",
            {
                "values_per_frame": runs[0]["values_per_frame"],
                "cpu_ms_per_frame": round(cpu_ms, 3),
                "percent_of_a_core_at_1hz": round(cpu_ms / 10, 3),
                "read_ms_per_frame": round(wall_ms, 2),
                "rss_mb": max(run["rss_mb"] for run in runs),
            },
        )


def older_pythons(folder: str) -> None:
    """The probe's archive at one tick a second, under each Python that nodes may have."""
    path = Path(folder) / "archive.zip"
    path.write_bytes(archive())
    for version in (*VERSIONS, "3.11"):
        python = interpreter(version)
        if python is None:
            tell(f"probe_python_{version}", {"skipped": f"no python{version}"})
            continue
        start = [python, "-E", "-c", _ARCHIVE, str(path), "--root", folder]
        runs = [_measured(start, SECONDS) for _ in range(RUNS)]
        cpu_ms = statistics.median(run["cpu_ms_per_frame"] for run in runs)
        wall_ms = statistics.median(_wall_ms([*start, "--once"]) for _ in range(RUNS + 2))
        tell(
            f"probe_python_{version}",
            {
                "values_per_frame": runs[0]["values_per_frame"],
                "cpu_ms_per_frame": round(cpu_ms, 3),
                "rss_mb": max(run["rss_mb"] for run in runs),
                "first_frame_ms": round(wall_ms),
            },
        )


_ARCHIVE = (
    "import sys,runpy;sys.path.insert(0,sys.argv.pop(1));"
    "runpy.run_module('collectors',None,'__main__',True)"
)


def beside(name: str, folder: str, gap_s: float, frames: int) -> None:
    """The same counters, each read every time, by both: `gap_s` from one sample to the next."""
    pairs = [
        (eager_probe(folder, gap_s, frames), exporter(folder, gap_s, frames)) for _ in range(RUNS)
    ]
    ratios = [ours["cpu_us_per_sample"] / theirs["cpu_us_per_sample"] for ours, theirs in pairs]
    ours, theirs = ([pair[side]["cpu_us_per_sample"] for pair in pairs] for side in (0, 1))
    tell(
        name,
        {
            "samples_ours": pairs[0][0]["samples"],
            "samples_theirs": pairs[0][1]["samples"],
            "us_per_sample_ours": round(statistics.median(ours), 2),
            "us_per_sample_theirs": round(statistics.median(theirs), 2),
            "ratio_median": round(statistics.median(ratios), 3),
            "ratio_min": round(min(ratios), 3),
            "ratio_max": round(max(ratios), 3),
            "rss_mb_ours": pairs[0][0]["rss_mb"],
            "rss_mb_theirs": pairs[0][1]["rss_mb"],
        },
    )


_EAGER = """
import sys, os
from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.loop.source_loader import load_source
root, gap_s = sys.argv[1], float(sys.argv[2])
sources = [load_source(name)(HostFS(root)) for name in ("ib", "ib_errors")]
for source in sources:
    source.every = 1
Probe(sources, lambda line: os.write(1, line), {}, gap_s or 0.0005).run()
"""
"""A probe that reads every counter at every tick, as node_exporter does at every scrape."""


def probe(root: str, frames: int) -> dict[str, float]:
    """Run the probe as a node does, for some seconds; its CPU in the steady state."""
    return _measured([sys.executable, "-m", "collectors", "--root", root], frames)


def eager_probe(root: str, gap_s: float, frames: int) -> dict[str, float]:
    """Run the probe over InfiniBand counters only, all of them at every tick."""
    return _measured([sys.executable, "-c", _EAGER, root, str(gap_s)], frames)


def _measured(command: list[str], frames: int) -> dict[str, float]:
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(2):
            _next_frame(process.stdout.readline)
        start_s, values, read_us = cpu_s(process.pid), 0, 0
        for _ in range(frames):
            frame = _next_frame(process.stdout.readline)
            values += sum(sum(v is not None for v in block[1:]) for block in frame[4][:-1] if block)
            clocks = [block[0] for block in frame[4] if block]
            read_us += (max(clocks) - frame[3]) // 1000
        used_s, rss = cpu_s(process.pid) - start_s, rss_mb(process.pid)
        process.kill()
    return {
        "cpu_ms_per_frame": used_s / frames * 1e3,
        "cpu_us_per_sample": used_s / values * 1e6,
        "wall_ms_per_frame": read_us / frames / 1e3,
        "values_per_frame": round(values / frames),
        "samples": round(values / frames),
        "rss_mb": round(rss, 1),
    }


def _next_frame(readline: Callable[[], bytes]) -> list[Any]:
    while True:
        line: list[Any] = json.loads(readline())
        if line[0] == "frame":
            return line


def first_frame(root: str) -> None:
    """From the start of the process to its first frame."""
    command = [sys.executable, "-m", "collectors", "--root", root, "--once"]
    taken = [_wall_ms(command) / 1e3 for _ in range(RUNS + 2)]
    tell("probe_first_frame", {"wall_ms": round(statistics.median(taken) * 1e3)}, taken)


def _wall_ms(command: list[str]) -> float:
    start_s = time.monotonic()
    subprocess.run(command, capture_output=True, check=True)
    return (time.monotonic() - start_s) * 1e3


def exporter(root: str, gap_s: float, scrapes: int) -> dict[str, float]:
    """Scrape a real node_exporter so many times; its CPU in the steady state."""
    with _running_exporter(root) as (process, url):
        samples = _scrape(url)
        start_s = cpu_s(process.pid)
        for _ in range(scrapes):
            time.sleep(gap_s)
            _scrape(url)
        used_s = cpu_s(process.pid) - start_s
        return {
            "samples": samples,
            "cpu_us_per_sample": used_s / (samples * scrapes) * 1e6,
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
