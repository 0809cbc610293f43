"""Turns ticks, which have all series at one time, into series, which have one at all times.

What does not fit in memory is kept in a file that has no name, about 8 bytes a sample.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.model import Host
from fabmon.fabric.object_owner import owner_of
from fabmon.fabric.openmetrics import (
    EXPOSED,
    Exposed,
    SamplePosition,
    head,
    maximum,
    sample_positions,
)
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, fits
from fabmon.history.history import History
from fabmon.report.selection import LinkSelection

TimesMs = NDArray[np.int64]
CounterValues = NDArray[np.uint64]
KnownMask = NDArray[np.bool_]

_HELD_VALUES = 16 << 20
_PIECE_ROWS = 1024
_HOUR_NS = 3_600_000_000_000
_MS_NS = 1_000_000


class _Piece(NamedTuple):
    """A run of reads of one block: times, then a row of values a column, then which are known."""

    at: int
    rows: int
    gaps: bool


@dataclass(slots=True)
class NodeSeries:
    """What a node's frames held for a while; `pieces` are by block of the hello."""

    hello: Hello
    pieces: list[list[_Piece]]


@dataclass(slots=True)
class _Held:
    """Reads of one block that are not in the file yet."""

    times_ms: list[int] = field(default_factory=list)
    values: bytearray = field(default_factory=bytearray)
    gaps: list[tuple[int, int]] = field(default_factory=list)


class NodeClock:
    """When a node's counters were read, by the console's clock.

    Differences are those of the node's monotonic clock, so that rates come out as fabmon has them;
    the two are held against each other anew when the node restarts or they drift apart.
    """

    def __init__(self, tolerance_ns: int) -> None:
        self._tolerance_ns = tolerance_ns
        self._offset_ns: int | None = None
        self._last_ns = 0

    def at(self, mono_ns: int, arrived_ns: int) -> int:
        """Offset of the monotonic clock, for a frame that had arrived at a time."""
        offset = self._offset_ns
        late_ns = 0 if offset is None else arrived_ns - (mono_ns + offset)
        if offset is None or mono_ns < self._last_ns or abs(late_ns) > self._tolerance_ns:
            offset = arrived_ns - mono_ns
        elif late_ns < 0:
            # Nothing arrives before it was read: the delays so far were longer than this one's.
            offset += late_ns
        self._offset_ns, self._last_ns = offset, mono_ns
        return offset


