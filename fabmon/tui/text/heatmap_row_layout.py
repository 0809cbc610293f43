"""Where the texts beside the cells of the heatmap are placed: the columns of each part of a row."""

from __future__ import annotations

from typing import NamedTuple

from rich.cells import cell_len
from rich.style import Style

from fabmon.fabric.wording import compact
from fabmon.tui.heatmap_layout import MARK, GridPart, Kind
from fabmon.tui.heatmap_summary import MAX_UPLINK
from fabmon.tui.line import fit, right
from fabmon.tui.palette import Palette

_VALUE = 6
"""Columns of a value: `98.2 %`."""
_LEAST_JOB = 4
"""Columns for the job of a host, where its curve is otherwise."""
_LEAST_FINDING = 12
"""Columns for a finding in words, at least."""
_PORT = 5
"""Columns of the name of an uplink."""


class PartTexts(NamedTuple):
    """The texts of a part; `status` replaces the cells, `port` and `finding` follow the value.

    Where a finding has no room, its mark and what it is `about` take the place of the busiest port
    and its value; empty where that port is what it is about.
    """

    mark: str = ""
    age: str = ""
    status: str = ""
    gone: bool = False
    value: str = ""
    port: str = ""
    finding: str = ""
    about: str = ""
    curve: str = ""
    muted: bool = False
    job: str = ""
    job_style: int = 0
    is_filtered: bool = False


PlacedTexts = list[tuple[int, str, Style]]
"""Columns from the left, texts and their styles."""


def placed_texts(part: GridPart, texts: PartTexts, name: int, palette: Palette) -> PlacedTexts:
    """The texts of a part."""
    x = part.x
    if part.kind is Kind.TEXT:
        return [(x, part.title, palette.dim)]
    made: PlacedTexts
    if part.kind is Kind.CAPTION:
        # With a filter the busiest port is that of all ports that match.
        most = "max match" if texts.is_filtered else MAX_UPLINK
        made = [
            (at, most if label == MAX_UPLINK else label, palette.dim) for at, label in part.labels
        ]
        if part.title:
            first = min((at for at, _, _ in made), default=x + MARK + name + 1)
            room = max(1, min(first - x - 2, cell_len(part.title)))
            made.insert(0, (x + 1, fit(part.title, room), palette.strong))
        return made
    sign = texts.mark[-1]
    accent = {"✖": palette.gone, "▲": palette.accent}.get(sign, palette.text)
    style = palette.text if part.kind is Kind.NODE else palette.strong
    job_style = palette.jobs[texts.job_style % len(palette.jobs)]
    if texts.job:
        style = job_style
    if texts.muted:
        accent = style = palette.rule
    made = [
        (x + 2 - len(texts.mark), texts.mark, accent),
        (x + MARK, fit(part.title, name), palette.gone if texts.gone else style),
    ]
    if texts.status:
        room = max(12, part.curve[0] + part.curve[1] - x - MARK - name - 1)
        if part.blocks and not part.curve[1]:
            last = part.blocks[-1]
            room = max(12, last.x + last.count * last.pitch - x - MARK - name - 1)
        made.append((x + MARK + name + 1, fit(texts.status, room), palette.dim))
        return made
    made += _note(part, texts, palette)
    if part.kind is Kind.UNIT and texts.finding:
        return made
    if texts.age and part.curve[1]:
        stale = f"stale {texts.age}"
        made.append((part.curve[0], fit(stale, min(part.curve[1], len(stale))), palette.dim))
    elif texts.age and part.kind is Kind.NODE and part.note[1]:
        made.append((part.note[0], right(texts.age, part.note[1]), palette.dim))
    elif texts.job and part.curve[1] > _LEAST_JOB:
        tone = palette.rule if texts.muted else job_style
        made.append((part.curve[0], as_many_as_fit(texts.job, part.curve[1]), tone))
    elif texts.curve:
        tone = palette.rule if texts.muted else palette.tx
        # The latest ticks of a curve that a long note leaves less room.
        before, text, _ = made[-1]
        over = max(0, before + cell_len(text) + 1 - part.curve[0])
        if over < len(texts.curve):
            made.append((part.curve[0] + over, texts.curve[over:], tone))
    return made


def _note(part: GridPart, texts: PartTexts, palette: Palette) -> PlacedTexts:
    """The busiest port and the findings, as far as there is room."""
    x, room = part.note
    end = max(x + room, sum(part.curve) if room and not texts.curve else 0)
    made: PlacedTexts = []
    if not texts.value or room < _VALUE:
        return made
    is_short = bool(texts.finding) and end - x - _VALUE - _PORT - 2 < _LEAST_FINDING
    if is_short and texts.about:
        return [(x, fit(texts.about, min(cell_len(texts.about), end - x)), palette.accent)]
    value = texts.value if cell_len(texts.value) <= _VALUE else compact(texts.value)
    made.append((x, right(value, _VALUE), palette.text))
    x += _VALUE + 1
    # A part of a port's name is another name: its node alone is right.
    port = texts.port if cell_len(texts.port) <= end - x else texts.port.partition(" ")[0]
    port_style = palette.accent if is_short else palette.dim
    for text, style in ((port, port_style), ("" if is_short else texts.finding, palette.accent)):
        if text and end - x >= 3:
            shown = fit(text, min(cell_len(text), end - x))
            made.append((x, shown, style))
            x += max(cell_len(shown), _PORT) + 1
    return made


def as_many_as_fit(text: str, room: int) -> str:
    """A list of jobs in some columns: `8801 24/48 +2` where two more have no room."""
    parts = text.split(", ")
    for left_out in range(len(parts)):
        shown = ", ".join(parts[: len(parts) - left_out])
        shown += f" +{left_out}" if left_out else ""
        if cell_len(shown) <= room:
            return shown
    return fit(text, min(room, cell_len(text)))
