"""TOML of files."""

import re
import tomllib
from typing import Any

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
