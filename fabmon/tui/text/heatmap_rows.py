"""The texts beside the cells of the heatmap: names, marks, ages, the busiest port, findings."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from fabmon.analysis.causes import brief_loss, finding_title
from fabmon.analysis.finding import Finding
from fabmon.fabric import time_wording
from fabmon.fabric.jobs.job import Job
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import SWITCH
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.tui.cells import (
    ABSENT,
    DOWN,
    FADED,
    FADED_MARK,
    FLAGGED,
    LEVEL,
    MUTED,
    NOTHING,
    SELECTED,
    STALE,
    CellRow,
    Codes,
)
from fabmon.tui.heatmap_layout import MARK, GridPart, HeatmapGrid, Kind
from fabmon.tui.palette import Palette
from fabmon.tui.text import chart, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import matching
from fabmon.tui.text.heatmap_row_layout import PartTexts, placed_texts

_GONE = (NodeState.LOST, NodeState.FAILED)
_IS_DOWN, _IS_FLAGGED, _IS_SELECTED, _IS_MUTED, _IS_MATCHED = 1, 2, 4, 8, 16
_IS_FADED = 32
_MOST_SAMPLES = 400_000
"""Samples that the curves of one screen are made from, at most: they are read at every tick."""


def spread(grid: HeatmapGrid, codes: Codes) -> Codes:
    """[rows, columns]: the codes of ports at the places of their cells; a cell of several ports has
    the highest level of any, with the marks of all."""
    every = [codes, combined(codes[grid.members], grid.starts), np.array([NOTHING], np.uint16)]
    found: Codes = np.concatenate(every).astype(np.uint16)[grid.cells]
    return found


def combined(codes: Codes, starts: NDArray[np.intp]) -> Codes:
    """[aggregates]: the code of each run of codes. One port that is down is drawn as down; stale is
    what is stale as a whole, absent what is absent as a whole."""
    if not len(starts):
        return np.empty(0, np.uint16)
    bare = codes & ~np.uint16(SELECTED | STALE | MUTED | FADED)
    is_level = bare < ABSENT
    level = np.maximum.reduceat(np.where(is_level, bare & LEVEL, 0), starts)
    flags = np.bitwise_or.reduceat(np.where(is_level, codes & FLAGGED, 0), starts)
    flags |= np.bitwise_or.reduceat(codes & (SELECTED | FADED), starts)
    flags &= ~np.where(flags & FLAGGED, FADED, 0).astype(np.uint16)
    flags |= np.bitwise_and.reduceat(codes & (STALE | MUTED), starts)
    special = np.maximum.reduceat(np.where(is_level, 0, bare), starts)
    has_level = np.logical_or.reduceat(is_level, starts)
    has_down = np.logical_or.reduceat(bare == DOWN, starts)
    marks = flags & np.uint16(SELECTED | STALE | MUTED)
    shown: Codes = np.where(has_level, level | flags, special | marks).astype(np.uint16)
    shown[has_down] = DOWN | (flags[has_down] & np.uint16(SELECTED | MUTED))
    return shown


_Noted = tuple[list[int], NDArray[np.intp], NDArray[np.intp]]


class HeatmapRows:
    """The rows of a grid; a row whose texts have not changed is the same object as before."""

    def __init__(self, grid: HeatmapGrid, palette: Palette) -> None:
        self._grid = grid
        self._palette = palette
        self._made: dict[int, tuple[list[PartTexts], CellRow]] = {}
        self._last: tuple[CellRow, ...] = ()
        self._drawn_curves: tuple[Snapshot, dict[int, str]] | None = None

    def are_of(self, grid: HeatmapGrid, palette: Palette) -> bool:
        """Whether they were made for this grid and these colours."""
        return self._grid is grid and self._palette == palette

    def of(self, cells: Codes, ctx: DrawContext) -> tuple[CellRow, ...]:
        """The rows of a scene; `cells` are its codes, [rows, columns]."""
        texts = self._texts(cells, ctx)
        made: list[CellRow] = []
        number = 0
        for y, parts in enumerate(self._grid.rows):
            own = texts[number : number + len(parts)]
            number += len(parts)
            before = self._made.get(y)
            if before is None or before[0] != own:
                before = self._made[y] = (own, self._row(y, parts, own))
            made.append(before[1])
        rows = tuple(made)
        if len(rows) != len(self._last) or any(
            a is not b for a, b in zip(rows, self._last, strict=True)
        ):
            self._last = rows
        return self._last

    def _row(self, y: int, parts: tuple[GridPart, ...], texts: list[PartTexts]) -> CellRow:
        """A row of parts side by side."""
        name, palette = self._grid.name, self._palette
        placed = [
            text
            for part, each in zip(parts, texts, strict=True)
            for text in placed_texts(part, each, name, palette)
        ]
        blocks = [
            block
            for part, each in zip(parts, texts, strict=True)
            if not each.status
            for block in part.blocks
        ]
        names = tuple(each for part in parts for each in self._names(part))
        return CellRow(tuple(placed), tuple(blocks), self._grid.headings[y], names)

    def _names(self, part: GridPart) -> list[tuple[int, int, str]]:
        """(x, width, node) of the name of a part that is a node, or a switch."""
        x, width = (part.x + 1, cell_len(part.title)) if part.kind is Kind.CAPTION else (
            part.x + MARK, min(cell_len(part.title), self._grid.name))  # fmt: skip
        is_node = part.kind in (Kind.NODE, Kind.UPLINKS) and part.nodes
        node = part.nodes[0].name if is_node else part.title
        return [(x, width, node)] if width and node in self._node_names else []

    @cached_property
    def _node_names(self) -> frozenset[str]:
        return frozenset(node.name for part in self._parts for node in part.nodes)

    def _texts(self, cells: Codes, ctx: DrawContext) -> list[PartTexts]:
        """The texts of all parts."""
        bits, ages_s = self._marks(cells), self._ages_s(ctx)
        peaks = self._peaks(ctx)
        if self._drawn_curves is None or self._drawn_curves[0] is not ctx.snapshot:
            self._drawn_curves = ctx.snapshot, self._curves(ctx)
        curves = self._drawn_curves[1]
        found = self._found(ctx, peaks)
        made = []
        mark = self._palette.selection_mark
        jobs = ctx.snapshot.jobs.on_node if ctx.choices.job_colours else {}
        statuses = ctx.snapshot.statuses
        for number, part in enumerate(self._parts):
            if part.kind in (Kind.TEXT, Kind.CAPTION):
                made.append(_EMPTY if ctx.matched is None else _FILTERED)
                continue
            node = part.nodes[0] if part.kind is Kind.NODE else None
            status = statuses.get(node.name) if node is not None else None
            gone = status is not None and status.state in _GONE
            why = ""
            if node is not None and status is not None and not node.ports:
                why = f"{status.state}: {status.reason}" if status.reason else str(status.state)
            bit, age_s = bits[number], ages_s[number]
            sign = "▲" if bit & _IS_FLAGGED else FADED_MARK if bit & _IS_FADED else " "
            sign = "✖" if gone or bit & _IS_DOWN else sign
            value, port = peaks.get(number, ("", ""))
            made.append(
                PartTexts(
                    mark + sign if bit & _IS_SELECTED else sign,
                    time_wording.age(age_s) if age_s else "",
                    why,
                    gone,
                    value,
                    port,
                    *found.get(number, ("", "")),
                    curves.get(number, ""),
                    bit & (_IS_MUTED | _IS_MATCHED) == _IS_MUTED,
                    *(_job_of(part, jobs) if jobs else ("", 0)),
                )
            )
        return made

    @cached_property
    def _parts(self) -> list[GridPart]:
        return [part for parts in self._grid.rows for part in parts]

    def _marks(self, cells: Codes) -> list[int]:
        """For every part, whether one of its cells is down, flagged, faded, selected, muted, not
        muted."""
        bare = cells & ~np.uint16(SELECTED | STALE | MUTED | FADED)
        bits = np.zeros(cells.size + 1, np.uint8)
        bits[:-1] = np.where(
            bare == DOWN, _IS_DOWN, np.where((bare < ABSENT) & (bare & FLAGGED > 0), _IS_FLAGGED, 0)
        ).ravel()
        bits[:-1][(cells & FADED).ravel() > 0] |= _IS_FADED
        bits[:-1][(cells & SELECTED).ravel() > 0] |= _IS_SELECTED
        muted, there = (cells & MUTED).ravel() > 0, (cells != NOTHING).ravel()
        bits[:-1][muted] = 0
        bits[:-1][muted] |= _IS_MUTED
        bits[:-1][there & ~muted] |= _IS_MATCHED
        spans = self._grid.spans
        if not len(spans):
            return []
        any_of = np.bitwise_or.reduceat(bits, spans)[::2]
        any_of[spans[::2] == spans[1::2]] = 0
        made: list[int] = any_of.tolist()
        return made

    def _ages_s(self, ctx: DrawContext) -> list[float]:
        """For every part, the age of its oldest late cell; 0 for none."""
        grid, snapshot = self._grid, ctx.snapshot
        ages = np.nan_to_num(snapshot.age_s, nan=0, posinf=0)
        ages[~snapshot.stale] = 0
        if not ages.any():
            return [0.0] * len(self._parts)
        merged = np.empty(0, ages.dtype)
        if len(grid.starts):
            merged = np.maximum.reduceat(ages[grid.members], grid.starts)
        spread_out = np.append(np.concatenate((ages, merged, [0]))[grid.cells].ravel(), 0)
        oldest = np.maximum.reduceat(spread_out, grid.spans)[::2]
        oldest[grid.spans[::2] == grid.spans[1::2]] = 0
        made: list[float] = oldest.tolist()
        return made

    @cached_property
    def _noted(self) -> _Noted:
        return self._with_note(every=False)

    @cached_property
    def _noted_in_full(self) -> _Noted:
        return self._with_note(every=True)

    def _with_note(self, every: bool) -> _Noted:
        """(parts with a note, the ports of its last strip or `every` port of the part, the start of
        each part's)."""
        found = self._grid.ports_of("note", every)
        numbers = [
            number
            for number, ports in enumerate(found)
            if ports and self._parts[number].kind is not Kind.NODE
        ]
        sizes = [len(found[number]) for number in numbers]
        ports = np.array([row for number in numbers for row in found[number]], np.intp)
        return numbers, ports, np.cumsum([0, *sizes[:-1]]) if sizes else np.empty(0, np.intp)

    def _peaks(self, ctx: DrawContext) -> dict[int, tuple[str, str]]:
        """Part -> the highest value of its last strip, or with a filter of all ports that match, of
        the time that the cells show, and the port that has it."""
        numbers, ports, starts = self._noted if ctx.matched is None else self._noted_in_full
        if not numbers:
            return {}
        values = np.where(ctx.snapshot.stale, np.nan, ctx.metric.values(ctx.snapshot))
        if ctx.matched is not None:
            values[~ctx.matched.ports] = np.nan
        own = np.nan_to_num(values[ports], nan=-1)
        highest = np.maximum.reduceat(own, starts)
        part_of = np.repeat(np.arange(len(starts)), np.diff([*starts, len(ports)]))
        hits = np.flatnonzero(own == highest[part_of])
        _, first = np.unique(part_of[hits], return_index=True)
        made = {}
        for number, value, row in zip(
            numbers, highest.tolist(), ports[hits[first]].tolist(), strict=True
        ):
            if value >= 0:
                text = ctx.metric.range.text(value)
                made[number] = text, self._port_name(ctx, self._parts[number], row, value)
        return made

    def _port_name(self, ctx: DrawContext, part: GridPart, row: int, value: float) -> str:
        """The name of a port beside the name of its row; empty where nothing is busy."""
        if not value:
            return ""
        port = ctx.fabric.ports[row]
        if part.kind is Kind.UPLINKS or (part.kind is Kind.GPU):
            return port.label
        return port.label if _switches(part) == [port.node] else port.display_name

    def _found(
        self, ctx: DrawContext, peaks: dict[int, tuple[str, str]]
    ) -> dict[int, tuple[str, str]]:
        """Part -> its findings in a few words, beside the port with the highest value; and the mark
        and subject of the first one, empty where that port is the subject."""
        by_node: dict[str, list[Finding]] = {}
        for finding in matching(ctx.scene.findings, ctx.matched):
            row = finding.rows[0] if finding.rows else -1
            name = finding.subject_node.partition(" ")[0]
            if 0 <= row < len(ctx.fabric.ports):
                name = ctx.fabric.ports[row].node
            by_node.setdefault(name, []).append(finding)
        made = {}
        for number, part in enumerate(self._parts) if by_node else ():
            if part.kind is not Kind.UNIT:
                continue
            own = [finding for node in part.nodes for finding in by_node.get(node.name, ())]
            if own:
                beside, about = peaks.get(number, ("", ""))[1], _subject(own[0], ctx, part)
                sign = labels.finding_sign(own[0], ctx.snapshot, ctx.palette)[0]
                about = "" if about == beside else f"{sign} {about}"
                made[number] = _brief(own, ctx, part, beside), about
        return made

    @cached_property
    def _curved(self) -> list[tuple[int, tuple[int, ...]]]:
        every = enumerate(self._grid.ports_of("curve"))
        return [(number, ports) for number, ports in every if ports]

    def _curves(self, ctx: DrawContext) -> dict[int, str]:
        """Part -> the traffic of its last strip over the last ticks, a column a tick."""
        parts = self._curved
        if not parts:
            return {}
        ticks = max(self._parts[number].curve[1] for number, _ in parts)
        ports = [row for _, rows in parts for row in rows]
        if len(ports) * ticks > _MOST_SAMPLES:
            return {}
        snapshot = ctx.snapshot
        busier = np.fmax(
            snapshot.window("tx_bps", ports, ticks), snapshot.window("rx_bps", ports, ticks)
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            share = busier / snapshot.line_rate_bps[ports][:, None]
        made = {}
        at = 0
        for number, rows in parts:
            width = self._parts[number].curve[1]
            mean = known_mean(share[at : at + len(rows), -width:], axis=0)
            made[number] = chart.spark(mean, width, 1.0)
            at += len(rows)
        return made


_EMPTY, _FILTERED = PartTexts(), PartTexts(is_filtered=True)


def _job_of(part: GridPart, on_node: Mapping[str, Sequence[Job]]) -> tuple[str, int]:
    """The jobs of a part, and the style of that with most hosts, the same for as long as it runs.

    Of a host, and where one job has all hosts of a leaf or pod: number, name and user. Else the
    number of each job with its share of the hosts. Empty without a job.
    """
    if part.kind not in (Kind.NODE, Kind.UNIT, Kind.POD):
        return "", 0
    hosts = [node.name for node in part.nodes if node.role != SWITCH]
    jobs = {job.number: job for host in hosts for job in on_node.get(host, ())}
    if not jobs:
        return "", 0
    counts = Counter(job.number for host in hosts for job in on_node.get(host, ()))
    ordered = [number for number, _ in counts.most_common()]
    first = jobs[ordered[0]]
    if counts.total() == len(hosts) == counts[ordered[0]]:
        text = first.label.removeprefix("job ")
    elif part.kind is Kind.NODE:
        text = f"jobs {', '.join(job.number for job in on_node[hosts[0]])}"
    else:
        shares = [f"{number} {counts[number]}/{len(hosts)}" for number in ordered]
        text = ", ".join(shares)
    id_ = first.id or first.name
    return text, int(id_) if id_.isdecimal() else zlib.crc32(id_.encode())


def _brief(findings: list[Finding], ctx: DrawContext, part: GridPart, beside: str) -> str:
    """`ECMP collision up5, 46 % lost, 2 more`; without the port where it is the one `beside`."""
    first = findings[0]
    name = _subject(first, ctx, part)
    subject = f" {name}" if name not in ("", beside) else ""
    loss = brief_loss(first)
    lost = f", {loss}" if loss else ""
    more = f", {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{finding_title(first)}{subject}{lost}{more}"


def _subject(finding: Finding, ctx: DrawContext, part: GridPart) -> str:
    """What a finding is about: `gpu014`, `gpu006 r3`, and `up5` where the row has one switch."""
    name = labels.subject_name(finding, ctx.fabric).partition(" → ")[0]
    node, _, rest = name.partition(" ")
    return rest if _switches(part) == [node] else name


def _switches(part: GridPart) -> list[str]:
    return [node.name for node in part.nodes if node.role == SWITCH]
