"""The record of `fabmon explain`: what a log says, and what is known of its ports."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import msgspec

from fabmon.analysis.job.wire import Wire
from fabmon.fabric.wording import name_list

_MOST_RANKS = 12


class EndRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a failed connection; null where unknown. `ranks` are the ranks that it may be,
    `port` is `node/port`, `leaf` and `leaf_port` are the switch port at the other end of its
    cable."""

    host: str | None
    ranks: list[int]
    gpu: int | None
    hcas: list[str]
    address: str | None
    gid: str | None
    port: str | None
    leaf: str | None
    leaf_port: str | None
    name: str


class FailureRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A failure in the log. `kind` is `completion` (a work request of the verbs API failed),
    `request` (one of libfabric), `device` (an event of an HCA), `call` (of the NIC's library),
    `connection` (a TCP connection), `gpu`, `process` (one that ended), `program` (an exception of
    the job's code), `stall` (PyTorch waited in vain) or `exception` (an error that NCCL reported
    without a reason). `code` is the status of the verbs API, a code of the libfabric provider, or
    an exit status (below 0: the signal).

    `near` wrote the line, `far` is the end that the line names. `time` is UTC, null where the log's
    clock is not known; `log_time` is as written. `is_consequence`: another failure came before.
    """

    kind: str
    what: str
    code: int | None
    meaning: str
    check: str
    is_consequence: bool
    near: EndRecord
    far: EndRecord | None
    side: str | None
    vendor_error: int | None
    count: int
    log_time: str | None
    time: datetime.datetime | None
    source: str
    line: str | None


class LateRank(msgspec.Struct, frozen=True):
    """A rank that has not enqueued a collective, the last one that it has, and its host."""

    rank: int
    enqueued: int
    host: str | None


class TimeoutRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A collective that timed out in PyTorch; see StuckCollective. `began` is UTC, when the first
    rank entered it; null where the log's clock is not known. Where `ranks_are_global` is false,
    ranks are those in the process group, whose place in the job the log does not have."""

    group: str
    seq: int
    operation: str
    ranks: list[int]
    ranks_are_global: bool
    late: list[LateRank]
    silent: list[int]
    limit_s: float | None
    ran_s: float | None
    log_time: str | None
    began: datetime.datetime | None


class DumpRecord(msgspec.Struct, frozen=True):
    """A dump of PyTorch's Flight Recorder: its rank (-1 where its name does not have it), its file,
    how many entries it has, and why it could not be read, else null."""

    rank: int
    source: str
    entries: int
    error: str | None


class CollectiveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What dumps of the Flight Recorder show of one collective of a process group, the first that
    is wrong. `kind` is `differs` (`ranks` enqueued another one than `others`), `behind` (have not
    enqueued it), `late` (enqueued it `late_s` after the others), `not_started` (enqueued it, and
    others run it), `runs` (all run it), `no_dump` (left none, while `others` enqueued it last) or
    `transfer` (one between two ranks that has not completed). `place` is the line of the program
    where the first of them did, or, if it is behind, where it enqueued its last one; null where not
    recorded. Members of the group in `no_dump` have none."""

    kind: str
    group: str
    seq: int
    operation: str
    ranks: list[int]
    others: list[int]
    late_s: float | None
    place: str | None
    no_dump: list[int]


class HostRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A host in the log: its ranks, its HCAs by NCCL's index, the number of its NICs (0: unknown),
    its addresses."""

    host: str
    ranks: list[int]
    gpus: list[int]
    hcas: dict[str, list[str]]
    nics: int
    addresses: list[str]


class BenchmarkRowRecord(msgspec.Struct, frozen=True):
    """A size in bytes, its bus bandwidth (bits/s), and that over what the rails can carry."""

    size: int
    busbw_bps: float
    share: float | None


class BenchmarkRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run of nccl-tests. `limit_bps` is the bus bandwidth that the `rails` of a node with
    `line_rate_bps` can carry, null where it is unknown or the run is in one node; `share` is the
    best one over it, `is_good` whether that is 80 % or more. `falls` are sizes with less than 80 %
    of the bandwidth of a smaller one. `wrong` are wrong values by size, in place and out of place
    together, `out_of_bounds` their number by the last lines. `lone_hosts` are those of processes
    that each ran alone, with one rank: no network was measured."""

    name: str
    source: str
    nodes: int
    ranks: int
    rails: int | None
    line_rate_bps: float | None
    rails_known_from: str | None
    limit_bps: float | None
    best_bps: float | None
    best_size: int | None
    share: float | None
    is_good: bool | None
    falls: list[int]
    wrong: dict[int, int]
    out_of_bounds: int
    lone_hosts: list[str]
    rows: list[BenchmarkRowRecord]


class UnreadRecord(msgspec.Struct, frozen=True):
    """A line that speaks of a failure and was not understood, and how many differ from it in
    numbers only."""

    text: str
    count: int


class ExplainRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="explain"):
    """`fabmon explain --format json`. `conclusions` are sentences, the most important first.

    `result` is `ok`, `wrong` (a failure, a timeout or what makes the job slow; exit status 5) or
    `not_understood` (nothing is known to be wrong, but lines that speak of a failure were not
    understood, or a dump was not read; exit status 6). `nccl_lines` are the lines with a mark of
    NCCL, of a plugin of it, of UCX, gloo, PyTorch's distributed package or a launcher. `ranks` is
    the size of the largest communicator, 0 where unknown. `not_read` counts lines that are like too
    many others.
    """

    sources: list[str]
    bytes: int
    lines: int
    nccl_lines: int
    not_read: int
    versions: list[str]
    ranks: int
    result: str
    conclusions: list[str]
    hosts: list[HostRecord]
    failures: list[FailureRecord]
    timeouts: list[TimeoutRecord]
    dumps: list[DumpRecord]
    collectives: list[CollectiveRecord]
    not_understood: list[UnreadRecord]
    tests: list[BenchmarkRecord]
    wire: Wire | None
    notes: list[str]


def rank_list(ranks: Sequence[int]) -> str:
    """Ranks, or other numbers, as `Ranks 0-7, 12`; runs together, few of many."""
    word = "Rank" if len(ranks) == 1 else "Ranks"
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"{word} {name_list(texts, _MOST_RANKS)}"
