"""The header line of every screen, and the titles and legends of panels."""

from __future__ import annotations

import errno
import os
import re

import numpy as np
from rich.style import Style

from fabmon.analysis.detectors.link_down import CAUSE as LINK_DOWN
from fabmon.analysis.finding import holds
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import FRONTEND, MANAGEMENT
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import date_time, duration, full_units, lag, time_of_day
from fabmon.fabric.wording import byte_count, plural, rate
from fabmon.tui.cells import (
    DOUBTFUL,
    FADED_MARK,
    FULL,
    MUTED,
    NUMBERED,
    READING,
    SELECTED,
    STALE,
    STUCK,
    UNRATED,
    Codes,
)
from fabmon.tui.keys import shown_key
from fabmon.tui.line import Line, Span, fit, width_of
from fabmon.tui.metrics import HeatMetric
from fabmon.tui.palette import Depth, Palette
from fabmon.tui.text.chart import GAP, spark
from fabmon.tui.text.draw_context import HeaderContext, TimeContext
from fabmon.tui.text.fabric_total import CURVE_COLUMNS
from fabmon.tui.time.cursor import speed_text

_SPARED = (
    re.compile(r"(?<=[a-z]) +$"),
    re.compile(r"(?<=● REC) .*"),
    re.compile(r" lost$"),
    re.compile(r" nodes$"),
    re.compile(r" down$"),
    re.compile(r" findings?$"),
    re.compile(r"\d{4}-\d\d-\d\d |PAUSED |(?<=[▶❚] )REPLAY | of replay|reading (?=…)|[()]"),
)
"""What the most important parts can do without in narrow terminals, in this order: blanks after the
length of the recording, that length, the words of counts, parts of the time."""

_RARE_MARKS = {
    UNRATED: "? no line rate",
    DOUBTFUL: "? rate in doubt",
    STUCK: "≥ saturated",
    READING: "… being read",
}
"""Marks of cells that most screens do not have -> their legend."""

_Part = tuple[int, list[Span]]
_TITLE = 5
_LEAST_TITLE = 6
_RATE_WIDTH = len("21.4 Tb/s")
_KEPT_WIDTH = len("59 min")
_HALF_A_DAY_S = 43_200


def header(ctx: HeaderContext) -> Line:
    """The header in `ctx.width` cells: title, time, recording, counts, unit, metric, window
    and help.

    When it is narrow, the least important parts are left out, and the title is cut before that.
    """
    palette, width, scene = ctx.palette, ctx.width, ctx.time.scene
    parts: list[_Part] = [
        (7, [("fabmon", palette.strong)]),
        (_TITLE, [(fit(ctx.run.title, min(len(ctx.run.title), 24)), palette.text)]),
        *([(0, [(f" {ctx.run.mark} ", palette.paused)])] if ctx.run.mark else []),
        (0, time_state(ctx.time, palette)),
        *_damage(ctx),
        *_recording(ctx),
        *([(0, [("✖ ALERTS", palette.gone)])] if ctx.run.alerts_fail() else []),
    ]
    names = ("units", "metric", "window", "help")
    units, metric, window, help_ = (f"{shown_key(each, ctx.keys)} " for each in names)
    if scene is not None:
        parts += _counts(scene, ctx.cables, palette)
        parts += _total(ctx, palette)
        parts.append((4, [(units, palette.key), (str(ctx.choices.unit), palette.dim)]))
        parts.append((3, [(metric, palette.key), (ctx.choices.metric, palette.dim)]))
        parts.append((1, [(window, palette.key), (ctx.window, palette.dim)]))
    parts.append((9, [(help_, palette.key), ("help", palette.dim)]))
    while True:
        for gap in (4, 3, 2):
            if _width(parts, gap) <= width:
                return _join(parts, gap, palette.text)
        least = max(importance for importance, _ in parts)
        if not least:
            return _with_least(parts, width, palette.text)
        if least == _TITLE and (shorter := _with_short_title(parts, ctx.run.title, width)):
            return _join(shorter, 2, palette.text)
        parts = [part for part in parts if part[0] != least]


