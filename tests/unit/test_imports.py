"""Who imports what, proved in fresh processes: the contracts of pyproject.toml, at run time."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Mapping, Set
from pathlib import Path
from typing import get_type_hints

import pytest

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import FabricStructure
from fabmon.analysis.iteration.results import IterationReport
from fabmon.fabric.snapshot import Snapshot

HEAVY = {"textual", "rich", "asyncssh", "numpy", "msgspec", "ClusterShell", "cryptography"}


def modules_after(statement: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter has after a statement."""
    code = (
        f"{statement}\nimport sys, json\n"
        "print(json.dumps(sorted(name for name in sys.modules)), file=sys.__stdout__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def tops(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_the_node_half_needs_the_standard_library_and_nothing_else() -> None:
    every = (
        "import collectors.__main__, collectors.loop.source_loader as r\n"
        "[r.load_source(n) for n in r.SOURCES]"
    )
    modules = tops(modules_after(every)) - tops(modules_after("pass"))
    foreign = {name for name in modules if name not in sys.stdlib_module_names}
    assert foreign == {"collectors"}


def test_no_source_is_imported_before_it_is_chosen() -> None:
    modules = modules_after("import collectors.__main__")
    assert not {name for name in modules if name.startswith("collectors.sources")}


HELP = (
    "import sys, contextlib, io\n"
    "sys.argv = ['fabmon', '--help']\n"
    "from fabmon.cli.main import main\n"
    "with contextlib.redirect_stdout(io.StringIO()):\n"
    "    try: main()\n"
    "    except SystemExit: pass"
)


def test_help_imports_nothing_heavy() -> None:
    assert not tops(modules_after(HELP)) & HEAVY


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("fabmon.fabric.fabric_builder", {"textual", "rich", "asyncssh", "ClusterShell"}),
        ("fabmon.history.history", {"textual", "rich", "asyncssh", "ClusterShell", "asyncio"}),
        ("fabmon.analysis.analyst", {"textual", "rich", "asyncssh", "asyncio", "socket"}),
        ("fabmon.report.scene_report", {"textual", "rich", "asyncssh"}),
        ("fabmon.feeds.live", {"textual", "rich", "asyncssh"}),
        ("fabmon.feeds.demo.feed", {"textual", "rich", "asyncssh", "ClusterShell"}),
        ("fabmon.session.watch_run", {"textual", "rich", "asyncssh"}),
        ("fabmon.tui.app", {"asyncssh", "ClusterShell"}),
    ],
)
def test_a_package_loads_nothing_that_it_must_not_import(module: str, forbidden: set[str]) -> None:
    before = tops(modules_after("import numpy, msgspec"))
    reached = tops(modules_after(f"import {module}")) & forbidden
    assert not reached - (before if forbidden & {"asyncio", "socket"} else set())


ROOT = Path(__file__).parents[2]
ANALYSIS = ROOT / "fabmon" / "analysis"


def import_graph() -> dict[str, set[str]]:
    """The modules of both halves, and which of them each imports anywhere in its text.

    Imports inside functions and under TYPE_CHECKING count too.
    """
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for half in ("fabmon", "collectors")
        for path in (ROOT / half).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= (full & paths.keys()) or {node.module}
        graph[name] = (found & paths.keys()) - {name}
    return graph


def cycles(graph: Mapping[str, Set[str]]) -> set[frozenset[str]]:
    """The sets of nodes that can all reach each other (Tarjan's algorithm)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            place = stack.index(name)
            members = frozenset(stack[place:])
            del stack[place:]
            if len(members) > 1:
                found.add(members)

    for name in graph:
        if name not in order:
            visit(name)
    return found


def test_a_cycle_is_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert cycles(graph) == {frozenset("bc"), frozenset("de")}


def test_no_modules_import_each_other_in_a_cycle() -> None:
    assert cycles(import_graph()) == set()


def test_no_detector_reaches_what_is_open() -> None:
    """It decides from counters: neither its input nor a module that it imports has findings."""
    graph = import_graph()
    new = {name for name in graph if name.startswith("fabmon.analysis.detectors.")}
    reached = set[str]()
    while new:
        reached |= new
        new = {other for name in new for other in graph[name]} - reached
    holders = ("tracker", "earlier_findings", "root_cause", "analyst", "scene")
    assert not reached & {f"fabmon.analysis.{name}" for name in holders}
    own = ("detectors", "evidence", "model")
    for path in (path for part in own for path in ANALYSIS.glob(f"{part}/*.py")):
        nodes = ast.walk(ast.parse(path.read_text()))
        assert "Finding" not in {each.id for each in nodes if isinstance(each, ast.Name)}, path
    given = set(get_type_hints(DetectorInput.__init__).values())
    assert given == {Snapshot, FabricStructure, IterationReport, type(None)}


def test_the_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
