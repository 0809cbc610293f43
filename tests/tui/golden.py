"""Text goldens: what a screen said when it was last looked at, in files a person can read.

`FABMON_UPDATE_GOLDENS=1 pytest tests/tui` writes them anew. Look before keeping.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

_ROOT = Path(__file__).parent / "goldens"


def check(name: str, text: str) -> None:
    """Compare with the golden called `name`; show the difference."""
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    check_file(_ROOT / f"{name}.txt", text)


def check_file(path: Path, text: str) -> None:
    """Compare with any file."""
    if os.environ.get("FABMON_UPDATE_GOLDENS") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    if kept != text:
        lines = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), str(path.name), "now", lineterm=""
        )
        raise AssertionError("not as in the golden\n" + "\n".join(lines))
