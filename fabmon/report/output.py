"""What all reports share: indented JSON with its schema, and tables of aligned columns."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec


def as_json(record: object) -> bytes:
    """A record, or several, as indented JSON with a last newline."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"


def json_schema(record_type: Any) -> bytes:
    """The JSON Schema of a record type (or a union of them), as it is committed in docs/."""
    document = msgspec.json.schema(record_type)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **document}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def aligned(rows: Sequence[Sequence[str]], left: int | None = None) -> Iterator[str]:
    """Rows of cells as lines; the first `left` columns (None: all) are aligned left."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if left is None or column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


_CELL = re.compile(r"(?<=\S) {2,}(?=\S)")
"""What is between two cells of a line."""


def folded(text: str, columns: int) -> str:
    """A text for a terminal of so many columns: longer lines continue below, between words.

    What follows is below the last cell of a line where that leaves it half the width. Other rows of
    cells continue with the first cell that has no room, and other lines with the next word.
    """
    return "\n".join(part for line in text.split("\n") for part in _folded_line(line, columns))


def _folded_line(line: str, columns: int) -> list[str]:
    indent = min(len(line) - len(line.lstrip()) + 2, columns // 2)
    lines: list[str] = []
    while len(line) > columns:
        gaps = list(_CELL.finditer(line))
        fitting = [gap for gap in gaps if gap.start() <= columns]
        if not fitting or gaps[-1].end() <= columns // 2:
            hang = max((gap.end() for gap in gaps if gap.end() <= columns // 2), default=indent)
            return lines + _wrapped(line, columns, hang)
        lines.append(line[: fitting[-1].start()])
        line = " " * indent + line[fitting[-1].end() :]
    return [*lines, line]


def _wrapped(line: str, columns: int, hang: int) -> list[str]:
    return textwrap.wrap(
        line,
        columns,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
