"""How much code, and how many numbers, decide about links and receivers that NICs share."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ANALYSIS = _ROOT / "fabmon/analysis"
_CAUSES = ("ecmp_collision", "polarization", "oversubscription", "incast")
_TABLE = "model"
"""The table of config/thresholds.toml that is read for these causes."""


@dataclass(frozen=True)
class Size:
    """What decides about these causes."""

    lines: int
    """Of Python, with comments and docstrings."""
    settings: int
    """Keys of the table in config/thresholds.toml."""
    constants: int
    """Numbers with a name in a module."""

    @property
    def thresholds(self) -> int:
        """All numbers that someone selected."""
        return self.settings + self.constants


def size() -> Size:
    """That of the detectors in use."""
    files = [
        *sorted(_ANALYSIS.glob("model/*.py")),
        *(_ANALYSIS / f"detectors/{name}.py" for name in _CAUSES),
    ]
    sources = [path.read_text() for path in files]
    tables = tomllib.loads((_ROOT / "config/thresholds.toml").read_text())
    return Size(
        lines=sum(len(source.splitlines()) for source in sources),
        settings=len(tables[_TABLE]),
        constants=sum(numeric_constants(source) for source in sources),
    )


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
