"""Text goldens: the screen as it was last reviewed, in text files.

`FABMON_UPDATE_GOLDENS=1 pytest tests/tui` writes them anew. Look before keeping.
"""

from __future__ import annotations

from pathlib import Path

from tests.goldens import check_golden

_ROOT = Path(__file__).parent / "goldens"


def check(name: str, text: str) -> None:
    """Compare with the golden called `name`; show the difference."""
    check_golden(_ROOT / f"{name}.txt", _kept(text))


def is_like(name: str, text: str) -> bool:
    """Whether a text is the golden called `name`; False when goldens are to be updated."""
    path = _ROOT / f"{name}.txt"
    return path.exists() and path.read_text(encoding="utf-8") == _kept(text)


def _kept(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
