"""A fabric of 64 HCAs, read by the probe as it is started on a node, within its usual budget: in
many rounds. 512 took 39 s."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import pytest

from tests import requirements as needed
from tests.fixtures.ibsim import LIBRARY, Fabric, leaf_spine

LEAVES, SPINES, HOSTS = 4, 4, 16
HCAS = LEAVES * HOSTS
SWITCH_PORTS = HCAS + 2 * 2 * LEAVES * SPINES
ERRORS = {f"gpu{number}": number for number in range(3, HCAS, 11)}
"""HCA -> its symbol errors."""

Values = Dict[Tuple[str, str, str], Optional[int]]


@pytest.fixture
def fabric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    needed.need_command("ibsim", "ibsim-utils")
    needed.need_command("opensm", "opensm")
    needed.need_path("/usr/sbin/iblinkinfo", "apt-get install infiniband-diags")
    needed.need_path(LIBRARY, "apt-get install libumad2sim0")
    monkeypatch.chdir(tmp_path)  # the simulator's library leaves directories
    with tempfile.TemporaryDirectory(prefix="fm") as root:
        started = Fabric(root, leaf_spine(LEAVES, SPINES, HOSTS, radix=64))
        started.start()
        yield started
        started.stop()


def places(hello: Dict[str, Any]) -> List[List[Tuple[str, str, str]]]:
    """(node, port, metric) of each value, by block."""
    return [
        [
            (item.get("node", ""), item["port"], metric)
            for item in block["objects"]
            for metric in item["metrics"]
        ]
        for block in hello["blocks"]
    ]


def test_all_counters_of_64_hcas_are_read(fabric: Fabric) -> None:
    for name, count in ERRORS.items():
        fabric.count(f'"{name}"[1]', SymbolErrorCounter=count, PortXmitData=count * 1000)
    fabric.count('"leaf3"[20]', SymbolErrorCounter=77)
    root = Path(__file__).parents[3]
    probe = subprocess.Popen(
        [sys.executable, "-m", "collectors", "--sources", "ib_fabric"],
        env={
            **os.environ,
            "PATH": f"{fabric.bin}:{os.environ['PATH']}",
            "PYTHONPATH": str(root),
        },
        stdout=subprocess.PIPE,
    )
    values: Values = {}
    layout: List[List[Tuple[str, str, str]]] = []
    assert probe.stdout is not None
    try:
        for line in probe.stdout:
            kind, *rest = json.loads(line)
            if kind == "hello":
                layout = places(rest[0])
            elif kind == "frame":
                for names, block in zip(layout, rest[3]):
                    if block is not None:
                        values.update(zip(names, block[1:]))
            read = {name[:2] for name in values if name[2] == "ib_tx_bytes"}
            if len(read) == HCAS + SWITCH_PORTS:
                break
    finally:
        probe.terminate()
        probe.communicate()
    lost = [name for name, value in values.items() if value is None]
    assert lost == []
    errors = {
        node: value
        for (node, port, metric), value in values.items()
        if metric == "ib_symbol_errors" and value and node.startswith("gpu")
    }
    assert errors == ERRORS
    assert values["leaf3", "p20", "ib_symbol_errors"] == 77
    for name, count in ERRORS.items():
        assert (values[name, "mlx5_0", "ib_tx_bytes"] or 0) >= 4000 * count
