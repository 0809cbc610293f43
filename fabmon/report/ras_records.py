"""The record of `fabmon ras`: what NCCL's RAS reports, and what the network did at that time."""

from __future__ import annotations

import datetime

import msgspec

from fabmon.report.explain_records import FindingAtTime


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


class LoadRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A port of the job, as in PortLoad."""

    port: str
    name: str
    tx_util: float | None
    rx_util: float | None
    paused: float | None
    pausing: float | None
    down_s: float


class WireRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The job's ports in the seconds before the answer. `state` is down, paused, hot, active, idle
    or unknown, `ports` make it; `start` and `end` are null where the recording does not have that
    time. `clock` says how the times were aligned, and how sure that is."""

    clock: str
    start: datetime.datetime | None
    end: datetime.datetime | None
    state: str
    port_count: int
    ports: list[LoadRecord]
    findings: list[FindingAtTime]


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
    wire: WireRecord | None
    notes: list[str]
