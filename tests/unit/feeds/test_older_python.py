"""The probe on Pythons that are older than the console's: its archive, what it uses, its frames."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabmon.feeds import probe_input
from fabmon.feeds.probe_input import ProbeSettings, without_annotations
from tests.fixtures import interpreters, nvml
from tests.fixtures.hosts import SMALL_HOSTS
from tests.requirements import need

ROOT = Path(__file__).parents[3]
MODULES = sorted(ROOT.glob("collectors/**/*.py"))
NAMES_OF_3_6 = Path(__file__).parent / "goldens" / "python36-names.txt"
"""What the node half uses of the standard library, and Python 3.6 has."""

GUARDED = {
    "collectors/clock.py": {"time.monotonic_ns", "time.process_time_ns", "time.time_ns"},
    "collectors/loop/watchdog.py": {"queue.SimpleQueue"},
    "collectors/__main__.py": {"gc.freeze"},
}
"""What a module uses of later versions only."""

LATER_METHODS = {
    "isascii",
    "removeprefix",
    "removesuffix",
    "fromisoformat",
    "bit_count",
}
"""Of strings, numbers, dates and paths."""
LATER_KEYWORDS = {"capture_output", "text", "missing_ok", "dirs_exist_ok", "strict"}
"""Of subprocess, pathlib, shutil and zip."""


def interpreter(version: str) -> str:
    """A Python of this version; skips the test where there is none."""
    found = interpreters.interpreter(version)
    if found is None:
        pytest.skip(f"no python{version} on the PATH or in ~/.pyenv")
    return found


@pytest.mark.timeout(900)
def test_the_tests_of_the_node_half_pass_on_python_3_9() -> None:
    venv = ROOT / ".venv39"
    how = "make test with a python3.9 on the PATH, or PYTHON39="
    need("Python 3.9 with the packages of these tests", (venv / ".ready").exists(), how)
    # A fabric simulated in real time is read in the same way.
    options = ["-p", "no:cacheprovider", "--ignore-glob", "*/test_ib_f*"]
    done = subprocess.run(
        [venv / "bin" / "python", "-m", "pytest", "-q", *options, "tests/unit/collectors"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def test_annotations_are_blanked_out_in_place() -> None:
    source = '''from __future__ import annotations
from typing import NamedTuple


class Pair(NamedTuple):
    """Two."""

    one: int
    other: Dict[
        str, int
    ] = {}


class Later:
    size: int
    name: str = ""

    def of(self, each: Later, *rest: int, key: str = "a") -> Dict[
        str, Later
    ]:
        found: List[int] = [1]
        left: Later
        return {"->": found}


def plain(a, b=1): return a  # -> int
'''
    bare = without_annotations(source.encode())
    assert bare.count(b"\n") == source.count("\n")
    assert b"Later" not in bare.replace(b"class Later", b"")
    assert b'def of(self, each, *rest, key = "a") \\\n' in bare
    names: dict[str, Any] = {}
    exec(compile(bare, "bare", "exec"), names)
    assert names["Pair"](1) == (1, {})
    assert names["Later"]().of(None) == {"->": [1]}
    assert without_annotations(bare) == bare


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_syntax_and_library_are_those_of_python_3_6(path: Path) -> None:
    """Whatever interpreters this machine has. Below 3.7 the parser of 3.13 does not go."""
    version = (3, 6) if sys.version_info < (3, 13) else (3, 7)
    bare = without_annotations(path.read_bytes())
    tree = ast.parse(bare, feature_version=version)
    assert not any(
        isinstance(node, (ast.arg, ast.FunctionDef)) and getattr(node, "annotation", None)
        for node in ast.walk(tree)
    )
    known = set(NAMES_OF_3_6.read_text().split())
    name = str(path.relative_to(ROOT))
    new = used_names(tree) - known - GUARDED.get(name, set())
    assert not new, f"not in {NAMES_OF_3_6.name}: FABMON_UPDATE_GOLDENS=1 with a python3.6 asks it"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    methods = {call.func.attr for call in calls if isinstance(call.func, ast.Attribute)}
    assert not methods & LATER_METHODS
    assert not {keyword.arg for call in calls for keyword in call.keywords} & LATER_KEYWORDS
    with_separator = [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "hex" and call.args
    ]
    assert not with_separator, "bytes.hex() takes no separator before 3.8"


def used_names(tree: ast.AST) -> set[str]:
    """`module.name` of the standard library that a module imports or uses."""
    standard = sys.stdlib_module_names - {"__future__"}
    nodes = list(ast.walk(tree))
    modules = {
        each.asname or each.name: each.name
        for node in nodes
        if isinstance(node, ast.Import)
        for each in node.names
        if each.name in standard
    }
    imported = {
        f"{node.module}.{each.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in standard
        for each in node.names
    }
    return imported | {
        f"{modules[node.value.id]}.{node.attr}"
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in modules
    }


def test_the_names_are_those_that_python_3_6_has() -> None:
    """With FABMON_UPDATE_GOLDENS=1 the list is made anew, by asking 3.6."""
    python = interpreter("3.6")
    used = {name for path in MODULES for name in used_names(ast.parse(path.read_bytes()))}
    program = """