def _with_short_title(parts: list[_Part], title: str, width: int) -> list[_Part]:
    """The parts with the title cut to the room there is; empty where too little of it is left."""
    now = next(width_of(spans) for importance, spans in parts if importance == _TITLE)
    room = now - (_width(parts, 2) - width)
    if room < _LEAST_TITLE:
        return []
    return [
        (importance, [(fit(title, room), spans[0][1])] if importance == _TITLE else spans)
        for importance, spans in parts
    ]


def _with_least(parts: list[_Part], width: int, base: Style) -> Line:
    """The most important parts, each as short as the width needs; those that do not fit even then
    are left out whole.
    """
    for spared in _SPARED:
        parts = [
            (importance, [(spared.sub("", text), style) for text, style in spans])
            for importance, spans in parts
        ]
        if _width(parts, 1) <= width:
            break
    shown: list[_Part] = []
    for part in parts:
        if _width([*shown, part], 1) <= width or not shown:
            shown.append(part)
    parts = shown
    return _join(parts, 2 if _width(parts, 2) <= width else 1, base)


def _width(parts: list[_Part], gap: int) -> int:
    return sum(width_of(spans) for _, spans in parts) + gap * (len(parts) - 1) + 2


def _join(parts: list[_Part], gap: int, base: Style) -> Line:
    spans: list[Span] = [(" ", base)]
    for number, (_, part) in enumerate(parts):
        if number:
            spans.append((" " * gap, base))
        spans.extend(part)
    return Line(tuple(spans))


def time_state(time: TimeContext, palette: Palette) -> list[Span]:
    """Live, delayed, paused, ended, or no node that sends data: a glyph, a word and a time."""
    scene = time.scene
    if scene is None:
        if time.ended:
            return [("■ NO DATA", palette.strong)]
        if time.reads:
            return [("○ READING the recording", palette.dim)]
        return [("○ WAITING for the first tick", palette.dim)]
    clock = time_of_day(scene.snapshot.time_ns)
    if time.shown is not None:
        return [_cursor(time, time.shown, palette)]
    if time.ended:
        return [(f"■ ENDED {clock}", palette.strong)]
    live: list[Span] = [("● LIVE ", palette.key), (clock, palette.strong)]
    late_s = max(time.delay_s, time.silent_s)
    if late_s:
        live[:1] = [(f"● DELAYED {full_units(late_s + 0.5)}", palette.accent), (" ", palette.text)]
    elif (nothing := _nothing_up(scene, palette)) is not None:
        live[0] = nothing
    elif time.data_age_s >= 1:
        live.append((f" data {duration(time.data_age_s)} old", palette.dim))
    if time.silent_s:
        live.append((f" no tick for {duration(time.silent_s)}", palette.accent))
    return live


def _nothing_up(scene: Scene, palette: Palette) -> Span | None:
    """The state where no node sends data: nothing on the screen is live; None where one does."""
    statuses = scene.snapshot.statuses.values()
    # Usually the first one that is looked at: not a thousand for every key.
    if any(status.state is NodeState.UP for status in statuses) or not statuses:
        return None
    waits = (NodeState.QUEUED, NodeState.CONNECTING, NodeState.STARTING)
    if any(status.state in waits for status in statuses):
        return "○ CONNECTING ", palette.strong
    return "✖ NO NODE UP ", palette.gone


