"""Every key, once; bindings, footer, help, command palette and docs/keys.md come from `KEYS`.

fabmon.toml can replace keys: a table is `KEYS`, or `KEYS` with those of the user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

EVERYWHERE = "everywhere"
CURSOR = "cursor"
OVERVIEW = "overview"
PORT = "port"
STRIP = "strip"
FINDING = "finding"
WATERFALL = "waterfall"
FLUCTUATION = "fluctuation"
SAVE = "save"
JUMP = "jump"
METRICS = "metrics"
ROOT_VIEWS = ("overview", "switches", "nodes", "findings", "matrix", "fluctuation")
"""The views that the keys 1 to 6 open, in that order."""
_MAPPED_SCOPES = (EVERYWHERE, CURSOR, OVERVIEW, PORT, STRIP, FINDING, WATERFALL, FLUCTUATION)
"""The keys of these can be replaced in fabmon.toml; those of menus are fixed."""
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
    "display('ramp')": "palette",
    "display('unit')": "units",
}
"""Names of actions with numbers, and of those that fabmon.toml and the screen call otherwise."""
_EXITS = ("back", "close")
_LAST = ("help", *_EXITS)
AT_ONCE = ("quit", "interrupt", "jump", "filter")
"""Actions that the app takes before any widget: those that quit also work in menus, and what is
typed right after those that open an input goes there."""


@dataclass(frozen=True, slots=True)
class Key:
    """One action: its Textual name, its keys as Textual names them, and as they are shown.

    `scope` is the view or the kind of widget that the key works in. `label` is its word in the
    footer (empty: not in the footer), `title` its name in the command palette (empty: not there).
    With `only_views` it is in the footers of these views only. `past_label` is its word in the
    footer while the screen shows a time in the past, where these keys come first; a key of one
    view then comes before all others. Without `keys` the action is in the command palette only.
    """

    action: str
    keys: str
    shown: str
    help: str
    scope: str = EVERYWHERE
    label: str = ""
    title: str = ""
    only_views: tuple[str, ...] = ()
    past_label: str = ""

    @property
    def name(self) -> str:
        """The name of the action in fabmon.toml: `overview`, `freeze`; empty in menus."""
        if self.scope not in _MAPPED_SCOPES:
            return ""
        action = re.sub(r"^app\.(time_)?", "", self.action)
        verb, _, argument = action.partition("(")
        argument = argument.strip(")'")
        named = argument if verb in ("view", "display") else f"{verb}_{argument}".strip("_")
        name = _NAMES.get(action, named)
        # The timeline moves with the keys of a cursor, beside those that work everywhere.
        return f"timeline_{name}" if self.scope == STRIP else name


KEYS = (
    Key("open", "enter", "enter", "open the selected cell or line", CURSOR, "open"),
    Key(
        "back",
        "escape",
        "esc",
        "go back: close the page, restore the panel, clear the filter, go to the view before; in"
        " the overview also clear the selected finding, then the tips. Never quits",
        label="back",
    ),
    Key("view('overview')", "1", "1", "overview: heatmap of every link", title="Overview"),
    Key(
        "view('switches')",
        "2",
        "2",
        "switches: the uplinks of each switch side by side",
        title="Switches",
    ),
    Key("view('nodes')", "3,n", "3 n", "nodes: connection state of every node", title="Nodes"),
    Key("view('findings')", "4", "4", "findings and events", title="Findings and events"),
    Key(
        "view('matrix')",
        "5",
        "5",
        "matrix: traffic between leaves and spines, up and down",
        title="Matrix of leaves and spines",
    ),
    Key(
        "view('fluctuation')",
        "6",
        "6",
        "fluctuation: variability of bandwidth by job, rail, pair of switches and link",
        title="Fluctuation of bandwidth",
    ),
    Key(
        "filter",
        "slash",
        "/",
        "filter: word  !word  util>80  state:down  role:switch  group:leaf1",
        label="filter",
        title="Filter",
    ),
    Key("match(1)", "a", "a", "to the next match of the filter", title="Next match"),
    Key("match(-1)", "A", "A", "to the previous match", title="Previous match"),
    Key("metric(1)", "m", "m", "next metric of the cells", title="Next metric"),
    Key("metric(-1)", "M", "M", "previous metric of the cells", title="Previous metric"),
    Key(
        "metrics",
        "v",
        "v",
        "list of metrics: what each means, its unit and its highest value now",
        label="metrics",
        only_views=("overview", "waterfall"),
        title="List of metrics",
    ),
    Key(
        "freeze",
        "space",
        "space",
        "freeze or resume the screen; in the past: play or pause. Recording continues",
        label="freeze",
        title="Freeze or resume",
        past_label="resume",
    ),
    Key("display('unit')", "u", "u", "units: Gb/s → GB/s → %", label="units", title="Next unit"),
    Key(
        "step(-1)",
        "left_square_bracket",
        "[",
        "one tick back",
        label="back 1",
        title="One tick back",
        past_label="back",
    ),
    Key(
        "step(1)",
        "right_square_bracket",
        "]",
        "one tick forward",
        title="One tick forward",
        past_label="forward",
    ),
    Key(
        "event(-1)",
        "left_curly_bracket",
        "{",
        "to the previous event: a finding, a lost node, a bookmark",
        label="event",
        title="Previous event",
        past_label="event",
    ),
    Key(
        "event(1)",
        "right_curly_bracket",
        "}",
        "to the next event",
        title="Next event",
        past_label="next",
    ),
    Key(
        "seek",
        "t",
        "t",
        "to a time: 14:03  2026-11-20 14:03:22  -10m  +1h  event 17",
        label="time",
        title="Go to a time",
        past_label="time",
    ),
    Key(
        "now",
        "grave_accent",
        "`",
        "to now (live), or to the end of a recording",
        title="Now",
        past_label="now",
    ),
    Key(
        "speed(-1)", "less_than_sign", "<", "play half as fast, down to half speed", title="Slower"
    ),
    Key(
        "speed(1)",
        "greater_than_sign",
        ">",
        "play twice as fast, up to 64 times",
        title="Faster",
        past_label="faster",
    ),
    Key("skip_idle", "S", "S", "playback skips ticks without traffic or events", title="Skip idle"),
    Key(
        "bookmark",
        "b",
        "b",
        "bookmark this tick, with a text",
        title="Bookmark",
        past_label="bookmark",
    ),
    Key("mark('in')", "i", "i", "mark the start of a range; again: clear", title="Mark the start"),
    Key("mark('out')", "o", "o", "mark the end of a range; again: clear", title="Mark the end"),
    Key(
        "began",
        "f",
        "f",
        "to the time the selected finding began",
        title="Start of the finding",
    ),
    Key(
        "display('digits')",
        "C",
        "C",
        "digits in the cells on or off",
        label="digits",
        only_views=("overview", "matrix", "waterfall"),
        title="Digits in the cells",
    ),
    Key("display('ramp')", "c", "c", "colours: blue, cividis, inferno, grey", title="Next colours"),
    Key("theme('auto')", "", "", "colours for the terminal's background", title="Theme: auto"),
    Key("theme('dark')", "", "", "colours for a dark background", title="Theme: dark"),
    Key("theme('light')", "", "", "colours for a light background", title="Theme: light"),
    Key("usual_panels", "", "", "panels in their usual sizes", title="Usual sizes of the panels"),
    Key("maximise", "z", "z", "maximise or restore the focused panel", title="Maximise the panel"),
    Key(
        "save",
        "x",
        "x",
        "save a picture of the screen, a CSV of the links, or part of the recording",
        title="Save",
    ),
    Key(
        "help",
        "question_mark,f1",
        "? F1",
        "help: the keys of this view, and every word on the screen",
        label="help",
        title="Help",
    ),
    Key(
        "jump",
        "colon,ctrl+p",
        ": ctrl+p",
        "go to a node, port, job, finding, metric, view or command by its name",
    ),
    Key("close", "q", "q", "go back; from the views 1 to 6: quit", label="quit"),
    Key("quit", "ctrl+q", "ctrl+q", "quit", title="Quit"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit at once, with exit status 130"),
    Key("cursor('up')", "k,up", "k ↑", "up", CURSOR),
    Key("cursor('down')", "j,down", "j ↓", "down", CURSOR),
    Key("cursor('left')", "h,left", "h ←", "left; in a list: fold", CURSOR),
    Key("cursor('right')", "l,right", "l →", "right; in a list: unfold", CURSOR),
    Key("cursor('page_up')", "pageup", "PgUp", "one page up", CURSOR),
    Key("cursor('page_down')", "pagedown", "PgDn", "one page down", CURSOR),
    Key("cursor('top')", "g,home", "g Home", "to the first", CURSOR),
    Key("cursor('bottom')", "G,end", "G End", "to the last", CURSOR),
    Key("app.focus_next", "tab", "tab", "next panel", OVERVIEW),
    Key("app.focus_previous", "shift+tab", "shift+tab", "previous panel", OVERVIEW),
    Key(
        "burst",
        "B",
        "B",
        "burst: sample this port at 50 Hz for 5 s, to see what one sample a second hides",
        PORT,
        "burst",
    ),
    Key(
        "level(1)",
        "full_stop",
        ".",
        "finer rows: pods → leaves → ports → NVLinks",
        OVERVIEW,
        "detail",
    ),
    Key("level(-1)", "comma", ",", "coarser rows: NVLinks → ports → leaves → pods", OVERVIEW),
    Key("share(5)", "left_parenthesis", "(", "more room for the findings", OVERVIEW),
    Key("share(-5)", "right_parenthesis", ")", "less room for the findings", OVERVIEW),
    Key("app.time_zoom(-1)", "plus,equals_sign", "+", "less time in the timeline", OVERVIEW),
    Key("app.time_zoom(1)", "minus", "-", "more time in the timeline, up to 30 d", OVERVIEW),
    Key("app.time_zoom(0)", "0", "0", "default time in the timeline", OVERVIEW),
    Key("app.step(-1)", "left,h", "h ←", "one tick back", STRIP),
    Key("app.step(1)", "right,l", "l →", "one tick forward", STRIP),
    Key("app.step(-10)", "shift+left,H", "H shift+←", "ten ticks back", STRIP),
    Key("app.step(10)", "shift+right,L", "L shift+→", "ten ticks forward", STRIP),
    Key("zoom(-1)", "plus,equals_sign", "+", "less time in the charts", PORT, "closer"),
    Key("zoom(1)", "minus", "-", "more time in the charts, up to 30 d", PORT, "wider"),
    Key(
        "waterfall",
        "w",
        "w",
        "waterfall: the links of this finding over time, one row per link",
        FINDING,
        "waterfall",
    ),
    Key("zoom(-1)", "plus,equals_sign", "+", "less time", WATERFALL, "closer"),
    Key("zoom(1)", "minus", "-", "more time, up to 30 d", WATERFALL, "wider"),
    Key(
        "range",
        "r",
        "r",
        "next range: marked range, whole recording, last minutes",
        FLUCTUATION,
        "range",
        only_views=("fluctuation",),
        past_label="range",
    ),
    Key("choose('picture')", "p", "p", "picture of the screen, SVG", SAVE),
    Key("choose('table')", "t", "t", "table of the links that match the filter, CSV", SAVE),
    Key("choose('cut')", "c", "c", "recording of the marked range, else of the timeline", SAVE),
    Key("choose('')", "escape,x,q", "esc", "cancel", SAVE),
    Key("move('up')", "up,ctrl+k", "↑ ctrl+k", "up", JUMP),
    Key("move('down')", "down,ctrl+j", "↓ ctrl+j", "down", JUMP),
    Key("move('page_up')", "pageup", "PgUp", "one page up", JUMP),
    Key("move('page_down')", "pagedown", "PgDn", "one page down", JUMP),
    Key("leave", "escape", "esc", "cancel", JUMP),
    Key("leave", "escape,v,q", "esc v q", "cancel", METRICS),
)
_VIEWS = Key("next_view", "", "1-6", "", label="views")
"""One entry in the footer for the six keys of the views."""
MOUSE = (
    ("click", "select a cell, a name or a line; a second click opens it"),
    ("hover", "show the value of a cell below the heatmap"),
    ("wheel", "scroll"),
    ("click a time", "in the timeline: go to that time"),
    ("click a key", "in the footer: press that key; 1-6 opens the next view"),
)
_TITLES = {
    EVERYWHERE: "Everywhere",
    CURSOR: "In the heatmap and in lists",
    OVERVIEW: "Overview",
    STRIP: "In the timeline (tab selects it)",
    PORT: "Port",
    FINDING: "Finding",
    WATERFALL: "Waterfall",
    FLUCTUATION: "Fluctuation",
    SAVE: "Saving",
    JUMP: "In the list of names",
    METRICS: "In the list of metrics",
}


def footer(view: str, is_past: bool = False, table: Sequence[Key] = KEYS) -> list[Key]:
    """The keys for the footer of a view, most useful first; the last two are help and the exit.

    The exit is back from a page, quit from a view. While the screen shows the past (`is_past`), the
    keys that move through time come first.
    """
    exit_ = "close" if view in ROOT_VIEWS else "back"
    every = [_views(table) if key.action == f"view('{OVERVIEW}')" else key for key in table]
    shown = [
        key
        for key in every
        if key.label
        and key.scope in (EVERYWHERE, CURSOR, view)
        and (not key.only_views or view in key.only_views)
        and (key.action not in _EXITS or key.action == exit_)
    ]
    if not is_past:
        return sorted(shown, key=lambda key: (_order(key), key.scope != view))
    past = [
        replace(key, label=key.past_label) for key in table if key.past_label and not key.only_views
    ]
    actions = {key.action for key in past}
    first = [key for key in shown if key.action == "open" or (key.past_label and key.only_views)]
    rest = [key for key in shown if key not in first and key.action not in actions]
    return [*first, *past, *sorted(rest, key=_order)]


def _views(table: Sequence[Key]) -> Key:
    """The entry for the keys of the views: `1-6`, or each of those that the user chose."""
    firsts = [
        key.shown.split()[0] for key in table if key.action in [f"view('{v}')" for v in ROOT_VIEWS]
    ]
    usual = [str(number) for number in range(1, len(ROOT_VIEWS) + 1)]
    return _VIEWS if firsts == usual else replace(_VIEWS, shown="/".join(firsts))


def _order(key: Key) -> int:
    return _LAST.index(key.action) if key.action in _LAST else -1


def scopes(view: str, table: Sequence[Key] = KEYS) -> list[tuple[str, list[Key]]]:
    """For help: (title, keys) of the scopes that a view has, the most specific first."""
    order = [view, *([STRIP] if view == OVERVIEW else []), CURSOR, EVERYWHERE]
    return [
        (_TITLES[scope], [key for key in table if key.scope == scope and key.keys])
        for scope in order
        if scope in _TITLES
    ]


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


def markdown() -> str:
    """The text of docs/keys.md."""
    lines = [
        "# Keys",
        "",
        "Generated from `fabmon/tui/keys.py`; a test compares them.",
        "",
        "The names are those of the table `[keys]` of fabmon.toml, which replaces keys"
        " ([settings](settings.md#keys)).",
        "",
    ]
    for scope, title in _TITLES.items():
        rows = [key for key in KEYS if key.scope == scope]
        lines += [f"## {title}", "", "| key | name | what it does |", "|---|---|---|"]
        lines += [
            f"| {' '.join(_code(part) for part in key.shown.split())} "
            f"| {_code(key.name) if key.name else ''} | {key.help} |"
            for key in rows
        ]
        lines.append("")
    lines += ["## Mouse", "", "| | |", "|---|---|"]
    lines += [f"| {what} | {text} |" for what, text in MOUSE]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"
