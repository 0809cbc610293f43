"""What a key is: its action and where it works. `fabmon/tui/key_table.py` has every key."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

EVERYWHERE = "everywhere"
CURSOR = "cursor"
OVERVIEW = "overview"
NODES = "nodes"
PORT = "port"
STRIP = "strip"
FINDING = "finding"
WATERFALL = "waterfall"
FLUCTUATION = "fluctuation"
JOBS = "jobs"
SAVE = "save"
JUMP = "jump"
METRICS = "metrics"
ROOT_VIEWS = ("overview", "switches", "nodes", "findings", "matrix", "fluctuation", "jobs")
"""The views that the keys 1 to 7 open, in that order."""
_FIXED_SCOPES = (SAVE, JUMP, METRICS)
"""Menus: their keys are fixed, all others can be replaced in fabmon.toml."""
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
    "metric(1)": "metric",
    "metric(-1)": "previous_metric",
    "match(1)": "next_match",
    "match(-1)": "previous_match",
    "jump": "go_to",
    "level(1)": "finer_rows",
    "level(-1)": "coarser_rows",
    "share(5)": "more_findings",
    "share(-5)": "fewer_findings",
    "began": "finding_start",
    "focus_next": "next_panel",
    "focus_previous": "previous_panel",
    "display('ramp')": "palette",
    "display('unit')": "units",
}
"""Names of actions with numbers, and of those that fabmon.toml and the screen call otherwise."""
_CHARACTERS = {
    "solidus": "slash",
    "reverse_solidus": "backslash",
    "commercial_at": "at",
    "hyphen_minus": "minus",
    "plus_sign": "plus",
    "low_line": "underscore",
}
"""Unicode's names of characters -> Textual's names of their keys, where they differ."""
_SHOWN = {"escape": "esc", "pageup": "PgUp", "pagedown": "PgDn", "home": "Home", "end": "End",
          "up": "↑", "down": "↓", "left": "←", "right": "→"}  # fmt: skip
AT_ONCE = ("quit", "interrupt", "jump", "filter")
"""Actions that the app takes before any widget: those that quit also work in menus, and what is
typed right after those that open an input goes there."""


def character_name(character: str) -> str:
    """Textual's name of the key of a character: `question_mark`."""
    if character.isalnum():
        return character
    name = unicodedata.name(character, "").lower().replace("-", "_").replace(" ", "_")
    return _CHARACTERS.get(name, name)


_BY_NAME = {character_name(chr(code)): chr(code) for code in range(33, 127)}


@dataclass(frozen=True, slots=True)
class Key:
    """One action: its Textual name, and its keys as Textual names them.

    `scope` is the view or the kind of widget that the key works in. `label` is its word in the
    footer (empty: not in the footer), `title` its name in the command palette (empty: not there).
    With `only_views` it is in the footers of these views only. `past_label` is its word in the
    footer while the screen shows a time in the past, where these keys come first; a key of one
    view then comes before all others. Without `keys` the action is in the command palette only.
    `only_shown` is for keys that are not all shown.
    """

    action: str
    keys: str
    help: str
    scope: str = EVERYWHERE
    label: str = ""
    title: str = ""
    only_views: tuple[str, ...] = ()
    past_label: str = ""
    only_shown: str = ""

    @property
    def shown(self) -> str:
        """The keys as the footer and the help show them: `g Home`."""
        return self.only_shown or " ".join(map(shown, filter(None, self.keys.split(","))))

    @property
    def name(self) -> str:
        """The name of the action in fabmon.toml: `overview`, `freeze`; empty in menus."""
        if self.scope in _FIXED_SCOPES:
            return ""
        action = re.sub(r"^app\.(time_)?", "", self.action)
        verb, _, argument = action.partition("(")
        argument = argument.strip(")'")
        named = argument if verb in ("view", "display") else f"{verb}_{argument}".strip("_")
        name = _NAMES.get(action, named)
        # The timeline moves with the keys of a cursor, beside those that work everywhere.
        return f"timeline_{name}" if self.scope == STRIP else name


def shown(key: str) -> str:
    """A key as the footer shows it: `esc`, `ctrl+p`, `?`."""
    *modifiers, last = key.split("+")
    if last not in _SHOWN:
        last = last.upper() if re.fullmatch(r"f\d+", last) else _BY_NAME.get(last, last)
    return "+".join([*modifiers, _SHOWN.get(last, last)])


def shown_key(name: str, table: Sequence[Key]) -> str:
    """The key of the action with this name, as texts name it."""
    return next(key.shown.split()[0] for key in table if key.name == name)


def steps(direction: str, page: int, every: int) -> tuple[int, int]:
    """(rows down, columns right) of a cursor key; `page` and `every` are numbers of lines."""
    return {
        "up": (-1, 0),
        "down": (1, 0),
        "left": (0, -1),
        "right": (0, 1),
        "page_up": (-page, 0),
        "page_down": (page, 0),
        "top": (-every, 0),
        "bottom": (every, 0),
    }[direction]
