"""The first line: what is watched, whether it is now, and whether anything is wrong."""

from __future__ import annotations

import errno
import os
import re

import numpy as np
from rich.style import Style

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import MANAGEMENT
from fabmon.fabric.tick import NodeState
from fabmon.tui import clock
from fabmon.tui.cursor import speed_of
from fabmon.tui.line import Line, Span, fit, width_of
from fabmon.tui.palette import Palette
from fabmon.tui.stage import Stage, lit

_COUNTED = re.compile(r" (nodes|hot|down)$|(?<=● REC) .*")
_SPARED = re.compile(r"\d{4}-\d\d-\d\d |PAUSED |(?<=[▶❚] )REPLAY | of replay|reading (?=…)|[()]")
"""What a time can do without, in terminals where nothing fits."""

_Part = tuple[int, list[Span]]
_TITLE = 5
_LEAST_TITLE = 6
_HALF_A_DAY_S = 43_200


def header(stage: Stage, width: int) -> Line:
    """The header in `width` cells; when it is narrow, the least important parts go first,
    and the title is cut before it goes."""
    palette = stage.palette
    scene = stage.scene
    parts: list[_Part] = [
        (6, [("fabmon", palette.strong)]),
        (_TITLE, [(fit(stage.title, min(len(stage.title), 24)), palette.text)]),
        *([(0, [_mark(stage)])] if stage.mark else []),
        (0, state(stage)),
        *_recording(stage),
    ]
    if scene is not None:
        parts += _counts(scene, stage.cables(scene.moment.fabric), palette)
        parts.append((4, [("u ", palette.key), (str(stage.choices.unit), palette.dim)]))
        parts.append((3, [("m ", palette.key), (stage.choices.metric, palette.dim)]))
    parts.append((7, [("? ", palette.key), ("help", palette.dim)]))
    while True:
        for gap in (4, 3, 2):
            if _width(parts, gap) <= width:
                return _join(parts, gap, palette.text)
        least = max(importance for importance, _ in parts)
        if not least:
            parts = [_short(part) for part in parts]
            if _width(parts, 1) > width:
                parts = [(0, [(_SPARED.sub("", text), style) for text, style in each])
                         for _, each in parts]  # fmt: skip
            return _join(parts, 1, palette.text)
        if least == _TITLE and (shorter := _with_short_title(parts, stage.title, width)):
            return _join(shorter, 2, palette.text)
        parts = [part for part in parts if part[0] != least]


def _mark(stage: Stage) -> Span:
    return f" {stage.mark} ", stage.palette.paused


def _with_short_title(parts: list[_Part], title: str, width: int) -> list[_Part]:
    """The same with as much of the title as there is room for; empty where that says nothing."""
    now = next(width_of(spans) for importance, spans in parts if importance == _TITLE)
    room = now - (_width(parts, 2) - width)
    if room < _LEAST_TITLE:
        return []
    return [
        (importance, [(fit(title, room), spans[0][1])] if importance == _TITLE else spans)
        for importance, spans in parts
    ]


def _short(part: _Part) -> _Part:
    """A count without its word, for terminals where even the least does not fit."""
    importance, spans = part
    return importance, [(_COUNTED.sub("", text), style) for text, style in spans]


def _width(parts: list[_Part], gap: int) -> int:
    return sum(width_of(spans) for _, spans in parts) + gap * (len(parts) - 1) + 2


def _join(parts: list[_Part], gap: int, base: Style) -> Line:
    spans: list[Span] = [(" ", base)]
    for number, (_, part) in enumerate(parts):
        if number:
            spans.append((" " * gap, base))
        spans.extend(part)
    return Line(tuple(spans))


