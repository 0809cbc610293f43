"""One text for many nodes that fail for one reason: what differs between reasons is folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from fabmon.fabric.hosts.nodesets import BRACKETS, fold

_MAX_CHARS = 60
"""A longer list of what differs says less than its absence."""

_MANY_HOSTS = "ssh-keyscan"
"""A command of an advice that takes many hosts; what follows it is written for a shell."""

_ONE_HOST = ("ssh", "ssh-keygen", "ssh-copy-id")
_OMITTED = "…"
_NUMBER = re.compile(r"\d+(\.\d+)?")


def common_reason(reasons: Iterable[str], cause: str) -> str:
    """The reasons of nodes that fail for one cause, as one text.

    Reasons that differ in some words, as by an address, are one with node sets in these places
    (`10.0.0.[1-40]`), numbers as a range, and `…` for what has nothing in common. A command in it
    works for all of the nodes. Else it is the cause with the first reason as an example.
    """
    return _common(tuple(dict.fromkeys(reasons)), cause)


@lru_cache(maxsize=64)  # Screens ask for the same ones at each draw.
def _common(texts: tuple[str, ...], cause: str) -> str:
    if len(texts) == 1:
        return texts[0]
    example = f"{cause}, for example: {texts[0]}"
    rows = [text.split(" ") for text in texts]
    if len({len(row) for row in rows}) > 1:
        return example
    words: list[str] = []
    for column in zip(*rows, strict=True):
        word = _one_word(column, words)
        if word is None:
            return example
        words.append(word)
    return " ".join(words)


def _one_word(column: Sequence[str], before: Sequence[str]) -> str | None:
    """What stands for the words at one place; None within a command that takes one host."""
    if len(set(column)) == 1:
        return column[0]
    command = next((word for word in reversed(before) if word in (_MANY_HOSTS, *_ONE_HOST)), "")
    if command in _ONE_HOST:
        return None
    if all(_NUMBER.fullmatch(word) for word in column):
        if command:
            return None
        return f"{min(column, key=float)} to {max(column, key=float)}"
    # `gpu001:` and `gpu002:` are names and a colon.
    end = ":" if all(word.endswith(":") for word in column) else ""
    folded = fold([word.removesuffix(end) for word in column])
    if command == _MANY_HOSTS:
        return _for_shell(folded)
    return folded + end if len(folded) <= _MAX_CHARS else _OMITTED


def _for_shell(nodes: str) -> str:
    """A node set as words that bash and zsh expand: `gpu{01..40} login`."""
    parts = re.split(r",(?![^\[]*\])", nodes)
    return " ".join(BRACKETS.sub(_braces, part) for part in parts)


def _braces(found: re.Match[str]) -> str:
    ranges = [
        f"{{{low}..{high}}}" if dash else low
        for low, dash, high in (each.partition("-") for each in found[1].split(","))
    ]
    return ranges[0] if len(ranges) == 1 else f"{{{','.join(ranges)}}}"
