"""The physical ports of this machine and their names.

Every source uses this module, so that all of them give a port the same name. An RDMA device's port
and the network interface of the same physical port share one name: that of the RDMA device where it
has one port (`mlx5_0`), else device and number (`mlx5_0/2`). An interface without RDMA keeps its
own name.

A port is hardware, listed once. Not ports: the loopback, bridges, bonds (their members are ports),
VLANs, tunnels, switchdev representors, and a virtual function whose physical function is visible
too. Virtual interfaces with another end (veth, macvlan) are ports only on a machine without any
hardware port, such as a container or a network namespace. The front panel of a Linux switch
(`swp1`, `Ethernet0`) is hardware: some switch drivers show no device behind it. One end of a veth
is not, whatever its name.
"""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from collectors.hostfs import HostFS
from collectors.readers import device_facts
from collectors.source import from_oserror

NET = "sys/class/net"
INFINIBAND = "sys/class/infiniband"

ETHERNET_TYPE = 1
IPOIB_TYPE = 32
"""ARPHRD values of `/sys/class/net/<name>/type`."""

_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+")
_WITHOUT_OTHER_END = re.compile(r"(dummy|ifb|team|teql|nlmon)\d*")
"""Interfaces without another end. A veth whose end in another namespace happens to have the same
index looks the same in sysfs, so that only their names identify these."""

_WITH_OTHER_END = (None, "macvlan")

_FRONT_PANEL = re.compile(r"swp\d+(s\d+)?|Ethernet\d+")
"""Cumulus and other switchdev systems; SONiC."""


class DevicePort(NamedTuple):
    """One physical port.

    `kind` is `ethernet` or `infiniband` (the link layer). `netdev` is its interface, `rdma` its
    RDMA device with `rdma_port` the number there; None where there is none. `info` has the facts
    of `device_facts`, without those that are not known.
    """

    name: str
    kind: str
    netdev: Optional[str]
    rdma: Optional[str]
    rdma_port: int
    info: Dict[str, Any]

    @property
    def rdma_path(self) -> str:
        """The port's directory in sysfs, below the root; only for a port with `rdma`."""
        return f"{INFINIBAND}/{self.rdma}/ports/{self.rdma_port}"


def find_ports(fs: HostFS) -> List[DevicePort]:
    """The ports, sorted by name. Raises SourceError when the class directories cannot be listed."""
    try:
        return _find_ports(fs)
    except OSError as error:
        raise from_oserror(error) from error


def _find_ports(fs: HostFS) -> List[DevicePort]:
    netdevs = _hardware_netdevs(fs)
    hardware = {name: fs.exists(INFINIBAND, name, "device") for name in fs.names(INFINIBAND)}
    if not netdevs and not any(hardware.values()):
        netdevs = dict.fromkeys(_virtual_netdevs(fs), ETHERNET_TYPE)
    ports: List[DevicePort] = []
    taken: Set[str] = set()
    # An interface belongs to one port: to the hardware, where a software device uses it too.
    for device in sorted(hardware, key=lambda name: (not hardware[name], name)):
        if _is_spare_function(fs, f"{INFINIBAND}/{device}", "infiniband"):
            continue
        numbers = [int(name) for name in fs.names(INFINIBAND, device, "ports") if name.isdecimal()]
        for number in sorted(numbers):
            name = device if numbers == [1] else f"{device}/{number}"
            free = {name: kind for name, kind in netdevs.items() if name not in taken}
            netdev, bond = _netdev_of(fs, device, number, len(numbers), free)
            info = device_facts.rdma_facts(fs, device, number)
            kind = "infiniband" if info.get("link_layer") == "InfiniBand" else "ethernet"
            if bond is not None:
                info["bond"] = bond
            if netdev is not None:
                taken.add(netdev)
                facts = device_facts.netdev_facts(fs, netdev)
                virtual = facts["virtual"] and info["virtual"]
                info = {**facts, **info, "virtual": virtual}
            ports.append(DevicePort(name, kind, netdev, device, number, info))
    for name in netdevs.keys() - taken:
        kind = "infiniband" if netdevs[name] == IPOIB_TYPE else "ethernet"
        ports.append(DevicePort(name, kind, name, None, 0, device_facts.netdev_facts(fs, name)))
    return sorted(ports, key=lambda port: natural(port.name))


def affinity(fs: HostFS, address: str) -> Dict[str, str]:
    """Name of each port on PCI -> its relation to the PCI function at `address` (PIX ... SYS)."""
    here = device_facts.pci_path(fs, address)
    if here is None:
        return {}
    node = fs.number(here, "numa_node")
    found: Dict[str, str] = {}
    for port in find_ports(fs):
        there = device_facts.pci_path(fs, port.info["pci"]) if "pci" in port.info else None
        if there is None:
            continue
        port_node = port.info.get("numa_node")
        is_known = node not in (None, -1) and port_node is not None
        between = device_facts.relation(here, there, node == port_node if is_known else None)
        if between is not None:
            found[port.name] = between
    return found


