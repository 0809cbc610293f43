"""Bursts: what a probe does when it is asked to look fast, and that its frames do not notice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Container, Dict, List, Optional

import pytest

from collectors.hostfs import HostFS
from collectors.loop import burst
from collectors.loop.burst import BurstRunner, parse_burst
from collectors.loop.requests import BadRequest, RequestWorker
from collectors.source import Faults, Source
from collectors.wire import Object
from tests.fixtures.hosts import ib_host, roce_host
from tests.fixtures.tree import Counter, Tree

ROOT = Path(__file__).parents[3]


class Lines:
    """Lines of bursts, and when the last one has come."""

    def __init__(self) -> None:
        self.all: List[Dict[str, Any]] = []
        self.done = threading.Event()

    def __call__(self, line: bytes) -> None:
        kind, body = json.loads(line)
        assert kind == "burst"
        assert len(line) < 200_000
        self.all.append(body)
        if body.get("done"):
            self.done.set()

    @property
    def samples(self) -> List[List[Optional[int]]]:
        return [sample for body in self.all for sample in body.get("samples", [])]


def burst_of(root: "Path | str", **ask: Any) -> Lines:
    lines = Lines()
    worker = RequestWorker("burst", BurstRunner(HostFS(str(root))).run, lines)
    worker.submit({"id": 1, "seconds": 0.3, "hz": 100, **ask})
    assert lines.done.wait(10)
    return lines


def test_a_port_of_infiniband_in_bytes(tmp_path: Path) -> None:
    ib_host(tmp_path)
    lines = burst_of(tmp_path, ports=["mlx5_1", "mlx5_0"])
    begun, *_, last = lines.all
    assert begun["ports"] == [
        {"port": "mlx5_0", "source": "ib", "metrics": ["ib_tx_bytes", "ib_rx_bytes"]},
        {"port": "mlx5_1", "source": "ib", "metrics": ["ib_tx_bytes", "ib_rx_bytes"]},
    ]
    assert last == {"id": 1, "done": True}
    assert {len(sample) for sample in lines.samples} == {5}
    words = HostFS(str(tmp_path)).number(
        "sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data"
    )
    assert words is not None
    assert lines.samples[0][1] == 4 * words
    clock = [sample[0] or 0 for sample in lines.samples]
    assert clock == sorted(clock)
    assert 5 <= len(clock) <= 31


def test_an_interface_without_rdma_and_a_port_that_is_not_there(tmp_path: Path) -> None:
    tree = ib_host(tmp_path)
    for way in ("tx", "rx"):
        tree.counter(f"sys/class/net/eno1/statistics/{way}_bytes", Counter(7, 100))
    lines = burst_of(tmp_path, ports=["eno1", "gpu0", "mlx5_3"])
    assert [port["source"] for port in lines.all[0]["ports"]] == ["ib", "netdev"]
    assert list(lines.all[0]["missing"]) == ["gpu0"]
    assert lines.samples[0][3:] == [7, 7]


def test_a_port_without_a_fast_counter_has_no_samples(tmp_path: Path) -> None:
    roce_host(tmp_path)
    lines = burst_of(tmp_path, ports=["gpu0"])
    assert lines.samples == []
    assert lines.all[0]["missing"] == {"gpu0": "no byte counter that may be read so often"}


def test_long_bursts_come_in_many_lines_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(burst, "_MAX_NUMBERS", 16)
    ib_host(tmp_path)
    lines = burst_of(tmp_path, ports=["mlx5_0"], seconds=1)
    # A busy machine takes fewer samples, and a line is sent after some time, too.
    assert max(len(body.get("samples", [])) for body in lines.all) <= 5
    assert len(lines.samples) > 5


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ports": []}, "1 to 16 names"),
        ({"ports": ["p"] * 17}, "1 to 16 names"),
        ({"ports": [7]}, "must be names"),
        ({"seconds": 61}, "seconds must be 0.1 to 60, not 61"),
        ({"hz": 101}, "hz must be 1 to 100, not 101"),
        ({"hz": True}, "hz must be 1 to 100"),
        ({"seconds": "long"}, "not 'long'"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_with_the_reason(
    change: Dict[str, Any], said: str
) -> None:
    asked = {"id": 3, "ports": ["mlx5_0"], "seconds": 1, "hz": 10, **change}
    with pytest.raises(BadRequest, match=said):
        parse_burst(asked)
    lines = Lines()
    RequestWorker("burst", BurstRunner(HostFS("/nowhere")).run, lines).submit(asked)
    assert lines.done.wait(5)
    (last,) = lines.all
    assert last["id"] == 3
    assert said.split(" to ")[0] in last["error"]


@pytest.mark.parametrize("asked", [None, 7, [], {}, {"id": "x"}])
def test_an_invalid_request_is_ignored(asked: object) -> None:
    lines = Lines()
    worker = RequestWorker("burst", BurstRunner(HostFS("/nowhere")).run, lines)
    worker.submit(asked)
    worker.submit({"id": 2})
    assert lines.done.wait(5)
    assert [body["id"] for body in lines.all] == [2]


class Hanging(Source):
    """A port whose reads do not come back."""

    name = "hanging"

    def __init__(self, host: HostFS, wanted: Container[str]) -> None:
        super().__init__(host)
        self.gate = threading.Event()

    def discover(self) -> List[Object]:
        return [Object("p", "infiniband", "p", {}, ("ib_tx_bytes", "ib_rx_bytes"))]

    def read(self, faults: Faults) -> List[Optional[int]]:
        self.gate.wait()
        return [1, 2]


def test_a_read_that_hangs_costs_the_burst_and_submitting_never_blocks() -> None:
    lines = Lines()
    worker = RequestWorker("burst", BurstRunner(HostFS("/nowhere"), (Hanging,)).run, lines)
    for number in range(1, 20):
        worker.submit({"id": number, "ports": ["p"], "seconds": 0.2, "hz": 10})
    deadline = time.monotonic() + 240
    while not lines.all and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [body["id"] for body in lines.all] == [1]


class Growing:
    """A tree whose counters grow, in a thread, as long as it is entered."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._grow, daemon=True)

    def _grow(self) -> None:
        second = 0
        while not self._stop.wait(0.02):
            second += 1
            self._tree.grow(second)

    def __enter__(self) -> "Growing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def test_a_running_probe_is_asked_and_its_frames_go_on(tmp_path: Path) -> None:
    tree = ib_host(tmp_path, hcas=2)
    command = [sys.executable, "-m", "collectors", "--control"]
    settings = {"interval_s": 0.1, "root": str(tmp_path), "lease_s": 30}
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        Growing(tree),
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as probe,
    ):
        assert probe.stdin is not None
        assert probe.stdout is not None
        asked = {"burst": {"id": 9, "ports": ["mlx5_1"], "seconds": 2, "hz": 50}}
        probe.stdin.write(json.dumps(settings).encode() + b"\n")
        probe.stdin.write(b'{"later": 1}\nnot json\n{}\n' + json.dumps(asked).encode() + b"\n")
        probe.stdin.flush()
        frames: List[int] = []
        parts: List[Dict[str, Any]] = []
        while len(frames) < 3 or not (parts and parts[-1].get("done")):
            kind, *rest = json.loads(probe.stdout.readline())
            if kind == "frame":
                frames.append(rest[0])
            elif kind == "burst":
                parts.append(rest[0])
        probe.stdin.close()
        assert probe.wait(timeout=240) == 0
    assert frames == list(range(len(frames)))
    samples = [sample for part in parts for sample in part.get("samples", [])]
    # 101 where nothing else runs.
    assert len(samples) >= 5
    assert len({sample[1] for sample in samples}) > 1
    assert "error" not in parts[-1]
