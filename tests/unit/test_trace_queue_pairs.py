"""`fabmon trace` without --sport: the source ports of the queue pairs that the two hosts have."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.flows.endpoints import PairsOfPorts, pairs_between
from fabmon.fabric.flows.queue_pairs import roce_source_port
from tests.builders import METRICS, port
from tests.connections import Wires
from tests.unit.test_cli import fabmon
from tests.unit.test_flows import connections
from tests.unit.test_traced_paths import addresses_of

SCRIPTED_NODE = Path(__file__).parents[1] / "fixtures" / "scripted_node.py"
PAIRS = ((10, 20), (11, 21), (12, 22))
HOPS = [["10.1.1.0"], ["10.1.2.1"]]


def sport_of(lqpn: int, rqpn: int) -> int:
    return int(roce_source_port(np.array([lqpn]), np.array([rqpn]))[0])


def test_the_ports_with_the_most_queue_pairs_and_their_source_ports() -> None:
    wires = Wires().connect("a/mlx5_0", "b/mlx5_0", 9, 19).connect("a/mlx5_0", "c/mlx5_0", 8, 18)
    for lqpn, rqpn in PAIRS:
        wires.connect("a/mlx5_1", "b/mlx5_1", lqpn, rqpn)
    found = connections(wires, "a", "b", "c")
    fabric, table = found.fabric, found.flows
    sports = tuple(sorted(sport_of(*pair) for pair in PAIRS))
    assert pairs_between(fabric, table, "a", "b") == PairsOfPorts("mlx5_1", "mlx5_1", sports)
    assert pairs_between(fabric, table, "b", "a") == PairsOfPorts("mlx5_1", "mlx5_1", sports)
    only = pairs_between(fabric, table, "a", "b", from_port="mlx5_0")
    assert only == PairsOfPorts("mlx5_0", "mlx5_0", (sport_of(9, 19),))
    assert pairs_between(fabric, table, "a", "b", "mlx5_0", "mlx5_1") is None
    assert pairs_between(fabric, table, "b", "c") is None


def node(directory: Path, name: str, *objects: Object) -> None:
    """Have a node say this."""
    layout = [wire.BlockLayout("netdev", 1, objects)]
    said: dict[str, Any] = {
        "hello": wire.hello(layout, {"interval_s": 0.5}).decode(),
        "values": sum(len(item.metrics) for item in objects),
        "hops": HOPS,
    }
    (directory / f"{name}.json").write_text(json.dumps(said))


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """Two hosts with three queue pairs between them."""
    wires = Wires()
    for lqpn, rqpn in PAIRS:
        wires.connect("gpu1/mlx5_0", "gpu2/mlx5_0", lqpn, rqpn)
    for name, address in (("gpu1", "10.1.1.1/31"), ("gpu2", "10.1.2.1/31")):
        nic = port("mlx5_0", name, METRICS, driver="mlx5_core", rdma="mlx5_0")
        node(tmp_path, name, nic, addresses_of("mlx5_0", address), wires.report(f"{name}/mlx5_0"))
    file = tmp_path / "hosts.txt"
    command = f"{sys.executable} {SCRIPTED_NODE} {tmp_path} {{node}} {{probe}}"
    file.write_text(f'gpu[1-2] via=exec command="{command}"\n')
    return file


def traced(hosts: Path, *arguments: str) -> dict[str, Any]:
    done = fabmon("trace", "gpu1", "gpu2", "--hosts", str(hosts), "--format", "json", *arguments)
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def test_flows_that_there_are_are_followed(hosts: Path) -> None:
    record = traced(hosts)
    assert record["sports_from"] == "queue pairs"
    assert [path["sport"] for path in record["paths"]] == sorted(sport_of(*p) for p in PAIRS)
    assert [hop["addresses"] for hop in record["paths"][0]["hops"]] == HOPS
    table = fabmon("trace", "gpu1", "gpu2", "--hosts", str(hosts)).stdout.splitlines()
    assert table[1] == "3 source ports of the queue pairs between them"


def test_flows_that_are_named_are_followed_instead(hosts: Path) -> None:
    record = traced(hosts, "--sport", "50000")
    assert record["sports_from"] == "option"
    assert [path["sport"] for path in record["paths"]] == [50000]


def test_without_queue_pairs_on_a_port_eight_source_ports_are_followed(hosts: Path) -> None:
    nic = port("mlx5_0", "gpu2", METRICS, driver="mlx5_core", rdma="mlx5_0")
    silent = Wires().report("gpu2/mlx5_0")
    node(hosts.parent, "gpu2", nic, addresses_of("mlx5_0", "10.1.2.1/31"), silent)
    record = traced(hosts)
    assert record["sports_from"] == "default"
    assert [path["sport"] for path in record["paths"]] == list(range(49152, 49160))
