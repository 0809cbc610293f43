"""Slurm's topology.conf, what `scontrol show topology` prints, and topology.yaml: the switches
above nodes and switches, without ports.

    SwitchName=leaf1 Nodes=gpu[001-016]
    SwitchName=spine1 Switches=leaf[1-4]
    BlockName=block1 Nodes=gpu[001-018]

    - topology: main
      tree:
        switches:
          - switch: leaf1
            nodes: gpu[001-016]

It gives tiers and the groups of hosts, but no cables: Slurm describes one tree, while a fabric has
rails and parallel links.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.topology import cable_patterns
from fabmon.fabric.topology.plan import PlanProblem, Topology, TopologyError
from fabmon.fabric.wire.messages import printable

_PAIR = re.compile(r"\b(\w++)\s*+=(?:(?!\s*+\w++\s*+=)\s*+(\S+))?")
"""A key and its value, which is empty before the next key: `Nodes= BlockSize=18`."""
_KEYS = (
    *("switchname", "nodes", "switches", "linkspeed", "blockname", "blocksizes"),
    *("level", "blockindex", "blocksize", "aggregatedblock"),  # of scontrol show topology
)
_YAML_PAIR = re.compile(r"(?:-\s+)?(\w+)\s*:(?:\s+(.*))?")
_YAML_NAMES = {
    "switch": "switchname",
    "block": "blockname",
    "children": "switches",
    "nodes": "nodes",
}
_YAML_OTHERS = (
    *("topology", "cluster_default", "tree", "flat", "block", "switches", "blocks"),
    *("block_sizes", "alpha_step_rank"),
)
_IN_LIST = re.compile(r"(?<=[,\[])\s+")
_DEEPEST = 16
_MOST_NAMES = 4 * cable_patterns.MOST_OF_FILE
"""Names in all lists: scontrol lists the nodes below a switch for each switch above them."""


def parse(text: str, filename: str) -> Topology:
    """Tiers and groups. Raises TopologyError with every invalid line."""
    problems: list[PlanProblem] = []
    return _topology(_lines(text, problems), problems, filename)


def parse_yaml(text: str, filename: str) -> Topology:
    """Tiers and groups of a topology.yaml, the cluster's default topology first.

    The names of switches and blocks that a topology repeats are those of the first. Raises
    TopologyError with every invalid line.
    """
    problems: list[PlanProblem] = []
    return _topology(_yaml_lines(text, problems), problems, filename)


_Lines = Iterable[tuple[int, dict[str, str]]]


def _topology(lines: _Lines, problems: list[PlanProblem], filename: str) -> Topology:
    above: dict[str, tuple[list[str], int]] = {}
    groups: dict[str, str] = {}
    hosts: set[str] = set()
    entries = 0
    for number, pairs in lines:
        name = pairs.get("switchname") or pairs.get("blockname")
        if name is None:
            if not pairs.keys() & {"blocksizes", "aggregatedblock"}:
                problems.append(
                    PlanProblem(number, "a line without SwitchName", "see topology.conf(5)")
                )
            continue
        try:
            nodes, switches = (
                cable_patterns.nodes(pairs[key]) if pairs.get(key) else []
                for key in ("nodes", "switches")
            )
        except Bad as bad:
            problems.append(PlanProblem(number, bad.text, bad.fix))
            continue
        # A block, or a switch whose list is empty, may have lost its nodes: the others are used.
        if "switchname" in pairs and not pairs.keys() & {"nodes", "switches"}:
            problems.append(
                PlanProblem(number, f"{name} has no nodes or switches", "add Nodes=, Switches=")
            )
        hosts.update(nodes)
        entries += len(nodes) + len(switches)
        if entries > _MOST_NAMES:
            what = f"more than {_MOST_NAMES:,} nodes and switches"
            raise TopologyError(filename, [PlanProblem(number, what, "write smaller ranges")])
        # scontrol lists all nodes below a switch, whether they are at it or further below.
        for node in nodes if not switches else ():
            groups.setdefault(node, name)
        if "switchname" in pairs:
            if name in above:
                what = f"{name} is already described on line {above[name][1]}"
                problems.append(PlanProblem(number, what, "remove one of them"))
            above[name] = (switches, number)
    tiers = _tiers({name: below for name, (below, _) in above.items()})
    for name, (_, number) in above.items():
        if name not in tiers:
            problems.append(
                PlanProblem(number, f"{name} is above itself in a cycle", "see topology.conf(5)")
            )
    if not hosts and not any(switches for switches, _ in above.values()) and not problems:
        problems = [PlanProblem(1, "no nodes below a switch or block", "see topology.conf(5)")]
    if problems:
        raise TopologyError(filename, problems)
    return Topology(tiers=tiers, groups=groups, hosts=frozenset(hosts), switches=frozenset(above))


def _lines(text: str, problems: list[PlanProblem]) -> Iterator[tuple[int, dict[str, str]]]:
    """The lower-case keys of each line, with its number; a backslash continues a line, in a list
    too."""
    pending, start = "", 0
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        start = start or number
        pending += printable(line.expandtabs(1).partition("#")[0])
        if pending.rstrip().endswith("\\") and number < len(lines):
            pending = pending.rstrip()[:-1]
            continue
        pending = _IN_LIST.sub("", pending)
        pairs = {key.lower(): value for key, value in _PAIR.findall(pending)}
        unknown = [key for key in pairs if key not in _KEYS]
        left = " ".join(_PAIR.sub(" ", pending).split())
        if left == "\\":
            what = "the last line ends in a backslash"
            problems.append(PlanProblem(start, what, "remove it, or add the missing line"))
        elif unknown or left:
            what = f"{(unknown or [left])[0][:40]!r} is not a key of topology.conf"
            problems.append(PlanProblem(start, what, "see topology.conf(5)"))
        elif pairs:
            yield start, pairs
        pending, start = "", 0


def _yaml_lines(text: str, problems: list[PlanProblem]) -> Iterator[tuple[int, dict[str, str]]]:
    """The switches and blocks of a topology.yaml as lines of a topology.conf, with their numbers.

    Only what that file consists of is read: mappings and lists in lines of their own.
    """
    topologies: list[tuple[bool, list[tuple[int, dict[str, str]]]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = printable(line.expandtabs(1).partition("#")[0].strip())
        if stripped in ("", "---", "...") or re.fullmatch(r"-\s+\d+", stripped):
            continue
        match = _YAML_PAIR.fullmatch(stripped)
        key, value = (match[1], (match[2] or "").strip(" \"'")) if match else ("", "")
        if key == "topology":
            topologies.append((False, []))
        elif not topologies or key not in (*_YAML_NAMES, *_YAML_OTHERS):
            what = f"{stripped[:40]!r} is not a line of topology.yaml"
            problems.append(PlanProblem(number, what, "see topology.yaml(5)"))
        elif key == "cluster_default":
            topologies[-1] = (value.lower() in ("true", "yes", "on"), topologies[-1][1])
        elif key in ("switch", "block") and value:
            topologies[-1][1].append((number, {_YAML_NAMES[key]: value}))
        elif key in ("children", "nodes") and topologies[-1][1]:
            topologies[-1][1][-1][1][_YAML_NAMES[key]] = value
    seen: set[str] = set()
    for _, items in sorted(topologies, key=lambda each: not each[0]):
        names = [pairs.get("switchname") or pairs["blockname"] for _, pairs in items]
        for name, item in zip(names, items, strict=True):
            if name not in seen:
                yield item
        seen.update(names)


def _tiers(below: dict[str, list[str]]) -> dict[str, int]:
    """1 for a switch without switches below it, else one more than the highest of those."""
    tiers: dict[str, int] = {}
    for _ in range(_DEEPEST):
        for name, switches in below.items():
            known = [tiers.get(each) for each in switches if each in below]
            if all(tier is not None for tier in known):
                tiers[name] = 1 + max((tier for tier in known if tier is not None), default=0)
    return {name: tier for name, tier in tiers.items() if tier <= _DEEPEST}
