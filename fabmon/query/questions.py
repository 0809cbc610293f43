"""The questions that can be asked. All of them read; none changes anything."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from fabmon.error_log import log_error
from fabmon.fabric.heat_columns import HEAT
from fabmon.malformed_json import MALFORMED

MOST_ITEMS = 1000
"""Items of an answer, at most."""
MOST_POINTS = 1440
"""Points of a curve, at most."""
_MOST_PATTERNS = 32

Text = Annotated[str, msgspec.Meta(max_length=200)]
Limit = Annotated[
    int, msgspec.Meta(ge=1, le=MOST_ITEMS, description="Items of the answer, at most.")
]
Time = Annotated[
    str | None,
    msgspec.Meta(
        description="14:03 or 14:03:22 (UTC), -10m (before the end), +10m (after the start),"
        " event 3, or a date such as 2026-11-19T14:03Z.",
    ),
]
JobName = Annotated[
    Text, msgspec.Meta(description="Number, name or user of a job of the scheduler: 8801, llama.")
]
Analyse = Annotated[
    bool | None,
    msgspec.Meta(
        description="Of a recording: analyse the minutes before, for step time and bus bandwidth."
        " Takes a minute with 1,024 nodes; without it, it is done for up to 128 nodes."
    ),
]
NodeName = Annotated[Text, msgspec.Meta(description="Name of a node: gpu003, leaf1.")]
DEFAULT_METRICS = (
    *("tx_bps", "rx_bps", "pause_rx", "pause_tx"),
    *("ecn", "errors", "drops"),
)


class _Question(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="question",
    rename={"from_": "from"},
):
    """What all questions have in common."""


class StatusQuestion(_Question, frozen=True, kw_only=True, tag="status"):
    """What is watched or recorded: the range of time, nodes that answer, open findings, jobs.

    Ask this first.
    """


class FindingsQuestion(_Question, frozen=True, kw_only=True, tag="findings"):
    """Findings that were open between two times, most severe first: cause, links, affected jobs,
    numbers, advice.

    Without times: all that are known. `job`, `node` and `cause` select.
    """

    from_: Time = None
    to: Time = None
    job: JobName = ""
    node: NodeName = ""
    cause: Annotated[
        Text, msgspec.Meta(description="Name of a cause: ecmp_collision, slow_receiver, ...")
    ] = ""
    limit: Limit = 50


class LinksQuestion(_Question, frozen=True, kw_only=True, tag="links"):
    """Ports at one time (the end, without `at`): traffic, utilisation, pauses, ECN, errors, drops,
    the highest first.

    `ports` are patterns: ports (leaf1/*), nodes (gpu00[1-4]) or rails (r3).
    """

    at: Time = None
    ports: Annotated[
        tuple[Text, ...],
        msgspec.Meta(
            max_length=_MOST_PATTERNS,
            description="Patterns: ports (leaf1/*), nodes (gpu00[1-4]) or rails (r3).",
        ),
    ] = ()
    job: JobName = ""
    by: Annotated[
        Literal["util", "pause", "ecn", "errors", "drops"],
        msgspec.Meta(description="What the order is by."),
    ] = "util"
    limit: Limit = 50


class JobsQuestion(_Question, frozen=True, kw_only=True, tag="jobs"):
    """Jobs of the scheduler at one time (the end, without `at`): nodes, leaves, traffic, bus
    bandwidth, step time, busiest link, findings."""

    at: Time = None
    job: JobName = ""
    analyse: Analyse = None
    limit: Limit = 50


class JobQuestion(_Question, frozen=True, kw_only=True, tag="job"):
    """Why a job is slow: the job, what its NICs sent before and after `from`, the findings that
    affect it or are on its nodes, and the most conspicuous links that it uses.

    Without `from`: the last 10 minutes.
    """

    job: JobName
    from_: Time = None
    to: Time = None
    analyse: Analyse = None
    limit: Limit = 20


class HistoryQuestion(_Question, frozen=True, kw_only=True, tag="history"):
    """A port over time: highest and mean values of equal parts of the range, null where nothing is
    known."""

    port: Annotated[
        Text, msgspec.Meta(description="A port: its id (leaf1/swp5) or its name (leaf1 up5).")
    ]
    metrics: Annotated[
        tuple[Text, ...],
        msgspec.Meta(min_length=1, max_length=len(HEAT), description=f"Of: {', '.join(HEAT)}."),
    ] = DEFAULT_METRICS
    from_: Time = None
    to: Time = None
    points: Annotated[
        int, msgspec.Meta(ge=2, le=MOST_POINTS, description="Parts of the range, at most.")
    ] = 120


Question = (
    StatusQuestion | FindingsQuestion | LinksQuestion | JobsQuestion | JobQuestion | HistoryQuestion
)

QUESTIONS: dict[str, type[Question]] = {
    "status": StatusQuestion,
    "findings": FindingsQuestion,
    "links": LinksQuestion,
    "jobs": JobsQuestion,
    "job": JobQuestion,
    "history": HistoryQuestion,
}


class QueryError(Exception):
    """A question that cannot be answered; the message says why, and what to ask instead."""


def fields_of(name: str) -> dict[str, bool]:
    """The fields of a question, and whether each is needed."""
    fields = msgspec.structs.fields(QUESTIONS[name])
    return {field.encode_name: field.required for field in fields}


def question_of(name: str, arguments: dict[str, object]) -> Question:
    """A question by its name and fields. Raises QueryError."""
    if name not in QUESTIONS:
        raise QueryError(f"there is no question {name[:80]!r}: ask one of {', '.join(QUESTIONS)}")
    if "question" in arguments:
        raise QueryError("`question` is the name of the question, and no field of it")
    try:
        question: Question = msgspec.convert({**arguments, "question": name}, QUESTIONS[name])
    except msgspec.ValidationError as error:
        raise QueryError(f"{name}: {error}") from None
    return question


def decode_question(data: bytes) -> Question:
    """A question from JSON. Raises QueryError."""
    try:
        question: Question = msgspec.json.decode(data, type=Question)
    except MALFORMED as error:
        raise QueryError(f"no question: {error}") from None
    return question


def unexpected(error: Exception, where: str) -> str:
    """What is answered after an error of fabmon itself, which is logged. It goes to a program, and
    may be answered to somebody who must not see names: it has no message and no path."""
    log_error(error, where)
    return f"unexpected error: {type(error).__name__}; fabmon's errors.log has the traceback"
