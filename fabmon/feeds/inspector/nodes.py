"""What the nodes themselves read of NCCL Inspector's files: counters of each operation in their
frames (collectors/sources/nccl_inspector.py)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

import msgspec

from collectors.inspector_records import (
    FILES,
    MOST_COUNT,
    MOST_OPERATIONS,
    OF_FILES,
    OF_OPERATION,
    OPERATION,
    Operation,
    text_of,
)
from fabmon.fabric.jobs.collectives import CollectiveReport
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame, Hello, ObjectInfo
from fabmon.feeds.inspector.means import CollectiveMeans

SOURCE = "nccl_inspector"
PERIOD_S = 10.0
_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST_COUNT)]


class _Info(msgspec.Struct):
    """The facts of an operation, as a node reports them."""

    job: str = ""
    communicator_id: str = ""
    communicator: str = ""
    operation: str = ""
    size: str = ""
    ranks: _Count = 0
    nodes: _Count = 0


class NodeCollectives:
    """Collects what the frames of nodes say of collectives."""

    def __init__(self, period_s: float = PERIOD_S) -> None:
        """Reports are at least `period_s` apart: of 1,000 nodes one takes tenths of a second."""
        self._means = CollectiveMeans()
        self._nodes: dict[str, _Node] = {}
        self._period_s = period_s
        self._due_s = 0.0
        self._is_new = False

    def take(self, tick: Tick) -> CollectiveReport | None:
        """A report of all nodes, if there is anything new and it is due; None else."""
        for name, hello in tick.hellos:
            place = next((n for n, b in enumerate(hello.blocks) if b.source == SOURCE), None)
            if place is not None:
                self._nodes.setdefault(name, _Node(name)).use(hello, place)
            elif name in self._nodes:
                self._nodes[name].stop()
        if not self._nodes:
            return None
        self._means.forget_later(tick.time_ns)
        found = [
            self._nodes[name].take(frame, self._means, tick.time_ns)
            for name, frame in tick.frames
            if name in self._nodes
        ]
        self._is_new |= any(found)
        now_s = time.monotonic()
        if not self._is_new or now_s < self._due_s:
            return None
        self._is_new, self._due_s = False, now_s + self._period_s
        lost, unread, skipped = map(
            sum, zip(*(each.totals for each in self._nodes.values()), strict=True)
        )
        return CollectiveReport(
            read_ns=time.time_ns(),
            lost=lost,
            unread=unread,
            skipped=skipped,
            collectives=self._means.collectives(),
        )


class _Node:
    """The counters of one node; `totals` are lost and unread records, and skipped bytes."""

    def __init__(self, name: str) -> None:
        self.totals = [0, 0, 0]
        self._name = name
        self._block: int | None = None
        self._objects: list[tuple[str, int, Operation | None]] = []
        self._before: dict[str, Sequence[int]] = {}
        self._seq = -1

    def use(self, hello: Hello, place: int) -> None:
        """Read the frames that follow by this layout."""
        self._block, self._objects = place, []
        position = 1
        for item in hello.blocks[place].objects:
            operation = _operation(item)
            if len(self._objects) > MOST_OPERATIONS:
                break
            if operation is not None or (item.kind == FILES and item.metrics == OF_FILES):
                self._objects.append((item.id, position, operation))
            position += len(item.metrics)
        known = {each[0] for each in self._objects}
        self._before = {key: value for key, value in self._before.items() if key in known}

    def stop(self) -> None:
        """The node reports none any more."""
        self._block, self._objects, self._before = None, [], {}

    def take(self, frame: Frame, means: CollectiveMeans, time_ns: int) -> bool:
        """Add what its counters grew by until a time of the console, whose clock is that of all
        nodes here; whether any did."""
        if frame.seq <= self._seq:
            self._before.clear()  # A new probe counts from 0.
        self._seq = frame.seq
        block = frame.blocks[self._block] if self._block is not None else None
        if block is None:
            return False
        is_new = False
        for name, position, operation in self._objects:
            values = block[position : position + len(OF_OPERATION)]
            known = [value for value in values if value is not None]
            if len(known) != len(OF_OPERATION):
                continue
            before = self._before.get(name, (0, 0, 0))
            self._before[name] = known
            # A counter that is smaller than before has begun again.
            grown = [b - a if b >= a else b for a, b in zip(before, known, strict=True)]
            if operation is not None and grown[0]:
                calls, time_us, bus_bytes = grown
                means.add(operation, self._name, time_ns, (calls, time_us / 1e6, bus_bytes))
                is_new = True
            elif operation is None and any(grown):
                self.totals = [
                    min(MOST_COUNT, total + more)
                    for total, more in zip(self.totals, grown, strict=True)
                ]
                is_new = True
        return is_new


def _operation(item: ObjectInfo) -> Operation | None:
    """The operation that an object counts; None for another object."""
    if item.kind != OPERATION or item.metrics != OF_OPERATION:
        return None
    try:
        found = msgspec.convert(item.info, type=_Info)
    except msgspec.ValidationError:
        return None
    return Operation(
        text_of(found.job),
        text_of(found.communicator_id),
        text_of(found.communicator),
        text_of(found.operation),
        text_of(found.size),
        found.ranks,
        found.nodes,
    )
