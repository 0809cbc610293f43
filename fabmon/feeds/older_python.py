"""The node half's source as Python 3.6 understands it: without annotations.

The annotations are evaluated when a function is defined, unless a module imports them from
`__future__`, which 3.6 does not have. They are blanked out in place, so that lines and columns in a
traceback are those of the source. Fields of a NamedTuple keep one, since that makes them fields.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

_FIELD = b"object"
_FUTURE = b"from __future__ import annotations"


class _Blank(NamedTuple):
    """Bytes `start` to `stop` of the source, to be replaced; `is_inside` brackets, where a line may
    end without a backslash."""

    start: int
    stop: int
    is_inside: bool = True
    by: bytes = b""


def without_annotations(source: bytes) -> bytes:
    """The source of a module without annotations, in as many lines. Raises SyntaxError."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = bytearray(source)
    for blank in _blanks(ast.parse(source), source, starts):
        old = bytes(text[blank.start : blank.stop])
        end = b"\n" if blank.is_inside else b"\\\n"
        new = [b""] * (old.count(b"\n") + 1)
        new[0] = blank.by
        # Replaced from the last to the first, so that the places of the others stay.
        text[blank.start : blank.stop] = end.join(new)
    return bytes(text).replace(_FUTURE, b"", 1)


def _blanks(tree: ast.Module, source: bytes, starts: list[int]) -> list[_Blank]:
    """What is to be replaced, the last first."""

    def start(node: ast.expr | ast.stmt | ast.arg) -> int:
        return starts[node.lineno - 1] + node.col_offset

    def stop(node: ast.expr | ast.stmt | ast.arg) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return starts[node.end_lineno - 1] + node.end_col_offset

    found = []
    fields = set(_fields(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation is not None:
            found.append(_Blank(start(node) + len(node.arg.encode()), stop(node.annotation)))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None:
            arrow = source.rindex(b"->", 0, start(node.returns))
            found.append(_Blank(arrow, stop(node.returns), is_inside=False))
        elif isinstance(node, ast.AnnAssign):
            if node in fields:
                place = start(node.annotation)
                found.append(_Blank(place, stop(node.annotation), False, _FIELD))
            elif node.value is not None:
                found.append(_Blank(stop(node.target), stop(node.annotation), is_inside=False))
            else:
                found.append(_Blank(start(node), stop(node), False, b"pass"))
    return sorted(found, reverse=True)


def _fields(tree: ast.Module) -> Iterator[ast.AnnAssign]:
    """The fields of the NamedTuples of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
            if "NamedTuple" in bases:
                yield from (each for each in node.body if isinstance(each, ast.AnnAssign))
