"""Recordings: bytes and CPU per sample beside VictoriaMetrics; opening, seeking, replaying."""

from __future__ import annotations

import asyncio
import json
import os
import random
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

from fabmon.feeds.replay import ReplayFeed
from fabmon.history.history import History
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.reading.timeline import Timeline
from fabmon.recording.writing.writer import Writer
from fabmon.scenes.recording_access import ReplayedRecording
from fabmon.session.config import load
from fabmon.session.session import Session, scenes_of
from fabmon.tui.app import FabmonApp
from fabmon.tui.run_facts import RunFacts
from tests.bench.long_recording import make
from tests.bench.measure import tell
from tests.bench.traffic import METRICS, PORTS, Traffic
from tests.builders import SECOND_NS, START_NS

NODES, SECONDS = 64, 900
SEEKS = 40
BIG = int(os.environ.get("FABMON_BENCH_RECORDING_BYTES", 4_000_000_000))


def main() -> None:
    """Print all results. The large files need about 6 GB in the temporary directory."""
    with tempfile.TemporaryDirectory(prefix="fabmon-bench-") as scratch:
        home = Path(scratch)
        beside_victoria_metrics(home)
        replay(home)
        for nodes, hours in ((1024, 1e9), (64, 24.0)):
            path = home / f"long-{nodes}.fabrec"
            make(path, nodes, BIG, hours)
            # In a process of its own, whose memory is that of reading alone.
            subprocess.run([sys.executable, "-m", __spec__.name, str(path)], check=True)
            path.unlink()


def beside_victoria_metrics(home: Path) -> None:
    """Record samples with their minutes, and import the same samples into VictoriaMetrics."""
    traffic = Traffic(NODES)
    history = History(traffic.hosts)
    hosts = tuple(traffic.hosts)
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=hosts)
    writer = Writer.create(home / "64.fabrec", session)
    taken: list[float] = []
    series: list[list[int]] = [[] for _ in range(NODES * PORTS * len(METRICS))]
    for seq in range(SECONDS):
        tick = traffic.tick(seq, traffic.hellos() if not seq else ())
        snapshot = history.accept(tick)
        start = time.process_time()
        writer.write(tick, snapshot)
        taken.append(time.process_time() - start)
        for values, value in zip(series, traffic.values.ravel().tolist(), strict=True):
            values.append(value)
        traffic.step()
    start = time.process_time()
    writer.close()
    taken.append(time.process_time() - start)
    samples = SECONDS * len(series)
    size = (home / "64.fabrec").stat().st_size
    figures: dict[str, object] = {
        "nodes": NODES,
        "samples": samples,
        "bytes_per_sample": round(size / samples, 4),
        "cpu_ns_per_sample": round(sum(taken) / samples * 1e9, 1),
        "cpu_ms_usual_tick": round(statistics.median(taken) * 1e3, 3),
        "cpu_ms_longest_tick": round(max(taken) * 1e3, 1),
    }
    if shutil.which("victoria-metrics"):
        peer = victoria_metrics_bytes(home / "vm", traffic.names, series)
        figures |= {
            "victoria_metrics_bytes_per_sample": round(peer / samples, 4),
            "ratio": round(size / peer, 3),
        }
    tell("recording_64_nodes", figures)


