"""Goldens: texts that a person reads, kept in files. FABMON_UPDATE_GOLDENS=1 writes them again."""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path

_COLUMNS = 100
_SHORT = 60
"""Members of an object that are longer than this have a line of their own."""


def check_golden(path: Path, text: str) -> None:
    """Fail with a diff unless `text` is what the file says."""
    if os.environ.get("FABMON_UPDATE_GOLDENS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    known = path.read_text(encoding="utf-8") if path.exists() else ""
    diff = difflib.unified_diff(
        known.splitlines(), text.splitlines(), str(path), "now", lineterm=""
    )
    assert known == text, "\n".join(["", *diff])


def readable_json(value: object, indent: int = 0) -> str:
    """JSON in lines of about 100 columns: what fits into one line is one line."""
    inline = json.dumps(value, ensure_ascii=False)
    if len(inline) + indent <= _COLUMNS or not isinstance(value, (dict, list, tuple)) or not value:
        return inline
    inner, pad = indent + 1, " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {readable_json(each, inner)}" for key, each in value.items()]
    else:
        parts = [readable_json(each, inner) for each in value]
    ends = "{}" if isinstance(value, dict) else "[]"
    lines = [pad + parts[0]]
    for part in parts[1:]:
        fits = len(lines[-1]) + 2 + len(part) <= _COLUMNS and "\n" not in lines[-1] + part
        is_short = len(part) <= _SHORT and not lines[-1].endswith(("}", "]"))
        if fits and is_short:
            lines[-1] += f", {part}"
        else:
            lines[-1] += ","
            lines.append(pad + part)
    return "\n".join([ends[0], *lines, " " * indent + ends[1]])
