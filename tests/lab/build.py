"""Building a lab: the steps in order, many namespaces at a time."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.lab import login, netns, sshd, wire, wiring
from tests.lab.layout import CONSOLE, MGMT_PORT, Cable, End, Layout
from tests.lab.registry import Record

Server = subprocess.Popen[bytes]

_WORKERS = 4
"""Steps are short processes: more at a time than this only queue for the cores."""


def build(layout: Layout, record: Record, rate_mbps: float, servers: list[Server]) -> None:
    """Make the namespaces of `record` into the fabric of `layout`.

    What runs for it is added to `servers` as it starts, so that all is known if a later step fails.
    """
    prefix, directory = record.prefix, Path(record.directory)
    addresses = {node: layout.mgmt_address(node) for node in layout.nodes}
    sshd.write_files(directory, addresses)
    (directory / "hosts.txt").write_text(hosts_text(layout, rate_mbps))
    netns.batch("ip", wiring.namespace_lines(layout, prefix))
    everywhere = (CONSOLE, *layout.nodes)
    _each(everywhere, lambda node: netns.write_sysctls(prefix + node, wiring.SYSCTLS))
    netns.batch("ip", wiring.cable_lines(layout, prefix))
    for cable in filter(layout.is_wire, layout.cables):
        servers.append(wire.start(cable, prefix, rate_mbps))
    _each(everywhere, lambda n: netns.batch("ip", wiring.address_lines(layout, n), prefix + n))
    for node, address in addresses.items():
        servers.append(sshd.start(prefix + node, node, address, directory))
    install_routes(layout, prefix, ())
    _each(layout.nodes, lambda node: _shape(layout, prefix, node, rate_mbps))
    greet(layout, prefix)
    for node, address in addresses.items():
        sshd.wait(prefix + CONSOLE, address, directory / f"{node}.sshd.log")


def hosts_text(layout: Layout, rate_mbps: float) -> str:
    """The hosts file: line rates are stated, because veth claims 10 Gb/s whatever its shaper."""
    lines = ["# A lab of network namespaces; addresses are reachable from its console only."]
    for node in layout.nodes:
        role = " role=switch" if layout.role(node) == "switch" else ""
        address = layout.mgmt_address(node)
        speeds = _stated_speeds(layout, node, rate_mbps)
        lines.append(f"{node} address={address} user={login.USER}{role} {speeds}")
    return "\n".join(lines) + "\n"


def _stated_speeds(layout: Layout, node: str, rate_mbps: float) -> str:
    """What the hosts file says of line rates: nothing of wires, whose rate the kernel knows."""
    ends = [end for cable in layout.cables if layout.is_wire(cable) for end in _ends(cable)]
    own = {end.port for end in ends if end.node == node}
    if not own:
        return f"speed={rate_mbps:g}M"
    others = [MGMT_PORT, *(end.port for end, _ in layout.ends(node) if end.port not in own)]
    return " ".join(f"speed.{port}={rate_mbps:g}M" for port in others)


def _ends(cable: Cable) -> tuple[End, End]:
    return cable.lower, cable.upper


def install_routes(layout: Layout, prefix: str, down: wiring.Down) -> None:
    """Give every node the routes it has when the ports `down` are gone."""

    def install(node: str) -> None:
        if lines := wiring.route_lines(layout, node, down):
            netns.batch("ip", lines, prefix + node)

    _each(layout.nodes, install)


def _shape(layout: Layout, prefix: str, node: str, rate_mbps: float) -> None:
    lines = [wiring.shaper_line(own.port, rate_mbps) for own, _ in layout.ends(node)]
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
