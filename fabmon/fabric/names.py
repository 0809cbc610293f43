"""Names of machines and ports in the order a person expects, and against patterns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_DIGITS = re.compile(r"(\d{1,18})")
"""Longer runs of digits are cut: Python turns no text of thousands of them into a number."""


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key by which `gpu9` comes before `gpu10`."""
    return tuple(
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in _DIGITS.split(name)
        if part
    )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name fits one of the shell patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_MAC = re.compile(r"[0-9a-f]{12}")


def mac_of(text: str) -> str | None:
    """A MAC address of any spelling (`444c.a8cd.337e`) with colons, None for what is none."""
    digits = re.sub(r"[.:-]", "", text.lower())
    if not _MAC.fullmatch(digits):
        return None
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))
