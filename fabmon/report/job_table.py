"""The records of `fabmon explain` and `fabmon ras` as text for a person."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress

import msgspec

from fabmon.analysis.job.observation import Location, Observation, Weight, rank_list
from fabmon.analysis.job.wire import Extent, FindingAtTime, PortLoad, Wire
from fabmon.analysis.job_log.nccl_tests import BenchmarkResult, BenchmarkRow
from fabmon.analysis.job_log.torch_fields import is_world
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wire.messages import clean
from fabmon.fabric.wording import (
    ABSENT,
    bit_rate,
    byte_count,
    byte_rate,
    name_list,
    plural,
    rounded_percent,
)
from fabmon.report.job_report import ExplainRecord, HostRecord, RasRecord
from fabmon.report.output import aligned

_MOST_ROWS = 16
_MOST_UNREAD = 8
_MOST_SIZES = 40
_SMALLEST_SIZE = 1 << 20
_MOST_NICS = 2
_MOST_SEEN = 40
"""Characters of what was seen, so that its row fits a terminal; the JSON has all."""
_HEAD = ("SEEN", "TIMES", "SINCE", "GROUP", "RANK", "HOST", "PID", "GPU", "NIC", "LINK")
_FAR = ("FAR END", "LINK")


def job_table(record: ExplainRecord | RasRecord) -> str:
    """The text: conclusions, what was seen, the wire, then ranks and hosts."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: ExplainRecord | RasRecord) -> Iterator[str]:
    yield ", ".join(_ras_head(record) if isinstance(record, RasRecord) else _log_head(record))
    yield ""
    yield from record.conclusions
    yield from _section(_seen_lines(record.observations, record.conclusions))
    if isinstance(record, ExplainRecord):
        for test in record.tests:
            yield from _section(_test_lines(test))
    if record.wire is not None:
        yield from _section(_wire_lines(record.wire))
    if isinstance(record, ExplainRecord):
        yield from _section(_host_lines(record.hosts))
        yield from _section(_unread_lines(record))
    yield from _section(iter(record.notes))


def _section(lines: Iterator[str]) -> Iterator[str]:
    """Lines, after an empty one if there are any."""
    for number, text in enumerate(lines):
        if not number:
            yield ""
        yield text


def _log_head(record: ExplainRecord) -> Iterator[str]:
    logs = len(record.sources) - len(record.dumps)
    if logs:
        yield plural(logs, "log")
        yield byte_count(record.bytes)
    if record.dumps:
        yield plural(len(record.dumps), "dump")
    if record.nccl_lines:
        yield plural(record.nccl_lines, "line of NCCL or PyTorch", "lines of NCCL or PyTorch")
    if record.versions:
        yield f"NCCL {name_list(record.versions, 3)}"
    if record.ranks:
        yield plural(record.ranks, "rank")
    if record.hosts:
        yield plural(len(record.hosts), "host")


def _ras_head(record: RasRecord) -> Iterator[str]:
    yield record.source
    if record.asked_at is not None:
        yield f"asked at {record.asked_at:%H:%M:%SZ}"
    elif record.answer_time is not None:
        yield f"answer of {record.answer_time} (local time of that node)"
    if record.nccl_version:
        yield f"NCCL {record.nccl_version}"
    if record.processes:
        yield plural(record.nodes, "node")
        yield plural(record.processes, "process", "processes")
        yield plural(record.gpus, "GPU")
    yield plural(record.communicators, "communicator")
    if record.timeouts:
        yield plural(record.timeouts, "timeout")


