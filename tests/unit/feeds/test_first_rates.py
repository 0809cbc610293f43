"""The first rates of sources that repeat their counters, at constant traffic: right from the first
value shown. Real daemons, and fabmon as it is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.fixtures.gpu_exporter import BYTES_PER_S, GpuExporter
from tests.fixtures.in_namespace import ROOT, can_have_one
from tests.requirements import need
from tests.unit.feeds.prometheus_servers import Prometheus, Target
from tests.unit.feeds.snmp_in_namespace import PACED_BPS

pytestmark = pytest.mark.waits

FABMON = str(Path(sys.executable).with_name("fabmon"))


def rates(lines: str) -> dict[str, list[float]]:
    """The rates sent by each port, `node/label`, in bits a second: all that were shown."""
    found: dict[str, list[float]] = {}
    for line in lines.splitlines():
        tick = json.loads(line)
        for port in tick["links"] if tick["type"] == "tick" else ():
            shown = found.setdefault(f"{port['node']}/{port['port']}", [])
            if port["tx_bps"] is not None:
                shown.append(port["tx_bps"])
    return found


def check_constant(shown: list[float], bps: float) -> None:
    """All are this rate: within 5 %, and within 15 % those of a moment in which a busy machine
    delayed the sender or the read. A period that is taken for another is off by 20 % or more."""
    assert shown == pytest.approx([bps] * len(shown), rel=0.15)
    assert median(shown) == pytest.approx(bps, rel=0.05)


def fabmon(*options: str, seconds: int) -> dict[str, list[float]]:
    done = subprocess.run(
        [FABMON, *options, "--format", "jsonl", "--duration", str(seconds)],
        capture_output=True,
        text=True,
        timeout=seconds + 60,
        check=True,
    )
    return rates(done.stdout)


@pytest.fixture
def exporters() -> Iterator[dict[int, GpuExporter]]:
    made = {period_s: GpuExporter(period_s) for period_s in (0, 5, 10)}
    yield made
    for each in made.values():
        each.close()


def test_a_real_snmpd(tmp_path: Path) -> None:
    need("a network namespace with a veth", can_have_one(), "run as root")
    program = [sys.executable, "-m", "tests.unit.feeds.snmp_in_namespace", "rates", str(tmp_path)]
    done = subprocess.run(
        ["unshare", "--net", "--mount", *program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = rates(json.loads(done.stdout)["out"])["switch7/swp1"]
    assert len(shown) >= 5
    check_constant(shown, PACED_BPS)


def test_an_exporter_that_collects_every_five_seconds(
    exporters: dict[int, GpuExporter], tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts.txt"
    scrape = f"scrape=dcgm_exporter:{exporters[5].port}"
    hosts.write_text(f"gpu001 via=exporters address=127.0.0.1 {scrape}\n")
    shown = fabmon("--hosts", str(hosts), seconds=30)["gpu001/gpu0"]
    assert len(shown) >= 5
    check_constant(shown, 8 * BYTES_PER_S)


def test_an_exporter_behind_a_cache_of_five_seconds(tmp_path: Path) -> None:
    """Of no kind that is known to repeat its values: the refresh is learned."""
    exporter = GpuExporter(0, cached_s=5)
    try:
        hosts = tmp_path / "hosts.txt"
        scrape = f"scrape=node_exporter:{exporter.port}"
        hosts.write_text(f"gpu001 via=exporters address=127.0.0.1 {scrape}\n")
        shown = fabmon("--hosts", str(hosts), seconds=35)["gpu001/eth0"]
    finally:
        exporter.close()
    assert len(shown) >= 5
    check_constant(shown, 8 * BYTES_PER_S)


@pytest.mark.timeout(300)
def test_a_prometheus_that_scrapes_every_15_s(
    exporters: dict[int, GpuExporter], tmp_path: Path
) -> None:
    """node_exporter reads when it is scraped, dcgm-exporter every 10 s: between two scrapes it has
    collected once or twice."""
    targets: list[Target] = [
        ("node", "node001:9100", exporters[0].port, {}),
        ("dcgm", "gpu001:9400", exporters[10].port, {}),
    ]
    with Prometheus(tmp_path, targets, interval_s=15) as server:
        shown = fabmon("--prometheus", server.url, seconds=140)
    assert len(shown["node001/eth0"]) >= 3
    assert len(shown["gpu001/gpu0"]) >= 1
    for values in shown.values():
        check_constant(values, 8 * BYTES_PER_S)
