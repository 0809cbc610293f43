"""Slurm's topology.conf: the switches above nodes and switches, without ports.

    SwitchName=leaf1 Nodes=gpu[001-016]
    SwitchName=spine1 Switches=leaf[1-4]
    BlockName=block1 Nodes=gpu[001-018]

It gives tiers and the groups of hosts, but no cables: Slurm describes one tree, while a fabric has
rails and parallel links.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.topology import cable_patterns
from fabmon.fabric.topology.plan import PlanProblem, Topology, TopologyError

_PAIR = re.compile(r"(\w+)\s*=\s*(\S+)")
_KEYS = ("switchname", "nodes", "switches", "linkspeed", "blockname", "blocksizes")
_DEEPEST = 16


def parse(text: str, filename: str) -> Topology:
    """Tiers and groups. Raises TopologyError with every invalid line."""
    problems: list[PlanProblem] = []
    above: dict[str, tuple[list[str], int]] = {}
    groups: dict[str, str] = {}
    hosts: set[str] = set()
    for number, pairs in _lines(text, problems):
        name = pairs.get("switchname") or pairs.get("blockname")
        if name is None:
            if "blocksizes" not in pairs:
                problems.append(
                    PlanProblem(number, "a line without SwitchName", "see topology.conf(5)")
                )
            continue
        try:
            nodes = cable_patterns.nodes(pairs["nodes"]) if "nodes" in pairs else []
            switches = cable_patterns.nodes(pairs["switches"]) if "switches" in pairs else []
        except Bad as bad:
            problems.append(PlanProblem(number, bad.text, bad.fix))
            continue
        if not nodes and not switches:
            problems.append(
                PlanProblem(number, f"{name} has no nodes or switches", "add Nodes=, Switches=")
            )
        hosts.update(nodes)
        for node in nodes:
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
    if not groups and not tiers and not problems:
        problems = [PlanProblem(1, "no switches", "see topology.conf(5)")]
    if problems:
        raise TopologyError(filename, problems)
    return Topology(tiers=tiers, groups=groups, hosts=frozenset(hosts), switches=frozenset(above))


def _lines(text: str, problems: list[PlanProblem]) -> Iterator[tuple[int, dict[str, str]]]:
    """The lower-case keys of each line, with its number; a backslash continues a line."""
    pending, start = "", 0
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        start = start or number
        pending += line.partition("#")[0]
        if pending.rstrip().endswith("\\") and number < len(lines):
            pending = pending.rstrip()[:-1] + " "
            continue
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


def _tiers(below: dict[str, list[str]]) -> dict[str, int]:
    """1 for a switch without switches below it, else one more than the highest of those."""
    tiers: dict[str, int] = {}
    for _ in range(_DEEPEST):
        for name, switches in below.items():
            known = [tiers.get(each) for each in switches if each in below]
            if all(tier is not None for tier in known):
                tiers[name] = 1 + max((tier for tier in known if tier is not None), default=0)
    return {name: tier for name, tier in tiers.items() if tier <= _DEEPEST}
