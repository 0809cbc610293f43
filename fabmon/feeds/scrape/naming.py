"""How a port is called that an exporter tells of: as the probe would call it on that node.

See collectors/ports.py for the probe's rule. An exporter says less than sysfs: an interface is
known to be an RDMA device's only where both are called by their place, as in `rocep24s0f0` and
`enp24s0f0np0`, or where the table says so. Otherwise it is a port of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from collectors.wire import Object

_PLACED_DEVICE = re.compile(r"(?:roce|ib)((?:P\d+)?(?:p\d+)?[sox]\w+)")
_PLACED_NETDEV = re.compile(r"(?:en|ib)((?:P\d+)?(?:p\d+)?[sox]\w+?)(?:np\d+)?")
_PCI = re.compile(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")


class Named(NamedTuple):
    """A port's name, the node it is on where that is another one, and its facts."""

    node: str | None
    name: str
    info: dict[str, Any]


class Unnamed(NamedTuple):
    """What a port's name is made of; see `tables.Group`."""

    shape: str
    stem: str
    of_others: bool
    roles: Mapping[str, str]

    @property
    def node(self) -> str | None:
        """The node that it is on; None for the one that was asked."""
        return self.roles.get("node") or (self.roles.get("guid") if self.of_others else None)

    @property
    def device(self) -> tuple[str | None, str]:
        """The RDMA device, over all nodes."""
        return self.node, self.roles.get("device", "")


def named(ports: Sequence[Unnamed]) -> list[Named]:
    """The names of ports that were told of together, in their order."""
    numbers: dict[tuple[str | None, str], set[str]] = {}
    for port in ports:
        if port.shape == "rdma":
            numbers.setdefault(port.device, set()).add(port.roles["port"])
    netdevs = {
        match[1]: device
        for (node, device), found in numbers.items()
        if node is None and found == {"1"} and (match := _PLACED_DEVICE.fullmatch(device))
    }
    return [_named(port, numbers, netdevs) for port in ports]


def facts(found: Mapping[str, str]) -> dict[str, Any]:
    """Facts from labels as the probe has them: PCI addresses in one spelling."""
    told: dict[str, Any] = dict(found)
    if "pci" in told:
        address = str(told["pci"]).lower()
        match = _PCI.fullmatch(address)
        told["pci"] = match[1] if match else address
    return told


def object_of(named: Named, kind: str, node_role: str, metrics: tuple[str, ...]) -> Object:
    """The port as the wire has it."""
    info = dict(named.info)
    if named.node is not None and node_role:
        info["node_role"] = node_role
    id_ = named.name if named.node is None else f"{named.node}/{named.name}"
    return Object(id_, kind, named.name, info, metrics, named.node)


def _named(
    port: Unnamed,
    numbers: Mapping[tuple[str | None, str], set[str]],
    netdevs: Mapping[str, str],
) -> Named:
    roles, node = port.roles, port.node
    if port.shape == "rdma":
        device, number = roles["device"], roles["port"]
        name = device if numbers[port.device] == {"1"} else f"{device}/{number}"
        info = {"rdma": device, "rdma_port": int(number) if number.isdecimal() else number}
        return Named(node, name, info)
    if port.shape == "netdev":
        netdev = roles["netdev"]
        match = _PLACED_NETDEV.fullmatch(netdev)
        device = netdevs.get(match[1], netdev) if match is not None and node is None else netdev
        return Named(node, device, {"netdev": netdev})
    if port.shape == "gpu":
        return Named(node, _gpu(roles["gpu"]), {})
    if port.shape == "link":
        gpu, link = _gpu(roles["gpu"]), roles["link"]
        number_or_name = int(link) if link.isdecimal() else link
        return Named(node, f"{gpu}/{port.stem}{link}", {"gpu": gpu, "link": number_or_name})
    return Named(node, roles["port"], {})


def _gpu(text: str) -> str:
    return f"gpu{text}" if text.isdecimal() else text
