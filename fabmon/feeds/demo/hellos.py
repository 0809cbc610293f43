"""The hellos of simulated nodes: ports with their facts, routes, neighbours, addresses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors import wire
from collectors.catalog import CATALOG
from fabmon import __version__
from fabmon.fabric.flows.queue_pairs import KIND, MOST_PAIRS, SOURCE
from fabmon.fabric.model import HOST, SWITCH, Host
from fabmon.fabric.wire.messages import BlockInfo, Hello, MetricInfo, ObjectInfo
from fabmon.feeds.demo.counters import (
    NVLINK,
    NVLINK_LINKS,
    PRIORITY,
    Counters,
    CounterTable,
    kind_of,
)
from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.flows import Flows
from fabmon.feeds.demo.hardware import Hardware

Owner = dict[str, Any]
"""The process of a queue pair: `comm`, `pid`, and `job` where it has one."""


class QueuePairReports:
    """The queue pairs at both ends of every flow; `parts` are the flows of each process."""

    def __init__(self, hardware: Hardware, parts: Sequence[tuple[Flows, Owner]]) -> None:
        self._hardware = hardware
        self._owners = [owner for _, owner in parts]
        flows = Flows.joined([each for each, _ in parts])
        owner = np.repeat(np.arange(len(parts)), [len(each) for each, _ in parts])
        nic = np.concatenate([flows.src, flows.dst])
        order = np.argsort(nic, kind="stable")
        self._lqpn = np.concatenate([flows.lqpn, flows.rqpn])[order]
        self._rqpn = np.concatenate([flows.rqpn, flows.lqpn])[order]
        self._owner = np.concatenate([owner, owner])[order]
        self._starts = np.searchsorted(nic[order], np.arange(hardware.nics + 1))
        self._versions: dict[int, int] = {}

    def version(self, host: int) -> int:
        """A hash of the queue pairs of a host: it changes when its report does."""
        known = self._versions.get(host)
        if known is None:
            rails = self._hardware.rails
            own = slice(self._starts[host * rails], self._starts[(host + 1) * rails])
            known = self._versions[host] = hash(
                self._lqpn[own].tobytes() + self._rqpn[own].tobytes() + self._owner[own].tobytes()
            )
        return known

    def block(self, host: int) -> BlockInfo:
        """The report of a host."""
        rails = self._hardware.rails
        items = [self._object(host * rails + rail, MOST_PAIRS // rails) for rail in range(rails)]
        return BlockInfo(SOURCE, 10, tuple(items))

    def _object(self, nic: int, most: int) -> ObjectInfo:
        start, end = int(self._starts[nic]), int(self._starts[nic + 1])
        own = slice(start, min(end, start + most))
        lqpn = self._lqpn[own].tolist()
        owners, process = np.unique(self._owner[own], return_inverse=True)
        rail = nic % self._hardware.rails
        name = self._hardware.port_name(nic)
        processes = [
            {**self._owners[each], "pid": self._owners[each]["pid"] + rail}
            for each in owners.tolist()
        ]
        info = {
            "port": name,
            "count": end - start,
            "lqpn": lqpn,
            "rqpn": self._rqpn[own].tolist(),
            "type": ["RC"] * len(lqpn),
            "sq_psn": [0] * len(lqpn),
            "rq_psn": [0] * len(lqpn),
            "process": process.tolist(),
            "processes": processes,
        }
        return ObjectInfo(f"{SOURCE}/{name}", KIND, None, info, ())


PROBE = ("probe_cpu_us", "probe_rss_bytes", "probe_late_us")
_PCIE = {"pcie_speed_gtps": 32.0, "pcie_max_speed_gtps": 32.0, "pcie_max_width": 16}


class Hellos:
    """Builds the hello of any node, as its probe would."""

    def __init__(self, hardware: Hardware, counters: Counters, interval_s: float) -> None:
        self._hardware = hardware
        self._counters = counters
        self._interval_s = interval_s
        visible = hardware.topology.visible == "all"
        self.names = [
            *hardware.host_names,
            *(hardware.leaf_names + hardware.spine_names if visible else ()),
        ]
        """The watched nodes, hosts first."""

    def hosts(self) -> list[Host]:
        """The watched nodes as a hosts file would list them."""
        count = self._hardware.hosts
        return [
            Host(name=name, role=HOST if number < count else SWITCH)
            for number, name in enumerate(self.names)
        ]

    def hello(
        self, name: str, conditions: FabricState, boot: int, queue_pairs: QueuePairReports
    ) -> Hello:
        """The hello of a node; `boot` is how often it has been restarted."""
        hardware = self._hardware
        kind, number = hardware.find_node(name)
        first, count, tables = {
            "host": (number * hardware.rails, hardware.rails, self._counters.hosts),
            "leaf": (
                int(hardware.leaf_port(number, 0)),
                hardware.leaf_ports,
                self._counters.leaves,
            ),
            "spine": (
                hardware.first_spine_port + number * hardware.spine_ports,
                hardware.spine_ports,
                self._counters.spines,
            ),
        }[kind]
        ports = range(first, first + count)
        tables = [table for table in tables if kind != "host" or self.has_source(number, table)]
        blocks = [self._block(table, ports, conditions) for table in tables]
        if kind == "host":
            blocks.append(queue_pairs.block(number))
        routes = [
            *self._groups(kind, number),
            *self._neighbours(ports, conditions.rules.peer),
            *self._addresses(ports),
        ]
        blocks.append(BlockInfo("routes", 10, tuple(routes)))
        if hardware.topology.lldp:
            neighbours = tuple(self._lldp(ports, conditions.rules.peer))
            blocks.append(BlockInfo("lldp", 10, neighbours))
        blocks.append(BlockInfo("probe", 1, (ObjectInfo("probe", "node", None, {}, PROBE),)))
        used = sorted({metric for table in tables for metric in table.metrics} | set(PROBE))
        return Hello(
            wire=wire.VERSION,
            layout=_layout(tables, count),
            blocks=tuple(blocks),
            metrics={metric: MetricInfo(CATALOG[metric].unit, kind_of(metric)) for metric in used},
            interval_s=self._interval_s,
            probe=__version__,
            hostname=name,
            boot_id=f"{name}-{boot}",
            python="3.11.2",
            kernel="6.8.0-45-generic" if kind == "host" else "5.10.0-18",
        )

    def has_source(self, host: int, table: CounterTable) -> bool:
        """Whether a host reports this source: storage servers have no GPUs."""
        return host < self._hardware.training_hosts or table.source not in (NVLINK, NVLINK_LINKS)

    def _block(
        self, table: CounterTable, ports: Sequence[int], conditions: FabricState
    ) -> BlockInfo:
        if table.source in (NVLINK, NVLINK_LINKS):
            return BlockInfo(table.source, table.every, tuple(self._gpu_objects(table)))
        kind = "infiniband" if self._hardware.is_ib else "ethernet"
        has_facts = table.source in ("netdev", "ib")
        items = []
        for port in ports:
            name = self._hardware.port_name(port)
            info = self._info(port, conditions) if has_facts else {}
            items.append(ObjectInfo(name, kind, name, info, table.metrics))
        return BlockInfo(table.source, table.every, tuple(items))

    def _gpu_objects(self, table: CounterTable) -> Iterator[ObjectInfo]:
        """The GPUs of a host, or all their NVLinks."""
        topology = self._hardware.topology
        for number in range(topology.gpus):
            gpu = f"gpu{number}"
            if table.source == NVLINK:
                yield ObjectInfo(gpu, "gpu", gpu, _gpu(number), table.metrics)
                continue
            for link in range(topology.nvlinks):
                name = f"{gpu}/nv{link}"
                info = {"remote": "NVSwitch"}
                yield ObjectInfo(name, "nvlink", name, info, table.metrics)

    def _info(self, port: int, conditions: FabricState) -> dict[str, Any]:
        hardware = self._hardware
        info: dict[str, Any] = {"netdev": self._netdev(port), "mac": _mac(port), "virtual": False}
        if port >= hardware.nics:
            return {**info, "driver": "mlxsw_spectrum"} if not hardware.is_ib else info
        rail = port % hardware.rails
        narrow = bool(conditions.pcie[port])
        info |= {
            "driver": "mlx5_core",
            "pci": f"0000:{0x18 + 8 * rail:02x}:00.0",
            **_PCIE,
            "pcie_width": 8 if narrow else 16,
            "numa_node": rail * 2 // hardware.rails,
            "rdma": hardware.port_name(port),
            "rdma_port": 1,
            "link_layer": "InfiniBand" if hardware.is_ib else "Ethernet",
            "fw_ver": "28.41.1000",
            "hca_type": "MT4129",
            "guid": f"fc6a:1c03:{port >> 16:04x}:{port & 0xFFFF:04x}",
        }
        if not hardware.is_ib:
            both = [PRIORITY]
            info |= {"pfc": "on", "pfc_priorities": both, "roce_ecn_np": both, "roce_ecn_rp": both}
        return info

    def _netdev(self, port: int) -> str:
        if port >= self._hardware.nics:
            return self._hardware.port_name(port)
        rail = port % self._hardware.rails
        return f"ib{rail}" if self._hardware.is_ib else f"ens{rail + 1}np0"

    def _groups(self, kind: str, number: int) -> Iterator[ObjectInfo]:
        """A leaf's ECMP group to all other leaves; a spine's to each leaf with parallel cables."""
        hardware = self._hardware
        if kind == "leaf":
            yield self._group(1, hardware.uplinks(number), hardware.leaves - 1)
        elif kind == "spine" and hardware.parallel > 1:
            first = hardware.first_spine_port + number * hardware.spine_ports
            for leaf in range(hardware.leaves):
                downlinks = first + leaf * hardware.parallel + np.arange(hardware.parallel)
                yield self._group(leaf + 1, downlinks, 1)

    def _group(self, number: int, ports: NDArray[np.intp], destinations: int) -> ObjectInfo:
        members = [
            {"dev": self._netdev(port), "via": _ip(int(self._hardware.cabling[port])), "weight": 1}
            for port in ports.tolist()
        ]
        info = {"family": "inet", "members": members, "destinations_count": max(1, destinations)}
        return ObjectInfo(f"ecmp/{number}", "ecmp", None, info, ())

    def _neighbours(self, ports: Sequence[int], peer: NDArray[np.intp]) -> Iterator[ObjectInfo]:
        for port in ports:
            other, dev = int(peer[port]), self._netdev(port)
            info = {"dev": dev, "ip": _ip(other), "mac": _mac(other)}
            yield ObjectInfo(f"neighbour/{dev}/{_ip(other)}", "neighbour", None, info, ())

    def _lldp(self, ports: Sequence[int], peer: NDArray[np.intp]) -> Iterator[ObjectInfo]:
        for port in ports:
            dev, other = self._netdev(port), int(peer[port])
            far = {
                "peer_node": self._hardware.node_of(other),
                "peer_port": self._hardware.port_name(other),
            }
            yield ObjectInfo(f"lldp/{dev}/1", "neighbour", None, {"dev": dev, **far}, ())

    def _addresses(self, ports: Sequence[int]) -> Iterator[ObjectInfo]:
        for port in ports:
            dev = self._netdev(port)
            # Not /31: ports with consecutive numbers would be the two ends of a link.
            info = {"dev": dev, "addresses": [f"{_ip(port)}/32"], "default_route": False}
            yield ObjectInfo(f"addresses/{dev}", "addresses", None, info, ())


def _gpu(number: int) -> dict[str, Any]:
    return {"gpu_name": "NVIDIA H100 80GB HBM3", "pci": f"0000:{0x1B + 8 * number:02x}:00.0"}


def _mac(port: int) -> str:
    return ":".join(f"{byte:02x}" for byte in (0x02, 0xFA, *port.to_bytes(4, "big")))


def _ip(port: int) -> str:
    return f"10.{port >> 16 & 0xFF}.{port >> 8 & 0xFF}.{port & 0xFF}"


def _layout(tables: Sequence[CounterTable], ports: int) -> str:
    shape = repr([(table.source, table.every, table.metrics) for table in tables] + [ports])
    return hashlib.sha256(shape.encode()).hexdigest()[:16]