def _seen_lines(seen: Sequence[Observation], conclusions: Sequence[str]) -> Iterator[str]:
    """A row for each place, with all of its ranks, and what no conclusion says. A column of which
    nothing is known is left out."""
    rows = [row for each in seen if each.what for row in _rows(each)]
    if not rows:
        return
    known = [any(row[column] not in (ABSENT, "") for row in rows) for column in range(len(rows[0]))]
    shown = [tuple(compress(row, known)) for row in ((*_HEAD, *_FAR), *rows[:_MOST_ROWS])]
    yield from aligned(shown)
    if len(rows) > _MOST_ROWS:
        yield f"and {len(rows) - _MOST_ROWS} others: --format json"
    checks = {(each.what, each.check): each for each in reversed(seen) if each.is_failure}
    texts = [
        each.said
        for each in reversed(checks.values())
        if not any(each.check in said for said in conclusions)
    ]
    vendor = Counter(each.vendor_error for each in seen if each.vendor_error is not None)
    if texts or vendor:
        yield ""
    yield from texts[:_MOST_ROWS]
    if vendor:
        codes = ", ".join(f"{code} (0x{code:x})" for code, _ in vendor.most_common(4))
        yield f"Vendor errors: {codes}; the vendor's documentation has their meanings."


def _rows(each: Observation) -> Iterator[tuple[str, ...]]:
    # Of a collective that timed out, the log has the time of its end.
    since = ABSENT if each.ran_s else each.log_time or ABSENT
    if each.time is not None:
        since = f"{each.time:%m-%d %H:%M:%SZ}"
    what = f"{'↳ ' if each.weight == Weight.CONSEQUENCE else ''}{each.what}"
    start = (
        what if len(what) <= _MOST_SEEN else f"{what[: _MOST_SEEN - 1].rstrip()}…",
        str(each.times) if each.times > 1 else "",
        since,
        ABSENT if is_world(each.group) else each.group or ABSENT,
    )
    far = each.others[0] if each.others and not each.operation else None
    end = (ABSENT, ABSENT) if far is None else (_far_name(far), _links(far))
    unnamed = f"{each.count} not named" if each.count and not each.at else ABSENT
    ranks: dict[Location, list[int]] = {}
    for place in each.at or (Location(),):
        ranks.setdefault(msgspec.structs.replace(place, ranks=()), []).extend(place.ranks)
    for place, there in ranks.items():
        rank = rank_list(there).partition(" ")[2] if there else unnamed
        yield (*start, rank, *_where(place), *end)


def _where(place: Location) -> tuple[str, ...]:
    names = [port.name.removeprefix(f"{port.node} ") for port in place.ports] or place.hcas
    return (
        place.host or (place.ports[0].node if place.ports else "") or place.gid or ABSENT,
        ABSENT if place.pid is None else str(place.pid),
        ABSENT if place.pid is None else ", ".join(map(str, place.gpus)) or ABSENT,
        _few(names, "NIC"),
        _links(place),
    )


def _links(place: Location) -> str:
    return _few([port.link for port in place.ports if port.link], "link")


def _few(names: Sequence[str], noun: str) -> str:
    """Names, or their number where which of them is used is not known."""
    if len(names) > _MOST_NICS:
        return f"any of {plural(len(names), noun)}"
    return ", ".join(names) or ABSENT


def _far_name(end: Location) -> str:
    if not end.ranks and end.address and end.address not in end.name:
        return f"{end.name} ({end.address})"
    if len(end.ranks) > 1:
        return f"{end.name}, rank {' or '.join(map(str, end.ranks[:4]))}"
    return end.name


def _test_lines(test: BenchmarkResult) -> Iterator[str]:
    rails = ""
    if test.rails is not None:
        rails = f"; {test.rails.count} rails of {bit_rate(test.rails.line_rate_bps)} a node,"
        rails += f" {test.rails.source}"
    where = f"{plural(test.ranks, 'rank')} on {plural(test.nodes, 'host')}" if test.ranks else ""
    yield f"{test.name.upper() or 'NCCL-TESTS'}  {where or 'hosts unknown'}{rails}"
    head = ("SIZE", "BUSBW", "OF THE RAILS", "")
    # Below a size that matters for bandwidth only every row's latency is of interest.
    rows = [row for row in test.rows if row.size >= _SMALLEST_SIZE] or test.rows
    yield from aligned([head, *(_test_row(row, test) for row in rows[-_MOST_SIZES:])])


