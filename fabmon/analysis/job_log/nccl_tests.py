"""The output of nccl-tests: bandwidth by size, what the rails can carry, and where it falls off.

Columns: size, count, type, redop, root, then time, algbw, busbw and #wrong, out of place and in
place; some versions leave columns of some collectives empty, so that values are counted from the
end of a row (NVIDIA/nccl-tests, src/common.cu). busbw is defined so that it can be compared with
the links (doc/PERFORMANCE.md): a ring over whole nodes crosses each node once, over all of its
NICs, so that busbw is at most their sum. In an all-to-all each GPU sends to all others by itself.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from fabmon.analysis.iteration.model_arithmetic import DELIVERED
from fabmon.analysis.job_log.log_lines import text_of
from fabmon.analysis.job_log.log_times import LogTime, find_time
from fabmon.fabric.wording import (
    bit_rate,
    byte_count,
    byte_rate,
    name_list,
    plural,
    rounded_percent,
)

_POSSIBLE = 2.0
"""No collective has more than this share of what the rails carry as busbw. With its data reduced in
the node first, an all-reduce of n ranks sends it once each way: (n-1)/n of twice the rails."""
FALL = 0.8
"""A larger size is a fall where its bandwidth is below this share of a smaller one's."""

_PROGRAM = b"_perf"
_MARKS = (b"busbw", b" Pid ", _PROGRAM, b"Out of bounds")
_MOST_ROWS = 10_000
_MOST_RUNS = 100
_MOST_DEVICES = 100_000
_MOST_COMMENT = 300
_MOST_ROW = 400
_LARGE_BYTES = 1 << 20
"""Smaller messages are limited by latency."""
_DEVICE = re.compile(
    r"#\s+Rank\s+(\d{1,9})\s+(?:Group\s+\d+\s+)?Pid\s+(\d+) on\s+(\S{1,255}) device\s+(\d+) \["
)
_NAME = re.compile(rb"\b(\w{1,40})_perf\b")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*:\s*(\d+(?:\.\d+)?)")
_OUT_OF_BOUNDS = re.compile(r"# Out of bounds values\s*:\s*(\d{1,15})\s+(\w+)")
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d")
"""Newer versions can write the time at the end of a row."""
_PAIR = 8
"""Values of a row, out of place and in place."""


class BenchmarkRow(msgspec.Struct, frozen=True, kw_only=True):
    """A size (bytes), its time (us), its bus bandwidth (bits/s), the better one of out of place and
    in place, and the number of wrong values in both together (None: not checked)."""

    size: int
    time_us: float
    busbw_bps: float
    wrong: int | None


class BenchmarkRun(msgspec.Struct):
    """One run: its rows, the host of each rank, and the times in its lines; `name` as in
    `all_reduce`, empty where unknown. `lone_hosts` are those of processes that each had rank 0 of a
    run of their own. `out_of_bounds` are the wrong values that its last lines count."""

    source: str
    name: str = ""
    rows: list[BenchmarkRow] = msgspec.field(default_factory=list)
    hosts: dict[int, str] = msgspec.field(default_factory=dict)
    lone_hosts: list[str] = msgspec.field(default_factory=list)
    out_of_bounds: int = 0
    first: LogTime | None = None
    last: LogTime | None = None


class BenchmarkReader:
    """Finds runs of nccl-tests in logs."""

    def __init__(self) -> None:
        self.runs: list[BenchmarkRun] = []
        self._is_open = False
        self._hosts: dict[int, str] = {}
        self._lone: list[str] = []
        self._name = ""

    def accept(self, block: bytes, source: str) -> None:
        """Read a block of whole lines."""
        if not (self._is_open or any(mark in block for mark in _MARKS)):
            return
        for line in block.splitlines():
            if _PROGRAM in line:
                named = _NAME.search(line[:_MOST_COMMENT])
                self._name = named[1].decode("ascii", "replace") if named else self._name
            at = line.find(b"#")
            if at >= 0:
                self._comment(text_of(line[at : at + _MOST_COMMENT]), line, source)
            elif self._is_open and len(line) < _MOST_ROW:
                self._row(line)

    def _comment(self, text: str, line: bytes, source: str) -> None:
        if "busbw" in text and "algbw" in text:
            is_mixed = self._is_open and self.runs[-1].lone_hosts and not self._hosts
            if len(self.runs) < _MOST_RUNS and not is_mixed:
                time = find_time(text_of(line[:_MOST_COMMENT]))
                run = BenchmarkRun(
                    *(source, self._name),
                    hosts=self._hosts,
                    lone_hosts=self._lone,
                    first=time,
                    last=time,
                )
                self.runs.append(run)
                self._is_open, self._hosts, self._lone = True, {}, []
            return
        device = _DEVICE.match(text)
        if device is not None and len(self._hosts) + len(self._lone) < _MOST_DEVICES:
            rank = int(device[1])
            if rank == 0 and 0 in self._hosts:
                self._lone = [*(self._lone or [self._hosts[0]]), device[3]]
            self._hosts[rank] = device[3]
        wrong = _OUT_OF_BOUNDS.match(text)
        if wrong is not None:
            if not self.runs:
                self.runs.append(BenchmarkRun(source, self._name))
            self.runs[-1].out_of_bounds += int(wrong[1])
        if _AVERAGE.match(text):
            self._is_open = False

    def _row(self, line: bytes) -> None:
        run = self.runs[-1]
        text = text_of(line)
        words = text.split()
        while words and _CLOCK.fullmatch(words[-1]):
            words.pop()
        if len(words) < _PAIR or len(run.rows) >= _MOST_ROWS:
            return
        row = _row_of(words)
        if row is not None:
            run.rows.append(row)
            time = find_time(text)
            run.first, run.last = run.first or time, time or run.last


