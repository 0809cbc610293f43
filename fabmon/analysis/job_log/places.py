"""Which port an HCA, a GID or an address in a log is: by the nodes' reports, or by a plan."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

import msgspec

from fabmon.fabric.flows.addresses import Addresses, parse_address
from fabmon.fabric.flows.endpoints import names_of
from fabmon.fabric.model import GPU, RAIL, Fabric, Host, Port
from fabmon.fabric.pcie import NEAREST_FIRST
from fabmon.fabric.pseudonyms import without_domain
from fabmon.fabric.topology.plan import End, Topology
from fabmon.fabric.wire.messages import Hello


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port of a host, and the switch port at the other end of its cable; empty where unknown.

    `port` is `node/port`, `name` the port as a person reads it.
    """

    node: str
    port: str
    name: str
    leaf: str = ""
    leaf_port: str = ""

    @property
    def link(self) -> str:
        """The switch port, or its switch; empty where unknown."""
        return " ".join(filter(None, (self.leaf, self.leaf_port)))


class FabricPlaces:
    """Looks up ports in a fabric, as nodes report it, live or in a recording."""

    def __init__(self, fabric: Fabric, hellos: Mapping[str, Hello]) -> None:
        self._fabric = fabric
        self._addresses = Addresses(fabric, hellos)
        self._ports: dict[tuple[str, str], Port] = {}
        self._by_id: dict[int, list[Port]] = {}
        self._nodes = {without_domain(node.name): node.ports for node in fabric.nodes}
        for port in fabric.ports:
            if not port.node:
                continue
            for name in names_of(port):
                self._ports.setdefault((without_domain(port.node), name), port)
            for number in _interface_ids(port):
                self._by_id.setdefault(number, []).append(port)

    def port(self, host: str, hca: str) -> Place | None:
        """The port of an HCA."""
        port = self._ports.get((without_domain(host), hca))
        return None if port is None else self._place(port)

    def port_of_gid(self, gid: str) -> Place | None:
        """The port with a GID: of RoCE by its IP address or MAC, of InfiniBand by its GUID."""
        address = _gid_address(gid)
        if address is None:
            return None
        owner = self._addresses.owner(address)
        owned = [] if owner is None else self._addresses.of(owner)
        ports = [each.port for each in owned if each.address == address and each.port is not None]
        if not ports and address.version == 6:
            ports = list(self._by_id.get(int(address) & (1 << 64) - 1, ()))
        return self._place(ports[0]) if len(ports) == 1 else None

    def host_of(self, address: str) -> str:
        """The host with an IP address."""
        known = parse_address(address)
        return (self._addresses.owner(known) or "") if known is not None else ""

    def ports_of_gpu(self, host: str, gpu: int) -> list[Place]:
        """The rails that are nearest to a GPU by PCIe, by its index; all where that is unknown."""
        ports = self._nodes.get(without_domain(host), ())
        rails = [port for port in ports if port.role == RAIL]
        known = next((each for each in ports if each.role == GPU and each.index == gpu), None)
        affinity = known.info.get("affinity") if known is not None else None
        if isinstance(affinity, dict):
            kinds = {port.row: affinity.get(port.name) for port in rails}
            nearest = next((kind for kind in NEAREST_FIRST if kind in kinds.values()), None)
            if nearest is not None:
                rails = [port for port in rails if kinds[port.row] == nearest]
        return [self._place(port) for port in rails]

    def _place(self, port: Port) -> Place:
        leaf, leaf_port = "", ""
        if port.peer is not None:
            peer = self._fabric.ports[port.peer]
            leaf, leaf_port = peer.node, peer.label or peer.name
        elif port.cable is not None:
            leaf, leaf_port = port.cable.node, port.cable.port
        return Place(port.node, port.id, port.display_name, leaf, leaf_port)


def _gid_address(gid: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """A GID as an address; that of RoCE over IPv4 is a mapped one."""
    address = parse_address(gid)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _interface_ids(port: Port) -> Iterable[int]:
    """The last 64 bits of GIDs that a port has by its GUID, or by its MAC (EUI-64)."""
    guid = str(port.info.get("guid", "")).replace(":", "").removeprefix("0x")
    mac = str(port.info.get("mac", "")).replace(":", "")
    if len(guid) == 16 and _is_hex(guid):
        yield int(guid, 16)
    if len(mac) == 12 and _is_hex(mac):
        yield int(f"{mac[:6]}fffe{mac[6:]}", 16) ^ 1 << 57


def _is_hex(text: str) -> bool:
    try:
        return int(text, 16) >= 0
    except ValueError:
        return False


class PlannedPlaces:
    """Looks up ports in topology files, and addresses in the hosts file; no node was reached."""

    def __init__(self, topology: Topology | None, hosts: Iterable[Host] = ()) -> None:
        self._ends: dict[tuple[str, str], tuple[End, End]] = {}
        self._groups = topology.groups if topology is not None else {}
        self._hosts = {host.address or host.name: host.name for host in hosts}
        for cable in topology.cables if topology is not None else ():
            for one, other in ((cable.one, cable.other), (cable.other, cable.one)):
                for name in (one.port, *one.also):
                    self._ends.setdefault((without_domain(one.node), name), (one, other))

    def port(self, host: str, hca: str) -> Place | None:
        """The port of an HCA, or the leaf of its host where the plan has no cables of it."""
        found = self._ends.get((without_domain(host), hca))
        if found is not None:
            one, other = found
            return Place(one.node, f"{one.node}/{hca}", f"{one.node} {hca}", other.node, other.port)
        leaf = self._groups.get(host)
        return Place(host, f"{host}/{hca}", f"{host} {hca}", leaf) if leaf else None

    def port_of_gid(self, gid: str) -> Place | None:
        """No plan has GIDs."""
        return None

    def host_of(self, address: str) -> str:
        """The host with an IP address in the hosts file."""
        return self._hosts.get(address, "")

    def ports_of_gpu(self, host: str, gpu: int) -> list[Place]:
        """No plan has GPUs."""
        return []


class AllPlaces:
    """Looks up in several places; the first that knows decides."""

    def __init__(self, parts: Iterable[FabricPlaces | PlannedPlaces]) -> None:
        self._parts = tuple(parts)

    def port(self, host: str, hca: str) -> Place | None:
        """The port of an HCA."""
        return next(filter(None, (each.port(host, hca) for each in self._parts)), None)

    def port_of_gid(self, gid: str) -> Place | None:
        """The port with a GID."""
        return next(filter(None, (each.port_of_gid(gid) for each in self._parts)), None)

    def host_of(self, address: str) -> str:
        """The host with an IP address."""
        return next(filter(None, (each.host_of(address) for each in self._parts)), "")

    def ports_of_gpu(self, host: str, gpu: int) -> list[Place]:
        """The rails that are nearest to a GPU."""
        return next(filter(None, (each.ports_of_gpu(host, gpu) for each in self._parts)), [])


Places = FabricPlaces | PlannedPlaces | AllPlaces
"""Looks up ports; None or empty where there is none, or more than one."""
