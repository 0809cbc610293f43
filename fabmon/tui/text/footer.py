"""The last line: the keys that matter where you are. Clicking one is pressing it."""

from __future__ import annotations

from rich.style import Style

from fabmon.tui import keys
from fabmon.tui.line import Line, Span, width_of
from fabmon.tui.palette import Palette


def footer(view: str, width: int, palette: Palette, is_away: bool = False) -> Line:
    """As many keys as `width` holds, help and the way out at the right as the last to go."""
    chosen = keys.footer(view, is_away)
    between: Span = ("  ", palette.text)
    help_, out = (_part(key, palette) for key in chosen[-2:])
    last = [*help_, between, *out]
    if width_of(last) + 2 > width:
        last = out
    spans: list[Span] = [(" ", palette.text)]
    for key in chosen[:-2]:
        part = _part(key, palette)
        if width_of(spans) + width_of(part) + width_of(last) + 3 > width:
            break
        spans += [*part, between]
    gap = width - width_of(spans) - width_of(last) - 1
    return Line((*spans, (" " * max(0, gap), palette.text), *last))


def _part(key: keys.Key, palette: Palette) -> list[Span]:
    scope = {keys.CURSOR: "focused", keys.EVERYWHERE: "app"}.get(key.where, "screen")
    action = key.action if "." in key.action else f"{scope}.{key.action}"
    meta = Style.from_meta({"@click": action if "(" in action else f"{action}()"})
    return [
        (key.shown.split()[0], palette.key + meta),
        (f" {key.label}", palette.dim + meta),
    ]
