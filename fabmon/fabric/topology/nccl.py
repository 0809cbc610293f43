"""NCCL's topology XML of a machine (NCCL_TOPO_DUMP_FILE, or a cloud's NCCL_TOPO_FILE).

It has the places of GPUs and NICs on PCIe, which give the NIC nearest to each GPU, also where a
virtual machine hides that, and with `<net>` the names of the NICs in NCCL's order. It has no
cables.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree

from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.topology.plan import Nearness, PlanProblem, Topology, TopologyError
from fabmon.fabric.wire.messages import printable

_GPU_CLASSES = ("0x0302", "0x0300", "0x0380", "0x1200")
_NIC_CLASSES = ("0x0200", "0x0207", "0x0280")
_MOST_DIGITS = 6
_MOST_DEVICES = 1024
"""GPUs, or NICs, of a machine: distances are of all pairs."""
_DEEPEST = 64
"""Bridges above a device; PCIe has 256 buses, machines have five levels."""


class _Device(NamedTuple):
    """A device: its PCI address, and the elements above it, the outermost first."""

    pci: str
    above: tuple[int, ...]
    nets: tuple[tuple[int, str], ...]


def parse(text: str, filename: str) -> Topology:
    """The rails and GPU-to-NIC distances of a machine type. Raises TopologyError."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        problem = PlanProblem(error.position[0], f"not XML: {error}", "fix it, or dump it again")
        raise TopologyError(filename, [problem]) from None
    if root.tag != "system":
        what = f"<{root.tag}>, where NCCL's topology has <system>"
        raise TopologyError(filename, [PlanProblem(1, what, "set NCCL_TOPO_DUMP_FILE to make one")])
    gpus: list[_Device] = []
    nics: list[_Device] = []
    try:
        _walk(root, (), gpus, nics)
    except Bad as bad:
        raise TopologyError(filename, [PlanProblem(0, bad.text, bad.fix)]) from None
    if max(len(gpus), len(nics)) > _MOST_DEVICES:
        what = f"more than {_MOST_DEVICES:,} GPUs or NICs"
        raise TopologyError(filename, [PlanProblem(0, what, "dump it again")])
    if not nics:
        what = "it has no NIC"
        raise TopologyError(filename, [PlanProblem(0, what, "set NCCL_TOPO_DUMP_FILE to make one")])
    named = [sorted(nic.nets)[0] if nic.nets else (place, "") for place, nic in enumerate(nics)]
    order = sorted(range(len(nics)), key=lambda place: (named[place][0], place))
    near = Nearness(
        nics=tuple(nics[place].pci for place in order),
        names=tuple(named[place][1] for place in order),
        between={(gpu.pci, nic.pci): _between(gpu, nic) for gpu in gpus for nic in nics},
    )
    rails = tuple(name or pci for name, pci in zip(near.names, near.nics, strict=True))
    return Topology(rails=rails, nearness=near)


def _walk(
    element: ElementTree.Element,
    above: tuple[int, ...],
    gpus: list[_Device],
    nics: list[_Device],
) -> None:
    if len(above) > _DEEPEST:
        raise Bad(1, f"elements more than {_DEEPEST} deep", "dump it again")
    for child in element:
        kind = child.get("class", "")[:6]
        device = _Device(printable(child.get("busid", "").strip().lower()), above, ())
        if child.tag == "pci" and (kind in _GPU_CLASSES or child.find("gpu") is not None):
            gpus.append(device)
        elif child.tag == "pci" and (kind in _NIC_CLASSES or child.find("nic") is not None):
            nets = tuple(
                (_number(net), printable(net.get("name", ""))) for net in child.iter("net")
            )
            nics.append(device._replace(nets=nets))
        elif child.tag in ("cpu", "pci", "system"):
            _walk(child, (*above, id(child)), gpus, nics)


def _number(net: ElementTree.Element) -> int:
    """The index of a NIC in NCCL's order."""
    dev, name = net.get("dev", "0"), net.get("name", "")
    if not (dev.isascii() and dev.isdecimal() and len(dev) <= _MOST_DIGITS):
        what = f'<net name="{name}"> has dev="{dev[:40]}"'
        raise Bad(1, what, "write its number in NCCL's order, from 0")
    return int(dev)


def _between(gpu: _Device, nic: _Device) -> str:
    """The distance: PIX below one bridge, PXB below one root port, NODE at one CPU, SYS across
    CPUs."""
    shared = 0
    for one, other in zip(gpu.above, nic.above, strict=False):
        if one != other:
            break
        shared += 1
    if shared == 0:
        return "SYS"
    if shared == 1:
        return "NODE"
    return "PIX" if shared == len(gpu.above) == len(nic.above) else "PXB"
