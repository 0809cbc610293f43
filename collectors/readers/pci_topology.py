"""How far two PCI functions are from each other, in the words of `nvidia-smi topo -m`.

PIX   at most one PCIe switch between them
PXB   several PCIe switches, below one root port
PHB   the host bridge of one CPU
NODE  different host bridges of one NUMA node
SYS   the link between the CPUs
"""

from __future__ import annotations

from typing import Dict, Optional

from collectors.hostfs import HostFS
from collectors.readers import ports

_BELOW_ONE_SWITCH = 2
"""The steps from a switch's upstream port to a function: its downstream port, the function."""


def pci_path(fs: HostFS, address: str) -> Optional[str]:
    """The function's directory (`sys/devices/pci...`), below the root; None when it is gone."""
    link = f"sys/bus/pci/devices/{address}"
    return fs.resolve(link) if fs.exists(link) else None


def relation(one: str, other: str, same_node: Optional[bool]) -> Optional[str]:
    """What lies between two functions, given their directories and whether they share a NUMA node.

    None when their host bridges differ and `same_node` is not known: virtual machines often hide
    the tree and the nodes.
    """
    a, b = one.split("/")[2:], other.split("/")[2:]
    shared = 0
    while shared < min(len(a), len(b)) and a[shared] == b[shared]:
        shared += 1
    if shared > 1:
        below = max(len(a), len(b)) - shared
        return "PIX" if below <= _BELOW_ONE_SWITCH else "PXB"
    if shared == 1:
        return "PHB"
    if same_node is None:
        return None
    return "NODE" if same_node else "SYS"


def affinity(fs: HostFS, address: str) -> Dict[str, str]:
    """Every port with hardware behind it -> what lies between it and the function at `address`."""
    here = pci_path(fs, address)
    if here is None:
        return {}
    node = fs.number(here, "numa_node")
    found: Dict[str, str] = {}
    for port in ports.find_ports(fs):
        there = pci_path(fs, str(port.info.get("pci", "")))
        if "pci" not in port.info or there is None:
            continue
        its_node = port.info.get("numa_node")
        known = node not in (None, -1) and its_node is not None
        between = relation(here, there, node == its_node if known else None)
        if between is not None:
            found[port.name] = between
    return found
