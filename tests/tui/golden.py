"""Text goldens: what a screen said when it was last looked at, in files a person can read.

`FABMON_UPDATE_GOLDENS=1 pytest tests/tui` writes them anew. Look before keeping.
"""

from __future__ import annotations

from pathlib import Path

from tests.goldens import check_golden

_ROOT = Path(__file__).parent / "goldens"


def check(name: str, text: str) -> None:
    """Compare with the golden called `name`; show the difference."""
    text = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    check_golden(_ROOT / f"{name}.txt", text)
