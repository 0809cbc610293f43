"""Every key, once: bindings, footer, help, command palette and docs/keys.md are made from this."""

from __future__ import annotations

from dataclasses import dataclass, replace

EVERYWHERE = "everywhere"
CURSOR = "cursor"
OVERVIEW = "overview"
CHART = "port"
STRIP = "strip"
FINDING = "finding"
WATERFALL = "waterfall"
FLUCTUATION = "fluctuation"
SAVE = "save"
_OUT = ("back", "close")
_LAST = ("help", *_OUT)
ROOT = ("overview", "switches", "nodes", "findings", "matrix", "fluctuation")


@dataclass(frozen=True, slots=True)
class Key:
    """One action: its Textual name, its keys as Textual calls them, and as a person reads them.

    `where` is the view that it works in; `label` is its word in the footer (none: not there);
    `title` is its name in the command palette (none: not there). The footer of
    `only` these views reminds of it (none: of all). `away` is its word, among the first, where
    something else than now is shown; of those of one view, before them all.
    """

    action: str
    keys: str
    shown: str
    help: str
    where: str = EVERYWHERE
    label: str = ""
    title: str = ""
    only: tuple[str, ...] = ()
    away: str = ""


KEYS = (
    Key(
        "open",
        "enter",
        "enter",
        "open what is selected: cell → node → port, finding",
        CURSOR,
        "open",
    ),
    Key(
        "back",
        "escape",
        "esc",
        "go back; at the top, let go of the finding, then clear the filter",
        label="back",
    ),
    Key("view('overview')", "1", "1", "overview: the heatmap of every link", title="Overview"),
    Key(
        "view('switches')",
        "2",
        "2",
        "switches: the uplinks of each, side by side",
        title="Switches",
    ),
    Key("view('nodes')", "3,n", "3 n", "nodes: who is connected, and why not", title="Nodes"),
    Key("view('findings')", "4", "4", "findings and events", title="Findings and events"),
    Key(
        "view('matrix')",
        "5",
        "5",
        "matrix: leaves by spines, every pair's links up and down",
        title="Matrix of leaves and spines",
    ),
    Key(
        "view('fluctuation')",
        "6",
        "6",
        "fluctuation: how steady it was, live or recorded, by job, rail, pair and link",
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
    Key(
        "metric",
        "m",
        "m",
        "metric of the cells: util, tx, rx, pause, XOFF, stall, ECN, CNPs, errors, drops",
        label="metric",
        only=("overview", "waterfall"),
        title="Next metric",
    ),
    Key(
        "freeze",
        "space",
        "space",
        "freeze the screen, or go on: with now, or playing from where you went to; "
        "nothing is lost meanwhile",
        label="freeze",
        title="Freeze or go on",
        away="go on",
    ),
    Key("units", "u", "u", "units: Gb/s → GB/s → %", label="units", title="Next unit"),
    Key(
        "step(-1)",
        "left_square_bracket",
        "[",
        "one tick back",
        label="back 1",
        title="Back",
        away="back",
    ),
    Key("step(1)", "right_square_bracket", "]", "one tick on", title="On", away="on"),
    Key(
        "event(-1)",
        "left_curly_bracket",
        "{",
        "to the event before: a finding, a node lost, a bookmark",
        label="event",
        title="Event before",
        away="event",
    ),
    Key(
        "event(1)", "right_curly_bracket", "}", "to the next event", title="Next event", away="next"
    ),
    Key(
        "seek",
        "t",
        "t",
        "to a time: 14:03  2026-11-20 14:03:22  -10m  +1h  event 17",
        label="time",
        title="Go to a time",
        away="time",
    ),
    Key(
        "now",
        "grave_accent",
        "`",
        "back to now; in a recording, to its end",
        title="Now",
        away="now",
    ),
    Key("speed(-1)", "less_than_sign", "<", "play half as fast, down to ½", title="Slower"),
    Key(
        "speed(1)",
        "greater_than_sign",
        ">",
        "play twice as fast, up to 64",
        title="Faster",
        away="faster",
    ),
    Key("skip_idle", "S", "S", "skip, in playing, what nothing happens in", title="Skip idle"),
    Key(
        "bookmark",
        "b",
        "b",
        "keep this tick as a bookmark, with a text",
        title="Bookmark",
        away="bookmark",
    ),
    Key(
        "mark('in')",
        "i",
        "i",
        "what is to be cut out begins here; again, it does not",
        title="Mark the start",
    ),
    Key(
        "mark('out')",
        "o",
        "o",
        "what is to be cut out ends here; again, it does not",
        title="Mark the end",
    ),
    Key("began", "f", "f", "to where the selected finding began", title="Where it began"),
    Key(
        "digits",
        "C",
        "C",
        "digits in the cells",
        label="digits",
        only=("overview", "matrix", "waterfall"),
        title="Digits in the cells",
    ),
    Key("ramp", "c", "c", "colours: blue, cividis, inferno, grey", title="Next colours"),
    Key(
        "maximise",
        "z",
        "z",
        "give the focused panel the whole screen, or give it back",
        title="Maximise the panel",
    ),
    Key(
        "save",
        "x",
        "x",
        "save: the screen as a picture, its links as CSV, what was recorded",
        title="Save",
    ),
    Key(
        "help",
        "question_mark,f1",
        "? F1",
        "help for where you are, and every word explained",
        label="help",
        title="Help",
    ),
    Key("command_palette", "colon,ctrl+p", ": ctrl+p", "find any of these by name"),
    Key("close", "q", "q", "go back from a page; quit from a view (1-6)", label="quit"),
    Key("quit", "ctrl+q", "ctrl+q", "quit", title="Quit"),
    Key("interrupt", "ctrl+c", "ctrl+c", "quit at once, with exit status 130"),
    Key("cursor('up')", "k,up", "k ↑", "up", CURSOR),
    Key("cursor('down')", "j,down", "j ↓", "down", CURSOR),
    Key("cursor('left')", "h,left", "h ←", "left", CURSOR),
    Key("cursor('right')", "l,right", "l →", "right", CURSOR),
    Key("cursor('page_up')", "pageup", "PgUp", "a page up", CURSOR),
    Key("cursor('page_down')", "pagedown", "PgDn", "a page down", CURSOR),
    Key("cursor('top')", "g,home", "g Home", "to the first", CURSOR),
    Key("cursor('bottom')", "G,end", "G End", "to the last", CURSOR),
    Key("app.focus_next", "tab", "tab", "the next panel", OVERVIEW),
    Key("app.focus_previous", "shift+tab", "shift+tab", "the panel before", OVERVIEW),
    Key(
        "burst",
        "B",
        "B",
        "burst: sample this port at 50 Hz for 5 s, to see what one sample a second hides",
        CHART,
        "burst",
    ),
    Key("app.time_zoom(-1)", "plus,equals_sign", "+", "fewer minutes in the strip", OVERVIEW),
    Key("app.time_zoom(1)", "minus", "-", "more time in the strip, up to days", OVERVIEW),
    Key("app.time_zoom(0)", "0", "0", "the usual time in the strip", OVERVIEW),
    Key("app.step(-1)", "left,h", "h ←", "one tick back", STRIP),
    Key("app.step(1)", "right,l", "l →", "one tick on", STRIP),
    Key("app.step(-10)", "shift+left,H", "H shift+←", "ten ticks back", STRIP),
    Key("app.step(10)", "shift+right,L", "L shift+→", "ten ticks on", STRIP),
    Key("zoom(-1)", "plus,equals_sign", "+", "fewer minutes in the charts", CHART, "closer"),
    Key(
        "zoom(1)",
        "minus",
        "-",
        "more time in the charts, up to days, as the strip",
        CHART,
        "wider",
    ),
    Key(
        "waterfall",
        "w",
        "w",
        "waterfall: its links over the last minutes, a row a link",
        FINDING,
        "waterfall",
    ),
    Key("zoom(-1)", "plus,equals_sign", "+", "fewer minutes across", WATERFALL, "closer"),
    Key(
        "zoom(1)",
        "minus",
        "-",
        "more time across, up to days, as the strip",
        WATERFALL,
        "wider",
    ),
    Key(
        "range",
        "r",
        "r",
        "range: what is marked, all that is recorded, the last minutes",
        FLUCTUATION,
        "range",
        only=("fluctuation",),
        away="range",
    ),
    Key("choose('picture')", "p", "p", "picture: the screen as it is, SVG", SAVE),
    Key("choose('table')", "t", "t", "table: every link the filter leaves, now, CSV", SAVE),
    Key("choose('cut')", "c", "c", "cut: the minutes of the timeline, a recording", SAVE),
    Key("choose('')", "escape,x,q", "esc", "nothing", SAVE),
)
_VIEWS = Key("next_view", "", "1-6", "", label="views")
"""What stands in the footer for the keys of the views."""
MOUSE = (
    ("click", "select a cell or a line; again, open it"),
    ("hover", "the value of the cell under the mouse, in the line below the heatmap"),
    ("wheel", "scroll"),
    ("click a time", "in the strip: go there"),
    ("click a key", "in the footer: the same as pressing it; 1-6 goes to the next view"),
)
_TITLES = {
    EVERYWHERE: "Everywhere",
    CURSOR: "In the heatmap and in lists",
    OVERVIEW: "Overview",
    STRIP: "In the strip of time (tab goes there)",
    CHART: "Port",
    FINDING: "Finding",
    WATERFALL: "Waterfall",
    FLUCTUATION: "Fluctuation",
    SAVE: "Saving",
}


def bindings(where: str) -> list[tuple[str, str, str]]:
    """The bindings of a scope as Textual takes them: keys, action, description."""
    return [(key.keys, key.action, key.help) for key in KEYS if key.where == where]


def footer(view: str, is_away: bool = False) -> list[Key]:
    """The keys to remind of in a view, the most wanted first; last are help and the way out.

    That is back from a page that lies over a view, and quitting from a view. Where it `is_away`
    from now, those that go through time come first.
    """
    out = "close" if view in ROOT else "back"
    every = [_VIEWS if key.action == f"view('{OVERVIEW}')" else key for key in KEYS]
    chosen = [key for key in every if key.label and key.where in (EVERYWHERE, CURSOR, view)]
    chosen = [key for key in chosen if not key.only or view in key.only]
    chosen = [key for key in chosen if key.action not in _OUT or key.action == out]
    if is_away:
        of_time = [replace(key, label=key.away) for key in KEYS if key.away and not key.only]
        actions = {key.action for key in of_time}
        near = [key for key in chosen if key.action == "open" or (key.away and key.only)]
        rest = [key for key in chosen if key not in near and key.action not in actions]
        return [*near, *of_time, *sorted(rest, key=_turn)]
    return sorted(chosen, key=lambda key: (_turn(key), key.where != view))


def _turn(key: Key) -> int:
    return _LAST.index(key.action) if key.action in _LAST else -1


def scopes(view: str) -> list[tuple[str, list[Key]]]:
    """For help: the keys that work in a view, under their headings, the nearest first."""
    order = [view, *([STRIP] if view == OVERVIEW else []), CURSOR, EVERYWHERE]
    return [
        (_TITLES[where], [key for key in KEYS if key.where == where])
        for where in order
        if where in _TITLES
    ]


def steps(way: str, page: int, every: int) -> tuple[int, int]:
    """(down, across) of a cursor key; a page and everything are so many lines."""
    return {
        "up": (-1, 0),
        "down": (1, 0),
        "left": (0, -1),
        "right": (0, 1),
        "page_up": (-page, 0),
        "page_down": (page, 0),
        "top": (-every, 0),
        "bottom": (every, 0),
    }[way]


def markdown() -> str:
    """docs/keys.md."""
    lines = ["# Keys", "", "Made from `fabmon/tui/keys.py`; a test compares them.", ""]
    for where, title in _TITLES.items():
        lines += [f"## {title}", "", "| key | what it does |", "|---|---|"]
        lines += [
            f"| {' '.join(_code(part) for part in key.shown.split())} | {key.help} |"
            for key in KEYS
            if key.where == where
        ]
        lines.append("")
    lines += ["## Mouse", "", "| | |", "|---|---|"]
    lines += [f"| {what} | {text} |" for what, text in MOUSE]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"
