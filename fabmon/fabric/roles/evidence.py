"""What decides the role of a host's NIC, gathered from its facts, addresses and cables."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fabmon.fabric.names import cached_if_short
from fabmon.fabric.node_facts import NodeFacts
from fabmon.fabric.topology.claims import Wiring

SESSION, DEFAULT = "this console's connection", "the default route"
"""What a frontend carries."""

_USB_DRIVERS = frozenset(
    ("cdc_ether", "cdc_ncm", "cdc_eem", "cdc_subset", "rndis_host", "ipheth", "r8152", "asix")
)
"""Drivers of USB NICs: the BMC's virtual interface is one of them."""

_NEAR = ("PIX", "PXB")
"""Relations of a GPU and a NIC below one PCIe root port."""


class PortEvidence(NamedTuple):
    """One NIC of a host. Unknown values are "", 0 or None.

    `position` is its PCI address, numbered where that has several ports, else its name. `card` is
    the card's model (else its driver), `card_ports` the number of the host's RDMA ports on it.
    `subnet` is the InfiniBand subnet, `network` the IP network, `fabric` the set of connected
    switches that it is cabled to: numbers that mean something only within the host. `near_gpu` says
    whether a GPU is below the same PCIe root port. `carries` has SESSION and DEFAULT.
    """

    name: str
    position: str
    is_rdma: bool
    link_layer: str
    rate_bps: float
    pcie_bps: float
    card: str
    card_ports: int
    subnet: str
    network: int
    fabric: int
    near_gpu: bool | None
    carries: tuple[str, ...]
    bond: str
    is_usb: bool

    @property
    def weight(self) -> float:
        """The bandwidth by which it counts among the host's ports."""
        return self.rate_bps or self.pcie_bps or 1.0


class Carried(NamedTuple):
    """Interfaces with the default route, and with the address of this console's connection."""

    default: frozenset[str] = frozenset()
    session: frozenset[str] = frozenset()


class EvidenceMemory:
    """What earlier hellos reported and later ones lack.

    A link that is down or degraded while its node is discovered reports no line rate or a lower
    one, and a default route may vanish for a while: neither gives a port another role.
    """

    def __init__(self) -> None:
        self._rates: dict[tuple[str, str], float] = {}
        self._carried: dict[str, Carried] = {}

    def rate_bps(self, host: str, port: str, reported: object) -> float:
        """The highest line rate that a port has reported; 0 without one."""
        now = float(reported) if isinstance(reported, (int, float)) else 0.0
        known = self._rates.get((host, port), 0.0)
        if now > known:
            self._rates[host, port] = known = now
        return known

    def carried(self, host: str, fact: NodeFacts) -> Carried:
        """The interfaces that carry what a frontend carries, each as last reported."""
        known = self._carried.get(host, Carried())
        now = carried_by(fact.addresses, fact.reached_at)
        kept = Carried(now.default or known.default, now.session or known.session)
        self._carried[host] = kept
        return kept


def evidence_of(
    host: str,
    fact: NodeFacts,
    gpus: Iterable[Mapping[str, Any]],
    fabrics: Mapping[str, str],
    wiring: Wiring,
    memory: EvidenceMemory,
) -> tuple[PortEvidence, ...]:
    """The evidence of a host's NICs, in the order of its ports.

    `gpus` are the facts of its GPUs, `fabrics` the set of connected switches of each switch.
    """
    nics = {n: i for n, i in fact.ports.items() if i.get("kind") in ("ethernet", "infiniband")}
    cables = [wiring.cables.get((host, name)) for name in nics]
    leaves = [fabrics.get(each.node, each.node) if each is not None else "" for each in cables]
    carried = memory.carried(host, fact)
    networks = _networks(fact)
    near = _near_gpus(gpus)
    on_card = Counter(_slot(info) for info in nics.values() if is_rdma(info))
    numbers: dict[object, int] = {}
    at: Counter[str] = Counter()
    found: list[PortEvidence] = []
    for (name, info), leaf in zip(nics.items(), leaves, strict=True):
        devices = {str(info[key]) for key in ("netdev", "bond") if key in info} or {name}
        network = next((networks[dev] for dev in sorted(devices) if dev in networks), "")
        found.append(
            PortEvidence(
                name=name,
                position=_position(name, info, at),
                is_rdma=is_rdma(info),
                link_layer=str(info.get("link_layer", "")),
                rate_bps=memory.rate_bps(host, name, info.get("line_rate_bps")),
                pcie_bps=_pcie_bps(info),
                card=str(info.get("hca_type") or info.get("driver") or ""),
                card_ports=on_card[_slot(info)] if "pci" in info else 0,
                subnet=str(info.get("gid_prefix", "")),
                network=numbers.setdefault(network, len(numbers) + 1) if network else 0,
                fabric=numbers.setdefault((leaf,), len(numbers) + 1) if leaf else 0,
                near_gpu=(name in near) if near else None,
                carries=tuple(
                    what
                    for what, its in ((SESSION, carried.session), (DEFAULT, carried.default))
                    if devices & its
                ),
                bond=str(info.get("bond", "")),
                is_usb=info.get("driver") in _USB_DRIVERS,
            )
        )
    return tuple(found)


