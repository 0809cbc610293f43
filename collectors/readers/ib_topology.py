"""An InfiniBand fabric from the output of `iblinkinfo --line`: ports, their state, their cables.

A switch's ports share one GUID; an HCA's have one each. A line is

    0x<guid> "<name>" <lid> <port>[  ] ==( 4X 25.78125 Gbps Active/  LinkUp)==> 0x<guid> <lid>
    <port>[  ] "<name>" ( <remarks>)

and ends after the arrow for a port without another end. Names are node descriptions, or those of
a node-name-map: `gpu7 mlx5_3` for an HCA, `MF0;leaf1:MQM9700/U1` for a switch. An HCA without a
name is a node by the GUID of its port.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from collectors.node_description import NO_NODE, hca_name, switch_name, unnamed_node

SWITCH = "switch"
HOST = "host"

_LINE = re.compile(
    r'0x([0-9a-f]+)\s+"(.*?)"\s+(\d+)\s+(\d+)\[[^\[\]]*\]\s+==\(((?:(?!==\().)*?)\)==>\s*'
    r'(?:0x([0-9a-f]+)\s+(\d+)\s+(\d+)\[[^\[\]]*\]\s+"(.*)"\s+\()?'
)
_LINK = re.compile(r"(?:\b(\d+)X\s+([\d.]+) Gbps\s+(?:\(FDR10\)\s*)?)?\b(\w+)/\s*(\w+)")
_LOGICAL = {"Down": 1, "Initialize": 2, "Init": 2, "Armed": 3, "Active": 4}
_PHYSICAL = {
    "Sleep": 1,
    "Polling": 2,
    "Disabled": 3,
    "PortConfigurationTraining": 4,
    "LinkUp": 5,
    "LinkErrorRecovery": 6,
    "PhyTest": 7,
}
_NOMINAL_GBPS = {14.0625: 14.0, 25.78125: 25.0, 53.125: 50.0, 106.25: 100.0, 212.5: 200.0}
"""A lane's signalling rate -> its nominal rate, as the kernel and people name it."""


class PortAddress(NamedTuple):
    """A port by its address: GUID (of the switch, or of the HCA's port), number, LID, name."""

    guid: int
    number: int
    lid: int
    name: str


class LinkLine(NamedTuple):
    """One port: its states as the kernel numbers them, bits/s when it is up, its other end."""

    end: PortAddress
    state: int
    phys_state: int
    rate_bps: Optional[int]
    peer: Optional[PortAddress]


class FabricPort(NamedTuple):
    """A port that is or was cabled, with the `node` and `name` that people know.

    `role` is `switch` or `host`; `peer` is the node, the name and the GUID at the other end.
    """

    node: str
    name: str
    role: str
    line: LinkLine
    peer: Optional[Tuple[str, str, int]]


def parse_links(text: str) -> List[LinkLine]:
    """The ports in the order of the text; other lines are skipped."""
    return [line for line in map(_parse, text.splitlines()) if line is not None]


def _parse(text: str) -> Optional[LinkLine]:
    match = _LINE.match(text.strip())
    if match is None:
        return None
    guid, name, lid, number, link, peer_guid, peer_lid, peer_number, peer_name = match.groups()
    state_match = _LINK.search(link)
    if state_match is None:
        return None
    width, gbps, state, phys_state = state_match.groups()
    lane = float(gbps or 0)
    rate = int(width or 0) * _NOMINAL_GBPS.get(lane, lane) * 1e9
    peer = None
    if peer_guid is not None:
        peer = PortAddress(int(peer_guid, 16), int(peer_number), int(peer_lid), peer_name.strip())
    return LinkLine(
        PortAddress(int(guid, 16), int(number), int(lid), name.strip()),
        _LOGICAL.get(state, 0),
        _PHYSICAL.get(phys_state, 0),
        int(rate) or None,
        peer,
    )


def update_known_links(known: Dict[Tuple[int, int], LinkLine], now: Iterable[LinkLine]) -> None:
    """Update `known`, the cabled ports by GUID and number, in place.

    A port that was cabled stays: it is down where the fabric reports it so or no longer lists it,
    and keeps its other end. A port that never had another end is not added.
    """
    listed: Set[Tuple[int, int]] = set()
    for line in now:
        key = (line.end.guid, line.end.number)
        listed.add(key)
        before = known.get(key)
        if line.peer is not None:
            known[key] = line
        elif before is not None:
            known[key] = line._replace(peer=before.peer, rate_bps=before.rate_bps)
    for key, line in known.items():
        if key not in listed:
            known[key] = line._replace(state=1, phys_state=2)


def switches(lines: Iterable[LinkLine]) -> Set[int]:
    """GUIDs of the switches: those with more than one port, cabled or not."""
    count = Counter(line.end.guid for line in lines)
    return {guid for guid, ports in count.items() if ports > 1}


def named_ports(
    lines: Iterable[LinkLine], of_switches: Set[int], own: Set[int]
) -> List[FabricPort]:
    """The cabled ports with the names that people know, without those of the HCAs in `own`."""
    lines = list(lines)
    names = _names(lines, of_switches)
    found = []
    for line in lines:
        name_of_port = names.get((line.end.guid, line.end.number))
        if name_of_port is None or line.end.guid in own:
            continue
        peer = None
        if line.peer is not None:
            other = names.get((line.peer.guid, line.peer.number))
            if other is not None:
                peer = (other[0], other[1], line.peer.guid)
        node, name, role = name_of_port
        found.append(FabricPort(node, name, role, line, peer))
    return sorted(found, key=lambda port: (port.role != SWITCH, port.node, port.line.end.number))


def _names(
    lines: Iterable[LinkLine], of_switches: Set[int]
) -> Dict[Tuple[int, int], Tuple[str, str, str]]:
    """GUID and number -> node, port, role."""
    descriptions = {line.end.guid: line.end.name for line in lines}
    called = {guid: switch_name(descriptions[guid]) for guid in of_switches & set(descriptions)}
    times = Counter(called.values())
    found: Dict[Tuple[int, int], Tuple[str, str, str]] = {}
    taken: Set[Tuple[str, str]] = set()
    for line in lines:
        end = line.end
        name = called.get(end.guid)
        if name is not None:
            node = name if times[name] == 1 else f"{name}-{end.guid:016x}"
            found[end.guid, end.number] = (node, f"p{end.number}", SWITCH)
        elif not end.name.endswith(NO_NODE):
            node, port = hca_name(end.name, end.number)
            node = node or unnamed_node(f"{end.guid:x}")
            if (node, port) in taken:
                port = f"{port}-{end.guid:016x}"
            taken.add((node, port))
            found[end.guid, end.number] = (node, port, HOST)
    return found
