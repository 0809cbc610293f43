"""The record of `fabmon ras` as text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fabmon.fabric.wording import plural, rounded_percent
from fabmon.report.explain_records import rank_list
from fabmon.report.output import aligned
from fabmon.report.ras_records import LoadRecord, RankRecord, RasRecord, WireRecord

_MOST_ROWS = 16
_MOST_NAMED = 2


def ras_table(record: RasRecord) -> str:
    """The text: conclusions, then ranks that are missing, late or failed, then the wire."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: RasRecord) -> Iterator[str]:
    yield ", ".join(_head(record))
    yield ""
    yield from record.conclusions
    rows = list(_rank_rows(record))
    if rows:
        yield ""
        head = ("STATE", "COMMUNICATOR", "RANK", "NODE", "PID", "GPU", "NICS", "LINKS")
        yield from aligned([head, *rows[:_MOST_ROWS]])
        if len(rows) > _MOST_ROWS:
            yield f"and {len(rows) - _MOST_ROWS} others: --format json"
    if record.wire is not None:
        yield ""
        yield from _wire_lines(record.wire)
    if record.notes:
        yield ""
        yield from record.notes


def _head(record: RasRecord) -> Iterator[str]:
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


def _rank_rows(record: RasRecord) -> Iterator[tuple[str, ...]]:
    for lack in record.missing:
        yield _row(lack.state, lack.communicator, lack.rank)
    for state in record.states:
        if state.is_error:
            yield from _rows(state.state, state.communicator, state.ranks, state.count)
    for late in record.late:
        text = f"{late.operation} {late.launched} of {late.expected}"
        yield from _rows(text, late.communicator, late.ranks, late.count)
    for state in record.states:
        if not state.is_error:
            yield from _rows(state.state, state.communicator, state.ranks, state.count)


def _rows(
    state: str, communicator: str, ranks: Sequence[RankRecord], count: int
) -> Iterator[tuple[str, ...]]:
    if not ranks:
        yield (state, communicator, f"{count} not named", *(["·"] * 5))
    elif not any(each.host for each in ranks):
        text = rank_list([each.rank for each in ranks]).partition(" ")[2]
        yield (state, communicator, text, *(["·"] * 5))
    else:
        yield from (_row(state, communicator, each) for each in ranks)


def _row(state: str, communicator: str, rank: RankRecord) -> tuple[str, ...]:
    return (
        state,
        communicator,
        str(rank.rank),
        rank.host or "·",
        "·" if rank.pid is None else str(rank.pid),
        "·" if rank.gpu is None else str(rank.gpu),
        _few([nic.partition("/")[2] for nic in rank.nics], "NIC"),
        _few(rank.links, "link"),
    )


def _few(names: Sequence[str], noun: str) -> str:
    """Names, or their number where which of them is used is not known."""
    if len(names) > _MOST_NAMED:
        return f"any of {plural(len(names), noun)}"
    return ", ".join(names) or "·"


def _wire_lines(wire: WireRecord) -> Iterator[str]:
    if wire.start is None or wire.end is None:
        yield f"WIRE  {wire.clock}"
        return
    ports = plural(wire.port_count, "port")
    yield (
        f"WIRE  {wire.start:%m-%d %H:%M:%SZ} to {wire.end:%H:%M:%SZ}: {wire.state}, {ports} of the"
        f" job; {wire.clock}"
    )
    if wire.ports:
        head = ("PORT", "TX", "RX", "PAUSED", "PAUSES", "DOWN")
        yield from aligned([head, *map(_port_row, wire.ports)], left=1)
    for each in wire.findings:
        if each.is_on_path:
            yield f"◉ {each.since:%H:%M:%SZ}  {each.severity}  {each.text}"


def _port_row(each: LoadRecord) -> tuple[str, ...]:
    shares = (each.tx_util, each.rx_util, each.paused, each.pausing)
    down = f"{each.down_s:.0f} s" if each.down_s else "no"
    return (each.name, *(rounded_percent(share) for share in shares), down)