def _row_of(words: list[str]) -> BenchmarkRow | None:
    """The values of a row; labels of a launcher and times before it are passed over."""
    for start in range(min(4, len(words) - 2)):
        size, count, kind = words[start : start + 3]
        if size.isdecimal() and count.isdecimal() and kind[:1].isalpha():
            break
    else:
        return None
    tail = words[start + 3 :][-_PAIR:]
    try:
        time_us, _, busbw, *rest = tail
        in_place = rest[3]
        wrong = [int(each[:15]) for each in (*rest[:1], *rest[4:5]) if each.isdecimal()]
        best = max(float(busbw), float(in_place))
        if not 0 <= best < 1e9 or not 0 <= float(time_us) < 1e15:
            return None
        return BenchmarkRow(
            size=int(size[:15]),
            time_us=float(time_us),
            busbw_bps=best * 8e9,
            wrong=sum(wrong) if wrong else None,
        )
    except (IndexError, ValueError):
        return None


class Rails(msgspec.Struct, frozen=True):
    """The NICs of a node that carry traffic between nodes, their line rate, and how these are
    known."""

    count: int
    line_rate_bps: float
    source: str


class Fall(msgspec.Struct, frozen=True):
    """A large size (bytes) with less than 80 % of the best bus bandwidth of a smaller one (both
    bits/s)."""

    size: int
    busbw_bps: float
    before_bps: float


class BenchmarkResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of nccl-tests shows. `best` is null without rows. `limit_bps` is the bus bandwidth
    that the `rails` of a node can carry, null where these are unknown or the run is in one node;
    `share` is the best one over it, `is_good` whether that is 80 % or more, null where the rails
    cannot have carried it, so that what is known of them is wrong. `wrong` are wrong values by
    size, in place and out of place together, `out_of_bounds` their number by the last lines.
    `lone_hosts` are those of processes that each ran alone, with one rank: no network was
    measured."""

    name: str
    source: str
    nodes: int
    ranks: int
    rails: Rails | None
    limit_bps: float | None
    best: BenchmarkRow | None
    share: float | None
    is_good: bool | None
    falls: list[Fall]
    wrong: dict[int, int]
    out_of_bounds: int
    lone_hosts: list[str]
    rows: list[BenchmarkRow]

    @property
    def is_wrong(self) -> bool:
        """Whether it is slow, falls off, has wrong values or measured nothing."""
        is_damaged = bool(self.falls or self.wrong or self.out_of_bounds or self.lone_hosts)
        return is_damaged or self.is_good is False


def benchmark_result(run: BenchmarkRun, rails: Rails | None) -> BenchmarkResult | None:
    """The result of a run; None for one that has neither rows nor wrong values. `rails` is None
    where unknown."""
    if not run.rows and not run.out_of_bounds:
        return None
    lone = run.lone_hosts
    if not lone and run.rows and len(run.hosts) == 1 and not any(row.busbw_bps for row in run.rows):
        lone = list(run.hosts.values())
    per_node = Counter(run.hosts.values())
    best = max(run.rows, key=lambda row: row.busbw_bps, default=None)
    limit_bps = share = None
    if rails is not None and len(per_node) != 1 and not lone:
        gpus = max(per_node.values(), default=rails.count)
        limit_bps = busbw_limit_bps(run.name, rails, len(run.hosts), gpus)
        share = None if best is None else best.busbw_bps / limit_bps
    return BenchmarkResult(
        name=run.name,
        source=run.source,
        nodes=len(set(lone)) or len(per_node),
        ranks=len(lone) or len(run.hosts),
        rails=rails,
        limit_bps=limit_bps,
        best=best,
        share=share,
        is_good=None if share is None or share > _POSSIBLE else share >= DELIVERED,
        falls=list(_falls(run)),
        wrong={row.size: row.wrong for row in run.rows if row.wrong},
        out_of_bounds=run.out_of_bounds,
        lone_hosts=lone,
        rows=run.rows,
    )


def busbw_limit_bps(name: str, rails: Rails, ranks: int, gpus: int) -> float:
    """The bus bandwidth that the rails of a node with some of the ranks' GPUs can carry.

    A group with fewer GPUs than NICs in a node uses one NIC for each. In an all-to-all of n ranks,
    g of them in a node, busbw is (n-1)/n of a rank's data a second, of which (n-g)/(n-1) leave the
    node over the rank's share of the NICs.
    """
    used_bps = min(rails.count, gpus) * rails.line_rate_bps
    if name == "sendrecv":
        # To the next rank: only one of a node's GPUs sends to another node.
        return used_bps / gpus
    if not name.startswith(("alltoall", "scatter", "gather")):
        return used_bps
    outside = (ranks - gpus) / (ranks - 1) if ranks > gpus else 1.0
    return used_bps / gpus / outside


def _falls(run: BenchmarkRun) -> Iterator[Fall]:
    """Large sizes whose bandwidth is below 80 % of that of a smaller one."""
    best = 0.0
    for row in sorted(run.rows, key=lambda each: each.size):
        if row.size >= _LARGE_BYTES and row.busbw_bps < FALL * best:
            yield Fall(row.size, row.busbw_bps, best)
        best = max(best, row.busbw_bps)


def benchmark_sentences(test: BenchmarkResult) -> Iterator[str]:
    """The best bandwidth, where it falls off, and wrong values."""
    name = test.name or "nccl-tests"
    if test.lone_hosts:
        hosts = name_list(sorted(set(test.lone_hosts)), 8)
        yield (
            f"{name} ran as {plural(len(test.lone_hosts), 'process', 'separate processes')} of one"
            f" rank each (rank 0 on {hosts}): they did not form one communicator, and the bandwidth"
            " of the network was not measured. Build nccl-tests with MPI=1, and start it with"
            " mpirun or srun."
        )
        return
    if test.best is not None:
        yield _best(name, test, test.best)
    for fall in test.falls[:1]:
        more = f", and at {len(test.falls) - 1} larger sizes" if len(test.falls) > 1 else ""
        yield (
            f"{name} falls off at {byte_count(fall.size)}: {byte_rate(fall.busbw_bps)}, after"
            f" {byte_rate(fall.before_bps)} at a smaller size{more}."
        )
    if test.wrong or test.out_of_bounds:
        count = sum(test.wrong.values()) or test.out_of_bounds
        sizes = name_list([byte_count(size) for size in test.wrong], 4)
        yield (
            f"{name} has {plural(count, 'wrong value')}{f' at {sizes}' if sizes else ''}: data is"
            " damaged, which is no matter of bandwidth. Check ECC and Xid of the GPUs, NVLinks, and"
            " the versions of NCCL and driver."
        )


def _best(name: str, test: BenchmarkResult, best: BenchmarkRow) -> str:
    said = f"{name} reaches {byte_rate(best.busbw_bps)} at {byte_count(best.size)}"
    if test.nodes == 1:
        return f"{said}, within one node: the network has no part in it."
    if test.share is None or test.rails is None:
        return f"{said}. To compare it with the rails, add --rails and --line-rate."
    limit = byte_rate(test.limit_bps)
    if test.is_good is None:
        return f"{said}, {_impossible(test, test.rails, limit)}"
    verdict = "and about 80 % or more is usual."
    if not test.is_good:
        verdict = "less than the usual 80 %: look for the slowest rail and for pauses."
    elif test.share > 1:
        verdict = "more than a ring could: NCCL reduces in the node first."
    return f"{said}, {rounded_percent(test.share)} of the {limit} of the rails, {verdict}"


def _impossible(test: BenchmarkResult, rails: Rails, limit: str) -> str:
    """What is wrong where the rails cannot have carried the result."""
    wrong = "Check --rails, the NICs of a node, and --line-rate, in bits per second"
    if not test.nodes:
        wrong = f"The log does not name the hosts: it may be one node, with NVLink. {wrong}"
    return (
        f"which these rails cannot carry: {plural(rails.count, 'rail')} of"
        f" {bit_rate(rails.line_rate_bps)} ({rails.source}) are {limit}. {wrong}."
    )
