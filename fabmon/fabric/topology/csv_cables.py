"""A plain CSV of cables, `node,port,node,port` a line; `#` begins a comment, a heading may lead.

Ports may be left empty; ranges as in TOML are folded out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.topology import cable_patterns
from fabmon.fabric.topology.plan import CONFIG, End, PlannedCable, Problem, Topology, TopologyError
from fabmon.fabric.topology.toml_plan import twice

_HEADINGS = ("node", "device", "host", "switch", "name")


def parse(text: str, filename: str) -> Topology:
    """The cables of a CSV. Raises TopologyError with every line that cannot be used."""
    cables: list[PlannedCable] = []
    problems: list[Problem] = []
    first = True
    for number, row in _rows(text, problems):
        cells = [cell.strip() for cell in row]
        if not any(cells) or cells[0].startswith("#"):
            continue
        heading, first = first and _is_heading(cells), False
        if heading:
            continue
        try:
            for one, other in _cables(cells):
                cables.append(PlannedCable(one, other, CONFIG, f"{filename}:{number}"))
        except Bad as bad:
            problems.append(Problem(number, bad.text, bad.fix))
    problems += twice(cables)
    if not cables and not problems:
        problems = [Problem(1, "no cables", "write node,port,node,port on each line")]
    if problems:
        raise TopologyError(filename, problems)
    return Topology(cables=tuple(cables))


def _rows(text: str, problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
    """Lines' numbers and cells, up to the first that is no CSV, which is a problem."""
    rows = csv.reader(text.splitlines(), skipinitialspace=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        fix = "write node,port,node,port; a quote that is not closed runs on"
        problems.append(Problem(rows.line_num, f"not CSV: {error}", fix))


def _is_heading(cells: list[str]) -> bool:
    """Whether both nodes' columns are called something, and no node is called like that."""
    return (
        len(cells) >= 3
        and all(
            any(word in cells[place].lower() for word in _HEADINGS)
            and not cells[place][-1:].isdigit()
            for place in (0, 2)
        )
        and any("port" in cell.lower() or "interface" in cell.lower() for cell in cells[1::2])
    )


def _cables(cells: list[str]) -> list[tuple[End, End]]:
    while len(cells) > 4 and not cells[-1]:
        cells = cells[:-1]
    if len(cells) != 4:
        raise Bad(1, f"{len(cells)} columns", "write node,port,node,port")
    if not cells[0] or not cells[2]:
        raise Bad(1, "an end without a node", "write node,port,node,port")
    left, right = (
        cable_patterns.ends(f"{node}/{port}" if port else node)
        for node, port in (cells[:2], cells[2:])
    )
    if len(left) != len(right):
        raise Bad(
            1, f"{len(left)} ends at the left, {len(right)} at the right", "write as many of each"
        )
    return list(zip(left, right, strict=True))
