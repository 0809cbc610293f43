"""What NCCL's RAS reports, and what the network did at that time: as one object and as a table."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence

import msgspec

from fabmon.analysis.job.wire import Wire
from fabmon.fabric.wording import plural
from fabmon.report.explain_records import rank_list
from fabmon.report.explain_table import wire_lines
from fabmon.report.output import aligned


class RankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rank; null where unknown. `host` is the node where its address is known, else the name or
    address that RAS has. `nics` are the ports (`node/port`) nearest to its GPU, or those of its
    log; `links` the switch ports at their other ends. `name` is the rank in few words."""

    rank: int
    host: str | None
    pid: int | None
    gpu: int | None
    nics: list[str]
    links: list[str]
    name: str


class MissingRankRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A rank without data. `state` is `dead`, `unresponsive` or `no communicator`."""

    communicator: str
    state: str
    rank: RankRecord


class MissingProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A process that RAS did not hear from; `is_dead` after 60 s."""

    host: str
    pid: int
    gpus: list[int]
    is_dead: bool


class LateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`count` ranks that have launched fewer operations than others of their communicator; `ranks`
    is empty where RAS does not name them."""

    communicator: str
    operation: str
    launched: int
    expected: int
    count: int
    ranks: list[RankRecord]


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Ranks in a state other than RUNNING, or with an error."""

    communicator: str
    state: str
    is_error: bool
    count: int
    ranks: list[RankRecord]


class RasRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="ras"):
    """`fabmon ras --format json`. `conclusions` are sentences, the most important first.

    `source` is the asked process' address or a file. `movement` says whether counts changed since
    an earlier answer: `moving`, `frozen` or `unknown`. `needs_action` is the exit status 5.
    `answer_time` is as written, in the local time of the answering node.
    """

    source: str
    asked_at: datetime.datetime | None
    answer_time: str | None
    nccl_version: str | None
    is_complete: bool
    nodes: int
    processes: int
    gpus: int
    communicators: int
    timeouts: int
    collection_s: float | None
    movement: str
    needs_action: bool
    conclusions: list[str]
    missing_processes: list[MissingProcessRecord]
    missing: list[MissingRankRecord]
    late: list[LateRecord]
    states: list[StateRecord]
    wire: Wire | None
    notes: list[str]


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
        yield from wire_lines(record.wire)
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
