"""Names of nodes and ports: natural order, patterns, MAC addresses."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

_DIGITS = re.compile(r"(\d{1,18})")
"""Longer runs of digits are split: Python refuses to convert thousands of digits."""


@lru_cache(maxsize=65536)
def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key that orders `gpu9` before `gpu10`."""
    return tuple(
        (1, int(part), "") if part.isdecimal() else (0, 0, part)
        for part in _DIGITS.split(name)
        if part
    )


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches one of the shell patterns."""
    return _matches(name, tuple(patterns))


@lru_cache(maxsize=65536)
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_MAC = re.compile(r"[0-9a-f]{12}")


def mac_of(text: str) -> str | None:
    """A MAC address in any notation (`444c.a8cd.337e`) as lower case with colons; None if it is not
    one."""
    digits = re.sub(r"[.:-]", "", text.lower())
    if not _MAC.fullmatch(digits):
        return None
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address, or the name localhost."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