def _cursor(state: TimeContext, shown: Scene, palette: Palette) -> Span:
    """The time at the cursor, and whether it plays, pauses or has reached the end."""
    cursor = state.cursor
    time_ns = shown.snapshot.time_ns
    more = "" if cursor.is_settled else " reading …"
    pace = f"▶ {speed_text(cursor.speed)}"
    if state.live is not None:
        is_today = state.lag_s < _HALF_A_DAY_S
        time = time_of_day(time_ns) if is_today else date_time(time_ns)
        sign = pace if cursor.playing else "❚❚ PAUSED"
        return f" {sign} {time} ({lag(state.lag_s)}){more} ", palette.paused
    time, share = date_time(time_ns), _share(state, time_ns)
    if cursor.at_end:
        is_complete = cursor.recorded is not None and cursor.recorded.is_complete
        waits = " waiting for more" if cursor.playing and not is_complete else ""
        return f"■ END of replay{waits} {time}", palette.strong
    if cursor.playing:
        skips = " skipping idle" if cursor.skips_idle else ""
        return f"▶ REPLAY {speed_text(cursor.speed)}{skips} {time} {share}{more}", palette.strong
    return f" ❚❚ REPLAY {time} {share}{more} ", palette.paused


def _share(state: TimeContext, time_ns: int) -> str:
    """How far a time is into the recording, as full percents."""
    recorded = state.cursor.recorded
    if recorded is None or recorded.until_ns <= recorded.start_ns:
        return ""
    length = recorded.until_ns - recorded.start_ns
    return f"{min(max(time_ns - recorded.start_ns, 0) * 100 // length, 100)} %"


def _recording(ctx: HeaderContext) -> list[_Part]:
    """Whether a recording is written and how much time it holds, or why it cannot be written."""
    status, palette = ctx.recorder, ctx.palette
    if status is None:
        return []
    if status.trouble:
        why = status.trouble.rpartition(": ")[2]
        why = "disk full" if why == os.strerror(errno.ENOSPC) else why
        return [(0, [(f"✖ REC {fit(why, min(len(why), 24))}", palette.gone)])]
    # In a fixed width: what follows must not move as the time grows.
    kept = full_units(status.kept_s).ljust(_KEPT_WIDTH)
    return [(0, [(f"● REC {kept}", palette.dim)])]


def _damage(ctx: HeaderContext) -> list[_Part]:
    """How much of a replayed recording cannot be read; nothing for an intact one."""
    if not ctx.lost_bytes:
        return []
    return [(0, [(f"✖ DAMAGED {byte_count(ctx.lost_bytes)} lost", ctx.palette.gone)])]


def _counts(scene: Scene, cables: int, palette: Palette) -> list[_Part]:
    up, total = nodes_up(scene)
    findings = sum(holds(finding, scene.snapshot) for finding in scene.findings)
    faded, down = len(scene.findings) - findings, len(down_links(scene))
    nodes = palette.text if up == total else palette.gone
    return [
        (0, [(f"{up}/{total}", nodes), (" nodes", palette.dim)]),
        (2, [(str(cables), palette.text), (" link" if cables == 1 else " links", palette.dim)]),
        *_finding_counts(findings, faded, palette),
        (0, [(f"✖ {down} down", palette.gone if down else palette.dim)]),
    ]


def _finding_counts(holding: int, faded: int, palette: Palette) -> list[_Part]:
    """How many open findings hold, and how many no longer do. Where none holds, those that faded
    are the count: narrow headers too show what the list shows."""
    if faded and not holding:
        return [(0, [(f"{FADED_MARK} {plural(faded, 'finding')}", palette.text)])]
    count = (f"▲ {plural(holding, 'finding')}", palette.accent if holding else palette.dim)
    return [(0, [count]), *([(1, [(f"{FADED_MARK} {faded}", palette.dim)])] if faded else [])]


def _total(ctx: HeaderContext, palette: Palette) -> list[_Part]:
    """What all hosts send, in a fixed width, and its curve over the last seconds."""
    if ctx.total is None:
        return []
    bps = rate(ctx.total.bps, ctx.total.line_rate_bps, ctx.choices.unit)
    top = float(np.fmax.reduce(ctx.total.curve))
    # A gap at the start, where the run has just begun, would look like a value.
    curve = spark(ctx.total.curve, CURVE_COLUMNS, top).replace(GAP, " ")
    return [
        (6, [("fabric ", palette.dim), (bps.rjust(_RATE_WIDTH), palette.text)]),
        (8, [(curve, palette.tx)]),
    ]


