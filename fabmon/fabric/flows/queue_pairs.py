"""The connected queue pairs that a node tells of, as arrays (docs/wire.md, `queue_pairs`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fabmon.fabric.wire.messages import BlockInfo, Hello

SOURCE = "qps"
KIND = "queue_pairs"
MOST_PAIRS = 4096
"""Of one node; a node that has more says how many there are."""

Numbers = NDArray[np.int64]

_Qpn = Annotated[int, Meta(ge=0, lt=2**24)]
_Count = Annotated[int, Meta(ge=0, le=2**31)]
_Qpns = Annotated[list[_Qpn], Meta(max_length=MOST_PAIRS)]
_Places = Annotated[list[_Count], Meta(max_length=MOST_PAIRS)]


class Process(msgspec.Struct, frozen=True):
    """Who owns a queue pair. `pid` is 0 for the kernel; `job` is Slurm's, empty when unknown."""

    comm: str = ""
    pid: _Count = 0
    job: str = ""

    @property
    def label(self) -> str:
        """`job 8812`, or else the command's name."""
        return f"job {self.job}" if self.job else self.comm


class PortPairs(msgspec.Struct, frozen=True):
    """The `info` of one port's queue pairs; the lists are parallel."""

    port: str
    count: _Count = 0
    lqpn: _Qpns = []
    rqpn: _Qpns = []
    sq_psn: _Qpns = []
    rq_psn: _Qpns = []
    process: _Places = []
    processes: Annotated[list[Process], Meta(max_length=MOST_PAIRS)] = []

    def __post_init__(self) -> None:
        lists = (self.lqpn, self.rqpn, self.sq_psn, self.rq_psn, self.process)
        if len({len(each) for each in lists}) != 1:
            raise ValueError("lists of different lengths")
        if self.process and max(self.process) >= len(self.processes):
            raise ValueError("a process that is not in the list")


@dataclass(frozen=True, slots=True)
class QueuePairs:
    """Those of one node, an element each; `port` and `process` are places in the lists.

    `count` is how many there are, those that the node did not tell one by one included.
    """

    ports: tuple[str, ...]
    port: Numbers
    lqpn: Numbers
    rqpn: Numbers
    sq_psn: Numbers
    rq_psn: Numbers
    process: Numbers
    processes: tuple[Process, ...]
    count: int

    def is_like(self, other: QueuePairs) -> bool:
        """Whether both tell the same."""
        columns = ("port", "lqpn", "rqpn", "sq_psn", "rq_psn", "process")
        return (
            (self.ports, self.processes, self.count) == (other.ports, other.processes, other.count)
        ) and all(np.array_equal(getattr(self, key), getattr(other, key)) for key in columns)


def queue_pairs_of(hello: Hello) -> QueuePairs | None:
    """What a node tells of itself; None when it does not, which is not the same as none.

    What is not as the wire has it is left out: hellos are checked when they arrive.
    """
    told = []
    for block in hello.blocks:
        for item in block.objects:
            if item.kind == KIND and item.node is None:
                try:
                    told.append(msgspec.convert(item.info, PortPairs))
                except msgspec.ValidationError:
                    continue
    return _joined(told) if told else None


def only_queue_pairs_moved(before: Hello, now: Hello) -> bool:
    """Whether two hellos of a node that count alike tell the same of all but queue pairs."""
    return (
        _others(before.blocks) == _others(now.blocks)
        and (before.hostname, before.kernel, before.python, before.probe, before.reached_at)
        == (now.hostname, now.kernel, now.python, now.probe, now.reached_at)
        and before.counts_like(now)
    )


def _others(blocks: Sequence[BlockInfo]) -> list[BlockInfo]:
    return [block for block in blocks if block.source != SOURCE]


def _joined(told: Sequence[PortPairs]) -> QueuePairs:
    def column(key: str) -> Numbers:
        return np.concatenate([np.array(getattr(each, key), np.int64) for each in told])

    sizes = [len(each.lqpn) for each in told]
    owners = [len(each.processes) for each in told]
    before = np.cumsum([0, *owners[:-1]])
    return QueuePairs(
        ports=tuple(each.port for each in told),
        port=np.repeat(np.arange(len(told)), sizes),
        lqpn=column("lqpn"),
        rqpn=column("rqpn"),
        sq_psn=column("sq_psn"),
        rq_psn=column("rq_psn"),
        process=column("process") + np.repeat(before, sizes),
        processes=tuple(process for each in told for process in each.processes),
        count=sum(each.count for each in told),
    )
