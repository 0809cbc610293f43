"""Patterns of elephants that a lab offers by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.netns import LabError

if TYPE_CHECKING:
    from tests.lab.fabric import Lab
    from tests.lab.traffic import Flow


def pairs(lab: Lab, leaf: str) -> list[tuple[str, str]]:
    """(source, destination) for each host of `leaf`: its peer under the next leaf.

    No two share a source or a destination, so neither end is the bottleneck.
    """
    layout = lab.layout
    if layout.leaf_count < 2:
        raise LabError("traffic over the spines needs two leaves")
    following = (layout.leaves.index(leaf) + 1) % layout.leaf_count
    peers = layout.hosts_of(layout.leaves[following])
    return list(zip(layout.hosts_of(leaf), peers, strict=True))


def collide(lab: Lab, leaf: str, uplink: str, mbps: float, count: int) -> list[Flow]:
    """`count` elephants from different hosts on one uplink."""
    ends = pairs(lab, leaf)
    if count > len(ends):
        raise LabError(f"{leaf} has only {len(ends)} hosts")
    return [lab.elephant(src, dst, uplink, mbps) for src, dst in ends[:count]]


def spread(lab: Lab, leaf: str, mbps: float) -> list[Flow]:
    """One elephant on each uplink; hosts take turns where there are fewer hosts than uplinks."""
    ends = pairs(lab, leaf)
    flows = []
    for n, uplink in enumerate(lab.layout.uplinks(leaf)):
        src, dst = ends[n % len(ends)]
        flows.append(lab.elephant(src, dst, uplink, mbps))
    return flows


def incast(lab: Lab, dst: str, mbps: float, count: int) -> list[Flow]:
    """Many to one: sources under other leaves first, each over an uplink of its own."""
    own = lab.layout.leaf_of(dst)
    sources = [host for host in lab.layout.hosts if lab.layout.leaf_of(host) != own]
    if count > len(sources):
        raise LabError(f"only {len(sources)} hosts are under other leaves than {dst}")
    flows = []
    for n, src in enumerate(sources[:count]):
        uplinks = lab.layout.uplinks(lab.layout.leaf_of(src))
        flows.append(lab.elephant(src, dst, uplinks[n % len(uplinks)], mbps))
    return flows
