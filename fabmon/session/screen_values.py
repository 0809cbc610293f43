"""Which values the choices of the screen can have, and the keys of the table [keys]."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.session.errors import UsageError
from fabmon.tui import keys
from fabmon.tui.choices import AUTO, SHARES
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key, character_name, shown
from fabmon.tui.metrics import METRIC_NAMES
from fabmon.tui.palette import RAMPS, Theme

FIXED = frozenset({"escape", "enter", "up", "down", "left", "right", "ctrl+c", "ctrl+q"})
"""These keys keep their actions: texts name them, and nobody is to be locked out."""
_SPECIAL = {
    "enter": "enter", "tab": "tab", "esc": "escape", "escape": "escape", "space": "space",
    "backspace": "backspace", "delete": "delete", "insert": "insert", "home": "home", "end": "end",
    "pgup": "pageup", "pageup": "pageup", "pgdn": "pagedown", "pagedown": "pagedown",
    "up": "up", "down": "down", "left": "left", "right": "right",
    "↑": "up", "↓": "down", "←": "left", "→": "right",
    **{f"f{number}": f"f{number}" for number in range(1, 25)},
}  # fmt: skip
_MODIFIERS = ("ctrl", "alt", "shift")


class KeyMapError(ValueError):
    """A mapping that cannot be used; `action` is the name of its entry."""

    def __init__(self, action: str, text: str) -> None:
        """Of the entry `action`; the text is for a person."""
        super().__init__(text)
        self.action = action


def mapped(table: Sequence[Key], mapping: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """The table with the keys of a mapping: name of an action -> its keys, as a person writes them.

    Raises KeyMapError for names and keys that do not exist, and for keys with two meanings.
    """
    known = {key.name for key in table} - {""}
    wanted: dict[str, list[str]] = {}
    for action, texts in mapping.items():
        if action not in known:
            near = difflib.get_close_matches(action, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "help (?) lists them"
            raise KeyMapError(action, f"there is no action {action}: {hint}")
        wanted[action] = [_key_name(action, text) for text in texts]
        if not wanted[action]:
            raise KeyMapError(action, f"{action} needs at least one key")
        taken = FIXED.intersection(wanted[action])
        own = {part for key in table if key.name == action for part in _parts(key)}
        if taken - own:
            raise KeyMapError(action, f"{shown(min(taken - own))} cannot be mapped: it is fixed")
    result = tuple(_with(key, wanted.get(key.name)) for key in table)
    _refuse_two_meanings(result, wanted)
    return result


def _parts(key: Key) -> list[str]:
    return [part for part in key.keys.split(",") if part]


def _with(key: Key, names: Iterable[str] | None) -> Key:
    if names is None:
        return key
    every = [*dict.fromkeys([*names, *(each for each in _parts(key) if each in FIXED)])]
    return replace(key, keys=",".join(every), only_shown="")


def _refuse_two_meanings(table: Sequence[Key], wanted: Mapping[str, Sequence[str]]) -> None:
    """Raise KeyMapError if a key that was mapped has another action in the same place."""
    for mine in (key for key in table if key.name in wanted):
        for other in (key for key in table if key.name not in ("", mine.name)):
            same = set(wanted[mine.name]).intersection(_parts(other))
            if not same or not _meet(mine.scope, other.scope):
                continue
            key = shown(min(same))
            raise KeyMapError(
                mine.name,
                f"{mine.name} = {key!r}: {key} is the key of {other.name} ({other.help}): "
                "map one of the two to another key",
            )


def _meet(one: str, other: str) -> bool:
    """Whether keys of two scopes work at the same time."""
    scopes = {one, other}
    if len(scopes) == 1:
        return True
    if scopes == {keys.STRIP, keys.CURSOR}:
        return False
    return bool(scopes & {keys.EVERYWHERE, keys.CURSOR}) or scopes == {keys.STRIP, keys.OVERVIEW}


def _key_name(action: str, text: str) -> str:
    """Textual's name of a key: `question_mark` for `?`. Raises KeyMapError."""
    *modifiers, last = re.split(r"\+(?=.)", text.strip())
    if not last or any(each.lower() not in _MODIFIERS for each in modifiers):
        raise KeyMapError(action, _unknown(text))
    name = last if len(last) == 1 and last.isalnum() else _SPECIAL.get(last.lower(), "")
    if not name and len(last) == 1 and last.isprintable():
        name = character_name(last)
    if not name:
        raise KeyMapError(action, _unknown(text))
    if "ctrl" in map(str.lower, modifiers):
        name = name.lower()
    return "+".join([*(each.lower() for each in modifiers), name])


def _unknown(text: str) -> str:
    return f"there is no key {text!r}: write a character, or a key such as space, f2 or ctrl+k"


VALUES: Mapping[str, Sequence[object]] = {
    "theme": (AUTO, *(theme.value for theme in Theme)),
    "palette": [ramp.name for ramp in RAMPS],
    "metric": METRIC_NAMES,
    "units": [unit.value for unit in Unit],
    "digits": (False, True),
    "window": [window.value for window in TimeWindow],
    "findings_share": (0, *SHARES),
}
"""Name in the table [screen] -> its values."""
Place = Callable[[Sequence[str]], str]
"""Returns where a key of the configuration is: `fabmon.toml:12`."""


def is_known(name: str, value: object) -> bool:
    """Whether a choice that was kept is one that this version has."""
    return any(value == each and type(value) is type(each) for each in VALUES.get(name, ()))


def key_table(keys: Mapping[str, str | Sequence[str]]) -> tuple[Key, ...]:
    """All keys, with those of the table [keys]. Raises KeyMapError."""
    if not keys:
        return KEYS
    lists = {name: [key] if isinstance(key, str) else key for name, key in keys.items()}
    return mapped(KEYS, lists)


def check_names(choices: Mapping[str, object], place: Place) -> None:
    """Raise UsageError with the line of a value that the screen does not have."""
    for name in ("palette", "metric"):
        value, names = choices.get(name), [str(each) for each in VALUES[name]]
        if value is not None and value not in names:
            near = difflib.get_close_matches(str(value), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(names)}"
            where = place(["screen", name])
            raise UsageError(f"{where}: [screen] there is no {name} {value!r}: {hint}")

    share = choices.get("findings_share")
    if share is not None and share not in VALUES["findings_share"]:
        where = place(["screen", "findings_share"])
        raise UsageError(
            f"{where}: [screen] findings_share = {share}: write 0, or 20 to 70 percent"
        )


def check_keys(keys: Mapping[str, str | Sequence[str]], place: Place) -> None:
    """Raise UsageError with the line of a mapping that cannot be used."""
    try:
        key_table(keys)
    except KeyMapError as error:
        raise UsageError(f"{place(['keys', error.action])}: [keys] {error}") from None
