"""`fabmon export --format openmetrics`: raw counters with their times, series by series.

Names and labels are those of an agent's `/metrics`, with `instance` for the node. OpenMetrics wants
the samples of a series together, and the series of a family; ticks have all series at one time. So
the ticks are transposed first. What does not fit in memory meanwhile is in a file without a name,
about 8 bytes a sample.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.fabric.filter import LinkSelection
from fabmon.fabric.model import Host
from fabmon.fabric.node_facts import owner_of
from fabmon.fabric.openmetrics import (
    EXPOSED,
    Exposed,
    SamplePosition,
    head,
    maximum,
    sample_positions,
)
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, Values, fits
from fabmon.history.history import History

TimesMs = NDArray[np.int64]
CounterValues = NDArray[np.uint64]

MAX_MEMORY_VALUES = 16 << 20
"""Values that are kept in memory before they are written to the file."""
_PIECE_ROWS = 1024
_MAX_CLOCK_STEP_NS = 3_600_000_000_000
_MS_NS = 1_000_000


class _Piece(NamedTuple):
    """Reads of one block in the file: times, a row of values a column, then which are known.

    `offset` is in bytes. Without `has_gaps` all values are known, and the last part is not there.
    """

    offset: int
    rows: int
    has_gaps: bool


@dataclass(slots=True)
class _BlockReads:
    """The reads of one block of a node: pieces in the file, and reads that are not in it yet.

    `gaps` are pairs of row and column without a value.
    """

    pieces: list[_Piece] = field(default_factory=list)
    last_ms: int = 0
    times_ms: list[int] = field(default_factory=list)
    values: bytearray = field(default_factory=bytearray)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, time_ms: int, values: Values) -> None:
        """Add a read."""
        row = len(self.times_ms)
        self.last_ms = time_ms
        self.times_ms.append(time_ms)
        try:
            self.values += array("Q", cast("list[int]", values)).tobytes()
        except (TypeError, OverflowError):  # A value is null, or has more than 64 bits.
            known = [value is not None and 0 <= value < 1 << 64 for value in values]
            self.gaps += [(row, place) for place, is_known in enumerate(known) if not is_known]
            padded = [value or 0 if ok else 0 for value, ok in zip(values, known, strict=True)]
            self.values += array("Q", padded).tobytes()

    def take(self) -> bytes:
        """The reads that are not in the file, as bytes of a piece; they are forgotten here."""
        table = np.frombuffer(self.values, np.uint64).reshape(len(self.times_ms), -1).T
        data = np.array(self.times_ms, np.int64).tobytes() + table.tobytes()
        if self.gaps:
            known = np.ones(table.shape, np.bool_)
            rows, columns = np.array(self.gaps, np.intp).T
            known[columns, rows] = False
            data += known.tobytes()
        self.times_ms, self.values, self.gaps = [], bytearray(), []
        return data + b"\0" * (-len(data) % 8)


@dataclass(slots=True)
class NodeSeries:
    """The frames of a node for as long as it had one layout; `blocks` are those of the hello."""

    hello: Hello
    blocks: list[_BlockReads]


class NodeClock:
    """Converts a node's monotonic clock to the console's clock.

    Steps between times are those of the node's clock, so that rates are those that fabmon shows.
    The clocks are compared again when the node restarts or when they drift apart.
    """

    def __init__(self, tolerance_ns: int) -> None:
        self._tolerance_ns = tolerance_ns
        self._offset_ns: int | None = None
        self._last_ns = 0

    def at(self, mono_ns: int, arrived_ns: int) -> int:
        """What to add to the monotonic clock, ns, for a frame that had arrived at a time."""
        offset = self._offset_ns
        late_ns = 0 if offset is None else arrived_ns - (mono_ns + offset)
        if offset is None or mono_ns < self._last_ns or abs(late_ns) > self._tolerance_ns:
            offset = arrived_ns - mono_ns
        elif late_ns < 0:
            # Nothing arrives before it was read: this frame took less time than all before it.
            offset += late_ns
        self._offset_ns, self._last_ns = offset, mono_ns
        return offset


class Transposer:
    """Takes ticks in their order and returns series."""

    def __init__(
        self, directory: Path, interval_s: float, max_memory_values: int = MAX_MEMORY_VALUES
    ) -> None:
        """The file is in `directory`. Raises OSError."""
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115
        self._tolerance_ns = int(max(5.0, 3 * interval_s) * 1e9)
        self._max_memory_values = max_memory_values
        self.nodes: dict[str, list[NodeSeries]] = {}
        self.size = 0
        """Bytes in the file."""
        self._clocks: dict[str, NodeClock] = {}
        self._values_in_memory = 0
        self._map: NDArray[np.uint8] = np.empty(0, np.uint8)

    def close(self) -> None:
        """Close the file, which removes it."""
        self._file.close()

    def accept(self, tick: Tick, *, with_frames: bool = True) -> None:
        """Take a tick, or only its layouts. Raises OSError, for example on a full disk."""
        for node, hello in tick.hellos:
            layouts = self.nodes.setdefault(node, [])
            if not layouts or not hello.has_same_layout(layouts[-1].hello):
                layouts.append(NodeSeries(hello, [_BlockReads() for _ in hello.blocks]))
        for node, frame in tick.frames if with_frames else ():
            layouts = self.nodes.get(node, [])
            if layouts and fits(frame, layouts[-1].hello):
                self._take(node, layouts[-1], frame, tick.time_ns)
        if self._values_in_memory > self._max_memory_values:
            self._flush_all()

    def settle(self) -> None:
        """End of the ticks: series can be requested from now on."""
        self._flush_all()
        self._file.flush()
        if self.size:
            self._map = np.memmap(self._file, np.uint8, "r", shape=(self.size,))

    def series(
        self, layout: NodeSeries, block: int, position: int
    ) -> tuple[TimesMs, CounterValues]:
        """The known samples of one value of a block: times in ms since 1970, UTC, and values."""
        column, width = position - 1, layout.hello.blocks[block].width() - 1
        times: list[TimesMs] = [np.empty(0, np.int64)]
        values: list[CounterValues] = [np.empty(0, np.uint64)]
        for offset, rows, has_gaps in layout.blocks[block].pieces:
            start = offset + 8 * rows
            piece_times = self._part(offset, rows, np.int64)
            piece_values = self._part(start + 8 * rows * column, rows, np.uint64)
            if has_gaps:
                known = self._part(start + 8 * rows * width + rows * column, rows, np.bool_)
                piece_times, piece_values = piece_times[known], piece_values[known]
            times.append(piece_times)
            values.append(piece_values)
        return np.concatenate(times), np.concatenate(values)

    def _part(self, offset: int, rows: int, kind: type[np.generic]) -> NDArray[Any]:
        return self._map[offset : offset + rows * np.dtype(kind).itemsize].view(kind)

    def _take(self, node: str, layout: NodeSeries, frame: Frame, arrived_ns: int) -> None:
        clock = self._clocks.setdefault(node, NodeClock(self._tolerance_ns))
        offset_ns = clock.at(frame.mono_ns, arrived_ns)
        for block, reads in zip(frame.blocks, layout.blocks, strict=True):
            if block is None:
                continue
            read_ns = block[0]
            if read_ns is None or abs(read_ns - frame.mono_ns) > _MAX_CLOCK_STEP_NS:
                read_ns = frame.mono_ns
            time_ms = (read_ns + offset_ns) // _MS_NS
            if time_ms > reads.last_ms:
                reads.add(time_ms, block[1:])
                self._values_in_memory += len(block)
        if any(len(reads.times_ms) >= _PIECE_ROWS for reads in layout.blocks):
            self._flush(layout.blocks)

    def _flush_all(self) -> None:
        for layouts in self.nodes.values():
            for layout in layouts:
                self._flush(layout.blocks)

    def _flush(self, blocks: Iterable[_BlockReads]) -> None:
        """Write reads to the file."""
        for reads in blocks:
            rows, has_gaps = len(reads.times_ms), bool(reads.gaps)
            if rows:
                self._values_in_memory -= rows + len(reads.values) // 8
                data = reads.take()
                self._file.write(data)
                reads.pieces.append(_Piece(self.size, rows, has_gaps))
                self.size += len(data)


SeriesFilter = Callable[[str, SamplePosition], bool]
"""Whether to export a series of a node."""


def families(transposer: Transposer, wanted: SeriesFilter) -> Iterator[tuple[float, str]]:
    """The text in pieces, each with the share of the text that is done, 0 to 1.

    A counter at its maximum (it saturates there) is absent, and so is what was not read.
    """
    nodes = {
        node: [(layout, sample_positions(layout.hello, {"instance": node})) for layout in layouts]
        for node, layouts in transposer.nodes.items()
    }
    recorded = {name for layouts in nodes.values() for _, places in layouts for name in places}
    names = [name for name in CATALOG if name in recorded]
    for count, name in enumerate(names):
        exposed, row = EXPOSED[name], CATALOG[name]
        has_begun = False
        for number, (node, layouts) in enumerate(nodes.items()):
            by_labels: dict[str, list[tuple[NodeSeries, SamplePosition]]] = {}
            for layout, places in layouts:
                for place in places.get(name, ()):
                    if wanted(node, place):
                        by_labels.setdefault(place.labels, []).append((layout, place))
            for labels, parts in by_labels.items():
                text = "".join(
                    _samples(
                        transposer.series(layout, place.block, place.position),
                        f"{exposed.sample}{labels}",
                        exposed,
                        maximum(row.kind),
                    )
                    for layout, place in parts
                )
                if text and not has_begun:
                    has_begun = True
                    yield 0.0, head(exposed.family, exposed.type, exposed.unit, row.meaning)
                if text:
                    yield (count + number / len(nodes)) / len(names), text
    yield 1.0, "# EOF\n"


def _samples(
    samples: tuple[TimesMs, CounterValues], series: str, exposed: Exposed, saturated: int | None
) -> str:
    """The lines of one series, without values that equal the saturated value."""
    times_ms, values = samples
    if saturated is not None:
        is_free = values != np.uint64(saturated)
        times_ms, values = times_ms[is_free], values[is_free]
    numbers = values.tolist() if exposed.factor == 1 else (values / exposed.factor).tolist()
    return "".join(
        [
            f"{series} {value} {ms // 1000}.{ms % 1000:03}\n"
            for value, ms in zip(numbers, times_ms.tolist(), strict=True)
        ]
    )


def series_filter(
    transposer: Transposer, hosts: Sequence[Host], links: LinkSelection
) -> SeriesFilter:
    """The filter for some links, by the names and the cabling that the nodes reported last."""
    if not links:
        return lambda node, place: True
    hellos = tuple((node, each[-1].hello) for node, each in transposer.nodes.items() if each)
    snapshot = History(hosts).accept(Tick(0, 0, hellos=hellos))
    mask = links.of(snapshot)
    by_name = {host.name: host for host in hosts}
    wanted = {
        (port.node, port.name)
        for port in snapshot.fabric.ports
        if mask is None or (port.node and mask[port.row])
    }

    def is_wanted(node: str, place: SamplePosition) -> bool:
        owner = owner_of(place.item, by_name[node], by_name)
        return place.item.port is not None and (owner, place.item.port) in wanted

    return is_wanted
