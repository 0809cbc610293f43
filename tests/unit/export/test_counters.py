"""export as OpenMetrics: imported by a real Prometheus and VictoriaMetrics."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame
from fabmon.report.openmetrics import MAX_MEMORY_VALUES, NodeClock, Transposer, families
from tests.builders import SECOND_NS, START_NS, LeafSpine, frame, hello, port, tick, up
from tests.requirements import need_command
from tests.unit.export.test_rates import exported, lines_of
from tests.unit.feeds.prometheus_servers import Prometheus, VictoriaMetrics
from tests.unit.recording.builders import eventful_ticks, write
from tests.unit.test_cli import fabmon_here

SAMPLE = re.compile(r"(\w+)(\{.*\}) (\S+) (\d+\.\d{3})")
QUERY = 'rate(fabmon_phy_tx_bytes_total{instance="leaf1",port="swp37"}[10s])*8'


def samples(text: str) -> Iterator[tuple[str, str, float, float]]:
    for line in text.splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            yield match[1], match[2], float(match[3]), float(match[4])


def text_of(ticks: list[Tick], directory: Path, max_memory_values: int = MAX_MEMORY_VALUES) -> str:
    transposer = Transposer(directory, 1.0, max_memory_values)
    for each in ticks:
        transposer.accept(each)
    transposer.settle()
    text = "".join(part for _, part in families(transposer, lambda node, place: True))
    transposer.close()
    return text


@pytest.fixture(scope="module")
def leaf1(pod7: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("counters")
    text = exported(pod7, directory / "a.openmetrics", "--links", "node:leaf1")
    return text


def test_families_and_series_are_each_in_one_piece(leaf1: Path) -> None:
    text = leaf1.read_text()
    assert text.endswith("\n# EOF\n")
    exported_samples = list(samples(text))
    series = [key for key, _ in groupby((name, labels) for name, labels, _, _ in exported_samples)]
    assert len(series) == len(set(series)) > 1000
    families = [name for name, _ in groupby(name for name, _ in series)]
    heads = re.findall(r"# TYPE (\w+) (counter|gauge)", text)
    assert families == [f"{name}_total" if kind == "counter" else name for name, kind in heads]
    for _, group in groupby(exported_samples, key=lambda each: each[:2]):
        times = [time for *_, time in group]
        assert times == sorted(set(times))


def counted(name: str, labels: str, text: str) -> list[float]:
    return [
        value
        for n, sample_labels, value, _ in samples(text)
        if (n, sample_labels) == (name, labels)
    ]


def test_values_are_those_that_the_nodes_sent(tmp_path: Path) -> None:
    ticks = eventful_ticks()
    text = text_of(ticks, tmp_path)
    labels = '{instance="gpu002",port="eth0",kind="ethernet",source="netdev"}'
    sent = [each for t in ticks for node, each in t.frames if node == "gpu002"]
    blocks = [each.blocks[0] for each in sent if each.blocks[0] is not None]
    for name, place in (
        ("fabmon_netdev_tx_bytes_total", 2),
        ("fabmon_netdev_rx_bytes_total", 3),
    ):
        values = [block[place] for block in blocks if block is not None]
        assert counted(name, labels, text) == [float(each) for each in values if each is not None]
    both = [
        [s for s in samples(text) if s[0] == "fabmon_netdev_up" and f'port="{name}"' in s[1]]
        for name in ("eth0", "eth1")
    ]
    assert {s[1] for s in both[1]} == {
        '{instance="gpu001",port="eth1",kind="ethernet",source="netdev"}'
    }


def test_a_counter_at_its_maximum_is_absent(tmp_path: Path) -> None:
    counters = hello(port("mlx5_0", metrics=("ib_symbol_errors", "pause_rx_us")))
    ticks = [
        tick(0, {"gpu001": frame(0, 65_534, 1_500_000)}, {"gpu001": counters}, up("gpu001")),
        tick(1, {"gpu001": frame(1, 65_535, 2_000_000)}),
    ]
    text = text_of(ticks, tmp_path)
    labels = '{instance="gpu001",port="mlx5_0",kind="ethernet",source="netdev"}'
    assert counted("fabmon_ib_symbol_errors_total", labels, text) == [65_534]
    assert counted("fabmon_pause_rx_seconds_total", labels, text) == [1.5, 2.0]
    assert "# UNIT fabmon_pause_rx_seconds seconds\n" in text


def test_little_memory_gives_the_same_text(tmp_path: Path) -> None:
    fabric = LeafSpine()
    ticks = []
    for seq in range(60):
        fabric.sent["leaf1/up1"] = 1e6 * seq
        ticks.append(fabric.step())
    whole = text_of(ticks, tmp_path)
    assert text_of(ticks, tmp_path, max_memory_values=100) == whole


def test_times_keep_the_steps_of_the_nodes_clock() -> None:
    clock = NodeClock(5 * SECOND_NS)
    late_ns = [900, 300, 700, 20, 500]  # ms from the read to the tick
    offsets = [
        clock.at(n * SECOND_NS, START_NS + n * SECOND_NS + late * 1_000_000)
        for n, late in enumerate(late_ns)
    ]
    assert [(each - START_NS) // 1_000_000 for each in offsets] == [900, 300, 300, 20, 20]
    assert clock.at(0, START_NS + 99 * SECOND_NS) == START_NS + 99 * SECOND_NS  # rebooted
    far = clock.at(SECOND_NS, START_NS + 300 * SECOND_NS)  # was suspended
    assert far == START_NS + 299 * SECOND_NS


def test_frames_that_arrive_together_keep_their_times(tmp_path: Path) -> None:
    one_port = hello(port("eth0"))
    frames = [Frame(n, 0, n * SECOND_NS, [[n * SECOND_NS, 1, n, n, 0]]) for n in range(4)]
    ticks = [
        Tick(0, START_NS, hellos=(("gpu001", one_port),), frames=(("gpu001", frames[0]),)),
        Tick(3, START_NS + 3 * SECOND_NS, frames=tuple(("gpu001", each) for each in frames[1:])),
    ]
    times = [t for name, _, _, t in samples(text_of(ticks, tmp_path)) if name == "fabmon_netdev_up"]
    assert times == [START_NS / SECOND_NS + n for n in range(4)]


def test_a_filter_without_match_is_reported(tmp_path: Path) -> None:
    """A name that nothing has is an error, with similar names; that nothing was so busy is not."""
    write(tmp_path / "a.fabrec", eventful_ticks())

    def exported_by(style: str, *filters: str) -> tuple[int, str]:
        options = [word for each in filters for word in ("--links", each)]
        done = fabmon_here("export", str(tmp_path / "a.fabrec"), "--format", style, *options)
        return done.returncode, done.stderr

    assert exported_by("openmetrics", "xy") == (2, "fabmon: --links xy: no port matched\n")
    assert exported_by("csv", "node:gpu", "util>900") == (
        0,
        "fabmon: --links util>900: no port matched\n",
    )
    status, text = exported_by("csv", "node:gpu", "node:gup001")
    assert status == 2
    assert "--links node:gup001: no port matched: did you mean gpu" in text
    path = tmp_path / "a.csv"
    options = ("--format", "csv", "--links", "gup001", "-o", str(path))
    assert fabmon_here("export", str(tmp_path / "a.fabrec"), *options).returncode == 2
    assert not path.exists()


def expected_bps(pod7: Path, tmp_path: Path) -> float:
    """The mean rate over 10 s of leaf1's port swp37 as shown by fabmon."""
    part = ("--from", "+20s", "--to", "+29s", "--links", "node:leaf1 port:swp37")
    lines = lines_of(exported(pod7, tmp_path / "a.jsonl", *part))
    links = [link for line in lines if line["type"] == "tick" for link in line["links"]]
    assert len(links) == 10
    return float(sum(link["tx_bps"] for link in links) / 10)


