"""Ports, cables and switches of a simulated fabric, and the paths between its NICs.

Every port has a number, hosts' ports first. A direction of a cable has the number of the port that
sends into it. Behind the ports are two more links for each port of a host: its sink (from the NIC's
receive buffer into memory) and its source (from memory into the NIC).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

RAIL_KIND, CLOS, FAT_TREE = "rail", "clos", "fat-tree"
KINDS = (RAIL_KIND, CLOS, FAT_TREE)

NIC, FRONTEND, STORAGE, DOWN, UP, OUTSIDE = range(6)
"""Roles of ports; OUTSIDE are those of switches that carry frontends and storage."""

BYTES_PER_GBIT = 1e9 / 8

HASH, PINNED, SPRAY, STATIC = "hash", "pinned", "spray", "static"
"""How a switch chooses among equal-cost links: by a hash of the flow, by a plan, packet by packet,
or by the destination alone (InfiniBand)."""


@dataclass(frozen=True)
class Shape:
    """The size of a fabric. `ratio` is uplink over downlink capacity of a leaf."""

    kind: str
    hosts: int
    rails: int
    nic_gbps: float
    uplink_gbps: float
    ratio: float
    hosts_per_leaf: int
    frontends: int = 1
    storage_nics: int = 0
    slow_hosts: tuple[int, ...] = ()
    """Hosts whose NICs have half the speed."""


@dataclass
class Switch:
    """A switch. `down` are its ports towards each leaf, by the leaf's number."""

    name: str
    tier: int
    ports: list[int] = field(default_factory=list)
    ups: list[int] = field(default_factory=list)
    down: dict[int, list[int]] = field(default_factory=dict)
    hash_seed: int = 0
    hash_values: int = 0
    """If not 0, the switch's hash has only so many different values."""
    tables: dict[int, int] = field(default_factory=dict)
    """The uplinks of NICs that its static table does not spread as it does the others."""