def is_rdma(info: Mapping[str, Any]) -> bool:
    """Whether a port has an RDMA device, or a NIC of a kind that replaces one (Slingshot)."""
    return "rdma" in info or "cxi" in info


def connected_switches(links: Iterable[tuple[str, str]], hosts: Iterable[str]) -> dict[str, str]:
    """Each switch -> one of the switches that it is connected to without a host between.

    `links` are the pairs of nodes that a cable connects.
    """
    hosts = frozenset(hosts)
    above: dict[str, str] = {}

    def root(name: str) -> str:
        while (parent := above.setdefault(name, name)) != name:
            above[name] = above[parent]
            name = parent
        return name

    for node, far in links:
        if node not in hosts and far not in hosts:
            one, other = sorted((root(node), root(far)))
            above[other] = one
    return {name: root(name) for name in list(above)}


def carried_by(addresses: Iterable[Mapping[str, Any]], reached_at: str) -> Carried:
    """The interfaces that carry what a frontend carries, with those below a VLAN or bridge.

    `addresses` are the facts of a node's objects of that kind, `reached_at` is its address that the
    console connected to.
    """
    default: set[str] = set()
    session: set[str] = set()
    for item in addresses:
        devices = {str(item.get("dev")), *map(str, item.get("over") or ())}
        if item.get("default_route") is True:
            default |= devices
        if reached_at and _holds(item.get("addresses"), reached_at):
            session |= devices
    return Carried(frozenset(default), frozenset(session))


def _holds(addresses: object, reached_at: str) -> bool:
    """Whether addresses with prefix lengths have the one that was connected to."""
    known = [str(each) for each in addresses] if isinstance(addresses, (list, tuple)) else []
    wanted = _address(reached_at)
    return wanted is not None and any(_address(each) == wanted for each in known)


def _address(text: str) -> object:
    bare = text.partition("/")[0].partition("%")[0]
    try:
        found = ipaddress.ip_address(bare)
    except ValueError:
        return None
    # An SSH server that listens on :: reports IPv4 clients by mapped addresses.
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def _networks(fact: NodeFacts) -> dict[str, str]:
    """Interface -> its first IPv4 network of more than two addresses, else its first IPv6 one."""
    found: dict[str, str] = {}
    for item in fact.addresses:
        its = (_network(str(text)) for text in item.get("addresses") or ())
        networks = [each for each in its if each is not None]
        if networks:
            for dev in (item.get("dev"), *(item.get("over") or ())):
                found.setdefault(str(dev), min(networks)[1])
    return found


@cached_if_short
def _network(address: str) -> tuple[int, str] | None:
    """(IP version, network) of an address with its prefix length; None if it is of no use."""
    if address.endswith(("/31", "/32", "/127", "/128")):
        return None
    try:
        network = ipaddress.ip_interface(address).network
    except ValueError:
        return None
    return None if network.is_link_local else (network.version, str(network))


def _near_gpus(gpus: Iterable[Mapping[str, Any]]) -> set[str]:
    """The ports that share a PCIe root port with a GPU; empty where that is not known."""
    near: set[str] = set()
    for info in gpus:
        affinity = info.get("affinity")
        if isinstance(affinity, Mapping):
            near |= {str(name) for name, relation in affinity.items() if relation in _NEAR}
    return near


def _position(name: str, info: Mapping[str, Any], at: Counter[str]) -> str:
    """The PCI address, numbered where a function has several ports; `at` counts those so far."""
    pci = str(info.get("pci", ""))
    at[pci] += 1
    return name if not pci else pci if at[pci] == 1 else f"{pci}#{at[pci]}"


def _slot(info: Mapping[str, Any]) -> str:
    return str(info.get("pci", "")).rpartition(".")[0]


def _pcie_bps(info: Mapping[str, Any]) -> float:
    speed, lanes = info.get("pcie_max_speed_gtps"), info.get("pcie_max_width")
    if not isinstance(speed, (int, float)) or not isinstance(lanes, (int, float)):
        return 0.0
    return float(speed) * float(lanes) * 1e9
