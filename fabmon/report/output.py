"""What all reports share: indented JSON with its schema, and tables of aligned columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec


def as_json(record: msgspec.Struct) -> bytes:
    """A record as indented JSON with a last newline."""
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
