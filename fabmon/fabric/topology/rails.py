"""Which rail a host's port is, where the topology says so, and which NIC is a GPU's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabmon.fabric.topology.given import Topology

Ports = Mapping[str, Mapping[str, Any]]


class Rails:
    """The order that was given. A rail whose port is missing keeps its place."""

    def __init__(self, topology: Topology) -> None:
        self.count = len(topology.rails)
        self._place = {name.lower(): place for place, name in enumerate(topology.rails)}
        self._near = topology.nearness

    def of(self, ports: Ports) -> dict[str, int]:
        """Port -> its rail, of those that are named; a rail has one port."""
        found: dict[str, int] = {}
        taken: set[int] = set()
        for name, info in ports.items():
            if not self._place or info.get("kind") not in ("ethernet", "infiniband"):
                continue
            for called in (name, info.get("netdev"), info.get("rdma"), info.get("pci")):
                place = self._place.get(str(called).lower())
                if place is not None and place not in taken:
                    found[name] = place
                    taken.add(place)
                    break
        return found

    def nearest(self, info: dict[str, Any], ports: Ports) -> dict[str, Any]:
        """A GPU's facts, with what NCCL's topology says is between it and each NIC."""
        if not self._near.between or info.get("kind") != "gpu":
            return info
        gpu = str(info.get("pci", "")).lower()
        near = {
            name: self._near.between[gpu, pci]
            for name, other in ports.items()
            if (gpu, pci := str(other.get("pci", "")).lower()) in self._near.between
        }
        return {**info, "affinity": near} if near else info
