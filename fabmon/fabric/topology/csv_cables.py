"""CSV files of cables: `node,port,node,port` per line, `#` comments, an optional heading.

Ports may be empty; ranges are expanded as in TOML. Spreadsheets write `;` for a comma where that is
the decimal separator, and tabs.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.topology import cable_patterns
from fabmon.fabric.topology.plan import (
    CONFIG,
    End,
    PlannedCable,
    PlanProblem,
    Topology,
    TopologyError,
)
from fabmon.fabric.topology.toml_plan import cabled_twice, too_many

_SEPARATOR = re.compile(r"sep=([;,\t|])[;,\t|]*")
"""A first line by which spreadsheets say what separates the columns; they may fill up the row."""

_HEADINGS = ("node", "device", "host", "switch", "name")


def parse(text: str, filename: str) -> Topology:
    """The cables of a CSV. Raises TopologyError with every invalid line."""
    cables: list[PlannedCable] = []
    problems: list[PlanProblem] = []
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
            problems.append(PlanProblem(number, bad.text, bad.fix))
        if len(cables) > cable_patterns.MOST_OF_FILE:
            raise TopologyError(filename, [too_many(number)])
    problems += cabled_twice(cables)
    if not cables and not problems:
        problems = [PlanProblem(1, "no cables", "write node,port,node,port on each line")]
    if problems:
        raise TopologyError(filename, problems)
    return Topology(cables=tuple(cables))


def has_heading(text: str) -> bool:
    """Whether a text begins with the heading of a list of cables, comments aside."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    cells = [cell.strip() for cell in next(lines, "").split(",")]
    return len(cells) >= 3 and _is_heading(cells)


def _rows(text: str, problems: list[PlanProblem]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells, up to the first line that is not CSV, which is an error."""
    lines = text.splitlines()
    named = _SEPARATOR.fullmatch(lines[0]) if lines else None
    if named is not None:
        lines[0] = ""  # It stays a line: errors name lines by number.
    delimiter = named[1] if named is not None else _delimiter(text)
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        fix = "write node,port,node,port; check for a quote that is not closed"
        problems.append(PlanProblem(rows.line_num, f"not CSV: {error}", fix))


def _delimiter(text: str) -> str:
    """What separates the columns of the first line that is no comment."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            # Ranges have commas: gpu[1,3,5,7].
            return ";" if line.count(";") >= 3 else max(",\t", key=line.count)
    return ","


def _is_heading(cells: list[str]) -> bool:
    """Whether a line is a heading: both node columns have a heading word and no number."""
    return (
        len(cells) >= 3
        and all(
            any(word in cells[place].lower() for word in _HEADINGS)
            and not cells[place][-1:].isdecimal()
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
    one, other = (f"{node}/{port}" if port else node for node, port in (cells[:2], cells[2:]))
    return cable_patterns.paired(one, other)