def state(stage: Stage) -> list[Span]:
    """Live, paused or over: a word, a glyph and a time."""
    palette, scene = stage.palette, stage.scene
    if scene is None:
        if stage.ended:
            return [("■ NOTHING to show", palette.strong)]
        if stage.reads:
            return [("○ READING the recording", palette.dim)]
        return [("○ WAITING for the first tick", palette.dim)]
    time = clock.hms(scene.moment.time_ns)
    if stage.shown is not None:
        return [_cursor(stage, stage.shown)]
    if stage.ended:
        return [(f"■ ENDED {time}", palette.strong)]
    live: list[Span] = [("● LIVE ", palette.key), (time, palette.strong)]
    if stage.silent_s:
        live.append((f" no tick for {clock.span(stage.silent_s)}", palette.hot))
    return live


def _cursor(stage: Stage, shown: Scene) -> Span:
    """Where in time the screen is, and whether it moves."""
    cursor, palette = stage.cursor, stage.palette
    time_ns = shown.moment.time_ns
    more = "" if cursor.is_settled else " reading …"
    pace = f"▶ {speed_of(cursor.speed)}"
    if stage.live is not None:
        is_today = stage.lag_s < _HALF_A_DAY_S
        time = clock.hms(time_ns) if is_today else clock.stamp(time_ns)
        sign = pace if cursor.playing else "❚❚ PAUSED"
        return f" {sign} {time} ({clock.lag(stage.lag_s)}){more} ", palette.paused
    time, share = clock.stamp(time_ns), _share(stage, time_ns)
    if cursor.at_end:
        waits = " waits for more" if cursor.playing else ""
        return f"■ END of replay{waits} {time}", palette.strong
    if cursor.playing:
        skips = " skips idle" if cursor.skips_idle else ""
        return f"▶ REPLAY {speed_of(cursor.speed)}{skips} {time} {share}{more}", palette.strong
    return f" ❚❚ REPLAY {time} {share}{more} ", palette.paused


def _share(stage: Stage, time_ns: int) -> str:
    recorded = stage.cursor.recorded
    if recorded is None or recorded.until_ns <= recorded.start_ns:
        return ""
    length = recorded.until_ns - recorded.start_ns
    return f"{min(max(time_ns - recorded.start_ns, 0) * 100 // length, 100)} %"


def _recording(stage: Stage) -> list[_Part]:
    """Whether all of this is kept, and how far back that goes."""
    status, palette = stage.recording(), stage.palette
    if status is None:
        return []
    if status.trouble:
        why = status.trouble.rpartition(": ")[2]
        why = "disk full" if why == os.strerror(errno.ENOSPC) else why
        return [(0, [(f"✖ REC {fit(why, min(len(why), 24))}", palette.gone)])]
    return [(0, [(f"● REC {clock.whole(status.kept_s)}", palette.dim)])]


def _counts(scene: Scene, cables: int, palette: Palette) -> list[_Part]:
    up, total = nodes_up(scene)
    hot, down = len(lit(scene)), len(down_links(scene))
    nodes = palette.text if up == total else palette.gone
    return [
        (0, [(f"{up}/{total}", nodes), (" nodes", palette.dim)]),
        (2, [(str(cables), palette.text), (" link" if cables == 1 else " links", palette.dim)]),
        (0, [(f"▲ {hot} hot", palette.hot if hot else palette.dim)]),
        (0, [(f"✖ {down} down", palette.gone if down else palette.dim)]),
    ]


def nodes_up(scene: Scene) -> tuple[int, int]:
    """Nodes that send, and nodes that are watched."""
    statuses = scene.moment.statuses
    names = [node.name for node in scene.moment.fabric.nodes] or list(statuses)
    up = sum(name in statuses and statuses[name].state is NodeState.UP for name in names)
    return up, len(names)


def down_links(scene: Scene) -> list[int]:
    """The port rows of cables that are down, one end of each."""
    down = set(np.flatnonzero(scene.moment.up == 0).tolist())
    ports = scene.moment.fabric.ports
    return [
        row
        for row in sorted(down)
        if ports[row].role != MANAGEMENT
        and not ((peer := ports[row].peer) is not None and peer in down and peer < row)
    ]
