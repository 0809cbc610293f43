"""The rules of causes in words, from the documentation that is packaged with the program."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_PAGE = "findings.md"
_HEADING = re.compile(r"^### .+ \(`(\w+)`\)$", re.M)
_ROW = re.compile(r"^\| (Rule|Not observable) \| (.+) \|$", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class RuleText(NamedTuple):
    """When a cause is reported, and what is not observable then: plain text, with the names of
    thresholds."""

    rule: str
    limits: str


def rule_texts() -> dict[str, RuleText]:
    """Cause -> its rule; empty where the page is missing."""
    installed = Path(__file__).with_name(_PAGE)
    checkout = Path(__file__).parents[2] / "docs" / _PAGE
    path = installed if installed.is_file() else checkout
    if not path.is_file():
        return {}
    _, *parts = _HEADING.split(path.read_text(encoding="utf-8"))
    found = {}
    for cause, section in zip(parts[::2], parts[1::2], strict=True):
        rows = _ROW.findall(section)
        rule, limits = (
            "; ".join(_plain(text) for name, text in rows if name == wanted)
            for wanted in ("Rule", "Not observable")
        )
        found[cause] = RuleText(rule, limits)
    return found


def _plain(markdown: str) -> str:
    return _LINK.sub(r"\1", markdown).replace("`", "").replace("**", "")


RULES = rule_texts()
"""Read once, at import: pages are drawn without reading files."""