def nodes_up(scene: Scene) -> tuple[int, int]:
    """(nodes that send data, nodes that are watched)."""
    statuses = scene.snapshot.statuses
    names = [node.name for node in scene.snapshot.fabric.nodes] or list(statuses)
    up = sum(name in statuses and statuses[name].state is NodeState.UP for name in names)
    return up, len(names)


def down_links(scene: Scene) -> list[int]:
    """The port rows of links that are down, one end of each.

    Onboard NICs without a cable are usual: management and frontend ports count only where a finding
    says that they were up before.
    """
    ports = scene.snapshot.fabric.ports
    down = {
        row for finding in scene.findings if finding.cause == LINK_DOWN.name for row in finding.rows
    }
    for row in np.flatnonzero(scene.snapshot.up == 0).tolist():
        if ports[row].role not in (MANAGEMENT, FRONTEND):
            down.add(row)
    return [
        row
        for row in sorted(down)
        if not ((peer := ports[row].peer) is not None and peer in down and peer < row)
    ]


_BETWEEN = 4
"""Columns that each part of a title takes beside its own: strokes and blanks."""


def all_fit(parts: list[list[Span]], width: int) -> bool:
    """Whether `panel_title` shows all of some parts."""
    return sum(width_of(part) + _BETWEEN for part in parts) - 1 <= width


def panel_title(parts: list[list[Span]], width: int, palette: Palette, paused: bool) -> Line:
    """A horizontal line with the parts that fit set into it; double and coloured while paused."""
    stroke, style = ("═", palette.accent) if paused else ("─", palette.rule)
    spans: list[Span] = []
    for part in parts:
        if spans and width_of(spans) + width_of(part) + _BETWEEN > width:
            continue
        spans.append((f"{stroke} " if not spans else f"{stroke * 2} ", style))
        spans.extend(part)
        spans.append((" ", style))
    spans.append((stroke * max(0, width - width_of(spans)), style))
    return Line(tuple(spans))


def colour_legend(heat: HeatMetric, digits: bool, palette: Palette, width: int = 2) -> list[Span]:
    """The colour scale of a metric: its ends with the colours between, or what the digits mean."""
    low, high = heat.range.ends
    if digits or palette.depth is Depth.NONE:
        return [(_digits(heat, width), palette.dim)]
    steps = len(palette.levels)
    shown = range(steps) if steps <= 12 else [round(n / 11 * (steps - 1)) for n in range(12)]
    ramp = [(palette.glyphs[step], palette.levels[step]) for step in shown]
    return [(f"{low} ", palette.dim), *ramp, (f" {high}", palette.dim)]


def _digits(heat: HeatMetric, width: int) -> str:
    """What the digits in cells of this width mean."""
    if not heat.range.is_share:
        return "events /s" if width >= NUMBERED else "digits 10ⁿ/s"
    if width >= NUMBERED:
        return "%"
    return f"{'tens of %' if width < 2 else '%'}, {FULL} full"


def rare_mark_legend(palette: Palette, cells: Codes) -> list[list[Span]]:
    """What those marks in the cells mean that most screens do not have."""
    kinds = np.unique(cells & ~np.uint16(STALE | SELECTED | MUTED)).tolist()
    return [[(text, palette.dim)] for code, text in _RARE_MARKS.items() if code in kinds]


def mark_legend(palette: Palette) -> list[list[Span]]:
    """What the usual marks in the cells mean, most important part first."""
    stale = "▒" if palette.depth.rgb else "?"
    return [
        [
            ("▲", palette.accent),
            (" flagged  ", palette.dim),
            ("✖", palette.gone),
            (" down", palette.dim),
        ],
        [(f"· absent  {stale} stale", palette.dim)],
    ]
