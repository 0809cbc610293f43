"""Expands node sets (`gpu[001-128]`, `rack[1-2]node[1-3]`) into names, and their addresses.

Every name is checked: it cannot be an option, shell text or a terminal escape sequence, wherever it
is used later.
"""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable

from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.names import is_address

MAX_NODES = 65536

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,252}")
_SET = re.compile(r"[A-Za-z0-9_.:,!&^/\[\]-]+")
_LONG_NUMBER = re.compile(r"\d{19}")
"""ClusterShell refuses numbers of more than 100 digits; none of 19 is that of a node."""
BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_EXAMPLE = "as in gpu[001-128] or rack[1-2]node[1-3]"


def expand(word: Word) -> list[str]:
    """The names of a node set, sorted. Raises Bad."""
    if word.text.startswith("@"):
        raise Bad(word.column, "groups such as @compute are not supported", f"write {_EXAMPLE}")
    names = _expand(word)
    for name in names:
        if not _NAME.fullmatch(name):
            raise Bad(
                word.column,
                f"{name[:60]!r} is not a node name",
                "letters, digits and _ . : - only, not beginning with - or .",
            )
    return names


def addresses(word: Word, names: list[str]) -> list[str]:
    """The address of each name, in their order. Raises Bad.

    One address, with `{node}` in it when there are several names; or a node set of as many
    addresses as there are names.
    """
    text = word.text
    bare = text.removeprefix("[").removesuffix("]")
    if is_address(bare):
        text = bare
    elif "[" in text or "," in text:
        folded = Word(text.replace("{node}", "0node0"), word.column)
        found = _expand(folded)
        if len(found) != len(names):
            raise Bad(
                word.column,
                f"{len(found)} addresses for {len(names)} nodes",
                "write as many of one as of the other",
            )
        pairs = zip(found, names, strict=True)
        return [_address(item.replace("0node0", name), word) for item, name in pairs]
    if len(names) > 1 and "{node}" not in text:
        raise Bad(
            word.column,
            f"one address for {len(names)} nodes",
            "write a range such as 10.0.0.[1-4], or {node} in it",
        )
    return [_address(text.replace("{node}", name), word) for name in names]


def fold(names: Iterable[str]) -> str:
    """Names as one node set: `gpu[001-128]`, followed by the names that cannot be in a node set
    (`sw[1`, or with a number of 19 digits): nodes that others report may have any name.
    """
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    every = set(names)
    odd = {name for name in every if not _NAME.fullmatch(name) or _LONG_NUMBER.search(name)}
    plain = str(NodeSet.fromlist(sorted(every - odd), resolver=RESOLVER_NOGROUP))
    return ",".join([*filter(None, [plain]), *sorted(odd)])


def _address(text: str, word: Word) -> str:
    if _NAME.fullmatch(text) or is_address(text):
        return text
    raise Bad(
        word.column, f"{text[:60]!r} is not an address", "write a name or an IP address, no port"
    )


def _expand(word: Word) -> list[str]:
    """The names of a node set, in ClusterShell's order. Raises Bad."""
    # Imported here since it takes 40 ms, which `fabmon --help` should not pay.
    try:
        from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
    except configparser.Error as error:
        text = f"ClusterShell's settings cannot be read: {error.message.splitlines()[0]}"
        raise Bad(word.column, text, "correct its defaults.conf") from None

    text = word.text
    wrong = next((at for at, char in enumerate(text) if not _SET.fullmatch(char)), None)
    if wrong is not None:
        raise Bad(
            word.column + wrong, f"{text[wrong]!r} cannot be in a node set", f"write {_EXAMPLE}"
        )
    size = _size(text)
    if size > MAX_NODES:
        raise Bad(word.column, f"a set of more than {MAX_NODES} nodes", "write a smaller range")
    try:
        names = [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, ValueError, IndexError, KeyError, AssertionError) as error:
        raise Bad(word.column, f"not a node set: {error}", f"write {_EXAMPLE}") from None
    if not names:
        raise Bad(word.column, "a node set without nodes", f"write {_EXAMPLE}")
    return names


def _size(text: str) -> int:
    """An upper bound of the number of names of a set, computed before any is created."""
    total = 0
    for part in re.split(r"[,!&^](?![^\[]*\])", text):
        product = 1
        for inside in BRACKETS.findall(part):
            product *= max(1, sum(_range_size(item) for item in inside.split(",")))
        total += product
    return total


def _range_size(item: str) -> int:
    low, dash, high = item.partition("/")[0].partition("-")
    if not dash or not low.isdecimal() or not high.isdecimal():
        return 1
    if len(low) > 9 or len(high) > 9:
        return MAX_NODES + 1
    return max(1, int(high) - int(low) + 1)
