"""What the nodes of a scene announce: ports with their counters, routes and LLDP neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from collectors import wire
from collectors.catalog import CATALOG
from fabmon.fabric.model import SWITCH
from fabmon.fabric.wire.messages import BlockInfo, Hello, MetricInfo, ObjectInfo
from tests.packets.archive import SceneMeta, SceneNode, ScenePort
from tests.world.watched_nodes import PRIORITY, Table

_ETHERNET = "ethernet"
_EVERY = 10
"""Ticks between two reads of routes and neighbours."""


def hello(meta: SceneMeta, node: SceneNode, layout: Sequence[Table]) -> Hello:
    """What a node announces; its ports are in the order of the scene."""
    ports = [(number, port) for number, port in enumerate(meta.ports) if port.node == node.name]
    blocks = []
    for table in layout:
        with_facts = table.source in ("netdev", "ib")
        objects = []
        for place, (number, port) in enumerate(ports):
            info = _facts(meta, port, number, place) if with_facts else {}
            objects.append(ObjectInfo(port.port, _ETHERNET, port.port, info, table.metrics))
        blocks.append(BlockInfo(table.source, table.every, tuple(objects)))
    own = [port for _, port in ports]
    if meta.routes and node.role == SWITCH:
        blocks.append(BlockInfo("routes", _EVERY, tuple(_routes(meta, own))))
    if meta.cabling_known:
        blocks.append(BlockInfo("lldp", _EVERY, tuple(_neighbours(own))))
    used = sorted({name for table in layout for name in table.metrics})
    shape = repr([(table.source, table.metrics, len(ports)) for table in layout])
    return Hello(
        wire=wire.VERSION,
        layout=hashlib.sha256(shape.encode()).hexdigest()[:16],
        blocks=tuple(blocks),
        metrics={name: MetricInfo(CATALOG[name].unit, CATALOG[name].kind) for name in used},
        interval_s=1.0,
        probe="0",
        hostname=node.name,
        boot_id=f"{node.name}-1",
        python="3.11.2",
        kernel="5.10.0-18" if node.role == SWITCH else "6.8.0-45-generic",
    )


def _facts(meta: SceneMeta, port: ScenePort, number: int, place: int) -> dict[str, Any]:
    """The facts of a port: `number` counts all ports of the scene, `place` those of its node."""
    mac = ":".join(f"{byte:02x}" for byte in (0x02, 0xFA, *number.to_bytes(4, "big")))
    info: dict[str, Any] = {"netdev": _netdev(port), "mac": mac, "virtual": False}
    if port.kind != "nic":
        return info | {"driver": "mlxsw_spectrum"}
    info |= {
        "driver": "mlx5_core",
        "pci": f"0000:{0x18 + 8 * place:02x}:00.0",
        "pcie_speed_gtps": 32.0,
        "pcie_max_speed_gtps": 32.0,
        "pcie_width": 16,
        "pcie_max_width": 16,
        "numa_node": 0,
        "rdma": port.port,
        "rdma_port": 1,
        "link_layer": "Ethernet",
        "hca_type": "MT4129",
        "pfc": "on",
        "pfc_priorities": [PRIORITY],
    }
    if meta.has_ecn:
        info |= {"roce_ecn_np": [PRIORITY], "roce_ecn_rp": [PRIORITY]}
    return info


def _netdev(port: ScenePort) -> str:
    """The network device of a port: a NIC's differs from its RDMA device."""
    if port.kind != "nic":
        return port.port
    return f"ens{int(port.port.rpartition('_')[2]) + 1}np0"


def _routes(meta: SceneMeta, ports: Sequence[ScenePort]) -> Iterator[ObjectInfo]:
    """The group of a leaf, which is a switch with hosts: its ports that lead to other switches."""
    hosts = {node.name for node in meta.nodes if node.role != SWITCH}
    members = [{"dev": _netdev(port)} for port in ports if port.peer.partition("/")[0] not in hosts]
    if 1 < len(members) < len(ports):
        info = {"family": "inet", "members": members, "destinations_count": 1}
        yield ObjectInfo("ecmp/1", "ecmp", None, info, ())


def _neighbours(ports: Sequence[ScenePort]) -> Iterator[ObjectInfo]:
    """The other ends of the cables, as LLDP reports them."""
    for port in ports:
        node, _, name = port.peer.partition("/")
        info = {"dev": _netdev(port), "peer_node": node, "peer_port": name}
        yield ObjectInfo(f"lldp/{_netdev(port)}/1", "neighbour", None, info, ())