class Transposer:
    """Takes ticks in their order; gives back series."""

    def __init__(self, directory: Path, interval_s: float) -> None:
        """The file is in `directory`. Raises OSError."""
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._end = 0
        self._tolerance_ns = int(max(5.0, 3 * interval_s) * 1e9)
        self.nodes: dict[str, list[NodeSeries]] = {}
        self._clocks: dict[str, NodeClock] = {}
        self._held: dict[str, list[_Held]] = {}
        self._last_ms: dict[str, list[int]] = {}
        self._count = 0
        self._map: NDArray[np.uint8] = np.empty(0, np.uint8)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._end

    def accept(self, tick: Tick, *, with_frames: bool = True) -> None:
        """Take a tick, or only its layouts. Raises OSError where the disk does not take it."""
        for node, hello in tick.hellos:
            self._begin(node, hello)
        for node, frame in tick.frames if with_frames else ():
            layouts = self.nodes.get(node)
            if layouts and fits(frame, layouts[-1].hello):
                self._take(node, frame, tick.time_ns)
        if self._count > _HELD_VALUES:
            self._flush(list(self._held))

    def settle(self) -> None:
        """No more ticks come: series can be asked for."""
        self._flush(list(self._held))
        self._file.flush()
        if self._end:
            self._map = np.memmap(self._file, np.uint8, "r", shape=(self._end,))

    def times_ms(self, layout: NodeSeries, block: int) -> TimesMs:
        """When a block was read, in ms since 1970."""
        parts = [self._part(piece.at, piece.rows, np.int64) for piece in layout.pieces[block]]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def values(
        self, layout: NodeSeries, block: int, position: int
    ) -> tuple[CounterValues, KnownMask | None]:
        """One series at those times, and which of it are known; None for all."""
        width = layout.hello.blocks[block].width() - 1
        values, known, gaps = [], [], False
        for at, rows, has_gaps in layout.pieces[block]:
            column = position - 1
            start = at + 8 * rows
            values.append(self._part(start + 8 * rows * column, rows, np.uint64))
            if has_gaps:
                gaps = True
                known.append(self._part(start + 8 * rows * width + rows * column, rows, np.bool_))
            else:
                known.append(np.ones(rows, np.bool_))
        if not values:
            return np.empty(0, np.uint64), None
        return np.concatenate(values), np.concatenate(known) if gaps else None

    def _part(self, at: int, rows: int, kind: type[np.generic]) -> NDArray[np.generic]:
        return self._map[at : at + rows * np.dtype(kind).itemsize].view(kind)

    def _begin(self, node: str, hello: Hello) -> None:
        layouts = self.nodes.setdefault(node, [])
        if layouts and hello.has_same_layout(layouts[-1].hello):
            return
        self._flush([node])
        layouts.append(NodeSeries(hello, [[] for _ in hello.blocks]))
        self._held[node] = [_Held() for _ in hello.blocks]
        self._last_ms[node] = [0] * len(hello.blocks)

    def _take(self, node: str, frame: Frame, arrived_ns: int) -> None:
        clock = self._clocks.setdefault(node, NodeClock(self._tolerance_ns))
        offset_ns = clock.at(frame.mono_ns, arrived_ns)
        last_ms, full = self._last_ms[node], False
        for place, (block, held) in enumerate(zip(frame.blocks, self._held[node], strict=True)):
            if block is None:
                continue
            read_ns = block[0]
            if read_ns is None or abs(read_ns - frame.mono_ns) > _HOUR_NS:
                read_ns = frame.mono_ns
            time_ms = (read_ns + offset_ns) // _MS_NS
            if time_ms <= last_ms[place]:
                continue
            last_ms[place] = time_ms
            row = len(held.times_ms)
            held.times_ms.append(time_ms)
            held.values += _packed(block[1:], row, held.gaps)
            self._count += len(block)
            full = full or row + 1 >= _PIECE_ROWS
        if full:
            self._flush([node])

    def _flush(self, nodes: Iterable[str]) -> None:
        for node in nodes:
            layout = self.nodes[node][-1] if self.nodes.get(node) else None
            for place, held in enumerate(self._held.get(node, ())):
                rows = len(held.times_ms)
                if not rows or layout is None:
                    continue
                table = np.frombuffer(held.values, np.uint64).reshape(rows, -1)
                data = [np.array(held.times_ms, np.int64).tobytes(), table.T.tobytes()]
                if held.gaps:
                    known = np.ones(table.T.shape, np.bool_)
                    at = np.array(held.gaps, np.intp)
                    known[at[:, 1], at[:, 0]] = False
                    data.append(known.tobytes())
                layout.pieces[place].append(_Piece(self._end, rows, bool(held.gaps)))
                whole = b"".join(data)
                whole += b"\0" * (-len(whole) % 8)
                self._file.write(whole)
                self._end += len(whole)
                self._count -= table.size + rows
                self._held[node][place] = _Held()


def _packed(values: list[int | None], row: int, gaps: list[tuple[int, int]]) -> bytes:
    """As 64-bit numbers; where there is none, or one that has more bits, `gaps` is told."""
    try:
        return array("Q", cast("list[int]", values)).tobytes()
    except (TypeError, OverflowError):
        whole = [value if value is not None and _is_u64(value) else 0 for value in values]
        gaps += [(row, place) for place, value in enumerate(values) if not _is_u64(value)]
        return array("Q", whole).tobytes()


