"""What reaches the console: ticks of frames that nodes sample at instants of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame
from tests.world import world as rows
from tests.world.counters import XMIT_WAIT_BYTES, columns
from tests.world.hellos import Hellos
from tests.world.topology import Floats, Ints
from tests.world.transport import INFINIBAND
from tests.world.watched_nodes import Node, View, tables
from tests.world.world import World

START_NS = 1_763_700_000 * 10**9


class Sampler:
    """Turns a world into ticks of one second."""

    def __init__(self, world: World, view: View, seed: int) -> None:
        self.world, self.view = world, view
        topology = world.topology
        self._rng = np.random.default_rng([seed, 5])
        self._transport = world.transport.settings.transport
        self._seq = 0
        self.nodes: list[Node] = []
        self._layouts = {kind: list(tables(kind, self._transport, view)) for kind in (False, True)}
        for number, name in enumerate(topology.node_names):
            ports = np.flatnonzero(topology.node == number)
            is_switch = number in topology.switches
            if (is_switch and not view.visible) or name in ("mgmt1", "storage1"):
                continue
            node = Node(number, name, is_switch, ports)
            for table in self._layouts[is_switch]:
                mine = ports[np.isin(topology.role[ports], table.roles)]
                if len(mine):
                    node.tables.append((table, mine))
            node.wall_offset_ns = int(self._rng.normal(0, 5e5))
            if self._rng.random() < 0.2:
                node.wall_offset_ns = int(self._rng.uniform(-6e6, 6e6))
            node.mono_offset_ns = int(self._rng.integers(10**9, 10**16))
            self.nodes.append(node)
        self._by_name = {node.name: node for node in self.nodes}
        self._phase = self._rng.uniform(0, 1, len(topology.node_names)) * view.skew_s
        self._jitter_s = 0.002 if view.skew_s == 0 else 0.01
        self._hellos = Hellos(world, view)
        self._own: Floats = np.zeros((rows.ROWS, topology.ports))
        self._peer: Floats = np.zeros((rows.ROWS, topology.ports))
        self._base = np.round(self._rng.uniform(1e12, 1e14, topology.ports))
        self._changed: list[NodeStatus] = []
        self.pinned: set[tuple[str, int]] = set()
        """(metric, port) of counters that are stuck at their maximum."""

    def hosts(self) -> list[Host]:
        """The watched nodes as a hosts file lists them."""
        return [Host(name=n.name, role=SWITCH if n.is_switch else HOST) for n in self.nodes]

    def node(self, name: str) -> Node:
        """A watched node."""
        return self._by_name[name]

    def tick(self) -> Tick:
        """Advance the world by a second, and what reached the console by then."""
        world, view, rng = self.world, self.view, self._rng
        end = self._seq + 1.0
        nodes = len(world.topology.node_names)
        delay = self._phase + np.abs(rng.normal(0, self._jitter_s, nodes)) + 0.0005
        at = np.maximum(end - np.minimum(delay, 0.97), self._seq + 0.001)
        ports_at = at[world.topology.node]
        world.advance(end, ports_at, self._taken)
        time_ns = START_NS + int(end * 1e9)
        values = self._values(columns(world, self._own, self._peer, self._base))
        hellos, frames, statuses = [], [], []
        for node in self.nodes:
            if node.lost or node.from_s > end:
                continue
            if node.hello_due:
                node.hello_due = False
                hellos.append((node.name, self._hellos.hello(node)))
                statuses.append(NodeStatus(node.name, NodeState.UP, time_ns))
            frame = self._frame(node, values, float(at[node.number]))
            if rng.random() < view.late and self._seq > 3:
                continue
            frames.append((node.name, frame))
        statuses += self._changed
        self._changed = []
        tick = Tick(self._seq, time_ns, tuple(hellos), tuple(frames), tuple(statuses))
        self._seq += 1
        return tick

    def lose(self, name: str, reason: str = "no answer for 10 s") -> None:
        """A node does not answer any more."""
        self._by_name[name].lost = True
        now = START_NS + int(self.world.now * 1e9)
        self._changed.append(NodeStatus(name, NodeState.LOST, now, reason, "timeout"))

    def stuck_ports(self) -> list[int]:
        """Watched ports whose xmit_wait has reached its maximum of 32 bits."""
        topology = self.world.topology
        if self._transport != INFINIBAND or self.view.xmit_wait_bits != 32:
            return []
        waits = self.world.counters[rows.PAUSED_US] * 1e-6 * topology.speed / XMIT_WAIT_BYTES
        waits[[port for _, port in self.pinned]] = np.inf
        watched = {node.number for node in self.nodes}
        stuck = np.flatnonzero(waits >= (1 << 32) - 1)
        return [int(p) for p in stuck if topology.node[p] in watched]

    def _taken(self, ports: Ints, own: Floats, peer: Floats) -> None:
        self._own[:, ports] = own
        self._peer[:, ports] = peer

    def _values(self, by_metric: dict[str, NDArray[np.int64]]) -> dict[str, list[list[int]]]:
        """The values of every port, by table: those of its metrics, one after the other."""
        found = {}
        for is_switch, layout in self._layouts.items():
            for table in layout:
                values = np.stack([by_metric[name] for name in table.metrics], axis=1)
                for metric, port in self.pinned:
                    if metric in table.metrics:
                        bits = int(CATALOG[metric].kind.removeprefix("sat"))
                        values[port, table.metrics.index(metric)] = (1 << bits) - 1
                found[f"{is_switch}{table.source}"] = values.tolist()
        return found

    def _frame(self, node: Node, values: dict[str, list[list[int]]], at_s: float) -> Frame:
        mono = node.mono_offset_ns + int(at_s * 1e9)
        blocks: list[list[int | None] | None] = []
        for table, ports in node.tables:
            if (self._seq + node.number) % table.every and self._seq > 1:
                blocks.append(None)
                continue
            rows_of = values[f"{node.is_switch}{table.source}"]
            block: list[int | None] = [mono + 40_000 * len(blocks)]
            for port in ports.tolist():
                block += rows_of[port]
            blocks.append(block)
        blocks += [None] * (2 if self.view.lldp else 1)
        wall = START_NS + int(at_s * 1e9) + node.wall_offset_ns
        return Frame(self._seq, wall, mono, blocks)