import importlib, sys
for line in sys.stdin.read().split():
    module, _, name = line.rpartition(".")
    if hasattr(importlib.import_module(module), name):
        print(line)
"""
    done = subprocess.run(
        [python, "-E", "-c", program],
        input="\n".join(sorted(used)),
        capture_output=True,
        check=True,
        text=True,
    )
    if os.environ.get("FABMON_UPDATE_GOLDENS") == "1":
        NAMES_OF_3_6.write_text(done.stdout)
    assert done.stdout == NAMES_OF_3_6.read_text()


@pytest.fixture(scope="module")
def said_here(trees: dict[str, Path]) -> dict[str, list[Any]]:
    """The lines of each fixture host under this Python."""
    return {name: said(sys.executable, root) for name, root in trees.items()}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every fixture host."""
    found = {}
    for name, write in SMALL_HOSTS.items():
        found[name] = tmp_path_factory.mktemp(name)
        write(found[name])
    return found


def said(python: str | None, root: Path) -> list[Any]:
    """The lines of a probe whose sources are all in time: on a busy machine not at once."""
    until_s = time.monotonic() + 240
    while True:
        lines = list(_said(python, root))
        late = [of for kind, of in lines if kind == "notice" and of[0].get("reason") == "late"]
        if not late:
            return lines
        assert time.monotonic() < until_s, late


def _said(python: str | None, root: Path) -> Iterator[Any]:
    """The lines of a probe up to its first frame, started as a console starts it, without what
    differs from run to run: clocks, and what the probe says of itself."""
    child = subprocess.Popen(
        ["/bin/sh", "-c", probe_input.shell_line(python)],
        env={**os.environ, nvml.VARIABLE: str(root / nvml.SCENARIO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(probe_input.payload(ProbeSettings(interval_s=0.5, root=str(root))))
        child.stdin.flush()
        for line in child.stdout:
            kind, *rest = json.loads(line)
            if kind == "hello":
                rest[0].pop("python")
            if kind == "frame":
                _, _, _, blocks = rest
                rest = [block and block[1:] for block in blocks[:-1]]
            yield kind, rest
            if kind == "frame":
                return
        raise AssertionError(child.communicate()[1].decode())
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("version", [each for each in interpreters.VERSIONS if each != "3.9"])
def test_frames_are_the_same_under_each_python(
    version: str, trees: dict[str, Path], said_here: dict[str, list[Any]]
) -> None:
    """Hello, notices and the first frame, in which every source is read, of every fixture host. 3.9
    has run the tests of the node half.

    On a busy machine a source that measures by itself may be further in one of them: then both are
    repeated."""
    python = interpreter(version)
    until_s = time.monotonic() + 240
    for name, root in trees.items():
        expected = said_here[name]
        while (found := said(python, root)) != expected and time.monotonic() < until_s:
            expected = said(sys.executable, root)
        assert found == expected, name
        assert expected[-1][0] == "frame"


@pytest.mark.parametrize("version", interpreters.VERSIONS)
def test_a_python_that_is_not_called_python3_is_found(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As /usr/libexec/platform-python of RHEL 8, where nothing on the PATH is a python3."""
    other = tmp_path / "platform-python"
    other.symlink_to(interpreter(version))
    assert "/usr/libexec/platform-python" in probe_input.PYTHON_CANDIDATES.split()
    monkeypatch.setattr(probe_input, "PYTHON_CANDIDATES", f"no-python3 {other}")
    assert [kind for kind, _ in said(None, tmp_path)] == ["hello", "frame"]
