"""Fabrics whose nodes tell of their neighbours by name, as LLDP does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.fabric_builder import PortRows, build
from fabmon.fabric.model import HOST, SWITCH, Fabric, Host
from fabmon.fabric.topology.plan import Topology
from fabmon.fabric.topology.plan_files import parse
from fabmon.fabric.wire.messages import Hello, decode
from tests.builders import ecmp, port

Cable = tuple[str, str]


class Plant:
    """Nodes with ports, and who says that which are cabled. Names say the role: hosts are gpu*."""

    def __init__(self, cables: Iterable[Cable] = (), *, unwatched: Iterable[str] = ()) -> None:
        self.ports: dict[str, dict[str, dict[str, Any]]] = {}
        self.said: dict[str, dict[str, list[Object]]] = {}
        self.hostnames: dict[str, str] = {}
        self.unwatched = set(unwatched)
        for one, other in cables:
            self.lldp(one, other)

    def port(self, end: str, **info: Any) -> None:
        node, _, name = end.partition("/")
        if node not in self.unwatched:
            self.ports.setdefault(node, {}).setdefault(name, {}).update(info)

    def lldp(self, one: str, other: str) -> None:
        """Both ends hear of each other."""
        self.hears(one, other)
        self.hears(other, one)

    def hears(self, one: str, other: str, source: str = "lldp", **more: str) -> None:
        """One end alone hears of the other."""
        node, _, name = one.partition("/")
        far, _, far_port = other.partition("/")
        self.port(one)
        self.port(other)
        if node in self.unwatched:
            return
        said = self.said.setdefault(node, {}).setdefault(source, [])
        info = {"dev": name, "peer_node": far, "peer_port": far_port, **more}
        said.append(Object(f"{source}/{len(said)}", "neighbour", None, info, ()))

    def sees(self, one: str, other: str) -> None:
        """Both ends see each other's MAC addresses."""
        for here, there in ((one, other), (other, one)):
            node, _, name = here.partition("/")
            self.port(here, mac=here)
            said = self.said.setdefault(node, {}).setdefault("routes", [])
            said.append(
                Object(f"n/{len(said)}", "neighbour", None, {"dev": name, "mac": there}, ())
            )

    def has_addresses(self, end: str, *addresses: str) -> None:
        """A port reports its own addresses."""
        self.port(end)
        node, _, name = end.partition("/")
        said = self.said.setdefault(node, {}).setdefault("routes", [])
        info = {"dev": name, "addresses": list(addresses)}
        said.append(Object(f"addresses/{name}", "addresses", None, info, ()))

    def routes(self, node: str, *members: str) -> None:
        said = self.said.setdefault(node, {}).setdefault("routes", [])
        said.append(Object(f"ecmp/{len(said)}", "ecmp", None, ecmp(*members).info, ()))

    @property
    def hosts(self) -> list[Host]:
        roles = {name: HOST if name.startswith("gpu") else SWITCH for name in self.ports}
        return [Host(name=name, role=role) for name, role in roles.items()]

    def hellos(self) -> dict[str, Hello]:
        return {name: self._hello(name) for name in self.ports}

    def _hello(self, node: str) -> Hello:
        own = [port(name, **{"mac": "", **info}) for name, info in self.ports[node].items()]
        blocks = [wire.BlockLayout("netdev", 1, own)]
        blocks += [
            wire.BlockLayout(source, 1, objects)
            for source, objects in self.said.get(node, {}).items()
        ]
        about = {"interval_s": 1.0, "hostname": self.hostnames.get(node, node)}
        message = decode(wire.hello(blocks, about))
        assert isinstance(message, Hello)
        return message

    def fabric(self, topology: str | Topology | None = None, name: str = "pod7.csv") -> Fabric:
        """What is built of it; `topology` may be the text of a file called `name`."""
        if isinstance(topology, str):
            topology = parse(topology, name)
        return build(self.hosts, self.hellos(), PortRows(), 1, topology=topology)


def leaf_spine(leaves: int = 2, spines: int = 2, hosts: int = 1, rails: int = 1) -> list[Cable]:
    """`hosts` a leaf, and one uplink to every spine: swp50 and on, to the leaf's number."""
    cables = []
    for leaf in range(1, leaves + 1):
        for host in range(1, hosts + 1):
            for rail in range(rails):
                name = f"gpu{(leaf - 1) * hosts + host}"
                cables.append((f"{name}/mlx5_{rail}", f"leaf{leaf}/swp{(host - 1) * rails + rail}"))
        for spine in range(1, spines + 1):
            cables.append((f"leaf{leaf}/swp{49 + spine}", f"spine{spine}/swp{leaf}"))
    return cables


def cabled(fabric: Fabric) -> dict[str, str]:
    """Every port with what is known of its other end: `spine1/swp1 (config, LLDP)`."""
    return {
        port.id: f"{port.cable.node}/{port.cable.port} ({', '.join(port.cable.known_from)})"
        for port in fabric.ports
        if port.cable is not None
    }