def victoria_metrics_bytes(home: Path, names: list[str], series: list[list[int]]) -> int:
    """Bytes of some series in VictoriaMetrics, flushed and merged: data and index, no caches."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = ["victoria-metrics", "-storageDataPath", str(home), "-httpListenAddr", address]
    process = subprocess.Popen([*command, "-retentionPeriod", "100y"], stderr=subprocess.DEVNULL)
    try:
        _wait_for(lambda: bool(_ask(f"http://{address}/health")))
        times_ms = [START_NS // 10**6 + 1000 * second for second in range(SECONDS)]
        per_node = PORTS * len(METRICS)
        for number, name in enumerate(names):
            lines = []
            for place in range(per_node):
                port, metric = divmod(place, len(METRICS))
                labels = {"__name__": METRICS[metric], "node": name, "port": f"mlx5_{port}"}
                values = series[number * per_node + place]
                lines.append(
                    json.dumps({"metric": labels, "values": values, "timestamps": times_ms})
                )
            _ask(f"http://{address}/api/v1/import", "\n".join(lines).encode())
        _ask(f"http://{address}/internal/force_flush")
        _ask(f"http://{address}/internal/force_merge")
        _wait_for(lambda: 'vm_active_merges{type="storage/small"} 0' in _metrics(address))
        _ask(f"http://{address}/internal/force_flush")
    finally:
        process.terminate()
        process.wait()
    kept = [home / "data", home / "indexdb"]
    return sum(each.stat().st_size for top in kept for each in top.rglob("*") if each.is_file())


def replay(home: Path) -> None:
    """Replay an hour of 64 nodes through history and analysis, as fast as possible."""
    path = home / "hour.fabrec"
    make(path, NODES, 1 << 40, hours=1.0)

    async def play() -> int:
        with Timeline([path]) as timeline:
            feed = ReplayFeed(timeline, speed=None)
            pipeline = Session(load(None)).recorded_pipeline(timeline)
            return sum([1 async for _ in scenes_of(pipeline, feed)])

    start = time.perf_counter()
    ticks = asyncio.run(play())
    taken_s = time.perf_counter() - start
    figures: dict[str, object] = {
        "ticks": ticks,
        "wall_s": round(taken_s, 2),
        "times_real_time": round(ticks / taken_s),
    }
    tell("replay_64_nodes", figures)
    path.unlink()


def long(path: Path) -> None:
    """Open a long recording, seek in it, and compute its strip."""
    figures: dict[str, object] = {"gb": round(path.stat().st_size / 1e9, 2)}
    with _lap(figures, "open_ms"):
        timeline = Timeline([path])
        timeline.warm()
    with _lap(figures, "first_seek_ms"):
        timeline.prime((timeline.start_ns + timeline.until_ns) // 2)
    figures |= {
        "nodes": len(timeline.hosts),
        "hours": round((timeline.until_ns - timeline.start_ns) / 3.6e12, 1),
    }
    chance = random.Random(1)
    taken, cpus = [], []
    for _ in range(SEEKS):
        at_ns = chance.randrange(timeline.start_ns + 60 * SECOND_NS, timeline.until_ns)
        start, cpu = time.perf_counter(), time.process_time()
        timeline.prime(at_ns)
        next(timeline.ticks(at_ns))
        taken.append((time.perf_counter() - start) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    figures |= {
        "seek_ms_median": round(statistics.median(taken), 1),
        "seek_ms_most": round(max(taken), 1),
        "seek_cpu_ms_median": round(statistics.median(cpus), 1),
        "seek_cpu_ms_most": round(max(cpus), 1),
    }
    with _lap(figures, "strip_ms"):
        timeline.strip(timeline.start_ns, timeline.until_ns, 200)
    with _lap(figures, "notes_ms"):
        figures["notes"] = len(timeline.notes())
    hour_ns = 3600 * SECOND_NS
    with _lap(figures, "hour_of_minutes_ms"):
        figures["minutes"] = sum(1 for _ in timeline.minutes(timeline.until_ns - hour_ns))
    figures |= asyncio.run(through_the_screen(timeline))
    status = Path("/proc/self/status").read_text()
    peak_kb = int(status.partition("VmHWM:")[2].split()[0])
    figures["rss_mb_most"] = round(peak_kb / 1024)
    timeline.close()
    tell("recording_long", figures)


class _Drawn(FabmonApp):
    """The screen, with an event that is set after drawing."""

    CSS_PATH = str(Path(sys.modules[FabmonApp.__module__].__file__ or "").with_name("screen.tcss"))
    _again = asyncio.Event()

    def repaint(self) -> None:
        super().repaint()
        self._again.set()

    async def until(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            self._again.clear()
            await self._again.wait()


async def through_the_screen(timeline: Timeline) -> dict[str, object]:
    """Time seeks from the key to the drawn screen of 200 x 60, and to the whole history."""
    recording = ReplayedRecording(Session(load(None)), timeline)
    app = _Drawn(None, RunFacts("bench", "truecolor", recording=recording))
    chance = random.Random(2)
    walls: list[float] = []
    cpus: list[float] = []
    async with app.run_test(size=(200, 60)) as pilot:
        app.action_view("overview")
        # Where `fabmon replay` begins: all seeks of a user follow a first picture.
        times = [timeline.start_ns]
        for _ in range(SEEKS // 2):
            times.append(chance.randrange(timeline.start_ns + 60 * SECOND_NS, timeline.until_ns))
        for at_ns in times:
            before = app.screen_state.shown
            start, cpu = time.perf_counter(), time.process_time()
            app.player.seek(at_ns)
            await app.until(lambda before=before: app.screen_state.shown is not before)  # type: ignore[misc]
            app.screen._compositor.render_full_update()
            walls.append((time.perf_counter() - start) * 1e3)
            cpus.append((time.process_time() - cpu) * 1e3)
            # Nobody presses a key before the first picture is complete.
            await pilot.pause(1 if at_ns == timeline.start_ns else 0)
        await app.until(lambda: app.screen_state.cursor.is_settled)
        settled_s = time.perf_counter() - start
    return {
        "screen_first_picture_ms": round(walls[0], 1),
        "screen_seek_ms_first": round(walls[1], 1),
        "screen_seek_ms_median": round(statistics.median(walls[1:]), 1),
        "screen_seek_ms_most": round(max(walls[1:]), 1),
        "screen_seek_cpu_ms_median": round(statistics.median(cpus[1:]), 1),
        "screen_settled_s": round(settled_s, 1),
    }


@contextmanager
def _lap(figures: dict[str, object], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    figures[name] = round((time.perf_counter() - start) * 1e3, 1)


def _metrics(address: str) -> str:
    return _ask(f"http://{address}/metrics").decode()


def _ask(url: str, data: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data, timeout=60) as answer:
        body: bytes = answer.read()
    return body


def _wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            if condition():
                return
        except OSError:
            pass
        if time.monotonic() > until:
            raise TimeoutError("VictoriaMetrics does not come so far")
        time.sleep(0.2)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        long(Path(sys.argv[1]))
    else:
        main()
