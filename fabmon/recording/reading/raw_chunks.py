"""A part of a timeline: its ticks in their order, or its raw counters, ten times faster."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.jobs.job import JobReport
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeFrames, RawChunk, Tick
from fabmon.fabric.time_wording import LATEST_NS
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.block import HEAD_COLUMNS, Block
from fabmon.recording.reading.merging import merge_begun
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline


class PlayedTicks:
    """An iterator of the ticks between two times of a timeline, both included.

    A part that starts within the timeline begins with `primed` ticks that bring the history to its
    state at that time, so that rates and states are known from the start. After the end of what is
    written, `refresh` finds what was added since.
    """

    def __init__(
        self, timeline: Timeline, from_ns: int | None = None, until_ns: int | None = None
    ) -> None:
        self.until_ns = LATEST_NS if until_ns is None else until_ns
        self._timeline = timeline
        self._last_ns = (from_ns or 0) - 1
        first = timeline.prime(from_ns) if from_ns is not None else []
        self._unseen = self.primed = len(first)
        self._ticks: Iterator[Tick] = itertools.chain(
            first, timeline.ticks(from_ns or 0, self.until_ns)
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Tick:
        tick = next(self._ticks)
        if self._unseen:
            self._unseen -= 1
        else:
            self._last_ns = tick.time_ns
        return tick

    def refresh(self) -> bool:
        """Read what was written since; returns whether there was anything.

        While a file grows its last ticks are replaced: they must be looked up again before more of
        them are read.
        """
        if not self._timeline.refresh():
            return False
        self._ticks = self._timeline.ticks(self._last_ns + 1, self.until_ns)
        return True


def raw_chunks(
    timeline: Timeline, from_ns: int = 0, until_ns: int = LATEST_NS
) -> Iterator[RawChunk]:
    """The chunks of a timeline between two times, by the time at which each begins.

    The first and the last chunk may extend beyond the times.
    """
    # Files without blocks, which are the last ones, have no chunks.
    begins_ns = sorted(
        (max(file.start_ns, timeline.begin_ns(file)), number)
        for number, file in enumerate(timeline.files)
        if file.spans and file.until_ns >= from_ns and file.start_ns <= until_ns
    )
    numbered = (
        (
            begin_ns,
            _numbered(number, _chunks_of(timeline.files[number], from_ns, until_ns, begin_ns)),
        )
        for begin_ns, number in begins_ns
    )
    for _, chunk in merge_begun(numbered, lambda each: (each[1].start_ns, each[0])):
        yield chunk


def _numbered(number: int, chunks: Iterator[RawChunk]) -> Iterator[tuple[int, RawChunk]]:
    return ((number, chunk) for chunk in chunks)


def _chunks_of(file: Recording, from_ns: int, until_ns: int, begin_ns: int) -> Iterator[RawChunk]:
    """The chunks of a file without what is before `begin_ns`."""
    hosts: dict[str, Host] = {host.name: host for host in file.hosts}
    hellos: dict[str, Hello] | None = None
    events_until_ns = from_ns
    for start_ns, end_ns, blocks in file.blocks(max(from_ns, begin_ns), until_ns):
        if start_ns < begin_ns:
            start_ns, blocks = begin_ns, [block.since(begin_ns) for block in blocks]
        reports: list[tuple[int, JobReport]] = []
        if hellos is None:
            state = file.state(start_ns)
            hellos, events_until_ns = dict(state.hellos), start_ns
            reports += [(start_ns, state.jobs)] if state.jobs else []
        layouts = {node: [hello] for node, hello in hellos.items()}
        for event in file.events(events_until_ns + 1, end_ns):
            hosts |= {host.name: host for host in event.hosts}
            hellos |= dict(event.hellos)
            reports += [(event.time_ns, event.jobs)] if event.jobs else []
            for node, hello in event.hellos:
                known = layouts.setdefault(node, [])
                if not known or not hello.has_same_layout(known[-1]):
                    known.append(hello)
        events_until_ns = end_ns
        frames = tuple(each for block in blocks for each in _node_frames(block, layouts))
        yield RawChunk(
            start_ns,
            end_ns,
            file.interval_s,
            tuple(hosts.values()),
            dict(hellos),
            frames,
            tuple(reports),
        )


def _node_frames(block: Block, hellos: Mapping[str, Sequence[Hello]]) -> Iterator[NodeFrames]:
    """The frames of each row layout of a block.

    A node has a row layout for each of its last hellos, in the same order; one that does not fit
    its hello is left out.
    """
    left = Counter(layout.node for layout in block.layouts)
    for layout, column, part in block.nodes():
        known = hellos.get(layout.node, ())
        hello = known[-left[layout.node]] if left[layout.node] <= len(known) else None
        left[layout.node] -= 1
        if hello is not None and layout.widths == tuple(info.width() for info in hello.blocks):
            was_read = block.present[:, part + 1 : part + layout.blocks]
            rows = np.flatnonzero(was_read.any(axis=1))
            if len(rows):
                read = partial(_read, block, rows, column + HEAD_COLUMNS)
                times_ns = block.ticks.time_ns[rows]
                yield NodeFrames(layout.node, hello, times_ns, was_read[rows], read)


def _read(
    block: Block, rows: NDArray[np.intp], first_column: int, positions: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Values at some positions of a node's frames, and which are known: [rows, positions] each."""
    columns = np.asarray(positions, np.intp) + first_column
    values = block.values.columns(columns)
    known = np.ones(values.shape, np.bool_)
    if len(block.absent):
        order = np.argsort(columns)
        at = np.searchsorted(columns[order], block.absent[:, 1])
        inside = at < len(columns)
        inside[inside] = columns[order][at[inside]] == block.absent[inside, 1]
        known[block.absent[inside, 0], order[at[inside]]] = False
    return values[rows], known[rows]
