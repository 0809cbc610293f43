"""Leaf-spine fabrics made by hand, as the screen is given them."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.fabric.model import (
    DOWNLINK,
    GPU,
    HOST,
    NVLINK,
    RAIL,
    SWITCH,
    UPLINK,
    Cable,
    EcmpGroup,
    Fabric,
    Node,
    Port,
    Shape,
)


def fabric(
    leaves: int = 2,
    spines: int = 4,
    hosts: int = 4,
    rails: int = 8,
    bare: Sequence[str] = (),
    gpus: int = 0,
) -> Fabric:
    """`hosts` a leaf; `bare` are nodes that have not said hello. Uplinks: two for each spine.

    Each host has so many `gpus`, with two NVLinks each.
    """
    maker = _Maker()
    nodes: list[Node] = []
    groups: list[EcmpGroup] = []
    uplinks: list[list[Port]] = []
    per_spine = max(1, 8 // spines)
    for leaf in range(1, leaves + 1):
        name = f"leaf{leaf}"
        down = [maker.port(name, f"swp{n + 1}", DOWNLINK, n) for n in range(hosts * rails)]
        first = hosts * rails
        count = spines * per_spine
        up = [maker.port(name, f"swp{first + n + 1}", UPLINK, n) for n in range(count)]
        uplinks.append(up)
        nodes.append(Node(name, SWITCH, name, tuple(down + up), _ABOUT_SWITCH))
        groups.append(EcmpGroup(name, f"{name} uplinks", tuple(p.row for p in up), hosts))
        for host in range(hosts):
            label = f"gpu{(leaf - 1) * hosts + host + 1:03d}"
            nics = (
                []
                if label in bare
                else [maker.port(label, f"mlx5_{n}", RAIL, n) for n in range(rails)]
            )
            for n, nic in enumerate(nics):
                maker.join(nic, down[host * rails + n])
            inside = [] if label in bare else maker.gpus(label, gpus)
            ports = (*nics, *inside)
            nodes.append(Node(label, HOST, name, ports, _ABOUT_HOST if nics else {}))
    for spine in range(spines):
        name = f"spine{spine + 1}"
        down = [maker.port(name, f"swp{n + 1}", DOWNLINK, n) for n in range(leaves * per_spine)]
        nodes.append(Node(name, SWITCH, "spines", tuple(down), _ABOUT_SWITCH))
        for leaf, up in enumerate(uplinks):
            for n in range(per_spine):
                maker.join(up[spine * per_spine + n], down[leaf * per_spine + n])
    return maker.finish(nodes, groups)


_ABOUT_HOST = {
    "hostname": "node",
    "kernel": "6.8.0-45-generic",
    "python": "3.10.12",
    "probe": "0.1.0",
}
_ABOUT_SWITCH = {"hostname": "switch", "kernel": "5.10.0-18", "python": "3.9.2", "probe": "0.1.0"}


class _Maker:
    def __init__(self) -> None:
        self.ports: list[Port] = []
        self._peers: dict[int, int] = {}

    def port(self, node: str, name: str, role: str, index: int) -> Port:
        label = {RAIL: f"r{index}", UPLINK: f"up{index + 1}", DOWNLINK: f"dn{index + 1}"}[role]
        info = (
            {"netdev": name}
            if role != RAIL
            else {
                "driver": "mlx5_core",
                "pci": f"0000:{0x18 + index:02x}:00.0",
                "numa_node": index // 4,
                "pcie_speed_gtps": 32.0,
                "pcie_width": 16 if index else 8,
                "pcie_max_speed_gtps": 32.0,
                "pcie_max_width": 16,
                "netdev": f"eth{index}",
                "rdma": name,
                "link_layer": "Ethernet",
                "fw_ver": "28.39.1002",
            }
        )
        made = Port(len(self.ports), node, name, "ethernet", role, index, label, None, info)
        self.ports.append(made)
        return made

    def gpus(self, node: str, count: int) -> list[Port]:
        made: list[Port] = []
        for n in range(count):
            for name, kind, role, label in (
                (f"gpu{n}", "gpu", GPU, f"g{n}"),
                (f"gpu{n}/nv0", "nvlink", NVLINK, "nv0"),
                (f"gpu{n}/nv1", "nvlink", NVLINK, "nv1"),
            ):
                info = {"gpu_name": "NVIDIA H100 80GB HBM3", "numa_node": n // 4}
                if role == NVLINK:
                    info = {"gpu": f"gpu{n}", "version": 5, "remote": "nvswitch"}
                index = int(label.lstrip("gnv"))
                made.append(Port(len(self.ports), node, name, kind, role, index, label, None, info))
                self.ports.append(made[-1])
        return made

    def join(self, one: Port, other: Port) -> None:
        self._peers[one.row], self._peers[other.row] = other.row, one.row

    def finish(self, nodes: Sequence[Node], groups: Sequence[EcmpGroup]) -> Fabric:
        joined = [
            Port(
                p.row,
                p.node,
                p.name,
                p.kind,
                p.role,
                p.index,
                p.label,
                self._peers.get(p.row),
                p.info,
                self._cable(p),
            )
            for p in self.ports
        ]
        done = [
            Node(n.name, n.role, n.group, tuple(joined[p.row] for p in n.ports), n.about)
            for n in nodes
        ]
        shape = Shape(
            {n.name: 0 if n.role == HOST else 2 if n.group == "spines" else 1 for n in nodes}
        )
        return Fabric(1, tuple(done), tuple(joined), tuple(groups), shape)

    def _cable(self, port: Port) -> Cable | None:
        if port.row not in self._peers:
            return None
        other = self.ports[self._peers[port.row]]
        return Cable(other.node, other.name, ("LLDP", "neighbour MAC"))
