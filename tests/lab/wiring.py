"""The ``ip`` and ``tc`` commands by which namespaces become the fabric of a layout.

Pure functions from a layout to batch lines. ECMP comes in both forms the kernel has: leaf1 uses
nexthop objects and groups, every other leaf plain multipath routes.
"""

from __future__ import annotations

from collections.abc import Collection

from tests.lab.layout import CONSOLE, CONSOLE_ADDRESS, End, Layout

BRIDGE = "mgmt"
"""The management bridge in the console namespace."""

BURST_BYTES = 16_384
"""Bucket of the shaper: over 10 s at 100 Mb/s it lets 0.013 % more than the line rate through."""

BURST_MS = 2.5
"""The bucket is no more than what is sent in so many ms, or what goes through a port at once would
look like a queue at the next; but two packets at least.
"""

QUEUE_MS = 20
"""How long a queue the shaper keeps, in ms at line rate: a shallow switch buffer."""

GROUP_ID = 1000
"""Nexthop groups are numbered from here, single nexthops from 1 (the uplink's number)."""

Down = Collection[tuple[str, str]]
"""Ports (node, port) that were taken down on purpose."""

SYSCTLS = {
    "net/ipv6/conf/all/disable_ipv6": "1",  # No router solicitations to count.
    "net/ipv6/conf/default/disable_ipv6": "1",
    "net/ipv4/conf/all/forwarding": "1",
    "net/ipv4/conf/default/forwarding": "1",
    "net/ipv4/conf/all/rp_filter": "0",
    "net/ipv4/conf/default/rp_filter": "0",
    # The layer-4 policy (1) takes the hash of the sending socket, which is random and survives
    # the trip across veth; the custom policy (3) hashes the packet: addresses, protocol, ports.
    "net/ipv4/fib_multipath_hash_policy": "3",
    "net/ipv4/fib_multipath_hash_fields": str(0x37),
}
"""Set in every namespace before it has interfaces, which inherit the defaults."""

SEED_SYSCTL = "net/ipv4/fib_multipath_hash_seed"


def namespace_lines(layout: Layout, prefix: str) -> list[str]:
    """Make the namespaces."""
    return [f"netns add {prefix}{node}" for node in (CONSOLE, *layout.nodes)]


def cable_lines(layout: Layout, prefix: str) -> list[str]:
    """Make every cable but the wires, fabric and management, straight into the namespaces."""
    lines = []
    for cable in layout.cables:
        if layout.is_wire(cable):
            continue
        a, b = cable.lower, cable.upper
        lines.append(_veth(prefix + a.node, a.port, prefix + b.node, b.port))
    for node in layout.nodes:
        port = layout.mgmt_port(node)
        lines.append(_veth(prefix + node, port, prefix + CONSOLE, f"m-{node}"))
    return lines


def _veth(ns: str, port: str, peer_ns: str, peer_port: str) -> str:
    return f"link add dev {port} netns {ns} type veth peer name {peer_port} netns {peer_ns}"


def address_lines(layout: Layout, node: str, arp: bool = True) -> list[str]:
    """Addresses of `node`, and its ports up.

    Without `arp` no node has a neighbour entry of its cables: both ends of each have one MAC
    address, which the kernel then takes for the far end's.
    """
    macs = {} if arp else _shared_macs(layout)
    lines = ["link set dev lo up"]
    if node == CONSOLE:
        lines.append(f"link add dev {BRIDGE} type bridge")
        for other in layout.nodes:
            lines.append(f"link set dev m-{other} master {BRIDGE} up")
        lines.append(f"link set dev {BRIDGE} up")
        lines.append(f"addr add {CONSOLE_ADDRESS}/16 dev {BRIDGE}")
        return lines
    mgmt = layout.mgmt_port(node)
    lines.append(f"addr add {layout.mgmt_address(node)}/16 dev {mgmt}")
    lines.append(f"link set dev {mgmt} up")
    for own, _ in layout.ends(node):
        if own in macs:
            lines.append(f"link set dev {own.port} address {macs[own]} arp off")
        lines.append(f"addr add {own.address}/31 dev {own.port}")
        lines.append(f"link set dev {own.port} up")
    return lines


def _shared_macs(layout: Layout) -> dict[End, str]:
    macs = {}
    for number, cable in enumerate(layout.cables):
        macs[cable.lower] = macs[cable.upper] = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
    return macs


def route_lines(layout: Layout, node: str, down: Down = ()) -> list[str]:
    """Routes of `node`, as a routing protocol would have them with the ports `down` gone.

    Safe to run again at any time: every line replaces. Ports must be up at both ends, because the
    kernel takes no nexthop without a carrier.
    """
    if node in layout.hosts:
        # On link only by its /31: the default goes through the leaf, for every other host. Of
        # several NICs the first is preferred; who is bound to another's goes by that one.
        return [
            f"route replace 10.0.0.0/8 via {far.address} dev {own.port} metric {metric}"
            for metric, (own, far) in enumerate(layout.ends(node))
            if not _is_down(own.node, own.port, far.node, far.port, down)
        ]
    if node in layout.spines:
        return [
            f"route replace {layout.prefix(far.node)} via {far.address} dev {own.port}"
            for own, far in layout.ends(node)
            if not _is_down(own.node, own.port, far.node, far.port, down)
        ]
    return _leaf_routes(layout, node, down)


def _leaf_routes(layout: Layout, leaf: str, down: Down) -> list[str]:
    """ECMP from `leaf` to every other leaf, over the spines that reach both."""
    mine = _live_uplinks(layout, leaf, down)
    objects = leaf == layout.leaves[0]
    lines = []
    if objects:
        lines += [f"nexthop replace id {n} via {a} dev up{n}" for n, a in mine.items()]
    for number, other in enumerate(layout.leaves):
        if other == leaf:
            continue
        theirs = _live_uplinks(layout, other, down)
        live = {n: address for n, address in mine.items() if n in theirs}
        prefix = layout.prefix(other)
        if not live:
            lines.append(f"route replace unreachable {prefix}")
        elif objects:
            group = GROUP_ID + number
            members = "/".join(str(n) for n in live)
            lines.append(f"nexthop replace id {group} group {members}")
            lines.append(f"route replace {prefix} nhid {group}")
        else:
            hops = " ".join(f"nexthop via {a} dev up{n}" for n, a in live.items())
            lines.append(f"route replace {prefix} {hops}")
    return lines


def _live_uplinks(layout: Layout, leaf: str, down: Down) -> dict[int, str]:
    """Number of each uplink of `leaf` that works -> address of the spine at its far end."""
    live = {}
    for own, far in layout.ends(leaf):
        if far.node in layout.spines and not _is_down(own.node, own.port, far.node, far.port, down):
            live[int(own.port.removeprefix("up"))] = far.address
    return live


def _is_down(node: str, port: str, far_node: str, far_port: str, down: Down) -> bool:
    return (node, port) in down or (far_node, far_port) in down


def shaper_line(port: str, mbps: float) -> str:
    """Shape what `port` sends to `mbps` (megabits per second, Ethernet header included)."""
    rate = f"{round(mbps * 1_000_000)}bit"
    burst = max(3_100, min(BURST_BYTES, round(mbps * 1000 / 8 * BURST_MS)))
    return f"qdisc replace dev {port} root tbf rate {rate} burst {burst} latency {QUEUE_MS}ms"
