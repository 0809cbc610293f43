"""TOML of files, and the lines on which its keys are."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Path = tuple[str, ...]


_MAY_END = re.compile(r"""(]|}|"{3}|'{3})\s*(#.*)?$""")
"""How the last line of an array or text of several lines ends: only there it is parsed."""


def lines_of(text: str) -> dict[Path, int]:
    """Path of every table and key -> the first line of its statement, counted from 1.

    `text` is valid TOML. It is parsed statement by statement: a statement is as many lines as make
    valid TOML together.
    """
    lines: dict[Path, int] = {}
    table: Path = ()
    statement: list[str] = []
    for number, row in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        statement.append(row)
        if len(statement) > 1 and not _MAY_END.search(row):
            continue
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


_DEEPEST = 64
"""Tables in tables: dotted keys make as many as they have dots, at no cost to the parser, and what
walks through them would run out of stack."""
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What commands a terminal, or turns the direction of writing: names and titles are shown."""


def loads(text: str) -> dict[str, Any]:
    """The values of a text. Raises TOMLDecodeError, also for numbers of thousands of digits, for
    what is nested too deeply, and for control characters other than tabs and ends of lines."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise tomllib.TOMLDecodeError("a number is too long") from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("brackets are nested too deep") from None
    level: list[Any] = [values]
    for _ in range(_DEEPEST):
        level = [inside for each in level for inside in _inside(each)]
        for each in level:
            found = _CONTROL.search(each) if isinstance(each, str) else None
            if found is not None:
                raise tomllib.TOMLDecodeError(f"control character U+{ord(found[0]):04X} in a text")
    if any(isinstance(each, dict | list) for each in level):
        raise tomllib.TOMLDecodeError("tables are nested too deep")
    return values


def _inside(value: object) -> list[Any]:
    """The keys and values of a table, the items of an array."""
    if isinstance(value, dict):
        return [*value, *value.values()]
    return value if isinstance(value, list) else []
