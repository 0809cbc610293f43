"""Linux switches on the console: the probe on a tree, what it says, and what becomes of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.loop.source_loader import load_source
from fabmon.fabric.model import MANAGEMENT, SWITCH, UPLINK, Host, Port
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.wire.messages import Frame, Hello, decode
from fabmon.history.history import History
from tests.builders import tick, up
from tests.fixtures.switches import cumulus_switch, sonic_databases, sonic_switch
from tests.fixtures.tree import Tree

SOURCES = ("netdev", "netdev_link", "ethtool", "sonic", "sonic_queues", "routes")


class Watched:
    """A switch whose counters a test moves, and the console's picture of it."""

    def __init__(self, tree: Tree, move: Callable[[int], None]) -> None:
        self._move = move
        self._lines: list[bytes] = []
        host = HostFS(str(tree.root))
        self._sources = [load_source(name)(host) for name in SOURCES]
        self._probe = Probe(self._sources, self._lines.append, {}, 1.0)
        self._history = History([Host(name="leaf1", role=SWITCH)])

    def look(self) -> Snapshot:
        """Two frames with a second's worth of traffic in between."""
        moments = []
        for step in (0, 1):
            self._move(step)
            self._probe.run(step + 1)
            said = [decode(line) for line in self._lines]
            self._lines.clear()
            hellos = dict([("leaf1", each) for each in said if isinstance(each, Hello)][-1:])
            (frame,) = [each for each in said if isinstance(each, Frame)]
            # The clock of a fake switch goes by steps.
            blocks = [block and [(step + 1) * 10**9, *block[1:]] for block in frame.blocks]
            made = Frame(step, 0, (step + 1) * 10**9, blocks)
            moments.append(self._history.accept(tick(step, {"leaf1": made}, hellos, up("leaf1"))))
        for source in self._sources:
            source.close()
        return moments[-1]


def port_of(snapshot: Snapshot, name: str) -> Port:
    return next(port for port in snapshot.fabric.node("leaf1").ports if port.name == name)


def test_a_sonic_leaf(tmp_path: Path) -> None:
    tree = sonic_switch(tmp_path)

    def move(step: int) -> None:
        tree.write("sonic.json", json.dumps(sonic_databases(step)))

    snapshot = Watched(tree, move).look()
    row = port_of(snapshot, "Ethernet0").row
    assert snapshot.line_rate_bps[row] == pytest.approx(400e9), "the kernel does not know it"
    assert snapshot.column("tx_bps")[row] == pytest.approx(48e9)
    assert snapshot.column("pause_rx")[row] == pytest.approx(0.03)
    assert snapshot.up[row] == 1
    assert snapshot.up[port_of(snapshot, "Ethernet8").row] == 0
    assert port_of(snapshot, "Ethernet0").info["pfc_priorities"] == [3, 4]


def test_a_cumulus_leaf(tmp_path: Path) -> None:
    tree = cumulus_switch(tmp_path)
    snapshot = Watched(tree, tree.grow).look()
    assert port_of(snapshot, "swp2").role == UPLINK
    assert port_of(snapshot, "eth0").role == MANAGEMENT
    row = port_of(snapshot, "swp2").row
    assert snapshot.column("tx_bps")[row] == pytest.approx(64e9)
    assert snapshot.column("ecn")[row] == pytest.approx(4_000)
    assert snapshot.column("pause_rx")[row] == pytest.approx(0.03)
    assert snapshot.column("tx_bps")[port_of(snapshot, "swp4").row] == pytest.approx(8e9)
