"""The footer with the most important keys, and the help page with all keys and words."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import zip_longest

from rich.cells import cell_len
from rich.style import Style

from fabmon.tui import keys
from fabmon.tui.glossary import GLOSSARY
from fabmon.tui.key_table import KEYS, MOUSE, SCOPE_TITLES
from fabmon.tui.line import Line, Span, fit, line, width_of, wrap
from fabmon.tui.palette import Palette

_EXITS = ("back", "close")
_FIRST = ("open", "waterfall")
"""Actions that stay in the footer, before the keys that move through time."""
_LAST = ("help", *_EXITS)
_VIEWS = keys.Key("next_view", "", "", label="views", only_shown="1-7")
"""One entry in the footer for the keys of the views."""


def footer(
    view: str,
    width: int,
    palette: Palette,
    is_away: bool = False,
    refused: Collection[str] = (),
    table: Sequence[keys.Key] = KEYS,
) -> Line:
    """As many keys as `width` cells hold; help and quit are at the right and left out last.

    Clicking a key has the effect of pressing it. Actions that are `refused` are not offered.
    """
    shown = [key for key in _footer_keys(view, is_away, table) if key.action not in refused]
    between: Span = ("  ", palette.text)
    help_, quit_ = (_part(key, palette) for key in shown[-2:])
    last = [*help_, between, *quit_]
    if width_of(last) + 2 > width:
        last = quit_
    spans: list[Span] = [(" ", palette.text)]
    for key in shown[:-2]:
        part = _part(key, palette)
        if width_of(spans) + width_of(part) + width_of(last) + 3 > width:
            break
        spans += [*part, between]
    gap = width - width_of(spans) - width_of(last) - 1
    return Line((*spans, (" " * max(0, gap), palette.text), *last))


def menu_footer(offered: Sequence[tuple[str, str, str]], width: int, palette: Palette) -> Line:
    """The keys of a menu: (key as Textual names it, as it is shown, its word). Clicking one has the
    effect of pressing it."""
    spans: list[Span] = [(" ", palette.text)]
    for key, shown, label in offered:
        meta = Style.from_meta({"@click": f"app.simulate_key({key!r})"})
        spans += [(shown, palette.key + meta), (f" {label}", palette.dim + meta)]
        spans.append(("  ", palette.text))
    return Line((*spans, (" " * max(0, width - width_of(spans)), palette.text)))


def _footer_keys(view: str, is_past: bool, table: Sequence[keys.Key]) -> list[keys.Key]:
    """The keys for the footer of a view, most useful first; the last two are help and the exit.

    The exit is back from a page, quit from a view. While the screen shows the past (`is_past`), the
    keys that move through time come first.
    """
    exit_ = "close" if view in keys.ROOT_VIEWS else "back"
    every = [_views(table) if key.action == f"view('{keys.OVERVIEW}')" else key for key in table]
    shown = [
        key
        for key in every
        if key.label
        and key.scope in (keys.EVERYWHERE, keys.CURSOR, view)
        and (not key.only_views or view in key.only_views)
        and (key.action not in _EXITS or key.action == exit_)
    ]
    if not is_past:
        return sorted(shown, key=lambda key: (_order(key), _place(key, view)))
    past = [
        replace(key, label=key.past_label) for key in table if key.past_label and not key.only_views
    ]
    actions = {key.action for key in past}
    first = [key for key in shown if key.action in _FIRST or (key.past_label and key.only_views)]
    rest = [key for key in shown if key not in first and key.action not in actions]
    return [*first, *past, *sorted(rest, key=_order)]


def _views(table: Sequence[keys.Key]) -> keys.Key:
    """The entry for the keys of the views: `1-7`, or each of those that the user chose."""
    firsts = [
        key.shown.split()[0]
        for key in table
        if key.action in [f"view('{v}')" for v in keys.ROOT_VIEWS]
    ]
    usual = [str(number) for number in range(1, len(keys.ROOT_VIEWS) + 1)]
    return _VIEWS if firsts == usual else replace(_VIEWS, only_shown="/".join(firsts))


def _place(key: keys.Key, view: str) -> int:
    """Enter comes first, then what is special to the view; the level of the rows, which the heatmap
    names itself, is among the others."""
    if key.action == "open":
        return 0
    return 1 if key.scope == view and key.action != "level(1)" else 2


def _order(key: keys.Key) -> int:
    return _LAST.index(key.action) if key.action in _LAST else -1


def _part(key: keys.Key, palette: Palette) -> list[Span]:
    scope = "app" if key.scope == keys.EVERYWHERE else "screen"
    action = key.action if "." in key.action else f"{scope}.{key.action}"
    if key.scope == keys.CURSOR:
        # Nothing may have the cursor: the key has no effect then, an action would fail.
        action = f"app.simulate_key({key.keys.split(',')[0]!r})"
    meta = Style.from_meta({"@click": action if "(" in action else f"{action}()"})
    return [
        (key.shown.split()[0], palette.key + meta),
        (f" {key.label}", palette.dim + meta),
    ]


_ABOUT = {
    "overview": "Every link of the fabric. A row is a node, a column a rail; the uplinks of a leaf "
    "are in the row of the leaf, above its hosts. Where there are more nodes than rows, a row is a "
    "leaf or several: those with findings come first, a cell is the busiest of its ports, enter "
    "expands a leaf in place. ▲ marks a link with a finding. Until you move, enter explains the "
    "first finding; then it opens the port or the node under the cursor.",
    "switches": "What each switch sends and receives on each of its uplinks. Bars of one height "
    "are an even spread; one tall bar among short ones is a collision.",
    "nodes": "The connections to all nodes. Nodes with the same failure are one line: enter "
    "unfolds it.",
    "findings": "The open findings, most severe first, then the events, latest first.",
    "matrix": "The switches of one tier by those of the tier above. A cell is a pair: its left "
    "half is the traffic up, its right half the traffic down, on the busiest link between the two. "
    "down:up of a leaf is the capacity to its hosts over that of its uplinks (links that are up).",
    "pair": "The links between two switches: what each carries in each direction, its errors.",
    "fluctuation": "How much the bandwidth varied, by job, rail, pair of switches and link: over "
    "the last minutes, the marked range, or the whole recording.",
    "jobs": "The jobs of Slurm on the watched nodes: where each runs, what it sends (over the "
    "window of the header), its step time and communication share, its bus bandwidth, its busiest "
    "link and its findings. enter filters the overview to a job; esc removes the filter. R asks "
    "NCCL's RAS which of its ranks are late or dead, after a question: a query can crash a job.",
    "node": "The ports of one node: traffic, errors and congestion, and facts.",
    "port": "One port: its traffic, every counter with its meaning, and facts.",
    "finding": "One finding: a picture, advice, the evidence and the affected ports.",
    "waterfall": "The links of a finding over time: a row is a link, a column a part of the last "
    "minutes, or of hours and days of the recording, coloured by its busiest second. "
    "◉ is the start of the finding.",
}


_TWO_COLUMNS = 130
"""From this width on, help has two columns."""
_COLUMN_GAP = 3
_NOT_FOUND = "no key and no word of help contains that"
_KEY, _WHAT = 12, 14
"""Columns of a key, and of what the mouse does."""
_ENTRY, _MOST_COLUMNS = 19, 6
"""Cells of a key and its name, at least: four of them in a terminal of 80; and how many at most."""


def help_page(
    view: str,
    width: int,
    palette: Palette,
    table: Sequence[keys.Key] = KEYS,
    search: str = "",
) -> list[Line]:
    """The whole of help: all keys of a view by their names, on one page of 80 x 24; then keys and
    words in sentences, side by side where the terminal is wide.

    With `search` it is only the entries that contain all of its words.
    """
    about = [line((f" {part}", palette.text)) for part in wrap(_ABOUT[view], width - 2)]
    about = [*_sheet(view, width, palette, table), line(("", palette.text)), *about]
    column = width if width < _TWO_COLUMNS else (width - _COLUMN_GAP) // 2
    sought = search.casefold().split()
    left, right = _keys(view, column, palette, table, sought), _words(column, palette, sought)
    if sought:
        about = [] if left or right else [line((f" {_NOT_FOUND}", palette.dim))]
    if width < _TWO_COLUMNS:
        return [*about, *left, *right]
    return [*about, *_side_by_side(left, right, column, palette)]


def _sheet(view: str, width: int, palette: Palette, table: Sequence[keys.Key]) -> list[Line]:
    """The keys of a view, each by its first key and its name, in columns from top to bottom."""
    columns = max(1, min(width // _ENTRY, _MOST_COLUMNS))
    column = width // columns
    entries: list[tuple[Span, ...]] = []
    for title, own in _scopes(view, table):
        entries.append(((fit(f" {title}", column), palette.strong),))
        for key in own:
            first, name = key.shown.split()[0], re.sub("^(timeline|cursor)_", "", key.name)
            room = column - len(first) - 2
            what = name.replace("_", " ").replace("ten ", "10 ")
            # Whole words: "previous" is one, "previou…" is none.
            what = fit(what if len(what) <= room else what.rpartition(" ")[0], room)
            entries.append(((f" {first} ", palette.key), (what, palette.text)))
    rows = -(-len(entries) // columns)
    return [
        Line(tuple(span for entry in entries[row::rows] for span in entry)) for row in range(rows)
    ]


def _keys(
    view: str, width: int, palette: Palette, table: Sequence[keys.Key], sought: Sequence[str]
) -> list[Line]:
    scopes = [
        (title, _KEY, [(key.shown, key.help) for key in own]) for title, own in _scopes(view, table)
    ]
    return [
        each
        for part in (*scopes, ("Mouse", _WHAT, list(MOUSE)))
        for each in _part_of_help(*part, width, palette, sought)
    ]


def _part_of_help(
    title: str,
    column: int,
    entries: Iterable[tuple[str, str]],
    width: int,
    palette: Palette,
    sought: Sequence[str],
) -> list[Line]:
    """A title and its entries that contain all words in `sought`; empty where none does."""
    found = [
        each
        for entry in entries
        if all(word in " ".join(entry).casefold() for word in sought)
        for each in _entry(*entry, column, width, palette)
    ]
    head = [line(("", palette.text)), line((f" {title}", palette.strong))]
    return [*head, *found] if found else []


def _scopes(view: str, table: Sequence[keys.Key]) -> list[tuple[str, list[keys.Key]]]:
    """For help: (title, keys) of the scopes that a view has, the most specific first."""
    order = [view, *([keys.STRIP] if view == keys.OVERVIEW else []), keys.CURSOR, keys.EVERYWHERE]
    return [
        (SCOPE_TITLES[scope], [key for key in table if key.scope == scope and key.keys])
        for scope in order
        if scope in SCOPE_TITLES
    ]


def _words(width: int, palette: Palette, sought: Sequence[str]) -> list[Line]:
    column = min(max(map(cell_len, GLOSSARY)), width // 4)
    return _part_of_help("Words", column, GLOSSARY.items(), width, palette, sought)


def _side_by_side(left: list[Line], right: list[Line], column: int, palette: Palette) -> list[Line]:
    """Two columns, the longer one split so that both have the same height."""
    # Keys are fewer than words: the first words go below the keys.
    height = (len(left) + len(right) + 1) // 2
    split = max(0, height - len(left))
    while 0 < split < len(right) and right[split].text.startswith("    "):
        split += 1  # An entry stays in one column.
    first, second = left + right[:split], right[split:]
    empty = Line(())
    pairs = zip_longest(first, second, fillvalue=empty)
    return [
        Line(
            (
                *one.spans,
                (" " * max(0, column + _COLUMN_GAP - width_of(one.spans)), palette.text),
                *two.spans,
            )
        )
        for one, two in pairs
    ]


def _entry(word: str, text: str, column: int, width: int, palette: Palette) -> list[Line]:
    """A word, whole, and beside it its text; further lines are indented more."""
    words = (word,) if cell_len(word) <= column else _wrapped(word, column - 1)
    return [
        line(
            (f"   {fit(part if place == 0 else f' {part}' if part else '', column)} ", palette.key),
            (about, palette.text),
        )
        for place, (part, about) in enumerate(
            zip_longest(words, _wrapped(text, width - column - 5), fillvalue="")
        )
    ]


@lru_cache(1024)
def _wrapped(text: str, width: int) -> tuple[str, ...]:
    """The lines of a text. All of help takes 10 ms, and is drawn at every tick while it is open."""
    return tuple(wrap(text, width))
