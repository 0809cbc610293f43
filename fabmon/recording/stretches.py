"""Recordings as stretches: whole blocks at a time, for what reads hours of them."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.messages import Hello
from fabmon.fabric.model import Host
from fabmon.fabric.stretch import NodeRun, Stretch
from fabmon.recording.block import Block
from fabmon.recording.reader import Recording
from fabmon.recording.seats import HEAD
from fabmon.recording.timeline import Timeline

_LATEST = (1 << 63) - 1


def stretches(timeline: Timeline, from_ns: int = 0, until_ns: int = _LATEST) -> Iterator[Stretch]:
    """All of a timeline between two times, by the time at which each stretch begins.

    Ten times faster than its ticks. The first and the last may reach beyond the times. A node that
    told another layout within a stretch is there with the last one only.
    """
    each = [_of(file, from_ns, until_ns) for file in timeline.files]
    yield from heapq.merge(*each, key=lambda stretch: stretch.start_ns)


def _of(file: Recording, from_ns: int, until_ns: int) -> Iterator[Stretch]:
    hosts: dict[str, Host] = {host.name: host for host in file.hosts}
    hellos: dict[str, Hello] | None = None
    told_ns = from_ns
    for start_ns, end_ns, blocks in file.blocks(from_ns, until_ns):
        if hellos is None:
            hellos, told_ns = dict(file.state(start_ns).hellos), start_ns
        for event in file.events(told_ns + 1, end_ns):
            hosts |= {host.name: host for host in event.hosts}
            hellos |= dict(event.hellos)
        told_ns = end_ns
        runs = {run.node: run for block in blocks for run in _runs(block, hellos)}
        yield Stretch(
            start_ns,
            end_ns,
            file.interval_s,
            tuple(hosts.values()),
            dict(hellos),
            tuple(runs.values()),
        )


def _runs(block: Block, hellos: dict[str, Hello]) -> Iterator[NodeRun]:
    column = number = 0
    for seat in block.seats:
        hello = hellos.get(seat.node)
        if hello is not None and seat.widths == tuple(info.width() for info in hello.blocks):
            there = block.there[:, number + 1 : number + seat.blocks]
            rows = np.flatnonzero(there.any(axis=1))
            if len(rows):
                read = partial(_read, block, rows, column + HEAD)
                yield NodeRun(seat.node, block.ticks.time_ns[rows], there[rows], read)
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
