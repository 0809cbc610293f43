"""TOML of files."""

import tomllib
from typing import Any

_DEEPEST = 64
"""Tables in tables: dotted keys make as many as they have dots, at no cost to the parser, and what
walks through them would run out of stack."""


def loads(text: str) -> dict[str, Any]:
    """The values of a text. Raises TOMLDecodeError, also for numbers of thousands of digits and for
    what is nested too deeply."""
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
        level = [below for each in level for below in _below(each)]
    if level:
        raise tomllib.TOMLDecodeError("tables are nested too deep")
    return values


def _below(value: object) -> list[Any]:
    """The tables and arrays in a value."""
    if not isinstance(value, dict | list):
        return []
    inside = value.values() if isinstance(value, dict) else value
    return [each for each in inside if isinstance(each, dict | list)]
