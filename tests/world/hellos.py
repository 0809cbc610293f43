"""What nodes announce: the objects of their blocks, facts of their NICs, routes and LLDP."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from collectors import wire
from collectors.catalog import CATALOG
from fabmon.fabric.wire.messages import BlockInfo, Hello, MetricInfo, ObjectInfo
from tests.world.topology import DOWN, FRONTEND, STORAGE, UP
from tests.world.transport import INFINIBAND, ROCE
from tests.world.watched_nodes import PRIORITY, Node, Table, View
from tests.world.world import World


class Hellos:
    """Makes the hellos of nodes."""

    def __init__(self, world: World, view: View) -> None:
        self._world, self._view = world, view
        self._transport = world.transport.settings.transport

    def hello(self, node: Node) -> Hello:
        """What a node announces."""
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
        if self._view.lldp:
            blocks.append(BlockInfo("lldp", 10, tuple(self._neighbours(node))))
        shape = repr([(t.source, t.metrics, len(p)) for t, p in node.tables])
        front = [p for p in node.ports if self._world.topology.role[p] == FRONTEND]
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
            boot_id=f"{node.name}-1",
            python="3.11.2",
            kernel="5.10.0-18" if node.is_switch else "6.8.0-45-generic",
            reached_at=_ip(int(front[0])) if front else "",
        )

    def _object(self, table: Table, port: int, node: Node | None) -> ObjectInfo:
        topology = self._world.topology
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

    def _nic_facts(self, node: Node, port: int, kind: str) -> dict[str, Any]:
        topology = self._world.topology
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
            dcqcn = self._world.transport.settings.dcqcn
            info |= {"pfc": "on", "pfc_priorities": [PRIORITY]}
            if dcqcn:
                info |= {"roce_ecn_np": [PRIORITY], "roce_ecn_rp": [PRIORITY]}
        return {**info, **node.facts.get(port, {})}

    def _netdev(self, port: int) -> str:
        topology = self._world.topology
        name = topology.port_name(port)
        if topology.role[port] in (DOWN, UP, FRONTEND):
            return name
        place = int(name.removeprefix("mlx5_"))
        return f"ib{place}" if self._transport == INFINIBAND else f"ens{place + 1}np0"

    def _routes(self, node: Node) -> Iterator[ObjectInfo]:
        topology = self._world.topology
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
                "addresses": [f"{_ip(port)}/32"],
                "default_route": bool(topology.role[port] == FRONTEND),
            }
            yield ObjectInfo(f"addresses/{dev}", "addresses", None, address, ())

    def _neighbours(self, node: Node) -> Iterator[ObjectInfo]:
        topology = self._world.topology
        for port in node.ports.tolist():
            dev, peer = self._netdev(port), int(topology.peer[port])
            info = {
                "dev": dev,
                "peer_node": topology.node_of(peer),
                "peer_port": topology.port_name(peer),
            }
            yield ObjectInfo(f"lldp/{dev}/1", "neighbour", None, info, ())


def _mac(port: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0xFA, *port.to_bytes(4, "big")))


def _ip(port: int) -> str:
    return f"10.{port >> 16 & 0xFF}.{port >> 8 & 0xFF}.{port & 0xFF}"
