"""Answers questions from a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
import numpy as np

from fabmon.analysis.finding import list_order
from fabmon.analysis.fluctuation.links import port_filter
from fabmon.analysis.job_summary import JobSummary, job_summaries
from fabmon.analysis.scene import Scene, missing_findings
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.measures import known_mean, known_sum
from fabmon.fabric.model import RAIL, UPLINK
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import NodeState
from fabmon.fabric.time_wording import SECOND_NS, interval, utc
from fabmon.fabric.wording import name_list, plural
from fabmon.query.answers import (
    Answer,
    Curve,
    FindingsAnswer,
    HistoryAnswer,
    JobAnswer,
    JobItem,
    JobsAnswer,
    LinksAnswer,
    StatusAnswer,
)
from fabmon.query.items import (
    conspicuous_links,
    cut_lists,
    job_item,
    known_finding_record,
    link_items,
    ports_by,
    unreported,
)
from fabmon.query.named import affects_job, check_names, is_job, nodes_of, port_named, unknown
from fabmon.query.questions import (
    MOST_ITEMS,
    FindingsQuestion,
    HistoryQuestion,
    JobQuestion,
    JobsQuestion,
    LinksQuestion,
    QueryError,
    Question,
    StatusQuestion,
)
from fabmon.query.sources import KnownFinding, Source, known_finding
from fabmon.recording.reading.time_parsing import KnownTimes, TimeError
from fabmon.report.json_records import rounded_or_none

_USUAL_S = 600
"""The range of a question about a job without a start."""
_MOST_ANALYSED = 128
"""Nodes of a recording of which the minutes before a time are analysed unasked."""
_NOT_ANALYSED = (
    "step time is null, and traffic is that of one tick: `analyse` reads the minutes before too"
)
_OLDER = (
    "the numbers of open findings are those that were recorded last, some seconds before the end"
)
_PARTIAL = (
    "{}: numbers as recorded, by a recorder that was too busy to analyse every tick: a report"
    " computes them again from every tick, and may have others"
)
_NONE_RECORDED = (
    "no such finding was recorded at the time: a report computes findings again, and may have some"
)
_MOST_REASONS = 50
_JOB_PARTS = 60


async def answer(source: Source, question: Question) -> Answer:
    """The answer to a question. Raises QueryError."""
    made = await _answer(source, question)
    return msgspec.structs.replace(
        made, notes=made.notes + missing_findings(source.failed_detectors)
    )


async def _answer(source: Source, question: Question) -> Answer:
    match question:
        case StatusQuestion():
            return await _status(source)
        case FindingsQuestion():
            return await _findings(source, question)
        case LinksQuestion():
            return await _links(source, question)
        case JobsQuestion():
            return await _jobs(source, question)
        case JobQuestion():
            return await _job(source, question)
        case HistoryQuestion():
            return await _history(source, question)
    assert_never(question)


async def _status(source: Source) -> StatusAnswer:
    from_ns, to_ns = await source.range_ns()
    scene = await source.scene(to_ns, is_analysed=False)
    snapshot = scene.snapshot
    silent = {
        name: status.reason or status.cause or str(status.state)
        for name, status in snapshot.statuses.items()
        if status.state is not NodeState.UP
    }
    return StatusAnswer(
        source=source.name,
        from_=utc(from_ns),
        to=utc(to_ns),
        interval_s=snapshot.interval_s,
        nodes_up=snapshot.nodes_up,
        nodes_total=len(snapshot.fabric.nodes) or len(snapshot.statuses),
        not_answering=dict(list(silent.items())[:_MOST_REASONS]),
        left_out=max(0, len(silent) - _MOST_REASONS),
        ports=len(snapshot.fabric.ports),
        open_findings=len(scene.findings),
        findings=len(await source.findings(to_ns)),
        jobs=len(snapshot.jobs.jobs),
    )


async def _findings(source: Source, question: FindingsQuestion) -> FindingsAnswer:
    from_ns, to_ns, not_known = await _range(source, question.from_, question.to)
    found = [
        each
        for each in await _between(source, from_ns, to_ns)
        if (not question.job or affects_job(each, question.job))
        and (not question.node or question.node in nodes_of(each))
        and question.cause in ("", each.finding.cause)
    ]
    if not found:
        await check_names(source, question)
        not_known = not_known + ([] if source.is_live else [_NONE_RECORDED])
    shown, older = await _as_of(source, found[: question.limit], to_ns)
    left_out = len(found) - len(shown)
    return FindingsAnswer(
        source=source.name,
        from_=utc(from_ns),
        to=utc(to_ns),
        findings=[known_finding_record(each, to_ns) for each in shown],
        left_out=left_out,
        notes=not_known
        + _more(left_out, question.limit, "name a job, a node, a cause or a shorter time")
        + [text for each in shown for text in cut_lists(each)]
        + older,
    )


async def _links(source: Source, question: LinksQuestion) -> LinksAnswer:
    at_ns = await _time(source, question.at)
    scene = await source.scene(at_ns, is_analysed=False)
    ports = scene.snapshot.fabric.ports
    wanted = [*filter(port_filter(question.ports), ports)]
    for pattern in question.ports:
        if not any(map(port_filter([pattern]), wanted)):
            names = (name for port in ports for name in (port.node, port.id, port.label))
            raise unknown("port matches", pattern, names)
    rows = [port.row for port in wanted]
    if question.job:
        used = set(_rows_of(scene, _summary(scene, question.job)))
        rows = [row for row in rows if row in used]
    not_known = unreported(scene.snapshot, rows, question.by)
    rows = ports_by(scene.snapshot, rows, question.by)
    items = link_items(scene, rows[: question.limit])
    left_out = len(rows) - len(items)
    return LinksAnswer(
        source=source.name,
        at=utc(scene.snapshot.time_ns),
        links=items,
        left_out=left_out,
        notes=_more(left_out, question.limit, "name ports or a job")
        + ([not_known] if not_known else []),
    )


async def _jobs(source: Source, question: JobsQuestion) -> JobsAnswer:
    at_ns = await _time(source, question.at)
    scene, unknown = await _analysed_scene(source, at_ns, question.analyse)
    every = scene.snapshot.jobs.jobs
    found = [each for each in every if not question.job or is_job(each, question.job)]
    if question.job and not found:
        raise _no_job(scene, question.job)
    items = [job_item(scene, each) for each in job_summaries(scene, found[: question.limit])]
    left_out = len(found) - len(items)
    return JobsAnswer(
        source=source.name,
        at=utc(scene.snapshot.time_ns),
        jobs=items,
        left_out=left_out,
        notes=_more(left_out, question.limit, "name a job")
        + _why_no_jobs(scene.snapshot)
        + _unresolved(scene, items)
        + unknown,
    )


async def _job(source: Source, question: JobQuestion) -> JobAnswer:
    from_ns, to_ns, not_known = await _range(source, question.from_, question.to)
    if question.from_ is None:
        from_ns = max(from_ns, to_ns - _USUAL_S * SECOND_NS)
    scene, unknown = await _analysed_scene(source, to_ns, question.analyse)
    summary = _summary(scene, question.job)
    nodes = set(summary.nodes)
    found = [
        each
        for each in await _between(source, from_ns, to_ns)
        if affects_job(each, summary.job.label) or not nodes.isdisjoint(nodes_of(each))
    ]
    shown, older = await _as_of(source, found[: question.limit], to_ns, (scene, unknown))
    rows = _rows_of(scene, summary)
    sent_bps, before_bps = await _sent(source, scene.snapshot, summary, from_ns, to_ns)
    left_out = max(0, len(found) - question.limit)
    item = job_item(scene, summary)
    return JobAnswer(
        source=source.name,
        from_=utc(from_ns),
        to=utc(to_ns),
        job=item,
        sent_bps=sent_bps,
        sent_before_bps=before_bps,
        findings=[known_finding_record(each, to_ns) for each in shown],
        links=conspicuous_links(scene, rows, question.limit),
        left_out=left_out,
        notes=not_known
        + _more(left_out, question.limit, "name a shorter time")
        + [text for each in shown for text in cut_lists(each)]
        + ([] if found else ["no finding affects the job or is on its nodes in this time"])
        + _unresolved(scene, [item])
        + unknown
        + older,
    )


async def _history(source: Source, question: HistoryQuestion) -> HistoryAnswer:
    from_ns, to_ns, not_known = await _range(source, question.from_, question.to)
    if from_ns == to_ns:
        raise QueryError("the range is empty: `to` is the same time as `from`")
    snapshot = (await source.scene((await source.range_ns())[1], is_analysed=False)).snapshot
    port = port_named(snapshot, question.port)
    columns = tuple(dict.fromkeys(question.metrics))
    unknown = [each for each in columns if each not in HEAT]
    if unknown:
        raise QueryError(f"no metric {unknown[0][:40]!r}: ask for {', '.join(HEAT)}")
    series = await source.series((port.id,), columns, (from_ns, to_ns), question.points)
    parts = series.highest.shape[-1]
    return HistoryAnswer(
        source=source.name,
        from_=utc(from_ns),
        to=utc(to_ns),
        port=port.display_name,
        id=port.id,
        line_rate_bps=rounded_or_none(snapshot.line_rate_bps[port.row]),
        part_s=series.part_ns / SECOND_NS,
        times=[utc(series.from_ns + part * series.part_ns) for part in range(parts)],
        metrics={
            name: Curve(
                highest=[rounded_or_none(value) for value in series.highest[place, 0]],
                mean=[rounded_or_none(value) for value in series.mean[place, 0]],
            )
            for place, name in enumerate(columns)
        },
        notes=not_known + ([series.note] if series.note else []),
    )


async def _analysed_scene(
    source: Source, at_ns: int, analyse: bool | None
) -> tuple[Scene, list[str]]:
    """The scene of a time, and what is not known where the minutes before it are not analysed."""
    scene = await source.scene(at_ns, is_analysed=False)
    if source.is_live:
        return scene, []
    if analyse or (analyse is None and len(scene.snapshot.statuses) <= _MOST_ANALYSED):
        return await source.scene(at_ns, is_analysed=True), []
    return scene, [_NOT_ANALYSED]


async def _known_times(source: Source) -> KnownTimes:
    start_ns, until_ns = await source.range_ns()
    what = "what the watch knows" if source.is_live else "the recording"
    return KnownTimes(start_ns, until_ns, await source.events_ns(), what, is_latest=True)


async def _time(source: Source, text: str | None) -> int:
    """The time that `at` means; the end without one. `14:03` is the latest such time."""
    known = await _known_times(source)
    try:
        return known.until_ns if text is None else known.at("at", text)
    except TimeError as error:
        raise QueryError(str(error)) from None


async def _range(source: Source, begin: str | None, end: str | None) -> tuple[int, int, list[str]]:
    """The range of time that `from` and `to` mean, and what of it is not known. It ends with the
    last tick up to `to`."""
    known = await _known_times(source)
    try:
        from_ns, to_ns, notes = known.part(("from", begin), ("to", end))
    except TimeError as error:
        raise QueryError(str(error)) from None
    from_ns = known.start_ns if from_ns is None else from_ns
    if to_ns is None or to_ns >= known.until_ns:
        return from_ns, known.until_ns, notes
    return from_ns, max(from_ns, await source.tick_ns(to_ns)), notes


async def _between(source: Source, from_ns: int, to_ns: int) -> list[KnownFinding]:
    """The findings that were open in a range of time, most severe first."""
    found = [
        each
        for each in await source.findings(to_ns)
        if each.finding.until_ns is None or each.finding.until_ns >= from_ns
    ]
    return sorted(found, key=lambda each: list_order(each.finding))


async def _as_of(
    source: Source,
    found: list[KnownFinding],
    to_ns: int,
    analysed: tuple[Scene, list[str]] | None = None,
) -> tuple[list[KnownFinding], list[str]]:
    """The findings with the numbers of a time, as a replay shows them, and what says so where they
    are older: they are recorded only every few seconds. Those that ended by then are as recorded,
    and so are those without their texts, which `redact` removes. `analysed` is what
    _analysed_scene() said of that time, if it was asked."""
    is_open = [(each.finding.until_ns or to_ns + 1) > to_ns for each in found]
    has_text = any(each.finding.text for each in found)
    if source.is_live or not has_text:
        return found, []
    partial = [
        _PARTIAL.format(each.finding.key)
        for each, still in zip(found, is_open, strict=True)
        if each.is_partial and not still
    ]
    if not any(is_open):
        return found, partial
    try:
        scene, unknown = analysed or await _analysed_scene(source, to_ns, None)
    except QueryError:  # The counters are damaged; the findings are not.
        return found, [*partial, _OLDER]
    if unknown:
        return found, [*partial, _OLDER]
    now = {each.key: known_finding(each, scene.snapshot) for each in scene.findings}
    return [
        now.get(each.finding.key, each) if still else each
        for each, still in zip(found, is_open, strict=True)
    ], partial


def _unresolved(scene: Scene, items: Sequence[JobItem]) -> list[str]:
    """Says of which jobs the step time may be that of several shorter steps."""
    shown, report = {each.job for each in items}, scene.iteration_report
    names = [each.name for each in report.jobs if each.name in shown and not each.resolved]
    fast = interval(report.fast_s)
    return [f"step_s of {each} may be of several steps under {fast}" for each in names]


def _more(left_out: int, limit: int, how: str) -> list[str]:
    if not left_out:
        return []
    larger = f"raise the limit (at most {MOST_ITEMS}) or " if limit < MOST_ITEMS else ""
    return [f"{plural(left_out, 'item')} left out: {larger}{how}"]


def _summary(scene: Scene, text: str) -> JobSummary:
    """The job that a text names. Raises QueryError where there is none, or several."""
    found = [each for each in scene.snapshot.jobs.jobs if is_job(each, text)]
    if not found:
        raise _no_job(scene, text)
    if len(found) > 1:
        named = name_list([each.label for each in found], 5)
        raise QueryError(f"{text[:80]!r} names {len(found)} jobs: {named}")
    return job_summaries(scene, found)[0]


def _no_job(scene: Scene, text: str) -> QueryError:
    jobs = [job.label for job in scene.snapshot.jobs.jobs]
    known = f"these run: {name_list(jobs, 10)}" if jobs else "; ".join(_why_no_jobs(scene.snapshot))
    return QueryError(f"no job {text[:80]!r} runs at that time; {known}")


def _why_no_jobs(snapshot: Snapshot) -> list[str]:
    if snapshot.jobs.jobs:
        return []
    report = snapshot.jobs.report
    reason = f": {report.reason}" if report is not None and report.reason else ""
    return [f"no job of a scheduler is known at that time{reason}"]


def _rows_of(scene: Scene, summary: JobSummary) -> list[int]:
    """The NICs of a job, and the uplinks of its leaves where it runs on several."""
    nodes, leaves = set(summary.nodes), set(summary.placement.leaves)
    crossed = leaves if len(leaves) > 1 else set()
    return [
        port.row
        for port in scene.snapshot.fabric.ports
        if (port.role == RAIL and port.node in nodes)
        or (port.role == UPLINK and port.node in crossed)
    ]


async def _sent(
    source: Source, snapshot: Snapshot, summary: JobSummary, from_ns: int, to_ns: int
) -> tuple[float | None, float | None]:
    """What the NICs of a job sent together, the mean of a range and of as much time before it."""
    nodes = set(summary.nodes)
    rails = tuple(p.id for p in snapshot.fabric.ports if p.role == RAIL and p.node in nodes)
    if not rails or to_ns <= from_ns:
        return None, None
    begin_ns = from_ns - (to_ns - from_ns)
    series = await source.series(rails, ("tx_bps",), (begin_ns, to_ns), _JOB_PARTS)
    starts_ns = series.from_ns + np.arange(series.mean.shape[-1]) * series.part_ns
    together = known_sum(series.mean[0], axis=0)
    is_after, is_before = starts_ns >= from_ns, starts_ns + series.part_ns <= from_ns
    after, before = together[is_after & (starts_ns < to_ns)], together[is_before]
    return rounded_or_none(float(known_mean(after))), rounded_or_none(float(known_mean(before)))
