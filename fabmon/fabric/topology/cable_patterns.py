"""`gpu[001-016]/mlx5_0  leaf1/swp[1-16]`: expands cables with ranges."""

from __future__ import annotations

import itertools
import re

from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.hosts.nodesets import BRACKETS, expand
from fabmon.fabric.topology.plan import End

MOST_CABLES = 262_144
"""Ends of one line."""
MOST_OF_FILE = 524_288
"""Cables, or names of nodes, of a file: each takes 1 kB. 10,000 nodes with 8 ports have 240,000."""
_RANGE = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_PORT = re.compile(r"[A-Za-z0-9_.:/\[\],@+ -]{1,200}")
EXAMPLE = "as in `leaf1/swp49 spine1/swp1` or `gpu[001-016]/mlx5_0 leaf1/swp[1-16]`"


def cables(text: str) -> list[tuple[End, End]]:
    """The cables of one line: the ends on the left paired with those on the right. Raises Bad."""
    words = [word for word in text.split() if word != "--"]
    if len(words) != 2:
        raise Bad(1, f"{len(words)} ends, where a cable has two", f"write {EXAMPLE}")
    return paired(*words)


def paired(one: str, other: str) -> list[tuple[End, End]]:
    """The cables between two patterns of ends. Raises Bad."""
    left, right = ends(one), ends(other)
    if len(left) != len(right):
        raise Bad(
            1, f"{len(left)} ends on the left, {len(right)} on the right", "write the same number"
        )
    return list(zip(left, right, strict=True))


def ends(text: str) -> list[End]:
    """`leaf[1-2]/swp[1-4]`: the ports of the first node, then those of the second. Raises Bad."""
    node, slash, port = text.partition("/")
    while node.count("[") > node.count("]") and slash:
        # A step in a range: `gpu[1-9/2]/eth0`.
        more, slash, port = port.partition("/")
        node = f"{node}/{more}"
    names = nodes(node)
    ports = port_names(port) if slash else [""]
    if len(names) * len(ports) > MOST_CABLES:
        raise Bad(1, f"more than {MOST_CABLES} ends", "write smaller ranges")
    return [End(name, each) for name in names for each in ports]


def nodes(text: str) -> list[str]:
    """The names of a node set, in natural order. Raises Bad."""
    return expand(Word(text, 1))


def port_names(text: str) -> list[str]:
    """`swp[1-4,7]` or `Ethernet1/[1-2]/1`, expanded in the order written. Raises Bad."""
    if not _PORT.fullmatch(text):
        raise Bad(1, f"{text[:60]!r} is not a port name", f"write {EXAMPLE}")
    pieces = BRACKETS.split(text)
    choices = [
        _numbers(piece, text) if place % 2 else [piece] for place, piece in enumerate(pieces)
    ]
    count = 1
    for each in choices:
        count *= len(each)
    if count > MOST_CABLES:
        raise Bad(1, f"more than {MOST_CABLES} ports", "write smaller ranges")
    names = ["".join(parts) for parts in itertools.product(*choices)]
    if any("[" in name or "]" in name for name in names):
        raise Bad(1, f"an unmatched bracket in {text[:60]!r}", f"write {EXAMPLE}")
    return names


def _numbers(text: str, whole: str) -> list[str]:
    """`1-3,07` -> 1 2 3 07; a leading zero gives the width."""
    found: list[str] = []
    for item in text.split(","):
        match = _RANGE.fullmatch(item.strip())
        if match is None:
            raise Bad(
                1, f"{item!r} in {whole[:60]!r} is not a range", "write numbers, as in [1-4,7]"
            )
        low, high = match[1], match[2] or match[1]
        if int(high) < int(low):
            raise Bad(1, f"{item!r} is descending", "write the smaller number first")
        width = len(low) if low.startswith("0") else 0
        found += [str(number).zfill(width) for number in range(int(low), int(high) + 1)]
    return found
