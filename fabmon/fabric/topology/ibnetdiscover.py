"""The output of `ibnetdiscover`, with or without `--ports`.

Names come from node descriptions: `MF0;leaf1:MQM9700/U1` is leaf1, and `gpu7 mlx5_3` is the port
mlx5_3 of gpu7. A port of a switch is `p` and its number. Where several switches have the same name,
or several HCAs, the GUID is appended, as the source `ib_fabric` does. An HCA without a name is a
node by its system image GUID, which all HCAs of one card have, or else by its own:
`unnamed-bb00000000000002`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from collectors.node_description import NO_NODE, hca_name, switch_name, unnamed_node
from fabmon.fabric.topology.plan import (
    INFINIBAND,
    End,
    PlannedCable,
    PlanProblem,
    Topology,
    TopologyError,
)

_OWNER = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR])-([0-9a-f]+)"\s*(?:#\s*"(.*?)")?')
_PORT = re.compile(r'\[(\d{1,9})\](?:\([0-9a-f]+\))?\s+"([SHR])-([0-9a-f]+)"\[(\d{1,9})\].*?#(.*)')
_QUOTED = re.compile(r'"(.*?)"')
_END = r"(CA|SW|RT)\s+\d+\s+(\d{1,9})\s+0x([0-9a-f]+)"
_PORTS_LINE = re.compile(rf"{_END}\s+\S+\s+\S+\s+-\s+{_END}\s+\( '((?:(?!' - ').)*)' - '(.*)' \)")
_OPEN_LINE = re.compile(r"(?:CA|SW|RT)\s+\d+\s+\d+\b(?!.*\s-\s+(?:CA|SW|RT)\s)")
"""A line of `--ports` without another end; how the rest of it looks differs between versions."""
_SYSTEM = re.compile(r"sysimgguid=0x([0-9a-f]+)")
_KEYS = ("vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=")


class _Far(NamedTuple):
    is_switch: bool
    guid: str
    number: int
    description: str


def parse(text: str, filename: str) -> Topology:
    """The cables and the roles of nodes. Raises TopologyError."""
    cables: dict[frozenset[tuple[str, int]], PlannedCable] = {}
    switches: set[str] = set()
    hosts: set[str] = set()
    problems: list[PlanProblem] = []
    links = [
        (number, one, other)
        for number, one, other in _links(text, problems)
        if not any(each.description.endswith(NO_NODE) for each in (one, other))
    ]
    names = _Names((far for _, *both in links for far in both), _systems(text))
    for number, one, other in links:
        ends = (names.end(one), names.end(other))
        for far, end in zip((one, other), ends, strict=True):
            (switches if far.is_switch else hosts).add(end.node)
        key = frozenset([(one.guid, one.number), (other.guid, other.number)])
        cables.setdefault(key, PlannedCable(*ends, INFINIBAND, f"{filename}:{number}"))
    if not cables and not problems:
        problems = [PlanProblem(1, "no links", "this should be the output of ibnetdiscover")]
    if problems:
        raise TopologyError(filename, problems)
    return Topology(
        cables=tuple(cables.values()), hosts=frozenset(hosts), switches=frozenset(switches)
    )


def _links(text: str, problems: list[PlanProblem]) -> Iterator[tuple[int, _Far, _Far]]:
    """Every link line, with its number; a link has two lines."""
    owner: _Far | None = None
    descriptions = _descriptions(text)
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith(("#", *_KEYS)):
            continue
        if (match := _PORTS_LINE.match(line)) is not None:
            kind, port, guid, far_kind, far_port, far_guid, name, far_name = match.groups()
            yield (
                number,
                _Far(kind == "SW", guid, int(port), name),
                _Far(far_kind == "SW", far_guid, int(far_port), far_name),
            )
        elif (match := _OWNER.match(line)) is not None:
            owner = _Far(match[2] == "S", match[3], 0, match[4] or match[3])
        elif owner is not None and (match := _PORT.match(line)) is not None:
            kind, guid = match[2], match[3]
            said = _QUOTED.search(match[5])
            name = descriptions.get(guid) or (said[1] if said else guid)
            yield (
                number,
                owner._replace(number=int(match[1])),
                _Far(kind == "S", guid, int(match[4]), name),
            )
        elif _OPEN_LINE.match(line) is None:
            fix = "this should be the output of ibnetdiscover"
            problems.append(
                PlanProblem(number, f"{line[:60]!r} is not a line of ibnetdiscover", fix)
            )


def _descriptions(text: str) -> dict[str, str]:
    return {match[3]: match[4] for match in _OWNER.finditer(text) if match[4]}


def _systems(text: str) -> dict[str, str]:
    """GUID -> system image GUID, of the nodes that have a block of their own."""
    found, system = {}, ""
    for line in text.splitlines():
        if (match := _SYSTEM.match(line)) is not None:
            system = match[1]
        elif (match := _OWNER.match(line)) is not None:
            found[match[3]] = system or match[3]
            system = ""
    return found


class _Names:
    """The ends of links as people know them, with the GUID where descriptions are the same;
    `systems` maps GUIDs to system image GUIDs."""

    def __init__(self, ends: Iterable[_Far], systems: Mapping[str, str]) -> None:
        ends = list(ends)
        called = {far.guid: switch_name(far.description) for far in ends if far.is_switch}
        times = Counter(called.values())
        self._switches = {
            guid: name if times[name] == 1 else f"{name}-{_padded(guid)}"
            for guid, name in called.items()
        }
        self._hcas: dict[tuple[str, int], tuple[str, str]] = {}
        taken: set[tuple[str, str]] = set()
        for far in ends:
            if far.is_switch or (far.guid, far.number) in self._hcas:
                continue
            node, port = hca_name(far.description, far.number)
            node = node or unnamed_node(systems.get(far.guid, far.guid))
            if (node, port) in taken:
                port = f"{port}-{_padded(far.guid)}"
            taken.add((node, port))
            self._hcas[far.guid, far.number] = node, port

    def end(self, far: _Far) -> End:
        """The end of a cable."""
        if far.is_switch:
            number = str(far.number)
            name = self._switches[far.guid]
            return End(name, f"p{number}", (number, f"{number}/1", f"swp{number}"))
        return End(*self._hcas[far.guid, far.number], (), (_padded(far.guid),))


def _padded(guid: str) -> str:
    return guid.removeprefix("0x").rjust(16, "0")
