"""The record of `fabmon explain` as text for a person."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import compress

from fabmon.analysis.job.wire import FindingAtTime, PortLoad, Wire
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
from fabmon.report.explain_records import (
    BenchmarkRecord,
    BenchmarkRowRecord,
    EndRecord,
    ExplainRecord,
    FailureRecord,
    HostRecord,
    rank_list,
)
from fabmon.report.output import aligned

_MOST_FAILURES = 16
_MOST_HOSTS = 16
_MOST_UNREAD = 8
_MOST_PORTS = 16
_MOST_ROWS = 40
_SMALLEST_ROW = 1 << 20


def explain_table(record: ExplainRecord) -> str:
    """The text: conclusions, failures with their meanings, the recording, then ranks and hosts."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: ExplainRecord) -> Iterator[str]:
    logs = len(record.sources) - len(record.dumps)
    parts = [plural(logs, "log"), byte_count(record.bytes)] if logs else []
    if record.dumps:
        parts.append(plural(len(record.dumps), "dump"))
    if record.nccl_lines:
        parts.append(
            plural(record.nccl_lines, "line of NCCL or PyTorch", "lines of NCCL or PyTorch")
        )
    if record.versions:
        parts.append(f"NCCL {name_list(record.versions, 3)}")
    if record.ranks:
        parts.append(plural(record.ranks, "rank"))
    if record.hosts:
        parts.append(plural(len(record.hosts), "host"))
    yield ", ".join(parts)
    yield ""
    yield from record.conclusions
    if record.failures:
        yield ""
        yield from _failure_lines(record.failures, record.conclusions)
    for test in record.tests:
        yield ""
        yield from _test_lines(test)
    if record.wire is not None:
        yield ""
        yield from wire_lines(record.wire)
    if record.hosts:
        yield ""
        yield from _host_lines(record.hosts)
    if record.not_understood:
        yield ""
        yield "NOT UNDERSTOOD"
        for each in record.not_understood[:_MOST_UNREAD]:
            yield f"{each.count} x {each.text}"
        if len(record.not_understood) > _MOST_UNREAD:
            yield f"and {len(record.not_understood) - _MOST_UNREAD} others: --format json"
    if record.not_read:
        yield ""
        yield f"{record.not_read} lines are like too many others and were only counted."
    if record.notes:
        yield ""
        yield from record.notes


def _failure_lines(failures: Sequence[FailureRecord], conclusions: Sequence[str]) -> Iterator[str]:
    """The failures, and their meanings where no conclusion says them. A column of which nothing is
    known is left out."""
    head = ("FAILURE", "TIMES", "FIRST AT", "REPORTED BY", "LEAF", "FAR END", "LEAF")
    rows = list(map(_failure_row, failures[:_MOST_FAILURES]))
    known = [any(row[column] != ABSENT for row in rows) for column in range(len(head))]
    yield from aligned([tuple(compress(row, known)) for row in (head, *rows)])
    if len(failures) > _MOST_FAILURES:
        yield f"and {len(failures) - _MOST_FAILURES} others: --format json"
    meanings = {(each.what, each.meaning, each.check): None for each in failures}
    texts = [
        f"{what}: {meaning}. {check}" if meaning != what else f"{what}. {check}"
        for what, meaning, check in list(meanings)[:_MOST_FAILURES]
        if not any(check in said for said in conclusions)
    ]
    vendor = Counter(each.vendor_error for each in failures if each.vendor_error is not None)
    if texts or vendor:
        yield ""
    yield from texts
    if vendor:
        codes = ", ".join(f"{code} (0x{code:x})" for code, _ in vendor.most_common(4))
        yield f"Vendor errors: {codes}; the vendor's documentation has their meanings."


def _failure_row(each: FailureRecord) -> tuple[str, ...]:
    at = ABSENT
    if each.time is not None:
        at = f"{each.time:%m-%d %H:%M:%SZ}"
    elif each.log_time is not None:
        at = each.log_time
    far = each.far
    return (
        f"{each.what}{' (consequence)' if each.is_consequence else ''}",
        str(each.count),
        at,
        each.near.name,
        _leaf(each.near),
        ABSENT if far is None else _far_name(far),
        ABSENT if far is None else _leaf(far),
    )


def _far_name(end: EndRecord) -> str:
    if not end.ranks and end.address and end.address not in end.name:
        return f"{end.name} ({end.address})"
    if len(end.ranks) > 1:
        return f"{end.name}, rank {' or '.join(map(str, end.ranks[:4]))}"
    return end.name


