"""The connected queue pairs of a node, as arrays (docs/wire.md, `queue_pairs`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from fabmon.fabric.wire.messages import BlockInfo, Hello

SOURCE = "qps"
KIND = "queue_pairs"
MOST_PAIRS = 4096
"""Listed queue pairs of one node; a node with more reports their number."""

_LONGEST_TEXT = 64
"""Of a job's number, a pod's uid (36) or a command's name (15 characters in Linux)."""

Numbers = NDArray[np.int64]

_Qpn = Annotated[int, Meta(ge=0, lt=2**24)]
_Count = Annotated[int, Meta(ge=0, le=2**31)]
_Qpns = Annotated[list[_Qpn], Meta(max_length=MOST_PAIRS)]
_Places = Annotated[list[_Count], Meta(max_length=MOST_PAIRS)]


class Process(msgspec.Struct, frozen=True):
    """The owner of a queue pair. `pid` is 0 for the kernel; `job` is Slurm's, `pod` the uid of that
    of Kubernetes, each empty when unknown. Texts are cut to 64 characters."""

    comm: str = ""
    pid: _Count = 0
    job: str = ""
    pod: str = ""

    def __post_init__(self) -> None:
        for key in ("comm", "job", "pod"):
            text = getattr(self, key)
            if len(text) > _LONGEST_TEXT:
                msgspec.structs.force_setattr(self, key, text[:_LONGEST_TEXT])

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
    """The queue pairs of one node, one per element; `port` and `process` are indices into the
    lists.

    `count` is their number, including those that the node did not list.
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

    def is_equal(self, other: QueuePairs) -> bool:
        """Whether both are equal."""
        columns = ("port", "lqpn", "rqpn", "sq_psn", "rq_psn", "process")
        return (
            (self.ports, self.processes, self.count) == (other.ports, other.processes, other.count)
        ) and all(np.array_equal(getattr(self, key), getattr(other, key)) for key in columns)


def queue_pairs_of(hello: Hello) -> QueuePairs | None:
    """The queue pairs of a hello; None if the node does not report them, which differs from none.

    Invalid objects are left out: hellos are checked on arrival.
    """
    reports = []
    for block in hello.blocks:
        for item in block.objects:
            if item.kind == KIND and item.node is None:
                try:
                    reports.append(msgspec.convert(item.info, PortPairs))
                except msgspec.ValidationError:
                    continue
    return _joined(reports) if reports else None


def differ_only_in_queue_pairs(before: Hello, now: Hello) -> bool:
    """Whether two hellos of a node differ in nothing but queue pairs."""
    return (
        _others(before.blocks) == _others(now.blocks)
        and before.limits == now.limits
        and (before.hostname, before.kernel, before.python, before.probe, before.reached_at)
        == (now.hostname, now.kernel, now.python, now.probe, now.reached_at)
        and before.has_same_layout(now)
    )


def _others(blocks: Sequence[BlockInfo]) -> list[BlockInfo]:
    return [block for block in blocks if block.source != SOURCE]


def _joined(reports: Sequence[PortPairs]) -> QueuePairs:
    def column(key: str) -> Numbers:
        return np.concatenate([np.array(getattr(each, key), np.int64) for each in reports])

    sizes = [len(each.lqpn) for each in reports]
    owners = [len(each.processes) for each in reports]
    before = np.cumsum([0, *owners[:-1]])
    return QueuePairs(
        ports=tuple(each.port for each in reports),
        port=np.repeat(np.arange(len(reports)), sizes),
        lqpn=column("lqpn"),
        rqpn=column("rqpn"),
        sq_psn=column("sq_psn"),
        rq_psn=column("rq_psn"),
        process=column("process") + np.repeat(before, sizes),
        processes=tuple(process for each in reports for process in each.processes),
        count=sum(each.count for each in reports),
    )


_DERIVING = ("mlx5", "irdma", "ice", "i40e", "idpf", "erdma", "hns", "mana", "ionic")
"""Drivers that call the kernel's helper; bnxt_re does not (Linux 6.12). A port's `driver` may be
its Ethernet driver."""


def roce_source_port(local_qpn: Numbers, remote_qpn: Numbers) -> Numbers:
    """UDP source ports, 49152 to 65535, of connected queue pairs; the same in both directions.

    Linux include/rdma/ib_verbs.h, for a flow label of 0, which is what NCCL sets:

        static inline u32 rdma_calc_flow_label(u32 lqpn, u32 rqpn)
            u64 v = (u64)lqpn * rqpn;
            v ^= v >> 20;
            v ^= v >> 40;
            return (u32)(v & IB_GRH_FLOWLABEL_MASK);                    /* 0x000FFFFF */

        static inline u16 rdma_flow_label_to_udp_sport(u32 fl)
            u32 fl_low = fl & 0x03fff, fl_high = fl & 0xFC000;
            fl_low ^= fl_high >> 14;
            return (u16)(fl_low | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN);    /* 0xC000 */
    """
    v = np.asarray(local_qpn, np.int64) * np.asarray(remote_qpn, np.int64)
    v ^= v >> 20
    v ^= v >> 40
    label = v & 0xFFFFF
    port: Numbers = ((label & 0x3FFF) ^ ((label & 0xFC000) >> 14)) | 0xC000
    return port


def is_derived(port_info: Mapping[str, Any], kind: str) -> bool:
    """Whether a port's driver uses this formula.

    A vendor's out-of-tree driver, or software that sets a flow label, may differ. InfiniBand has no
    UDP ports.
    """
    driver = str(port_info.get("driver") or "")
    return kind == "ethernet" and driver.startswith(_DERIVING)
