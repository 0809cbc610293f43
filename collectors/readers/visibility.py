"""What of this machine the probe cannot see because of where it runs: in a container, or as an
account from which /proc hides other processes.

Nothing fails there. A NIC in another network namespace looks like one that does not exist, and a
queue pair of a hidden process like the kernel's own.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, List, Optional, Tuple

from collectors.hostfs import HostFS

_PCI = "sys/bus/pci/devices"
_NETWORK_CLASS = "0x02"
_DEVICES = ("net", "infiniband", "cxi")
_DRIVER = re.compile(r"^DRIVER=(\S+)", re.MULTILINE)
_NOT_HERE = ("vfio-pci", "pci-stub", "uio_pci_generic", "igb_uio")
"""Drivers that hand a device to a virtual machine or to a program: it has no interface anywhere."""
_UVERBS = "dev/infiniband"
_FIRST_PID_NAMESPACE = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h."""
_HIDEPID = re.compile(r"\bhidepid=(\w+)")
_GID = re.compile(r"\bgid=(\d+)")
_SHOWN = 4


def limits(fs: HostFS) -> List[Dict[str, str]]:
    """Each thing that is not visible: the `source` that lacks it, and a `text` for people."""
    checks: Tuple[Tuple[str, Callable[[HostFS], str]], ...] = (
        ("netdev", _interfaces),
        ("ib", _rdma_devices),
        ("qps", _processes),
    )
    found = [(source, check(fs)) for source, check in checks]
    return [{"source": source, "text": text} for source, text in found if text]


def _interfaces(fs: HostFS) -> str:
    """NICs whose interfaces are in another network namespace."""
    if not (fs.exists("sys/class") or fs.exists("sys/bus")):
        return "no /sys here: a container needs the host's, read-only is enough"
    hidden = []
    for address in _names(fs, _PCI):
        if not (fs.text(_PCI, address, "class") or "").startswith(_NETWORK_CLASS):
            continue
        driver = _DRIVER.search(fs.text(_PCI, address, "uevent") or "")
        if driver and driver[1] not in _NOT_HERE and not _has_device(fs, address):
            hidden.append(f"{address} ({driver[1]})")
    if not hidden:
        return ""
    nics, have = ("NIC", "has") if len(hidden) == 1 else ("NICs", "have")
    return (
        f"{len(hidden)} {nics} {have} no interface in this network namespace: {_some(hidden)};"
        " a container needs the host's network"
    )


def _has_device(fs: HostFS, address: str) -> bool:
    """Whether a PCI function, or a virtio device below it, has an interface or an RDMA device here;
    in another namespace the directory is there and empty."""
    places = [(_PCI, address), *((_PCI, address, name) for name in _names(fs, _PCI, address))]
    return any(_names(fs, *place, kind) for place in places for kind in _DEVICES)


def _rdma_devices(fs: HostFS) -> str:
    """RDMA devices that programs here can use, and whose counters are not here."""
    devices = [name for name in _names(fs, _UVERBS) if name.startswith("uverbs")]
    if not devices or _names(fs, "sys/class/infiniband"):
        return ""
    return (
        f"{_some([f'/dev/infiniband/{name}' for name in devices])} without /sys/class/infiniband:"
        " their counters are not visible; a container needs the host's /sys, read-only is enough"
    )


def _processes(fs: HostFS) -> str:
    """Processes whose names, jobs and CPUs are hidden."""
    if _link(fs, "proc/self/ns/pid") not in (None, _FIRST_PID_NAMESPACE):
        return (
            "this is another pid namespace than the machine's, as in a container: which processes"
            " outside it own queue pairs is unknown"
        )
    mode = _hidepid(fs.text("proc/self/mounts") or "")
    if mode and os.geteuid() != 0:
        return (
            f"/proc hides the processes of other accounts (hidepid={mode}): their names, jobs and"
            " CPUs are unknown; root sees them, and the group that its option gid= names"
        )
    return ""


def _hidepid(mounts: str) -> str:
    """The mode in which /proc hides processes from this account; empty where it does not."""
    for line in mounts.splitlines():
        words = line.split()
        if len(words) > 3 and words[1] == "/proc" and words[2] == "proc":
            mode, group = _HIDEPID.search(words[3]), _GID.search(words[3])
            groups = [os.getegid(), *os.getgroups()]
            if mode and mode[1] not in ("0", "off") and not (group and int(group[1]) in groups):
                return mode[1]
    return ""


def _names(fs: HostFS, *parts: str) -> List[str]:
    try:
        return fs.names(*parts)
    except OSError:
        return []


def _link(fs: HostFS, path: str) -> Optional[str]:
    try:
        return os.readlink(fs.path(path))
    except OSError:
        return None


def _some(names: List[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