def asked(url: str, time_s: float) -> float:
    query = urllib.parse.urlencode({"query": QUERY, "time": time_s, "nocache": 1})
    with urllib.request.urlopen(f"{url}/api/v1/query?{query}", timeout=240) as answer:
        result = json.load(answer)["data"]["result"]
    assert len(result) == 1, result
    return float(result[0]["value"][1])


def end_s(pod7: Path, text: str) -> float:
    """The time of the sample at tick 29, in seconds."""
    times = [
        time
        for name, labels, _, time in samples(text)
        if name == "fabmon_phy_tx_bytes_total" and 'port="swp37"' in labels
    ]
    return times[29]


def test_prometheus_serves_blocks_made_by_promtool(pod7: Path, leaf1: Path, tmp_path: Path) -> None:
    need_command("promtool", "prometheus")
    data = tmp_path / "prometheus" / "data"
    data.parent.mkdir()
    made = subprocess.run(
        ["promtool", "tsdb", "create-blocks-from", "openmetrics", str(leaf1), str(data)],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert made.returncode == 0, made.stderr
    with Prometheus(tmp_path / "prometheus") as server:
        got = asked(server.url, end_s(pod7, leaf1.read_text()))
    assert got == pytest.approx(expected_bps(pod7, tmp_path), rel=0.02)


def test_victoriametrics_imports_it(pod7: Path, leaf1: Path, tmp_path: Path) -> None:
    with VictoriaMetrics(tmp_path / "victoria") as server:
        for path, body in (
            ("/api/v1/import/prometheus", leaf1.read_bytes()),
            ("/internal/force_flush", None),
        ):
            with urllib.request.urlopen(f"{server.url}{path}", data=body, timeout=240):
                pass
        got = asked(server.url, end_s(pod7, leaf1.read_text()))
    assert got == pytest.approx(expected_bps(pod7, tmp_path), rel=0.02)
