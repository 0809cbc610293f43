"""The keys as bindings of Textual, and as the keymap that replaces them."""

from __future__ import annotations

from collections.abc import Sequence

from textual.binding import Binding

from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import AT_ONCE, Key


def bindings(scope: str) -> list[Binding]:
    """The keys of a scope; the name of the action is the id that the keymap refers to."""
    return [
        Binding(key.keys, key.action, key.help, id=key.name or None, priority=key.action in AT_ONCE)
        for key in KEYS
        if key.scope == scope and key.keys
    ]


def keymap(table: Sequence[Key]) -> dict[str, str]:
    """Name of the action -> its keys, for those that the user replaced."""
    return {key.name: key.keys for key, ours in zip(table, KEYS, strict=True) if key != ours}
