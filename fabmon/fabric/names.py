"""Names of nodes and ports: natural order, patterns, MAC addresses."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

_DIGITS = re.compile(r"(\d{1,18})")
"""Longer runs of digits are split: Python refuses to convert thousands of digits."""


_ZONE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
"""The name of an interface, in Linux at most 15 characters."""

_MOST_CACHED = 32_768
"""Results that a cache of `cached_if_short` keeps: more than the names of the largest fabrics."""

_LONGEST_CACHED = 64
"""Characters of a text that such a cache keeps: names of interfaces, devices and hosts have fewer.
Nodes can send texts of 400 characters, as many as they like."""

_OfText = TypeVar("_OfText", bound=Callable[..., Any])


def cached_if_short(function: _OfText) -> _OfText:
    """The function with a cache of bounded size: of long texts the result is computed each time."""
    cached = lru_cache(_MOST_CACHED)(function)

    @wraps(function)
    def call(text: str, *others: Hashable) -> Any:
        return (cached if len(text) <= _LONGEST_CACHED else function)(text, *others)

    return cast(_OfText, call)


@cached_if_short
def natural(name: str) -> tuple[bool | int | str, ...]:
    """A sort key that orders `gpu9` before `gpu10`, and names that begin with a digit last.

    It is texts and numbers in turn: a flat tuple takes a third of the memory of one of pairs.
    """
    parts = _DIGITS.split(name)
    numbered = (int(part) if place % 2 else part for place, part in enumerate(parts))
    return (name[:1].isdecimal(), *numbered)


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a name matches one of the shell patterns."""
    return _matches(name, tuple(patterns))


@cached_if_short
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


_MOST_COMPARED = 2_000
"""Names with which a text is compared, some 50 ms of work: a fabric has 100,000 ports, and who asks
`fabmon watch` must not stop it meanwhile."""
_LONGEST_COMPARED = 64
"""Characters of them: a comparison takes their product, and nodes can send 400."""


def nearest(text: str, names: Iterable[str], most: int) -> list[str]:
    """The `most` names that are similar to a text, the most similar first. Of thousands, those are
    compared that begin as it does, as far as they do."""
    if len(text) > _LONGEST_COMPARED:
        return []
    known = [each for each in dict.fromkeys(names) if 0 < len(each) <= _LONGEST_COMPARED]
    for length in range(1, len(text)):
        if len(known) <= _MOST_COMPARED:
            break
        same = [each for each in known if each.startswith(text[:length])]
        if len(same) <= _MOST_COMPARED:
            known = list(dict.fromkeys([*same, *known]))
            break
        known = same
    return difflib.get_close_matches(text, known[:_MOST_COMPARED], most)


_MAC = re.compile(r"[0-9a-f]{12}")


def mac_of(text: str) -> str | None:
    """A MAC address in any notation (`444c.a8cd.337e`) as lower case with colons; None if it is not
    one."""
    digits = re.sub(r"[.:-]", "", text.lower())
    if not _MAC.fullmatch(digits):
        return None
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2))


def is_address(name: str) -> bool:
    """Whether a name is an IP address, which may have the name of an interface as its zone."""
    bare, percent, zone = name.partition("%")
    try:
        version = ipaddress.ip_address(bare).version
    except ValueError:
        return False
    # Python takes any text for a zone, that of a shell too.
    return not percent or (version == 6 and _ZONE.fullmatch(zone) is not None)


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address, or the name localhost."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
