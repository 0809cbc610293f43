"""`[topology]` of fabmon.toml, and the same keys in a TOML file of its own."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Callable, Iterable, Mapping

import msgspec

from fabmon import toml_text
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

_MOST = cable_patterns.MOST_OF_FILE
Names = str | list[str]
TIERS = {"leaf": 1, "spine": 2, "core": 3}


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of `[topology]`; docs/topology.md explains them.

    `files` are further topologies, `cables` are `NODES/PORTS NODES/PORTS`, `tiers` maps `leaf`,
    `spine` and `core` to node sets, `planes` and `pods` map names of your own to them, `rails` are
    the hosts' ports in the order of the rails.
    """

    files: tuple[str, ...] = ()
    cables: tuple[str, ...] = ()
    tiers: dict[str, Names] = {}
    planes: dict[str, Names] = {}
    pods: dict[str, Names] = {}
    rails: tuple[str, ...] = ()


def parse(text: str, filename: str) -> Topology:
    """The plan of a TOML file: the keys of `[topology]`, with or without that heading. Raises
    TopologyError."""
    try:
        found = toml_text.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TopologyError(
            filename, [PlanProblem(0, f"not TOML: {error}", "fix the syntax")]
        ) from None
    try:
        table = msgspec.convert(found.get("topology", found), Table)
    except msgspec.ValidationError as error:
        keys = ", ".join(Table.__struct_fields__)
        raise TopologyError(
            filename, [PlanProblem(0, str(error), f"the keys are {keys}")]
        ) from None
    if table.files:
        fix = "name it in fabmon.toml, or with --topology"
        line = _line_of(text, '"' + table.files[0])
        raise TopologyError(filename, [PlanProblem(line, "this file names another file", fix)])
    return of_table(table, filename, text)


def of_table(table: Table, filename: str, text: str = "") -> Topology:
    """The plan of a table; `text` is its source, for line numbers.

    Raises TopologyError with all errors.
    """
    problems: list[PlanProblem] = []

    def note(value: str, bad: Bad) -> None:
        problems.append(PlanProblem(_line_of(text, value), f"{value!r}: {bad.text}", bad.fix))

    cables = list(itertools.islice(_cables(table, filename, text, note), _MOST + 1))
    if len(cables) > _MOST:
        raise TopologyError(filename, [too_many(0)])
    problems += cabled_twice(cables)
    tiers = _by_node(_levels(table.tiers, note), note)
    topology = Topology(
        cables=tuple(cables),
        tiers={name: TIERS[level] for name, level in tiers.items()},
        planes=_by_node(table.planes, note),
        pods=_by_node(table.pods, note),
        switches=frozenset(tiers),
        rails=table.rails,
    )
    if problems:
        raise TopologyError(filename, problems)
    return topology


def too_many(line: int) -> PlanProblem:
    """The error of a file with more cables than any fabric has."""
    return PlanProblem(line, f"more than {_MOST:,} cables", "write smaller ranges")


def cabled_twice(cables: Iterable[PlannedCable]) -> list[PlanProblem]:
    """An error for every port with two different cables."""
    first: dict[tuple[str, str], tuple[PlannedCable, End]] = {}
    problems = []
    for cable in cables:
        for end, other in ((cable.one, cable.other), (cable.other, cable.one)):
            if not end.port:
                continue
            before, far = first.setdefault(_key(end), (cable, other))
            if before is not cable and _key(far) != _key(other):
                line = int(cable.by.rpartition(":")[2] or 0)
                place = before.by.rpartition(":")[2]
                what = f"{end.node}/{end.port} is already cabled on line {place}"
                problems.append(PlanProblem(line, what, "a port has one cable: remove one of them"))
    return problems


def _key(end: End) -> tuple[str, str]:
    """The identity of a port, case-insensitive."""
    return end.node.lower(), end.port.lower()


def _cables(
    table: Table, filename: str, text: str, note: Callable[[str, Bad], None]
) -> Iterable[PlannedCable]:
    for value in table.cables:
        by = f"{filename}:{_line_of(text, value)}"
        try:
            for one, other in cable_patterns.cables(value):
                yield PlannedCable(one, other, CONFIG, by)
        except Bad as bad:
            note(value, bad)


def _levels(given: Mapping[str, Names], note: Callable[[str, Bad], None]) -> dict[str, Names]:
    for level in given.keys() - TIERS.keys():
        note(level, Bad(1, "unknown tier", f"write one of {', '.join(TIERS)}"))
    return {level: names for level, names in given.items() if level in TIERS}


def _by_node(given: Mapping[str, Names], note: Callable[[str, Bad], None]) -> dict[str, str]:
    found: dict[str, str] = {}
    for value, sets in given.items():
        for each in [sets] if isinstance(sets, str) else sets:
            try:
                names = cable_patterns.nodes(each)
            except Bad as bad:
                note(each, bad)
                continue
            if len(found) + len(names) > _MOST:
                note(each, Bad(1, f"more than {_MOST:,} nodes", "write smaller ranges"))
                return found
            for name in names:
                if found.setdefault(name, value) != value:
                    what = f"{name} is already in {found[name]}"
                    note(each, Bad(1, what, "remove it from one of them"))
                    break
    return found


def _line_of(text: str, value: str) -> int:
    """The line of a value, found by searching: tomllib keeps no line numbers."""
    place = text.find(value)
    return text.count("\n", 0, place) + 1 if place >= 0 else 0
