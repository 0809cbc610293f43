"""Goldens: what a person sees, kept in files; FABMON_UPDATE_GOLDENS=1 writes them anew."""

from __future__ import annotations

import difflib
import os
from pathlib import Path


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
