"""How much code, and how many numbers, decide about traffic causes."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_TRAFFIC = (
    *("ecmp_collision", "polarization", "oversubscription", "incast", "congested_path"),
    *("slow_receiver", "pause_storm", "host_pcie_limit", "straggler", "uneven_rails"),
)
"""Causes of slow traffic."""

_DECIDES = tuple(f"fabmon.analysis.{name}." for name in ("detectors", "evidence", "model"))
"""Packages whose modules decide; the others of the analysis say what findings and scenes are."""

_INPUT = ".detector_input"
"""What every detector is given."""


@dataclass(frozen=True)
class Size:
    """What decides about these causes."""

    lines: int
    """Of Python, with comments and docstrings."""
    settings: int
    """Keys of the tables in config/thresholds.toml that they read."""
    constants: int
    """Numbers with a name in a module."""

    @property
    def thresholds(self) -> int:
        """All numbers that someone selected."""
        return self.settings + self.constants


def size() -> Size:
    """That of this tree: the modules of these causes, and those that they import."""
    sources = [path.read_text() for path in sorted(_modules())]
    tables = tomllib.loads((_ROOT / "config/thresholds.toml").read_text())
    read = {name for source in sources for name in tables if f'"{name}"' in source}
    return Size(
        lines=sum(len(source.splitlines()) for source in sources),
        settings=sum(len(tables[name]) for name in read - {"findings"}),
        constants=sum(numeric_constants(source) for source in sources),
    )


def _modules() -> set[Path]:
    """The files of these causes' detectors, and of all that they import and that decides."""
    found: set[Path] = set()
    new = {_path(f"fabmon.analysis.detectors.{name}") for name in _TRAFFIC}
    while new:
        found |= new
        imports = {_path(name) for path in new for name in _imported(ast.parse(path.read_text()))}
        new = {path for path in imports if path.is_file()} - found
    return found


def _imported(module: ast.Module) -> Iterator[str]:
    """The modules that decide and that a module imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{each.name}" for each in node.names)):
                if name.startswith(_DECIDES) and not name.endswith(_INPUT):
                    yield name


def _path(name: str) -> Path:
    return _ROOT / f"{name.replace('.', '/')}.py"


def numeric_constants(source: str) -> int:
    """Names of a module, `_private` or of upper case, that are bound to a number or to a tuple of
    numbers. `A, B = 1, 2` binds two."""
    return sum(
        (name.startswith("_") or name.isupper()) and _is_numeric(value)
        for name, value in _bindings(ast.parse(source))
    )


def _bindings(module: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Each name that a module binds, and its value."""
    for statement in module.body:
        if isinstance(statement, ast.Assign):
            for target in statement.targets:
                yield from _bound(target, statement.value)
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield from _bound(statement.target, statement.value)


def _bound(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for each, part in zip(target.elts, value.elts, strict=False):
            yield from _bound(each, part)


def _is_numeric(value: ast.expr) -> bool:
    if isinstance(value, ast.Tuple):
        return bool(value.elts) and all(_is_numeric(each) for each in value.elts)
    if isinstance(value, ast.UnaryOp):
        return _is_numeric(value.operand)
    return isinstance(value, ast.Constant) and type(value.value) in (int, float)