def _leaf(end: EndRecord) -> str:
    return " ".join(filter(None, (end.leaf, end.leaf_port))) or ABSENT


def _test_lines(test: BenchmarkRecord) -> Iterator[str]:
    rails = ""
    if test.rails is not None:
        rails = f"; {test.rails} rails of {bit_rate(test.line_rate_bps)} a node,"
        rails += f" {test.rails_known_from}"
    where = f"{plural(test.ranks, 'rank')} on {plural(test.nodes, 'host')}" if test.ranks else ""
    yield f"{test.name.upper() or 'NCCL-TESTS'}  {where or 'hosts unknown'}{rails}"
    head = ("SIZE", "BUSBW", "OF THE RAILS", "")
    # Below a size that matters for bandwidth only every row's latency is of interest.
    rows = [row for row in test.rows if row.size >= _SMALLEST_ROW] or test.rows
    yield from aligned([head, *(_test_row(row, test) for row in rows[-_MOST_ROWS:])])


def _test_row(row: BenchmarkRowRecord, test: BenchmarkRecord) -> tuple[str, str, str, str]:
    marks = ["falls off"] if row.size in test.falls else []
    if row.size in test.wrong:
        marks.append(plural(test.wrong[row.size], "wrong value"))
    share = rounded_percent(row.share)
    return byte_count(row.size), byte_rate(row.busbw_bps), share, ", ".join(marks)


def _host_lines(hosts: Sequence[HostRecord]) -> Iterator[str]:
    yield from aligned([("HOST", "RANKS", "GPUS", "HCAS"), *map(_host_row, hosts[:_MOST_HOSTS])])
    if len(hosts) > _MOST_HOSTS:
        rest = fold([each.host for each in hosts[_MOST_HOSTS:]])
        yield f"and {plural(len(hosts) - _MOST_HOSTS, 'host')}: {clean(rest)}"


def _host_row(each: HostRecord) -> tuple[str, str, str, str]:
    ranks = rank_list(each.ranks).partition(" ")[2] if each.ranks else "·"
    gpus = rank_list(each.gpus).partition(" ")[2] if each.gpus else "·"
    hcas = [f"[{index}] {'+'.join(names)}" for index, names in each.hcas.items()]
    nics = plural(each.nics, "NIC") if each.nics else "·"
    return each.host or "(no name)", ranks, gpus, name_list(hcas, 8) or nics


def wire_lines(wire: Wire) -> Iterator[str]:
    """What a recording shows: its findings, then the ports."""
    if wire.start is None or wire.end is None:
        yield f"WIRE  {wire.clock}"
        return
    ports = (
        f"{wire.state.value}, {plural(wire.port_count, 'port')} of the job; " if wire.ports else ""
    )
    yield f"WIRE  {wire.start:%m-%d %H:%M:%SZ} to {wire.end:%H:%M:%SZ}: {ports}{wire.clock}"
    yield from wire.not_recorded
    for each in wire.findings:
        mark = "◉" if each.is_on_path else " "
        yield f"{mark} {each.severity}  {_finding_line(each, wire.end)}"
    if not wire.findings:
        yield "No finding in this time."
    if wire.ports:
        yield ""
        lasted = duration((wire.end - wire.start).total_seconds())
        yield f"PORTS  down: sum of {lasted}; the others: mean / highest tick of {lasted}"
        head = ("PORT", "DOWN", "TX", "RX", "PAUSED", "PAUSES", "ERRORS/S", "DROPS/S")
        yield from aligned([head, *map(_port_row, wire.ports[:_MOST_PORTS])], left=1)
        if len(wire.ports) > _MOST_PORTS:
            yield f"and {len(wire.ports) - _MOST_PORTS} ports: --format json"


def _finding_line(each: FindingAtTime, end: datetime.datetime) -> str:
    """A finding with its times: the text of one that ended has them."""
    if each.until is not None:
        return each.text
    return f"{each.since:%m-%d %H:%M:%SZ}, open at {end:%H:%M:%SZ}: {each.text}"


def _port_row(each: PortLoad) -> tuple[str, ...]:
    shares = (each.tx_util, each.rx_util, each.paused, each.pausing)
    return (
        each.name,
        f"{each.down_s:.0f} s" if each.down_s else "no",
        *(f"{_share(of.mean)} / {_share(of.highest)} %" for of in shares),
        *("·" if of.highest is None else f"{of.highest:.3g}" for of in (each.errors, each.drops)),
    )


def _share(value: float | None) -> str:
    return rounded_percent(value).removesuffix("%").rstrip()
