"""Keys of the user's choice: names of actions and keys in fabmon.toml, and the table with them."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from fabmon.tui import keys
from fabmon.tui.keys import Key

FIXED = frozenset({"escape", "enter", "up", "down", "left", "right", "ctrl+c", "ctrl+q"})
"""These keys keep their actions: texts name them, and nobody is to be locked out."""
_NAMES = {
    "step(-1)": "tick_back",
    "step(1)": "tick_forward",
    "step(-10)": "ten_ticks_back",
    "step(10)": "ten_ticks_forward",
    "event(-1)": "previous_event",
    "event(1)": "next_event",
    "speed(-1)": "slower",
    "speed(1)": "faster",
    "zoom(-1)": "zoom_in",
    "zoom(1)": "zoom_out",
    "zoom(0)": "zoom_default",
    "began": "finding_start",
    "display('ramp')": "palette",
    "display('unit')": "units",
    "choose('')": "cancel",
}
"""Names of actions with numbers and of those whose own name would not be understood."""
_CHARACTERS = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Unicode's names of characters -> Textual's names of their keys, where they differ."""
_SPECIAL = {
    "enter": "enter", "tab": "tab", "esc": "escape", "escape": "escape", "space": "space",
    "backspace": "backspace", "delete": "delete", "insert": "insert", "home": "home", "end": "end",
    "pgup": "pageup", "pageup": "pageup", "pgdn": "pagedown", "pagedown": "pagedown",
    "up": "up", "down": "down", "left": "left", "right": "right",
    "↑": "up", "↓": "down", "←": "left", "→": "right",
    **{f"f{number}": f"f{number}" for number in range(1, 25)},
}  # fmt: skip
_SHOWN = {"escape": "esc", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End",
          "up": "↑", "down": "↓", "left": "←", "right": "→"}  # fmt: skip
_MODIFIERS = ("ctrl", "alt", "shift")


class KeyMapError(ValueError):
    """A mapping that cannot be used; `action` is the name of its entry."""

    def __init__(self, action: str, text: str) -> None:
        """Of the entry `action`; the text is for a person."""
        super().__init__(text)
        self.action = action


def action_name(key: Key) -> str:
    """The name of an action in fabmon.toml: `overview`, `freeze`, `tick_back`."""
    action = re.sub(r"^app\.(time_)?", "", key.action)
    verb, _, argument = action.partition("(")
    argument = argument.strip(")'").replace("-", "minus_")
    named = argument if verb in ("view", "display") else f"{verb}_{argument}" if argument else verb
    name = _NAMES.get(action, named)
    # The timeline moves with the keys of a cursor, beside those that work everywhere.
    return f"timeline_{name}" if key.scope == keys.STRIP else name


def mapped(table: Sequence[Key], mapping: Mapping[str, Sequence[str]]) -> tuple[Key, ...]:
    """The table with the keys of a mapping: name of an action -> its keys, as a person writes them.

    Raises KeyMapError for names and keys that do not exist, and for keys with two meanings.
    """
    known = {action_name(key) for key in table}
    wanted: dict[str, list[str]] = {}
    for action, texts in mapping.items():
        if action not in known:
            near = difflib.get_close_matches(action, sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else "docs/keys.md lists them"
            raise KeyMapError(action, f"there is no action {action}: {hint}")
        wanted[action] = [_key_name(action, text) for text in texts]
        if not wanted[action]:
            raise KeyMapError(action, f"{action} needs at least one key")
        taken = FIXED.intersection(wanted[action])
        own = {part for key in table if action_name(key) == action for part in _parts(key)}
        if taken - own:
            raise KeyMapError(action, f"{shown(min(taken - own))} cannot be mapped: it is fixed")
    result = tuple(_with(key, wanted.get(action_name(key))) for key in table)
    _refuse_two_meanings(result, wanted)
    return result


def key_map(table: Sequence[Key]) -> dict[str, str]:
    """The keys of a table as Textual's keymap: name of the action -> keys.

    An action that exists in several scopes has the same keys in all of them.
    """
    return {action_name(key): key.keys for key in table if key.keys}


def shown(key: str) -> str:
    """A key as the footer shows it: `esc`, `ctrl+p`, `?`."""
    *modifiers, last = key.split("+")
    if last in _SHOWN:
        return "+".join([*modifiers, _SHOWN[last]])
    by_name = {_character_name(chr(code)): chr(code) for code in range(33, 127)}
    last = last.upper() if re.fullmatch(r"f\d+", last) else by_name.get(last, last)
    return "+".join([*modifiers, last])


def _parts(key: Key) -> list[str]:
    return [part for part in key.keys.split(",") if part]


def _with(key: Key, names: Iterable[str] | None) -> Key:
    if names is None:
        return key
    every = [*dict.fromkeys([*names, *(each for each in _parts(key) if each in FIXED)])]
    return replace(key, keys=",".join(every), shown=" ".join(map(shown, every)))


def _refuse_two_meanings(table: Sequence[Key], wanted: Mapping[str, Sequence[str]]) -> None:
    """Raise KeyMapError if a key that was mapped has another action in the same place."""
    for mine in table:
        action = action_name(mine)
        for other in table if action in wanted else ():
            same = set(wanted[action]).intersection(_parts(other))
            if other is mine or not same or not _meet(mine.scope, other.scope):
                continue
            name = action_name(other)
            if name == action:
                continue
            key = shown(min(same))
            raise KeyMapError(
                action,
                f"{action} = {key!r}: {key} is the key of {name} ({other.help}): "
                f"map one of the two to another key",
            )


def _meet(one: str, other: str) -> bool:
    """Whether keys of two scopes work at the same time."""
    scopes = {one, other}
    if keys.SAVE in scopes:
        return one == other
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
        name = _character_name(last)
    if not name:
        raise KeyMapError(action, _unknown(text))
    if "ctrl" in map(str.lower, modifiers):
        name = name.lower()
    return "+".join([*(each.lower() for each in modifiers), name])


def _unknown(text: str) -> str:
    return f"there is no key {text!r}: write a character, or a key such as space, f2 or ctrl+k"


def _character_name(character: str) -> str:
    if character.isalnum():
        return character
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return _CHARACTERS.get(name, name)
