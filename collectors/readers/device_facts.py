"""Facts about a port that are not counters: driver, PCI position, firmware, addresses.

The keys: `netdev`, `ifindex`, `iflink` (the index of the other end, for an interface that leads to
another one), `mac`, `master`, `bond`, `virtual`; `rdma`, `rdma_port`, `link_layer`, `gid_prefix`
(the InfiniBand subnet), `fw_ver`, `board_id`, `hca_type`, `guid`; `line_rate_bps` (of a link that
is up when the port is discovered); `driver`, `pci` (dddd:bb:dd.f), `pcie_speed_gtps` and
`pcie_width` (a lane's current speed, and the number of lanes), `pcie_max_speed_gtps`,
`pcie_max_width`, `numa_node`, `iommu` (`identity`, `DMA`, `DMA-FQ`) and `iommu_group`, which
functions share between which nothing isolates. An unknown fact is left out.

The relation of two PCI functions uses the terms of `nvidia-smi topo -m`:

PIX   at most one PCIe switch between them
PXB   several PCIe switches, below one root port
PHB   the host bridge of one CPU
NODE  different host bridges of one NUMA node
SYS   the link between the CPUs
"""

from __future__ import annotations

import re
from typing import Any, Dict, Optional

from collectors.hostfs import HostFS

_BDF = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_BELOW_ONE_SWITCH = 2
"""The steps from a switch's upstream port to a function: its downstream port, the function."""


def netdev_facts(fs: HostFS, name: str) -> Dict[str, Any]:
    """The facts of a network interface."""
    path = f"sys/class/net/{name}"
    index, link = fs.number(path, "ifindex"), fs.number(path, "iflink")
    facts: Dict[str, Any] = {
        "netdev": name,
        "ifindex": index,
        "iflink": link if link != index else None,
        "mac": fs.text(path, "address"),
        "virtual": not fs.exists(path, "device"),
        "line_rate_bps": _speed_bps(fs.number(path, "speed")),
        **device_facts(fs, path),
    }
    if fs.exists(path, "master"):
        facts["master"] = master = fs.resolve(path, "master").rpartition("/")[2]
        if fs.exists("sys/class/net", master, "bonding"):
            facts["bond"] = master
    return known(facts)


def rdma_facts(fs: HostFS, device: str, number: int) -> Dict[str, Any]:
    """The facts of one port of an RDMA device."""
    path = f"sys/class/infiniband/{device}"
    port = f"{path}/ports/{number}"
    link_layer = fs.text(port, "link_layer")
    # The rate of a port that is not active is that of its slowest mode.
    is_active = (fs.text(port, "state") or "").startswith("4")
    return known(
        {
            "rdma": device,
            "rdma_port": number,
            "link_layer": link_layer,
            "gid_prefix": _gid_prefix(fs, port) if link_layer == "InfiniBand" else None,
            "line_rate_bps": _rate_bps(fs.text(port, "rate")) if is_active else None,
            "fw_ver": fs.text(path, "fw_ver"),
            "board_id": fs.text(path, "board_id"),
            "hca_type": fs.text(path, "hca_type"),
            "guid": fs.text(path, "node_guid"),
            "virtual": not fs.exists(path, "device"),
            **device_facts(fs, path),
        }
    )


def device_facts(fs: HostFS, path: str) -> Dict[str, Any]:
    """Driver and PCI position of the device behind a class entry at `path`."""
    if not fs.exists(path, "device"):
        return {}
    pci = pci_directory(fs, path)
    driver = uevent(fs, f"{path}/device").get("DRIVER")
    if pci is None:
        return {"driver": driver}
    return {"driver": driver or uevent(fs, pci).get("DRIVER"), **pci_facts(fs, pci)}


def pci_facts(fs: HostFS, pci: str) -> Dict[str, Any]:
    """The position of a PCI function: its address, its link to the host, its NUMA node."""
    node = fs.number(pci, "numa_node")
    return {
        "pci": pci.rpartition("/")[2],
        "pcie_speed_gtps": _speed_gtps(fs.text(pci, "current_link_speed")),
        "pcie_width": fs.number(pci, "current_link_width"),
        "pcie_max_speed_gtps": _speed_gtps(fs.text(pci, "max_link_speed")),
        "pcie_max_width": fs.number(pci, "max_link_width"),
        "numa_node": node if node != -1 else None,
        "iommu": fs.text(pci, "iommu_group", "type"),
        "iommu_group": _iommu_group(fs, pci),
    }


def _iommu_group(fs: HostFS, pci: str) -> Optional[str]:
    """The number of a function's IOMMU group, as text; None without an IOMMU."""
    if not fs.exists(pci, "iommu_group"):
        return None
    return fs.resolve(pci, "iommu_group").rpartition("/")[2]


def pci_directory(fs: HostFS, path: str) -> Optional[str]:
    """The PCI function behind a class entry, below the root; None for what is not on PCI.

    The device itself may be an auxiliary or a virtio device: then it is the function above it.
    """
    if not fs.exists(path, "device"):
        return None
    parts = fs.resolve(path, "device").split("/")
    while parts and not _BDF.fullmatch(parts[-1]):
        parts.pop()
    return "/".join(parts) or None


def pci_address(fs: HostFS, path: str) -> Optional[str]:
    """The address of that function, as in `0000:17:00.0`."""
    directory = pci_directory(fs, path)
    return None if directory is None else directory.rpartition("/")[2]


def pci_path(fs: HostFS, address: str) -> Optional[str]:
    """The directory of the function at `address` (`sys/devices/pci...`); None when it is gone."""
    link = f"sys/bus/pci/devices/{address}"
    return fs.resolve(link) if fs.exists(link) else None


def relation(one: str, other: str, same_node: Optional[bool]) -> Optional[str]:
    """The relation of two functions (PIX ... SYS), given their directories.

    `same_node` says whether they share a NUMA node. None when their host bridges differ and
    `same_node` is not known: virtual machines often hide the tree and the nodes.
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


def uevent(fs: HostFS, path: str) -> Dict[str, str]:
    """The key=value lines of a device's `uevent`; empty when there are none."""
    lines = (fs.text(path, "uevent") or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def known(facts: Dict[str, Any]) -> Dict[str, Any]:
    """The facts without those whose value is None or empty."""
    return {key: value for key, value in facts.items() if value not in (None, "")}


def _speed_bps(megabits: Optional[int]) -> Optional[int]:
    """A line rate from Mb/s; None for -1, also as an unsigned number, which is an unknown one."""
    return megabits * 1_000_000 if megabits and 0 < megabits < 0xFFFFFFFF else None


def _rate_bps(text: Optional[str]) -> Optional[int]:
    """`400 Gb/sec (4X NDR)` -> 400,000,000,000; None for another text."""
    try:
        return int(float((text or "").split()[0]) * 1e9)
    except (IndexError, ValueError, OverflowError):
        return None


def _gid_prefix(fs: HostFS, port: str) -> Optional[str]:
    """The first half of the port's GID, which the subnet manager sets; None without one."""
    prefix = (fs.text(port, "gids/0") or "")[:19]
    return prefix if prefix.count(":") == 3 else None


def _speed_gtps(text: Optional[str]) -> Optional[float]:
    """`32.0 GT/s PCIe` -> 32.0; None when the link's speed is not reported (`Unknown`)."""
    try:
        return float((text or "").split()[0])
    except (IndexError, ValueError):
        return None
