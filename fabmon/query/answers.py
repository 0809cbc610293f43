"""The answers, typed; docs/query.schema.json is generated from these."""

from __future__ import annotations

import datetime

import msgspec

from fabmon.report.json_records import FindingRecord
from fabmon.report.output import json_schema


class LinkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One port at one tick. Rates are bits/s of one direction, events are per second, pauses are
    shares of time (0 to 1); null is absent, never 0. `ecn` counts the marked packets that arrived,
    `cnp` the congestion notifications that slowed what the port sends.

    `paused` is the share in which its neighbour paused it, `pausing` that in which it paused its
    neighbour. `state` is `up`, `down`, `stale` or `unknown`. `findings` are the keys of open ones
    that name the port. `doubt` says why its traffic cannot be what it counts, else it is empty.
    """

    name: str
    id: str
    peer: str | None
    role: str
    state: str
    line_rate_bps: float | None
    tx_bps: float | None
    rx_bps: float | None
    tx_util: float | None
    rx_util: float | None
    paused: float | None
    pausing: float | None
    stalled: float | None
    ecn: float | None
    cnp: float | None
    errors: float | None
    drops: float | None
    findings: list[str]
    doubt: str


class JobItem(msgspec.Struct, frozen=True, kw_only=True):
    """A job at one time; `nodes` are its watched ones, 100 at most of `nodes_total`. Null is not
    known.

    `tx_bps` is what its NICs sent, the mean of the last minute; `busbw_bps` the bus bandwidth as
    nccl-tests defines it, in bits/s. `step_s` is the time of an iteration, `step_was_s` that before
    it changed at `step_changed`. `spans` says where it runs on more leaves than it needs, or meets
    other jobs.
    """

    job: str
    number: str
    name: str
    user: str
    partition: str
    nodes_total: int
    nodes: list[str]
    leaves: list[str]
    spans: str
    tx_bps: float | None
    busbw_bps: float | None
    step_s: float | None
    step_was_s: float | None
    step_changed: datetime.datetime | None
    comm_low: float | None
    comm_high: float | None
    busiest_link: str | None
    busiest_util: float | None
    findings: list[str]


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The highest and mean value of each part of a range of time; null where nothing is known."""

    highest: list[float | None]
    mean: list[float | None]


class _Answer(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", rename={"from_": "from"}
):
    """What all answers have in common.

    `source` is the recording, or the watch. `left_out` is how many items more there are; `notes`
    say what the answer does not have.
    """

    source: str
    left_out: int = 0
    notes: list[str] = []


class StatusAnswer(_Answer, frozen=True, kw_only=True, tag="status"):
    """What is known `from` a time `to` another: nodes, findings and jobs are those at the end.

    `not_answering` are nodes with their reason, 50 at most.
    """

    from_: datetime.datetime
    to: datetime.datetime
    interval_s: float
    nodes_up: int
    nodes_total: int
    not_answering: dict[str, str]
    ports: int
    open_findings: int
    findings: int
    jobs: int


class FindingsAnswer(_Answer, frozen=True, kw_only=True, tag="findings"):
    """Findings that were open in a range of time, each as it was last in the range, `time` its end.

    `change` is `close` where it has closed by then. 100 `ports`, `victims` and `jobs` at most.
    """

    from_: datetime.datetime
    to: datetime.datetime
    findings: list[FindingRecord]


class LinksAnswer(_Answer, frozen=True, kw_only=True, tag="links"):
    """Ports at a time."""

    at: datetime.datetime
    links: list[LinkItem]


class JobsAnswer(_Answer, frozen=True, kw_only=True, tag="jobs"):
    """Jobs at a time."""

    at: datetime.datetime
    jobs: list[JobItem]


class JobAnswer(_Answer, frozen=True, kw_only=True, tag="job"):
    """What there is on a job in a range of time.

    `job` is the job at its end. `sent_bps` is what its NICs sent together, the mean of the range,
    `sent_before_bps` that of as much time before it; null where it is not recorded. `links` are
    those of its nodes and of the leaves that it crosses, at the end of the range. `findings` are as
    in FindingsAnswer.
    """

    from_: datetime.datetime
    to: datetime.datetime
    job: JobItem
    sent_bps: float | None
    sent_before_bps: float | None
    findings: list[FindingRecord]
    links: list[LinkItem]


class HistoryAnswer(_Answer, frozen=True, kw_only=True, tag="history"):
    """A port over time: `times` are the starts of parts of `part_s` seconds.

    Metrics: `tx_bps` and `rx_bps` in bits/s; `pause_rx` (its neighbour paused it), `pause_tx`,
    `stall` and `bus` as shares of time, 0 to 1; the others are events per second.
    """

    from_: datetime.datetime
    to: datetime.datetime
    port: str
    id: str
    line_rate_bps: float | None
    part_s: float
    times: list[datetime.datetime]
    metrics: dict[str, Curve]


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="error"):
    """A question that cannot be answered, and why."""

    text: str


Answer = StatusAnswer | FindingsAnswer | LinksAnswer | JobsAnswer | JobAnswer | HistoryAnswer


def schema() -> bytes:
    """JSON Schema of all answers, as it is committed in docs/."""
    return json_schema(Answer | ErrorAnswer)
