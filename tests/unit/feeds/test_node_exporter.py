"""A real node_exporter: the same values as from the probe, and from captured hardware."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.scrape.exporter_tables import exporter_tables
from fabmon.feeds.scrape.page_reader import PageReader
from fabmon.history.history import History
from tests.fixtures.hosts import NDR_WORDS, ib_host
from tests.fixtures.tree import Tree
from tests.requirements import need_command
from tests.unit.feeds.prometheus_servers import free_port

INTERVAL_S = 0.2
H100 = Path(__file__).parents[4] / "shared" / "hardware" / "sys-class-infiniband-h100"


@pytest.fixture
def node_exporter(tmp_path: Path) -> Iterator[tuple[Tree, int]]:
    """A real node_exporter that reads the tree of a host whose counters change; and its port."""
    tree = ib_host(tmp_path / "host", hcas=2)
    with real_exporter(tree.root) as port:
        yield tree, port


@contextlib.contextmanager
def real_exporter(root: Path) -> Iterator[int]:
    """A node_exporter that reads below `root`; its port."""
    need_command("prometheus-node-exporter", "prometheus-node-exporter")
    (root / "proc").mkdir(exist_ok=True)
    port = free_port()
    command = [
        "prometheus-node-exporter",
        f"--path.sysfs={root}/sys",
        f"--path.procfs={root}/proc",
        "--collector.disable-defaults",
        "--collector.infiniband",
        "--collector.netclass",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(f"http://127.0.0.1:{port}/metrics")
            yield port
        finally:
            process.kill()


def _wait_for(url: str) -> None:
    """Return when the URL is served."""
    until_s = time.monotonic() + 240
    while time.monotonic() < until_s:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing at {url}")


def values_of(hello: Hello, frame: Frame, ports: set[str]) -> dict[tuple[str, str], int]:
    """(port, metric) -> value, for some ports."""
    found = {}
    for block, info in zip(frame.blocks, hello.blocks, strict=True):
        values = iter(block[1:] if block is not None else ())
        for item in info.objects:
            for metric, value in zip(item.metrics, values, strict=False):
                if item.port in ports and value is not None:
                    found[item.port, metric] = value
    return found


async def test_the_real_node_exporter_gives_the_values_of_the_probe(
    node_exporter: tuple[Tree, int],
) -> None:
    tree, port = node_exporter
    probe = Host(name="probe", via="local", sources=("ib", "ib_errors"))
    exporter = Host(name="exporter", address="127.0.0.1", via="exporters", scrape=(f"{port}",))
    both = [probe, exporter]
    history = History(both, INTERVAL_S)
    hcas = {"mlx5_0", "mlx5_1"}
    hellos: dict[str, Hello] = {}
    counted: dict[str, dict[tuple[str, str], int]] = {host.name: {} for host in both}
    rates: dict[str, dict[str, float]] = {host.name: {} for host in both}
    grown = False
    async with (
        asyncio.timeout(240),
        LiveFeed(both, interval_s=INTERVAL_S, root=str(tree.root)) as feed,
    ):
        async for tick in feed:
            snapshot = history.accept(tick)
            hellos.update(tick.hellos)
            for name, frame in tick.frames:
                counted[name].update(values_of(hellos[name], frame, hcas))
            sent = snapshot.column("tx_bps")
            for each in snapshot.fabric.ports:
                if each.name in hcas and sent[each.row] > 0:
                    rates[each.node][each.name] = float(sent[each.row])
            # The probe reads errors at every tenth tick only.
            same = counted["probe"] == counted["exporter"]
            if grown and same and all(set(found) == hcas for found in rates.values()):
                break
            if not grown and same and len(counted["probe"]) == 2 * 24:
                tree.grow(1)
                grown = True
    assert counted["exporter"]["mlx5_0", "ib_tx_bytes"] == 4 * (230 * 10**12 + NDR_WORDS)


def test_every_port_of_a_captured_h100_host_is_read(tmp_path: Path) -> None:
    if not H100.is_dir():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")
    (tmp_path / "sys/class/net").mkdir(parents=True)
    (tmp_path / "sys/class/infiniband").symlink_to(H100)
    with real_exporter(tmp_path) as port:
        reply = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=240)
        with reply:
            reading = PageReader(exporter_tables()).read(reply.read())
    assert {item.port for item in reading.objects} == {path.name for path in H100.iterdir()}
    values = iter(reading.values or ())
    for item in reading.objects:
        found = dict(zip(item.metrics, values, strict=False))
        counters = H100 / str(item.port) / "ports/1/counters"
        assert found["ib_rx_bytes"] == 4 * int((counters / "port_rcv_data").read_text())
        assert found["ib_tx_discards"] == int((counters / "port_xmit_discards").read_text())
        assert len(found) == 24


def test_fabmon_shows_the_ports_of_an_exporter(
    node_exporter: tuple[Tree, int], tmp_path: Path
) -> None:
    tree, port = node_exporter
    hosts = tmp_path / "hosts.txt"
    hosts.write_text(f"gpu001 address=127.0.0.1 via=exporters scrape=node_exporter:{port}\n")
    command = [sys.executable, "-c", "from fabmon.cli.main import main; main()"]
    command += ["--hosts", str(hosts), "--format", "jsonl", "--duration", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(json.loads(line))
            if lines[-1]["type"] == "tick":
                tree.grow(len(lines))
    assert process.returncode == 0
    links = [link for line in lines if line["type"] == "tick" for link in line["links"]]
    assert {link["port"] for link in links} == {"mlx5_0", "mlx5_1", "ib0", "ib1", "eno1"}
    last = [link for link in links if link["port"] == "mlx5_0"][-1]
    assert (last["state"], last["speed_bps"], last["kind"]) == ("up", 400e9, "infiniband")
    # On a busy machine a scrape may be late, which leaves a tick without rates.
    rates = [link["tx_bps"] for link in links if link["port"] == "mlx5_0"]
    assert [rate for rate in rates if rate is not None][-1] > 0
    assert last["levels"]["ib_state"] == 4
