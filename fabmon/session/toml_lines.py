"""The lines of a TOML file on which its keys are: tomllib does not keep them."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str, ...]


def lines_of(text: str) -> dict[Path, int]:
    """Path of every table and key -> the first line of its statement, counted from 1.

    `text` is valid TOML. It is parsed statement by statement: a statement is as many lines as make
    valid TOML together.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    statement: list[str] = []
    for number, row in enumerate(text.splitlines(), 1):
        statement.append(row)
        try:
            values = tomllib.loads("\n".join(statement))
        except tomllib.TOMLDecodeError:
            continue
        first = number - len(statement) + 1
        is_header = statement[0].lstrip().startswith("[")
        statement = []
        paths = list(_paths(values))
        if is_header:
            table = paths[-1]
        for path in paths if is_header else [(*table, *each) for each in paths]:
            lines.setdefault(path, first)
    return lines


def line_of(text: str, path: Sequence[str]) -> int | None:
    """The line of a key, else of the table that it would be in; None if neither is there."""
    lines = lines_of(text)
    for end in range(len(path), 0, -1):
        if tuple(path[:end]) in lines:
            return lines[tuple(path[:end])]
    return None


def _paths(values: Any, before: Path = ()) -> Iterator[Path]:
    """The paths of all keys of nested tables; tables before the keys in them."""
    if isinstance(values, list) and values and isinstance(values[-1], dict):
        values = values[-1]
    if isinstance(values, dict):
        for key, value in values.items():
            yield (*before, key)
            yield from _paths(value, (*before, key))
