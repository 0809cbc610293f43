"""What the nodes of a simulated fabric report: hellos, and frames sampled at their own instants."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors import wire
from collectors.catalog import CATALOG, GAUGE, WRAP32, WRAP64
from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import BlockInfo, Frame, Hello, MetricInfo, ObjectInfo
from tests.world import world as rows
from tests.world.topology import DOWN, FRONTEND, NIC, STORAGE, UP, Floats, Ints
from tests.world.transport import INFINIBAND, PACKET_BYTES, ROCE, TCP_PACKET_BYTES
from tests.world.world import World

START_NS = 1_763_700_000 * 10**9
PRIORITY = 3
_IDLE_BYTES_PER_S = 1400.0
_TICK_BYTES = 8.0
"""Bytes of port time in a count of xmit_wait."""

_NETDEV = (
    "netdev_up", "netdev_carrier_changes", "netdev_rx_bytes", "netdev_tx_bytes",
    "netdev_rx_packets", "netdev_tx_packets", "netdev_rx_errors", "netdev_tx_errors",
    "netdev_rx_drops", "netdev_tx_drops",
)  # fmt: skip
_LINK = ("netdev_speed_bps", "netdev_mtu")
_IB = ("ib_state", "ib_tx_bytes", "ib_rx_bytes", "ib_tx_packets", "ib_rx_packets")
_IB_ERRORS = (
    "ib_rate_bps", "ib_phys_state", "ib_symbol_errors", "ib_link_error_recovery",
    "ib_link_downed", "ib_rx_errors", "ib_rx_remote_physical_errors", "ib_tx_discards",
    "ib_local_link_integrity_errors", "ib_excessive_buffer_overruns",
)  # fmt: skip
_RDMA = (
    "rdma_out_of_sequence", "rdma_packet_sequence_errors", "rdma_retransmits",
    "rdma_retransmit_timeouts", "rdma_ack_timeouts", "rdma_rnr_nak_retries", "rdma_out_of_buffer",
)  # fmt: skip
_CC = ("rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled", "rdma_cnp_ignored")
_PFC = tuple(
    f"pfc_{way}_{what}_prio{PRIORITY}"
    for way in ("rx", "tx")
    for what in ("frames", "pause_us", "transitions")
)
_PHY = (
    "phy_link_down_events", "phy_tx_bytes", "phy_rx_bytes", "phy_tx_packets", "phy_rx_packets",
    "phy_tx_discards", "phy_rx_discards", "phy_rx_crc_errors", "phy_rx_symbol_errors",
    "phy_rx_fec_corrected_bits", "phy_rx_fec_uncorrectable_blocks",
)  # fmt: skip
_PRIO = (f"phy_tx_bytes_prio{PRIORITY}", f"phy_rx_bytes_prio{PRIORITY}")
_NIC = (
    "phy_rx_out_of_buffer", "phy_rx_buffer_events", "pause_storm_warnings", "pause_storm_errors",
    "pci_stalled_read_percent", "pci_stalled_read_events", "pci_stalled_write_percent",
    "pci_stalled_write_events",
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """What is watched, and how well: the clocks of the nodes, and which facts they report."""

    visible: bool = True
    """Whether switches are watched."""
    lldp: bool = True
    skew_s: float = 0.0
    late: float = 0.0
    """Share of frames that miss their tick."""
    switch_marks: bool = True
    xmit_wait_bits: int = 64


@dataclass
class _Table:
    """A source block of some nodes: its metrics, and the ports that have them."""

    source: str
    every: int
    metrics: tuple[str, ...]
    roles: tuple[int, ...]


@dataclass
class _Node:
    number: int
    name: str
    is_switch: bool
    ports: Ints
    tables: list[tuple[_Table, Ints]] = field(default_factory=list)
    wall_offset_ns: int = 0
    mono_offset_ns: int = 0
    boot: int = 1
    from_s: float = 0.0
    lost: bool = False
    hello_due: bool = True
    pending: Frame | None = None
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)


class Sampler:
    """Turns a world into ticks of one second."""

    def __init__(self, world: World, view: View, seed: int) -> None:
        self.world, self.view = world, view
        topology = world.topology
        self._rng = np.random.default_rng([seed, 5])
        self._transport = world.transport.settings.transport
        self._seq = 0
        self.nodes: list[_Node] = []
        self._layouts = {kind: list(self._tables(kind)) for kind in (False, True)}
        for number, name in enumerate(topology.node_names):
            ports = np.flatnonzero(topology.node == number)
            is_switch = number in topology.switches
            if (is_switch and not view.visible) or name in ("mgmt1", "storage1"):
                continue
            node = _Node(number, name, is_switch, ports)
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
        self._own: Floats = np.zeros((rows.ROWS, topology.ports))
        self._peer: Floats = np.zeros((rows.ROWS, topology.ports))
        self._last: Floats = np.zeros(topology.ports)
        self._base = np.round(self._rng.uniform(1e12, 1e14, topology.ports))
        self._changed: list[NodeStatus] = []
        self.pinned: set[tuple[str, int]] = set()
        """(metric, port) of counters that are stuck at their maximum."""

    def hosts(self) -> list[Host]:
        """The watched nodes as a hosts file lists them."""
        return [Host(name=n.name, role=SWITCH if n.is_switch else HOST) for n in self.nodes]

    def node(self, name: str) -> _Node:
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
        values = self._values(self._columns())
        hellos, frames, statuses = [], [], []
        for node in self.nodes:
            if node.from_s > end:
                continue
            if node.lost:
                continue
            if node.hello_due:
                node.hello_due = False
                hellos.append((node.name, self._hello(node)))
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

    def return_(self, name: str) -> None:
        """A node answers again, after a reboot."""
        node = self._by_name[name]
        node.lost = False
        node.hello_due = True

    def stuck_ports(self) -> list[int]:
        """Watched ports whose xmit_wait has reached its maximum of 32 bits."""
        topology = self.world.topology
        if self._transport != INFINIBAND or self.view.xmit_wait_bits != 32:
            return []
        waits = self.world.counters[rows.PAUSED_US] * 1e-6 * topology.speed / _TICK_BYTES
        waits[[port for _, port in self.pinned]] = np.inf
        watched = {node.number for node in self.nodes}
        stuck = np.flatnonzero(waits >= (1 << 32) - 1)
        return [int(p) for p in stuck if topology.node[p] in watched]

    def _taken(self, ports: Ints, own: Floats, peer: Floats) -> None:
        self._own[:, ports] = own
        self._peer[:, ports] = peer

    def _tables(self, is_switch: bool) -> Iterator[_Table]:
        transport, view = self._transport, self.view
        fabric = (DOWN, UP) if is_switch else (NIC, STORAGE)
        everything = (DOWN, UP) if is_switch else (NIC, STORAGE, FRONTEND)
        if transport == INFINIBAND:
            wait = "ib_ext_tx_wait" if view.xmit_wait_bits == 64 else "ib_tx_wait"
            if not is_switch:
                yield _Table("netdev", 1, _NETDEV, (FRONTEND,))
                yield _Table("netdev_link", 10, _LINK, (FRONTEND,))
            yield _Table("ib", 1, (*_IB, wait), fabric)
            yield _Table("ib_errors", 10, _IB_ERRORS, fabric)
            if not is_switch:
                yield _Table("rdma", 1, _RDMA, fabric)
            return
        yield _Table("netdev", 1, _NETDEV, everything)
        yield _Table("netdev_link", 10, _LINK, everything)
        phy: tuple[str, ...] = _PHY
        if transport == ROCE:
            phy = (*_PHY, *_PRIO, *_PFC)
            if not is_switch:
                yield _Table("ib", 1, _IB, fabric)
                yield _Table("rdma", 1, (*_RDMA, *_CC), fabric)
        if is_switch:
            marks = ("phy_tx_ecn_marked",) if view.switch_marks and transport == ROCE else ()
            yield _Table("ethtool", 1, (*phy, *marks), fabric)
        else:
            yield _Table("ethtool", 1, (*phy, *_NIC), fabric)

    def _columns(self) -> dict[str, NDArray[np.int64]]:
        """Every metric of every port, [ports]."""
        world = self.world
        topology, own, peer = world.topology, self._own, self._peer
        ports = topology.ports
        idle = _IDLE_BYTES_PER_S * self.world.now
        tx = own[rows.TX] + idle + self._base
        rx = peer[rows.TX] + idle + self._base[topology.peer]
        kernel_tx = own[rows.TX] - own[rows.TX_RDMA] + idle
        kernel_rx = peer[rows.TX] - peer[rows.TX_RDMA] + idle
        rdma_tx, rdma_rx = own[rows.TX_RDMA], peer[rows.TX_RDMA]
        up = (world.up & world.up[topology.peer]).astype(np.float64)
        speed = world.transport.speed[:ports] * 8
        is_switch = topology.role >= DOWN
        pause_rx, pause_tx = own[rows.PAUSED_US], peer[rows.PAUSED_US]
        stalled = np.zeros(ports)
        stalled[: topology.host_ports] = world.pcie_stalled
        nothing = np.zeros(ports)
        # A switch chip's netdev counts what it forwards; a NIC's does not see RDMA.
        packets_tx = rdma_tx / PACKET_BYTES + kernel_tx / TCP_PACKET_BYTES
        packets_rx = rdma_rx / PACKET_BYTES + kernel_rx / TCP_PACKET_BYTES
        values: dict[str, Floats] = {
            "netdev_up": up,
            "netdev_carrier_changes": own[rows.CARRIER] + 1,
            "netdev_rx_bytes": np.where(is_switch, rx, kernel_rx),
            "netdev_tx_bytes": np.where(is_switch, tx, kernel_tx),
            "netdev_rx_packets": np.where(is_switch, packets_rx, kernel_rx / TCP_PACKET_BYTES),
            "netdev_tx_packets": np.where(is_switch, packets_tx, kernel_tx / TCP_PACKET_BYTES),
            "netdev_rx_errors": own[rows.DAMAGED],
            "netdev_tx_errors": nothing,
            "netdev_rx_drops": nothing,
            "netdev_tx_drops": own[rows.DROPPED],
            "netdev_speed_bps": np.where(up > 0, speed, 0),
            "netdev_mtu": np.full(ports, 4200.0),
            "ib_state": np.where(up > 0, 4, 1),
            "ib_phys_state": np.where(up > 0, 5, 2),
            "ib_rate_bps": speed,
            "ib_tx_bytes": rdma_tx,
            "ib_rx_bytes": rdma_rx,
            "ib_tx_packets": rdma_tx / PACKET_BYTES,
            "ib_rx_packets": rdma_rx / PACKET_BYTES,
            "ib_symbol_errors": own[rows.SYMBOLS],
            "ib_link_error_recovery": own[rows.CARRIER] * 2,
            "ib_link_downed": own[rows.LINK_DOWN],
            "ib_rx_errors": own[rows.DAMAGED],
            "ib_rx_remote_physical_errors": nothing,
            "ib_tx_discards": nothing,
            "ib_local_link_integrity_errors": own[rows.DAMAGED] * 1e-4,
            "ib_excessive_buffer_overruns": nothing,
            "rdma_out_of_sequence": own[rows.OUT_OF_ORDER],
            "rdma_packet_sequence_errors": own[rows.RESENT] * 0.8,
            "rdma_retransmits": own[rows.RESENT],
            "rdma_retransmit_timeouts": own[rows.ACK_TIMEOUTS],
            "rdma_ack_timeouts": own[rows.ACK_TIMEOUTS],
            "rdma_rnr_nak_retries": nothing,
            "rdma_out_of_buffer": own[rows.NO_BUFFER],
            "rdma_ecn_marked": own[rows.MARKED_RX],
            "rdma_cnp_sent": own[rows.CNP_SENT],
            "rdma_cnp_handled": own[rows.CNP_HANDLED],
            "rdma_cnp_ignored": nothing,
            "phy_link_down_events": own[rows.LINK_DOWN],
            "phy_tx_bytes": tx,
            "phy_rx_bytes": rx,
            "phy_tx_packets": packets_tx,
            "phy_rx_packets": packets_rx,
            "phy_tx_discards": own[rows.DROPPED],
            "phy_rx_discards": nothing,
            "phy_rx_crc_errors": own[rows.DAMAGED],
            "phy_rx_symbol_errors": own[rows.SYMBOLS],
            "phy_rx_fec_corrected_bits": own[rows.FEC_BITS],
            "phy_rx_fec_uncorrectable_blocks": own[rows.DAMAGED] * 0.5,
            "phy_tx_ecn_marked": own[rows.MARKED_TX],
            _PRIO[0]: rdma_tx,
            _PRIO[1]: rdma_rx,
            f"pfc_rx_pause_us_prio{PRIORITY}": pause_rx,
            f"pfc_tx_pause_us_prio{PRIORITY}": pause_tx,
            f"pfc_rx_frames_prio{PRIORITY}": pause_rx / 25,
            f"pfc_tx_frames_prio{PRIORITY}": pause_tx / 25,
            f"pfc_rx_transitions_prio{PRIORITY}": pause_rx / 80,
            f"pfc_tx_transitions_prio{PRIORITY}": pause_tx / 80,
            "phy_rx_out_of_buffer": own[rows.NO_BUFFER],
            "phy_rx_buffer_events": own[rows.BUFFER_EVENTS],
            "pause_storm_warnings": own[rows.STORMS],
            "pause_storm_errors": own[rows.STORMS] * 0.5,
            "pci_stalled_read_percent": stalled,
            "pci_stalled_write_percent": stalled,
            "pci_stalled_read_events": nothing,
            "pci_stalled_write_events": nothing,
        }
        waits = pause_rx * 1e-6 * topology.speed / _TICK_BYTES
        values["ib_tx_wait"] = values["ib_ext_tx_wait"] = waits
        return {name: _as_kind(name, value) for name, value in values.items()}

    def _values(self, columns: dict[str, NDArray[np.int64]]) -> dict[str, list[list[int]]]:
        """The values of every port, by table: those of its metrics, one after the other."""
        found = {}
        for is_switch, tables in self._layouts.items():
            for table in tables:
                values = np.stack([columns[name] for name in table.metrics], axis=1)
                for metric, port in self.pinned:
                    if metric in table.metrics:
                        bits = int(CATALOG[metric].kind.removeprefix("sat"))
                        values[port, table.metrics.index(metric)] = (1 << bits) - 1
                found[f"{is_switch}{table.source}"] = values.tolist()
        return found

    def _frame(self, node: _Node, values: dict[str, list[list[int]]], at_s: float) -> Frame:
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

    def _hello(self, node: _Node) -> Hello:
        blocks = []
        used: set[str] = set()
        for table, ports in node.tables:
            used.update(table.metrics)
            with_facts = table.source in ("netdev", "ib")
            objects = tuple(
                self._object(table, port, node if with_facts else None) for port in ports.tolist()
            )
            blocks.append(BlockInfo(table.source, table.every, objects))
        blocks.append(BlockInfo("routes", 10, tuple(self._routes(node))))
        if self.view.lldp:
            blocks.append(BlockInfo("lldp", 10, tuple(self._neighbours(node))))
        shape = repr([(t.source, t.metrics, len(p)) for t, p in node.tables])
        front = [p for p in node.ports if self.world.topology.role[p] == FRONTEND]
        return Hello(
            wire=wire.VERSION,
            layout=hashlib.sha256(shape.encode()).hexdigest()[:16],
            blocks=tuple(blocks),
            metrics={
                name: MetricInfo(CATALOG[name].unit, CATALOG[name].kind) for name in sorted(used)
            },
            interval_s=1.0,
            probe="0",
            hostname=node.name,
            boot_id=f"{node.name}-{node.boot}",
            python="3.11.2",
            kernel="5.10.0-18" if node.is_switch else "6.8.0-45-generic",
            reached_at=_ip(int(front[0])) if front else "",
        )

    def _object(self, table: _Table, port: int, node: _Node | None) -> ObjectInfo:
        topology = self.world.topology
        name = topology.port_name(port)
        role = topology.role[port]
        kind = "infiniband" if self._transport == INFINIBAND and role != FRONTEND else "ethernet"
        info: dict[str, Any] = {}
        if node is not None:
            info = {"netdev": self._netdev(port), "mac": _mac(port), "virtual": False}
            if role in (DOWN, UP):
                info |= {} if kind == "infiniband" else {"driver": "mlxsw_spectrum"}
            elif role == FRONTEND:
                info |= {"driver": "ice", "pci": "0000:02:00.0", "numa_node": 0}
            else:
                info |= self._nic_facts(node, port, kind)
        return ObjectInfo(name, kind, name, info, table.metrics)

    def _nic_facts(self, node: _Node, port: int, kind: str) -> dict[str, Any]:
        topology = self.world.topology
        place = int(port - node.ports[0])
        info: dict[str, Any] = {
            "driver": "mlx5_core",
            "pci": f"0000:{0x18 + 8 * place:02x}:00.0",
            "pcie_speed_gtps": 32.0,
            "pcie_max_speed_gtps": 32.0,
            "pcie_width": 16,
            "pcie_max_width": 16,
            "numa_node": place * 2 // max(1, topology.shape.rails),
        }
        if self._transport != "tcp":
            info |= {
                "rdma": topology.port_name(port),
                "rdma_port": 1,
                "link_layer": "InfiniBand" if kind == "infiniband" else "Ethernet",
                "fw_ver": "28.41.1000",
                "hca_type": "MT4129",
                "guid": f"fc6a:1c03:{port >> 16:04x}:{port & 0xFFFF:04x}",
            }
        if self._transport == ROCE:
            dcqcn = self.world.transport.settings.dcqcn
            info |= {"pfc": "on", "pfc_priorities": [PRIORITY]}
            if dcqcn:
                info |= {"roce_ecn_np": [PRIORITY], "roce_ecn_rp": [PRIORITY]}
        return {**info, **node.facts.get(port, {})}

    def _netdev(self, port: int) -> str:
        topology = self.world.topology
        name = topology.port_name(port)
        if topology.role[port] in (DOWN, UP, FRONTEND):
            return name
        place = int(name.removeprefix("mlx5_"))
        return f"ib{place}" if self._transport == INFINIBAND else f"ens{place + 1}np0"

    def _routes(self, node: _Node) -> Iterator[ObjectInfo]:
        topology = self.world.topology
        if node.is_switch:
            number = 0
            for switch, ports in topology.groups():
                if switch.name == node.name:
                    number += 1
                    members = [
                        {"dev": self._netdev(p), "via": _ip(int(topology.peer[p])), "weight": 1}
                        for p in ports
                    ]
                    info = {
                        "family": "inet",
                        "members": members,
                        "destinations_count": max(1, len(topology.leaves) - 1),
                    }
                    yield ObjectInfo(f"ecmp/{number}", "ecmp", None, info, ())
        for port in node.ports.tolist():
            dev, peer = self._netdev(port), int(topology.peer[port])
            if topology.role[port] not in (FRONTEND, STORAGE):
                info = {"dev": dev, "ip": _ip(peer), "mac": _mac(peer)}
                yield ObjectInfo(f"neighbour/{dev}/{_ip(peer)}", "neighbour", None, info, ())
            address = {
                "dev": dev,
                "addresses": [f"{_ip(port)}/31"],
                "default_route": bool(topology.role[port] == FRONTEND),
            }
            yield ObjectInfo(f"addresses/{dev}", "addresses", None, address, ())

    def _neighbours(self, node: _Node) -> Iterator[ObjectInfo]:
        topology = self.world.topology
        for port in node.ports.tolist():
            dev, peer = self._netdev(port), int(topology.peer[port])
            info = {
                "dev": dev,
                "peer_node": topology.node_of(peer),
                "peer_port": topology.port_name(peer),
            }
            yield ObjectInfo(f"lldp/{dev}/1", "neighbour", None, info, ())


def _as_kind(name: str, value: Floats) -> NDArray[np.int64]:
    """A counter as an integer of its width."""
    whole = np.floor(value).astype(np.int64)
    kind = CATALOG[name].kind
    if kind == WRAP32:
        return whole & 0xFFFFFFFF
    if kind not in (WRAP64, GAUGE):
        return np.minimum(whole, (1 << int(kind.removeprefix("sat"))) - 1)
    return whole


def _mac(port: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0xFA, *port.to_bytes(4, "big")))


def _ip(port: int) -> str:
    return f"10.{port >> 16 & 0xFF}.{port >> 8 & 0xFF}.{port & 0xFF}"