def _is_u64(value: int | None) -> bool:
    return value is not None and 0 <= value < 1 << 64


# `fabmon export --format openmetrics`: raw counters with their times, series by series.
#
# Names and labels are those of an agent's `/metrics`, with `instance` for the node. OpenMetrics
# wants the samples of a series together, and those of a family; see fabmon/report/openmetrics.py.


SeriesFilter = Callable[[str, SamplePosition], bool]
"""Whether a series of a node is to be exported."""


def families(spool: Transposer, wanted: SeriesFilter) -> Iterator[tuple[float, str]]:
    """The text in pieces, each with the share of it that is done, 0 to 1.

    A counter that stands at its maximum, where it sticks, is absent, as is what was not read.
    """
    nodes = {
        node: [(layout, sample_positions(layout.hello, {"instance": node})) for layout in layouts]
        for node, layouts in spool.nodes.items()
    }
    there = {name for layouts in nodes.values() for _, places in layouts for name in places}
    names = [name for name in CATALOG if name in there]
    for count, name in enumerate(names):
        shown, row = EXPOSED[name], CATALOG[name]
        begun = False
        for number, (node, layouts) in enumerate(nodes.items()):
            for labels, parts in _series(layouts, name).items():
                text = "".join(
                    _samples(spool, layout, place, f"{shown.sample}{labels}", shown, row.kind)
                    for layout, place in parts
                    if wanted(node, place)
                )
                if text and not begun:
                    begun = True
                    yield 0.0, head(shown.family, shown.type, shown.unit, row.meaning)
                if text:
                    yield (count + number / len(nodes)) / len(names), text
    yield 1.0, "# EOF\n"


def _series(
    layouts: list[tuple[NodeSeries, dict[str, list[SamplePosition]]]], name: str
) -> dict[str, list[tuple[NodeSeries, SamplePosition]]]:
    """By labels: where a series is in one layout after the other."""
    series: dict[str, list[tuple[NodeSeries, SamplePosition]]] = {}
    for layout, places in layouts:
        for place in places.get(name, ()):
            series.setdefault(place.labels, []).append((layout, place))
    return series


def _samples(
    spool: Transposer,
    layout: NodeSeries,
    place: SamplePosition,
    series: str,
    shown: Exposed,
    kind: str,
) -> str:
    times_ms = spool.times_ms(layout, place.block)
    values, known = spool.values(layout, place.block, place.position)
    times_ms, values = _told(times_ms, values, known, maximum(kind))
    numbers = values.tolist() if shown.factor == 1 else (values / shown.factor).tolist()
    return "".join(
        [
            f"{series} {value} {ms // 1000}.{ms % 1000:03}\n"
            for value, ms in zip(numbers, times_ms.tolist(), strict=True)
        ]
    )


def _told(
    times_ms: TimesMs, values: CounterValues, known: KnownMask | None, most: int | None
) -> tuple[TimesMs, CounterValues]:
    """Without what is not known."""
    if most is not None:
        free = values != np.uint64(most)
        known = free if known is None else known & free
    return (times_ms, values) if known is None else (times_ms[known], values[known])


def series_filter(spool: Transposer, hosts: Sequence[Host], links: LinkSelection) -> SeriesFilter:
    """What some filters leave, by the names and the cabling that the nodes told of last."""
    if not links:
        return lambda node, place: True
    hellos = tuple((node, layouts[-1].hello) for node, layouts in spool.nodes.items() if layouts)
    snapshot = History(hosts).accept(Tick(0, 0, hellos=hellos))
    mask = links.of(snapshot)
    given = {host.name: host for host in hosts}
    wanted = {
        (port.node, port.name)
        for port in snapshot.fabric.ports
        if mask is None or (port.node and mask[port.row])
    }

    def is_wanted(node: str, place: SamplePosition) -> bool:
        about = owner_of(place.item, given[node], given)
        return place.item.port is not None and (about, place.item.port) in wanted

    return is_wanted