def is_front_panel(name: str) -> bool:
    """Whether an interface has a name like the ports of a Linux switch."""
    return _FRONT_PANEL.fullmatch(name) is not None


def signature(fs: HostFS) -> object:
    """A cheap value that changes when an interface or an RDMA device comes, goes or is replaced."""
    seen: List[Tuple[str, int]] = []
    for path in (NET, INFINIBAND):
        try:
            with os.scandir(fs.path(path)) as entries:
                # The inode differs between a new device and an old one of the same name.
                seen.extend((entry.name, entry.inode()) for entry in entries)
        except OSError:
            continue
    return frozenset(seen)


def natural(name: str) -> List[Tuple[int, str]]:
    """A sort key that puts `eth10` after `eth9`."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _hardware_netdevs(fs: HostFS) -> Dict[str, int]:
    """Interfaces that are hardware ports, with their ARPHRD type."""
    found: Dict[str, int] = {}
    for name in fs.names(NET):
        path = f"{NET}/{name}"
        kind = fs.number(path, "type")
        if kind not in (ETHERNET_TYPE, IPOIB_TYPE):
            continue
        has_other_end = fs.number(path, "iflink") != fs.number(path, "ifindex")
        if not fs.exists(path, "device") and (has_other_end or not is_front_panel(name)):
            continue
        if kind == IPOIB_TYPE and has_other_end:
            continue  # a child of another partition key on the same port
        if _REPRESENTOR.fullmatch(fs.text(path, "phys_port_name") or ""):
            continue
        if not _is_spare_function(fs, path, "net"):
            found[name] = kind
    return found


def _is_spare_function(fs: HostFS, path: str, kind: str) -> bool:
    """Whether this is a virtual function whose physical function is also a port of this machine."""
    return bool(fs.names(path, "device", "physfn", kind))


def _virtual_netdevs(fs: HostFS) -> List[str]:
    found = []
    for name in fs.names(NET):
        path = f"{NET}/{name}"
        if fs.number(path, "type") != ETHERNET_TYPE:
            continue
        has_no_other_end = fs.number(path, "iflink") == fs.number(path, "ifindex")
        if has_no_other_end and (
            _WITHOUT_OTHER_END.fullmatch(name) or fs.exists(path, "tun_flags")
        ):
            continue
        if device_facts.uevent(fs, path).get("DEVTYPE") not in _WITH_OTHER_END:
            continue
        if not fs.exists(path, "master") and not fs.exists(path, "brport"):
            found.append(name)
    return found


def _netdev_of(
    fs: HostFS, device: str, number: int, ports: int, netdevs: Dict[str, int]
) -> Tuple[Optional[str], Optional[str]]:
    """The interface of an RDMA port; instead of it the bond, when the port serves a whole bond."""
    path = f"{INFINIBAND}/{device}"
    pci = device_facts.pci_address(fs, path)
    bond = None
    ndevs = f"{path}/ports/{number}/gid_attrs/ndevs"
    names = {fs.text(ndevs, index) for index in fs.names(ndevs)} - {None, ""}
    for name in sorted(filter(None, names), key=natural):
        if name in netdevs:
            # The same name in another network namespace may be a different interface. A software
            # device (rxe, siw) has no PCI address to compare.
            if pci is None or device_facts.pci_address(fs, f"{NET}/{name}") == pci:
                return name, None
        elif fs.exists(NET, name, "bonding"):
            bond = name
    if bond is not None:
        return None, bond
    for name in _with_mac(fs, netdevs, _iwarp_mac(fs, f"{path}/ports/{number}")):
        return name, None
    wanted = (
        IPOIB_TYPE
        if fs.text(path, "ports", str(number), "link_layer") == "InfiniBand"
        else ETHERNET_TYPE
    )
    same = [
        name
        for name in sorted(fs.names(path, "device", "net"), key=natural)
        if netdevs.get(name) == wanted
    ]
    if ports > 1:
        same = [name for name in same if _port_index(fs, name) == number - 1]
    return (same[0] if same else None), None


def _iwarp_mac(fs: HostFS, port: str) -> Optional[str]:
    """The MAC that an iWARP port has in place of a GID: six octets, then zeros.

    It identifies the interface of RDMA devices that are a PCI function of their own (erdma).
    """
    octets = (fs.text(port, "gids/0") or "").replace(":", "")
    if len(octets) != 32 or octets[12:].strip("0") or not octets[:12].strip("0"):
        return None
    return ":".join(octets[place : place + 2] for place in range(0, 12, 2))


def _with_mac(fs: HostFS, netdevs: Dict[str, int], mac: Optional[str]) -> List[str]:
    """The interfaces with that MAC."""
    if mac is None:
        return []
    return [name for name in sorted(netdevs, key=natural) if fs.text(NET, name, "address") == mac]


def _port_index(fs: HostFS, netdev: str) -> int:
    """The interface's port on its function, from 0; before Linux 3.15 it was in `dev_id`."""
    port = fs.number(NET, netdev, "dev_port")
    if port:
        return port
    try:
        return int(fs.text(NET, netdev, "dev_id") or "0", 16)
    except ValueError:
        return 0
