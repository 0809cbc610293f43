"""Recordings as stretches: whole blocks at a time, for what reads hours of them."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeFrames, RawChunk
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.block import HEAD_COLUMNS, Block
from fabmon.recording.reading.reader import Recording
from fabmon.recording.reading.timeline import Timeline

_LATEST = (1 << 63) - 1


def raw_chunks(timeline: Timeline, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[RawChunk]:
    """All of a timeline between two times, by the time at which each stretch begins.

    Ten times faster than its ticks. The first and the last may reach beyond the times.
    """
    each = [_of(file, from_ns, until_ns) for file in timeline.files]
    yield from heapq.merge(*each, key=lambda stretch: stretch.start_ns)


def _of(file: Recording, from_ns: int, until_ns: int) -> Iterator[RawChunk]:
    hosts: dict[str, Host] = {host.name: host for host in file.hosts}
    hellos: dict[str, Hello] | None = None
    told_ns = from_ns
    for start_ns, end_ns, blocks in file.blocks(from_ns, until_ns):
        if hellos is None:
            hellos, told_ns = dict(file.state(start_ns).hellos), start_ns
        layouts = {node: [hello] for node, hello in hellos.items()}
        for event in file.events(told_ns + 1, end_ns):
            hosts |= {host.name: host for host in event.hosts}
            hellos |= dict(event.hellos)
            for node, hello in event.hellos:
                known = layouts.setdefault(node, [])
                if not known or not hello.has_same_layout(known[-1]):
                    known.append(hello)
        told_ns = end_ns
        runs = tuple(run for block in blocks for run in _runs(block, layouts))
        yield RawChunk(start_ns, end_ns, file.interval_s, tuple(hosts.values()), dict(hellos), runs)


def _runs(block: Block, layouts: Mapping[str, Sequence[Hello]]) -> Iterator[NodeFrames]:
    """A run for every seat. A node has one for each of its last layouts, in their order."""
    seats = Counter(seat.node for seat in block.layouts)
    column = number = 0
    for seat in block.layouts:
        known = layouts.get(seat.node, ())
        hello = known[-seats[seat.node]] if seats[seat.node] <= len(known) else None
        seats[seat.node] -= 1
        if hello is not None and seat.widths == tuple(info.width() for info in hello.blocks):
            there = block.present[:, number + 1 : number + seat.blocks]
            rows = np.flatnonzero(there.any(axis=1))
            if len(rows):
                read = partial(_read, block, rows, column + HEAD_COLUMNS)
                yield NodeFrames(seat.node, hello, block.ticks.time_ns[rows], there[rows], read)
        column += seat.columns
        number += seat.blocks


def _read(
    block: Block, rows: NDArray[np.intp], first: int, places: Sequence[int]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    columns = np.asarray(places, np.intp) + first
    values = block.values.columns(columns)
    known = np.ones(values.shape, np.bool_)
    if len(block.absent):
        order = np.argsort(columns)
        at = np.searchsorted(columns[order], block.absent[:, 1])
        inside = at < len(columns)
        inside[inside] = columns[order][at[inside]] == block.absent[inside, 1]
        known[block.absent[inside, 0], order[at[inside]]] = False
    return values[rows], known[rows]
