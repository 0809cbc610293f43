"""Who imports what, proved in fresh processes: the contracts of pyproject.toml, at run time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"textual", "rich", "asyncssh", "numpy", "msgspec", "ClusterShell", "cryptography"}


def modules_after(statement: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter has after a statement."""
    code = (
        f"{statement}\nimport sys, json\n"
        "print(json.dumps(sorted(name for name in sys.modules)), file=sys.__stdout__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
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
def test_a_room_does_not_reach_beyond_its_doors(module: str, forbidden: set[str]) -> None:
    before = tops(modules_after("import numpy, msgspec"))
    reached = tops(modules_after(f"import {module}")) & forbidden
    assert not reached - (before if forbidden & {"asyncio", "socket"} else set())


def test_the_layers_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