def _test_row(row: BenchmarkRow, test: BenchmarkResult) -> tuple[str, str, str, str]:
    marks = ["falls off"] if any(row.size == fall.size for fall in test.falls) else []
    if row.size in test.wrong:
        marks.append(plural(test.wrong[row.size], "wrong value"))
    # A rank alone has no bus bandwidth: the program prints 0 for it, which nothing measured.
    busbw_bps = row.busbw_bps or None
    share = None if test.limit_bps is None or not busbw_bps else busbw_bps / test.limit_bps
    cells = (byte_count(row.size), byte_rate(busbw_bps), rounded_percent(share))
    return (*cells, ", ".join(marks))


def _host_lines(hosts: Sequence[HostRecord]) -> Iterator[str]:
    if hosts:
        yield from aligned([("HOST", "RANK", "GPU", "HCAS"), *map(_host_row, hosts[:_MOST_ROWS])])
    if len(hosts) > _MOST_ROWS:
        rest = fold([each.host for each in hosts[_MOST_ROWS:]])
        yield f"and {plural(len(hosts) - _MOST_ROWS, 'host')}: {clean(rest)}"


def _host_row(each: HostRecord) -> tuple[str, str, str, str]:
    ranks = rank_list(each.ranks).partition(" ")[2] if each.ranks else ABSENT
    gpus = rank_list(each.gpus).partition(" ")[2] if each.gpus else ABSENT
    hcas = [f"[{index}] {'+'.join(names)}" for index, names in each.hcas.items()]
    nics = plural(each.nics, "NIC") if each.nics else ABSENT
    return each.host or "(no name)", ranks, gpus, name_list(hcas, 8) or nics


def _unread_lines(record: ExplainRecord) -> Iterator[str]:
    if record.not_understood:
        yield "NOT UNDERSTOOD"
        yield from (f"{each.count} x {each.text}" for each in record.not_understood[:_MOST_UNREAD])
        if len(record.not_understood) > _MOST_UNREAD:
            yield f"and {len(record.not_understood) - _MOST_UNREAD} others: --format json"
    if record.not_read:
        if record.not_understood:
            yield ""
        yield f"{record.not_read} lines are like too many others and were only counted."


def _wire_lines(wire: Wire) -> Iterator[str]:
    """What a recording shows: its findings, then the ports."""
    if wire.start is None or wire.end is None:
        yield f"WIRE  {wire.clock}"
        return
    state = f"{wire.state.value}, {plural(wire.port_count, 'port')} of the job; "
    state = state if wire.port_count else ""
    yield f"WIRE  {wire.start:%m-%d %H:%M:%SZ} to {wire.end:%H:%M:%SZ}: {state}{wire.clock}"
    yield from wire.not_recorded
    for each in wire.findings:
        mark = "◉" if each.is_on_path else " "
        yield f"{mark} {each.severity}  {_finding_line(each, wire.end)}"
    if not wire.findings:
        yield "No finding in this time."
    if wire.ports:
        yield ""
        lasted = duration((wire.end - wire.start).total_seconds())
        yield f"PORTS  down: sum of {lasted}; the others: mean/highest tick of {lasted}"
        head = ("PORT", "DOWN", "TX", "RX", "PAUSED", "PAUSES", "ERR/S", "DROPS/S")
        yield from aligned([head, *map(_port_row, wire.ports[:_MOST_ROWS])], left=1)
        if len(wire.ports) > _MOST_ROWS:
            yield f"and {len(wire.ports) - _MOST_ROWS} ports: --format json"


def _finding_line(each: FindingAtTime, end: datetime.datetime) -> str:
    """A finding with its times: the text of one that ended has them."""
    if each.until is not None:
        return each.text
    return f"{each.since:%m-%d %H:%M:%SZ}, open at {end:%H:%M:%SZ}: {each.text}"


def _port_row(each: PortLoad) -> tuple[str, ...]:
    shares = map(_share, (each.tx_util, each.rx_util, each.paused, each.pausing))
    counts = [
        ABSENT if of.highest is None else f"{of.highest:.3g}" for of in (each.errors, each.drops)
    ]
    return each.name, f"{each.down_s:.0f} s" if each.down_s else "no", *shares, *counts


def _share(of: Extent) -> str:
    return f"{rounded_percent(of.mean).removesuffix('%').rstrip()}/{rounded_percent(of.highest)}"
