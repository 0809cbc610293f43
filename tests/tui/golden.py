"""Goldens of screens as text, in files that a person can read.

Screens that must be identical share one golden; where only some lines matter, only these are kept.
`FABMON_UPDATE_GOLDENS=1 pytest tests/tui` writes them again. Read the diff before committing.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from tests.goldens import check_golden

_ROOT = Path(__file__).parent / "goldens"


def check(name: str, text: str) -> None:
    """Compare with the golden called `name`; fail with a diff."""
    check_golden(_ROOT / f"{name}.txt", _kept(text))


def is_like(name: str, text: str) -> bool:
    """Whether a text is the golden called `name`; False when goldens are to be updated."""
    path = _ROOT / f"{name}.txt"
    return path.exists() and path.read_text(encoding="utf-8") == _kept(text)


def _kept(text: str) -> str:
    """The text without trailing blanks; three and more blank lines are replaced by their number."""
    kept: list[str] = []
    for blank, run in groupby((line.rstrip() for line in text.splitlines()), key=lambda x: not x):
        lines = list(run)
        kept += [f"({len(lines)} blank lines)"] if blank and len(lines) > 2 else lines
    return "\n".join(kept) + "\n"
