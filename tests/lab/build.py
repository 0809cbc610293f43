"""Building a lab: the steps in order, many namespaces at a time."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.lab import login, netns, sshd, wire, wiring
from tests.lab.layout import CONSOLE, Cable, Layout
from tests.lab.registry import Record

Server = subprocess.Popen[bytes]

_WORKERS = 4
"""Steps are short processes: more at a time than this only queue for the cores."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Line rates, in megabits per second and direction: of what hosts have, and of uplinks."""

    host_mbps: float
    uplink_mbps: float

    def of(self, layout: Layout, cable: Cable) -> float:
        """The line rate of a cable."""
        return self.uplink_mbps if layout.is_uplink(cable) else self.host_mbps


def build(
    layout: Layout, record: Record, rates: Rates, servers: list[Server], arp: bool = True
) -> None:
    """Make the namespaces of `record` into the fabric of `layout`.

    Without `arp` there are no neighbour entries. What runs for it is added to `servers` as it
    starts, so that all is known if a later step fails.
    """
    prefix, directory = record.prefix, Path(record.directory)
    addresses = {node: layout.mgmt_address(node) for node in layout.nodes}
    sshd.write_files(directory, addresses)
    (directory / "hosts.txt").write_text(hosts_text(layout, rates))
    netns.batch("ip", wiring.namespace_lines(layout, prefix))
    everywhere = (CONSOLE, *layout.nodes)
    _each(everywhere, lambda node: netns.write_sysctls(prefix + node, wiring.SYSCTLS))
    netns.batch("ip", wiring.cable_lines(layout, prefix))
    for cable in filter(layout.is_wire, layout.cables):
        servers.append(wire.start(cable, prefix, rates.of(layout, cable)))
    _each(everywhere, lambda n: netns.batch("ip", wiring.address_lines(layout, n, arp), prefix + n))
    for node, address in addresses.items():
        servers.append(sshd.start(prefix + node, node, address, directory))
    install_routes(layout, prefix, ())
    _each(layout.nodes, lambda node: _shape(layout, prefix, node, rates))
    if arp:
        greet(layout, prefix)
    for node, address in addresses.items():
        sshd.wait(prefix + CONSOLE, address, directory / f"{node}.sshd.log")


def hosts_text(layout: Layout, rates: Rates) -> str:
    """The hosts file: line rates are stated, because veth claims 10 Gb/s whatever its shaper."""
    lines = ["# A lab of network namespaces; addresses are reachable from its console only."]
    for node in layout.nodes:
        role = " role=switch" if layout.role(node) == "switch" else ""
        address = layout.mgmt_address(node)
        speeds = _stated_speeds(layout, node, rates)
        lines.append(f"{node} address={address} user={login.USER}{role} {speeds}")
    return "\n".join(lines) + "\n"


def _stated_speeds(layout: Layout, node: str, rates: Rates) -> str:
    """What the hosts file says of line rates: nothing of wires, whose rate the kernel knows."""
    cables = _cables_of(layout, node)
    speeds = {layout.mgmt_port(node): rates.host_mbps}
    for port, cable in cables.items():
        if not layout.is_wire(cable):
            speeds[port] = rates.of(layout, cable)
    if len(set(speeds.values())) == 1 and len(speeds) == len(cables) + 1:
        return f"speed={rates.host_mbps:g}M"
    return " ".join(f"speed.{port}={mbps:g}M" for port, mbps in speeds.items())


def _cables_of(layout: Layout, node: str) -> dict[str, Cable]:
    ends = [(end, cable) for cable in layout.cables for end in (cable.lower, cable.upper)]
    return {end.port: cable for end, cable in ends if end.node == node}


def cables_text(layout: Layout) -> str:
    """The cabling, as a topology file (CSV)."""
    lines = ["node,port,node,port"]
    for cable in layout.cables:
        near, far = cable.lower, cable.upper
        lines.append(f"{near.node},{near.port},{far.node},{far.port}")
    return "\n".join(lines) + "\n"


def install_routes(layout: Layout, prefix: str, down: wiring.Down) -> None:
    """Give every node the routes it has when the ports `down` are gone."""

    def install(node: str) -> None:
        if lines := wiring.route_lines(layout, node, down):
            netns.batch("ip", lines, prefix + node)

    _each(layout.nodes, install)


def _shape(layout: Layout, prefix: str, node: str, rates: Rates) -> None:
    lines = [
        wiring.shaper_line(port, rates.of(layout, cable))
        for port, cable in _cables_of(layout, node).items()
    ]
    netns.batch("tc", lines, prefix + node)


def greet(layout: Layout, prefix: str) -> None:
    """Have every node send one datagram to each neighbour, so that neighbour tables are filled."""
    _each(layout.nodes, lambda node: _greet(layout, prefix, node))


def _greet(layout: Layout, prefix: str, node: str) -> None:
    with netns.make_socket(prefix + node, socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _, far in layout.ends(node):
            sender.sendto(b"fabmon lab greeting", (far.address, 9))


def _each(nodes: Iterable[str], step: Callable[[str], object]) -> None:
    with ThreadPoolExecutor(_WORKERS) as pool:
        for _ in pool.map(step, nodes):
            pass