def mix(key: int) -> int:
    """A 64-bit hash (splitmix64)."""
    key = (key + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    key = ((key ^ (key >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    key = ((key ^ (key >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return key ^ (key >> 31)


@dataclass(frozen=True)
class Hop:
    """A link of a path, the link before it (-1: none), and the share of the flow that takes it."""

    link: int
    before: int
    share: float


class Topology:
    """The hardware of a fabric as built; constant but for the switches' hash."""

    def __init__(self, shape: Shape, seed: int) -> None:
        self.shape = shape
        self._roles: list[int] = []
        self._nodes: list[int] = []
        self._names: list[str] = []
        self._speeds: list[float] = []
        self._peers: list[int] = []
        self._rails: list[int] = []
        self.node_names: list[str] = []
        self.switches: dict[int, Switch] = {}
        self._planned: dict[int, float] = {}
        self.down: set[int] = set()
        """Ports whose link is down: new paths avoid them."""
        self.hosts = [self._host(number) for number in range(shape.hosts)]
        self.host_ports = len(self._roles)
        self.leaf_of: dict[int, int] = {}
        self.leaves: list[int] = []
        self._leaves()
        if shape.kind == FAT_TREE:
            self._fat_tree()
        else:
            self._spines()
        self._outside()
        self.role = np.array(self._roles)
        self.node = np.array(self._nodes)
        self.speed = np.array(self._speeds)
        """Bytes/s."""
        self.peer = np.array(self._peers)
        self.rail = np.array(self._rails)
        self.ports = len(self._roles)
        self.links = self.ports + 2 * self.host_ports
        for switch in self.switches.values():
            seed = mix(seed)
            switch.hash_seed = seed

    def sink(self, port: int) -> int:
        """The link from a NIC's receive buffer into memory."""
        return self.ports + port

    def source(self, port: int) -> int:
        """The link from memory into a NIC."""
        return self.ports + self.host_ports + port

    def nic(self, host: int, rail: int) -> int:
        """The port of a rail of a host."""
        return self.hosts[host][rail]

    def port_name(self, port: int) -> str:
        """The device name of a port."""
        return self._names[port]

    def port_id(self, port: int) -> str:
        """`node/port`."""
        return f"{self.node_names[self._nodes[port]]}/{self._names[port]}"

    def node_of(self, port: int) -> str:
        """The name of a port's node."""
        return self.node_names[self._nodes[port]]

    def groups(self) -> Iterator[tuple[Switch, tuple[int, ...]]]:
        """Every set of equal-cost links: the uplinks of a switch, and parallel cables downwards."""
        for switch in self.switches.values():
            if len(switch.ups) > 1:
                yield switch, tuple(switch.ups)
            seen = set()
            for ports in switch.down.values():
                key = tuple(ports)
                if len(key) > 1 and key not in seen:
                    seen.add(key)
                    yield switch, key

    def path(self, src: int, dst: int, key: int, routing: str) -> list[Hop]:
        """The links from memory to memory, for a flow whose headers hash to `key`."""
        hops = [Hop(self.source(src), -1, 1.0), Hop(src, self.source(src), 1.0)]
        last = src
        if dst != self._peers[src]:
            target = self.leaf_of[dst]
            at = self._nodes[self._peers[src]]
            shares = [(src, at, 1.0)]
            for _ in range(5):
                following: list[tuple[int, int, float]] = []
                for before, node, share in shares:
                    if node == self.leaves[target]:
                        following.append((before, node, share))
                        continue
                    for port, part in self._next(self.switches[node], target, dst, key, routing):
                        hops.append(Hop(port, before, share * part))
                        following.append((port, self._nodes[self._peers[port]], share * part))
                if following == shares:
                    break
                shares = following
            last = self._peers[dst]
            hops += [Hop(last, before, share) for before, _, share in shares]
        hops.append(Hop(self.sink(dst), last, 1.0))
        return hops

    def from_outside(self, dst: int) -> list[Hop]:
        """The links from outside of the fabric to a port of a host (frontend, storage)."""
        peer = self._peers[dst]
        return [Hop(peer, -1, 1.0), Hop(self.sink(dst), peer, 1.0)]

    def to_outside(self, src: int) -> list[Hop]:
        """The links from a port of a host to outside of the fabric."""
        return [Hop(self.source(src), -1, 1.0), Hop(src, self.source(src), 1.0)]

    def forget_plan(self) -> None:
        """Start a new plan of pinned paths."""
        self._planned.clear()

    def _next(
        self, switch: Switch, target: int, dst: int, key: int, routing: str
    ) -> list[tuple[int, float]]:
        options = switch.down.get(target) or switch.ups
        if self.down:
            options = [p for p in options if self._leads_to(p, target)] or options
        if len(options) == 1:
            return [(options[0], 1.0)]
        if routing == SPRAY:
            return [(port, 1.0 / len(options)) for port in options]
        if routing == PINNED:
            return [(self._planned_port(options, target), 1.0)]
        if routing == STATIC:
            if switch.tables.get(dst) in options:
                return [(switch.tables[dst], 1.0)]
            return [(options[self._rank(dst) % len(options)], 1.0)]
        if switch.hash_values:
            key = key % switch.hash_values
        return [(options[mix(key ^ switch.hash_seed) % len(options)], 1.0)]

    def _leads_to(self, port: int, target: int) -> bool:
        """Whether a leaf can be reached over a port."""
        if port in self.down or self._peers[port] in self.down:
            return False
        node = self._nodes[self._peers[port]]
        if node == self.leaves[target]:
            return True
        switch = self.switches[node]
        following = switch.down.get(target) or switch.ups
        return any(self._leads_to(after, target) for after in following)

    def _rank(self, dst: int) -> int:
        """A destination's place below its leaf, as a subnet manager spreads destinations."""
        return self._place[dst]

    def _planned_port(self, options: Sequence[int], target: int) -> int:
        """The option whose own link and whose next one down are planned for least."""

        def planned(port: int) -> tuple[float, float]:
            after = self.switches[self._nodes[self._peers[port]]].down.get(target, [])
            down = min((self._planned.get(p, 0.0) for p in after), default=0.0)
            own = self._planned.get(port, 0.0)
            return max(own, down), own + down

        best = min(options, key=planned)
        self._planned[best] = self._planned.get(best, 0.0) + 1.0
        return best

    def _add(self, node: int, role: int, gbps: float, name: str, rail: int = -1) -> int:
        self._roles.append(role)
        self._nodes.append(node)
        self._names.append(name)
        self._speeds.append(gbps * BYTES_PER_GBIT)
        self._peers.append(-1)
        self._rails.append(rail)
        return len(self._roles) - 1

    def _connect(self, a: int, b: int) -> None:
        self._peers[a], self._peers[b] = b, a

    def _node(self, name: str) -> int:
        self.node_names.append(name)
        return len(self.node_names) - 1

    def _host(self, number: int) -> list[int]:
        shape = self.shape
        node = self._node(f"gpu{number + 1:03}")
        gbps = shape.nic_gbps / 2 if number in shape.slow_hosts else shape.nic_gbps
        ports = [self._add(node, NIC, gbps, f"mlx5_{r}", r) for r in range(shape.rails)]
        ports += [self._add(node, FRONTEND, 25.0, f"eth{n}") for n in range(shape.frontends)]
        ports += [
            self._add(node, STORAGE, min(200.0, shape.nic_gbps), f"mlx5_{shape.rails + n}")
            for n in range(shape.storage_nics)
        ]
        return ports

    def _switch(self, name: str, tier: int) -> int:
        node = self._node(name)
        self.switches[node] = Switch(name, tier)
        return node

    def _port(self, node: int, role: int, gbps: float) -> int:
        switch = self.switches[node]
        port = self._add(node, role, gbps, f"swp{len(switch.ports) + 1}")
        switch.ports.append(port)
        if role == UP:
            switch.ups.append(port)
        return port

    def _leaves(self) -> None:
        shape = self.shape
        self._place: dict[int, int] = {}
        for first in range(0, shape.hosts, shape.hosts_per_leaf):
            hosts = range(first, min(first + shape.hosts_per_leaf, shape.hosts))
            each = (
                [[r] for r in range(shape.rails)]
                if shape.kind == RAIL_KIND
                else [list(range(shape.rails))]
            )
            for rails in each:
                leaf = len(self.leaves)
                node = self._switch(f"leaf{leaf + 1}", 1)
                self.leaves.append(node)
                for host in hosts:
                    for rail in rails:
                        nic = self.hosts[host][rail]
                        port = self._port(node, DOWN, self._speeds[nic] / BYTES_PER_GBIT)
                        self._connect(nic, port)
                        self._place[nic] = len(self.switches[node].ports) - 1
                        self.leaf_of[nic] = leaf
                self.switches[node].down[leaf] = []

    def _uplinks(self) -> int:
        """Uplinks of a leaf."""
        first = self.switches[self.leaves[0]]
        down = max(
            sum(self._speeds[p] for p in self.switches[leaf].ports) for leaf in self.leaves
        ) / (BYTES_PER_GBIT)
        assert first.ports
        return max(1, math.ceil(down * self.shape.ratio / self.shape.uplink_gbps - 1e-9))

    def _spines(self) -> None:
        wanted = self._uplinks()
        if len(self.leaves) < 2:
            return
        parallel = next(n for n in (2, 1) if (wanted % n == 0 and wanted // n >= 4) or n == 1)
        if self.shape.hosts % 3 == 0 or self.shape.rails == 4:
            parallel = 1
        for number in range(wanted // parallel):
            spine = self._switch(f"spine{number + 1}", 2)
            for leaf, node in enumerate(self.leaves):
                for _ in range(parallel):
                    up = self._port(node, UP, self.shape.uplink_gbps)
                    down = self._port(spine, DOWN, self.shape.uplink_gbps)
                    self._connect(up, down)
                    self.switches[spine].down.setdefault(leaf, []).append(down)

    def _fat_tree(self) -> None:
        """Two pods of leaves; as many aggregation switches in each as a leaf has uplinks."""
        uplinks, gbps = self._uplinks(), self.shape.uplink_gbps
        pods = 2
        each = math.ceil(len(self.leaves) / pods)
        columns = next(n for n in (4, 3, 2, 5, 1) if uplinks % n == 0)
        lanes = uplinks // columns
        members = [range(p * each, min((p + 1) * each, len(self.leaves))) for p in range(pods)]
        aggs: list[list[int]] = []
        for pod, leaves in enumerate(members):
            aggs.append([])
            for column in range(columns):
                agg = self._switch(f"spine{pod * columns + column + 1}", 2)
                aggs[-1].append(agg)
                for leaf in leaves:
                    for _ in range(lanes):
                        up = self._port(self.leaves[leaf], UP, gbps)
                        down = self._port(agg, DOWN, gbps)
                        self._connect(up, down)
                        self.switches[agg].down.setdefault(leaf, []).append(down)
        cores = each * lanes
        for column in range(columns):
            for number in range(cores):
                core = self._switch(f"core{column * cores + number + 1}", 3)
                for pod, leaves in enumerate(members):
                    agg = aggs[pod][column]
                    up = self._port(agg, UP, gbps)
                    down = self._port(core, DOWN, gbps)
                    self._connect(up, down)
                    for leaf in leaves:
                        self.switches[core].down[leaf] = [down]

    def _outside(self) -> None:
        """One port of an unwatched switch for every port of a host that has no peer."""
        for name, role in (("mgmt1", FRONTEND), ("storage1", STORAGE)):
            ports = [p for p in range(self.host_ports) if self._roles[p] == role]
            if not ports:
                continue
            node = self._node(name)
            for number, port in enumerate(ports):
                gbps = self._speeds[port] / BYTES_PER_GBIT
                self._connect(port, self._add(node, OUTSIDE, gbps, f"swp{number + 1}"))


def ends(topology: Topology, link: int) -> list[int]:
    """Both ports of a link; of a sink or source its NIC and the port at the other end."""
    if link >= topology.ports:
        port = (link - topology.ports) % topology.host_ports
        return [port, int(topology.peer[port])]
    return [link, int(topology.peer[link])]


Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
