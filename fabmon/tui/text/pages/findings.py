"""The findings, most severe first: the panel of the overview, and the view with all events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice

import numpy as np

from fabmon.analysis.affected_ports import affected_ports
from fabmon.analysis.causes import (
    brief_loss,
    finding_title,
    loss_and_confidence,
    measured_loss,
    sentence,
)
from fabmon.analysis.finding import Finding, shown_moment, unseen_s
from fabmon.analysis.scene import Event, Scene, missing_findings
from fabmon.fabric.model import DOWNLINK, GPU, NVLINK
from fabmon.fabric.snapshot import FIRST_SAMPLE, has_line_rates, unknown_ports
from fabmon.fabric.time_wording import SECOND_NS, age, duration, lasted, time_of_day
from fabmon.fabric.wording import (
    name_list,
    plural,
)
from fabmon.recording.reading.recorded_findings import RecordedFindings
from fabmon.scenes.findings_at_the_time import findings_open_at, only_recorded
from fabmon.tui.line import (
    EventTarget,
    FindingTarget,
    Line,
    PortTarget,
    Span,
    fit,
    line,
    paragraph,
    right,
)
from fabmon.tui.text import iteration, labels
from fabmon.tui.text.chart import thin_bar
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.finding_groups import MOST_CLOSED, FindingGroup, matching
from fabmon.tui.text.header import down_links, nodes_up
from fabmon.tui.text.timeline import event_mark

_MOST_EVENTS = 500
_MOST_BAR = 40
"""Columns of a bar, at most."""
_BUSY_TEXT = 36
"""Columns for the name and the value of a busy link; a bar has what is left."""
_PLACE = re.compile(r" (?:→|of|under) .*")
_MOST_NESTED = 50
"""Findings that are listed below the line of a group, or of their root."""
_LATELY_S = 600
"""A finding that ended within this many seconds is said where none is open."""


def panel(ctx: DrawContext) -> list[Line]:
    """The findings, then the busiest links in the room that is left."""
    brief = ctx.height < 8 and len(ctx.groups) > 1
    lines = [each for group in ctx.groups for each in entry(ctx, group, brief=brief)]
    lines = _failed(ctx) + (lines or _no_findings(ctx))
    room = ctx.height - len(lines) - 2
    if room > 0:
        lines.append(line((" " * ctx.width, ctx.palette.text)))
        lines += busiest(ctx, room)
    return lines


def shown(ctx: DrawContext) -> list[Finding]:
    """The findings that match the filter."""
    return [each for group in ctx.groups for each in (*group.findings, *group.explained)]


def entry(
    ctx: DrawContext, group: FindingGroup, *, brief: bool = False, with_advice: bool = False
) -> list[Line]:
    """The lines of one finding or of several similar ones, then the paths that they explain."""
    if group.is_single:
        finding, nested = group.first, group.explained
        lines = finding_lines(ctx, finding, brief=brief)
        if with_advice:
            certainty = loss_and_confidence(finding)
            text = f"{certainty[:1].upper()}{certainty[1:]}. {shown_moment(finding).advice}"
            lines += paragraph(text, ctx.width, ctx.palette.dim, FindingTarget(finding.key))
    else:
        lines = _several(ctx, group, brief=brief)
        nested = (*group.findings, *group.explained) if group.key in ctx.unfolded else ()
    for finding in nested[:_MOST_NESTED]:
        lines.append(_nested(ctx, finding, group.first.cause))
    rest = len(nested) - _MOST_NESTED
    if rest > 0:
        lines.append(line((f"    and {rest} more: / filters", ctx.palette.dim)))
    return lines


def _several(ctx: DrawContext, group: FindingGroup, *, brief: bool) -> list[Line]:
    """Cause, count and place of several findings; unless `brief`, their names and highest loss.

    Opening them lists them.
    """
    palette, target = ctx.palette, FindingTarget(group.key)
    holding = (each for each in group.findings if unseen_s(each, ctx.snapshot) is None)
    shown = next(holding, group.first)
    fold = "▾" if group.key in ctx.unfolded else "▸"
    since_ns = min(finding.since_ns for finding in group.findings)
    subject = group.subject(ctx.fabric)
    first = _first(ctx, shown, target, fold, subject, since_ns)
    if brief:
        return [first]
    worst = brief_loss(max(group.findings, key=lambda each: measured_loss(shown_moment(each))))
    loss = f", up to {worst.removeprefix('up to ')}" if worst else ""
    where = "" if subject in first.text else f"{group.where}: "
    room = max(0, ctx.width - 5 - len(loss) - len(where))
    text = f"{where}{labels.fitting_names(labels.subjects(group, ctx.fabric), room)}{loss}"
    return [first, line((f"   {fit(text, ctx.width - 4)}", palette.text), target=target)]


def finding_lines(ctx: DrawContext, finding: Finding, *, brief: bool = False) -> list[Line]:
    """One finding: cause, subject and age; unless `brief`, its sentence and the affected ports.

    Every line opens the finding.
    """
    target, palette = FindingTarget(finding.key), ctx.palette
    subject = labels.subject_name(finding, ctx.fabric)
    first = _first(ctx, finding, target, "", subject, finding.since_ns)
    if brief:
        return [first]
    text = sentence(finding, ctx.snapshot)
    lines = [first, *paragraph(text, ctx.width, palette.text, target)]
    if names := [each.name for each in affected_ports(finding, ctx.fabric)]:
        text = f"→ {labels.fitting_names(names, ctx.width - 6)}"
        lines.append(line((f"   {fit(text, ctx.width - 4)}", palette.dim), target=target))
    if jobs := shown_moment(finding).jobs:
        text = name_list(jobs, 3)
        lines.append(line((f"   {fit(text, ctx.width - 4)}", palette.text), target=target))
    return lines


def _first(
    ctx: DrawContext,
    finding: Finding,
    target: FindingTarget,
    mark: str,
    subject: str,
    since_ns: int,
) -> Line:
    """`▲ ECMP collision  leaf1 up5 → spine3    37s`, with a `mark` before it.

    Where it is too long, the subject is without its far end, or without the place of a group.
    """
    palette = ctx.palette
    sign, accent = labels.finding_sign(finding, ctx.snapshot, palette)
    title = f"{mark}{sign} {finding_title(finding)}"
    room = ctx.width - len(title) - 9
    if len(subject) > room:
        subject = _PLACE.sub("", subject)
    return line(
        (palette.selection_mark if target.key == ctx.selected_key else " ", palette.strong),
        (title, accent),
        (f"  {fit(subject, max(0, room))}", palette.strong),
        (f"  {right(_age(ctx, since_ns), 4)} ", palette.dim),
        target=target,
    )


def _nested(ctx: DrawContext, finding: Finding, cause: str) -> Line:
    """`└ ▲ leaf1 up5 → spine3    37s`: a finding below its root or group, of `cause`; its own is
    named where it is another."""
    palette, target = ctx.palette, FindingTarget(finding.key)
    sign, accent = labels.finding_sign(finding, ctx.snapshot, palette)
    title = f"  └ {sign} "
    if finding.cause != cause:
        title += f"{finding_title(finding)}  "
    subject = labels.subject_name(finding, ctx.fabric)
    loss = brief_loss(finding)
    open_for = f"  {right(_age(ctx, finding.since_ns), 4)} "
    end = f"  {right(loss, 9)}{open_for}"
    if 1 + len(title) + len(subject) + len(end) > ctx.width:
        end = open_for
    return line(
        (palette.selection_mark if target.key == ctx.selected_key else " ", palette.strong),
        (title, accent),
        (fit(subject, max(0, ctx.width - 1 - len(title) - len(end))), palette.strong),
        (end, palette.dim),
        target=target,
    )


def _age(ctx: DrawContext, since_ns: int) -> str:
    return age((ctx.snapshot.time_ns - since_ns) / SECOND_NS)


def _failed(ctx: DrawContext) -> list[Line]:
    """That findings may be missing, where a detector failed."""
    said = missing_findings(ctx.scene.failed_detectors)
    return [each for text in said for each in paragraph(text, ctx.width, ctx.palette.gone)]


def _no_findings(ctx: DrawContext) -> list[Line]:
    """That nothing is wrong, as far as the nodes that send data show it."""
    palette, width = ctx.palette, ctx.width
    if ctx.scene.findings:
        hidden = f"{plural(len(ctx.scene.findings), 'finding')}, none matches the filter"
        return [line((f"   {hidden}", palette.dim))]
    up, total = nodes_up(ctx.scene)
    if not up:
        return [line((" ○ No findings", palette.dim), (": no node sends data", palette.gone))]
    unknown, ports = int(unknown_ports(ctx.scene.snapshot).sum()), len(ctx.fabric.ports)
    if unknown == ports:
        if ctx.scene.snapshot.is_first_sample:
            text = f": {FIRST_SAMPLE}"
            return [line((" ? Nothing is known yet", palette.dim), (text, palette.text))]
        what = "no port has a rate" if ports else "no port was found"
        return [line((" ? Nothing is known", palette.gone), (f": {what}", palette.text))]
    down = down_links(ctx.scene)
    is_all = not down and not ctx.scene.failed_detectors
    first = [
        (" ○ No findings", palette.key),
        (": no link is flagged or down" if is_all else "", palette.text),
    ]
    unrated = others = ""
    if not has_line_rates(ctx.snapshot):
        first = [(" ? Full links are not judged", palette.gone)]
        unrated = "No port has a line rate: add it in the hosts file, as in speed=400G."
        if total == 1 and ctx.time.live is not None:
            others = (
                "Only this node is watched. A cluster: fabmon --hosts FILE, or fabmon alone in a"
                " job of Slurm. To see what it shows there: fabmon demo."
            )
    missing = f"press {ctx.key('nodes')} for the missing ones"
    partial = f"Based on {up} of {total} nodes: {missing}" if up < total else ""
    unjudged = f"{plural(unknown, 'port')} of {ports} without a rate: not judged" if unknown else ""
    return [
        line(*first),
        *paragraph(unrated, width, palette.text),
        *paragraph(others, width, palette.text),
        *_ended_lately(ctx),
        *paragraph(_down_from_start(ctx, down), width, palette.gone),
        *paragraph(partial, width, palette.gone),
        *paragraph(unjudged, width, palette.gone),
    ]


def _ended_lately(ctx: DrawContext) -> list[Line]:
    """The finding that ended last, if that is minutes ago; `enter` explains it."""
    now_ns = ctx.snapshot.time_ns
    ended = [
        (finding, (now_ns - finding.until_ns) / SECOND_NS)
        for finding in matching(ctx.closed, ctx.matched)
        if finding.until_ns is not None and now_ns - finding.until_ns <= _LATELY_S * SECOND_NS
    ]
    if not ended:
        return []
    last, ago_s = ended[0]
    what = f"{finding_title(last)} {labels.subject_name(last, ctx.fabric)}"
    others = ", others before it" if len(ended) > 1 else ""
    text = f"△ ended {duration(ago_s)} ago: {what}{others}"
    return paragraph(text, ctx.width, ctx.palette.text, FindingTarget(last.key))


def _down_from_start(ctx: DrawContext, down: list[int]) -> str:
    """The links that are down without a finding, because they were never seen up."""
    if not down:
        return ""
    names = [ctx.fabric.ports[row].display_name for row in down]
    have = "has" if len(down) == 1 else "have"
    return f"{plural(len(down), 'link')} {have} been down since the start: {name_list(names, 3)}"


def busiest(ctx: DrawContext, count: int) -> list[Line]:
    """A table of the ports with the highest values of the chosen metric, in `count` lines."""
    palette, metric, snapshot = ctx.palette, ctx.metric, ctx.snapshot
    values = metric.values(snapshot)
    usable = (np.nan_to_num(values) > 0) & ~snapshot.stale & (snapshot.up != 0)
    if ctx.matched is not None:
        usable &= ctx.matched.ports
    rows = np.flatnonzero(usable)
    order = rows[np.argsort(-values[rows], kind="stable")].tolist()
    order = _one_end(order, ctx.scene, count, (GPU, NVLINK) if metric.is_traffic else ())
    order = order[: max(0, count - 1)]
    lines = [line((f"   Busiest, {metric.name}", palette.dim))] if order else []
    columns = min(max(0, ctx.width - _BUSY_TEXT), _MOST_BAR) if metric.range.is_share else 0
    for row in order:
        value = float(values[row])
        text = metric.range.text(value)
        name = labels.link_name(ctx.fabric.ports[row], ctx.fabric)
        # Blanks after the bar in its colour would be a bar themselves under a cursor in reverse.
        bar = thin_bar(value, columns).rstrip()
        lines.append(
            line(
                (f"   {fit(name, max(4, ctx.width - 14 - columns))}", palette.text),
                (bar, palette.accent if row in ctx.flagged_rows else palette.tx),
                (right(text, 10 + columns - len(bar)), palette.text),
                target=PortTarget(row),
            )
        )
    return lines


def _one_end(order: list[int], scene: Scene, count: int, without: Sequence[str]) -> list[int]:
    """The first `count` rows with one end of every cable (the rail or the uplink), and without
    the ports of some roles.
    """
    ports, known = scene.snapshot.fabric.ports, set(order)
    kept = (
        row
        for row in order
        if ports[row].role not in without
        and (ports[row].role != DOWNLINK or ports[row].peer not in known)
    )
    return list(islice(kept, count))


def page(ctx: DrawContext) -> list[Line]:
    """The whole view: open findings in full, closed ones, iterations, then events, latest first."""
    palette = ctx.palette
    lines = [each for group in ctx.groups for each in entry(ctx, group, with_advice=True)]
    hidden = len(ctx.scene.findings) - len(shown(ctx))
    if lines and hidden:
        lines.append(line((f"   {_hidden(hidden, 'finding')}", palette.dim)))
    lines = _failed(ctx) + (lines or _no_findings(ctx))
    lines += [*_recorded_differences(ctx), *_closed(ctx), *iteration.page(ctx)]
    every = [each for each in ctx.events if each.time_ns <= ctx.snapshot.time_ns]
    events = _matching_events(ctx, every)
    head: list[Span] = [("  enter: go to that time", palette.dim)] if events else []
    if len(events) < len(every):
        head.append((f"  {_hidden(len(every) - len(events), 'event')}", palette.dim))
    lines += [line(("", palette.text)), line((" Events, latest first", palette.strong), *head)]
    events = events[-_MOST_EVENTS:]
    texts = labels.event_texts(events, ctx.fabric)
    for event, text in zip(reversed(events), reversed(texts), strict=True):
        sign = event_mark(event)
        accent = {"▲": palette.accent, "✖": palette.gone}.get(sign, palette.dim)
        lines.append(
            line(
                (f" {time_of_day(event.time_ns)} ", palette.dim),
                (f"{sign} ", accent),
                (fit(text, max(0, ctx.width - 15)), palette.text),
                target=EventTarget(event.time_ns, event.text),
            )
        )
    if not every:
        lines.append(line(("   No events yet", palette.dim)))
    return lines


def _hidden(count: int, what: str) -> str:
    """`3 findings do not match the filter`."""
    return f"{plural(count, what)} {'does' if count == 1 else 'do'} not match the filter"


def _matching_events(ctx: DrawContext, events: Sequence[Event]) -> Sequence[Event]:
    """The events that a filter leaves: those of its nodes, and those that are of no node, such as
    bookmarks."""
    matched = ctx.matched
    if matched is None:
        return events
    others = {*ctx.snapshot.statuses, *(each.name for each in ctx.fabric.nodes)} - matched.nodes
    return [each for each in events if labels.event_node(each) not in others]


def _closed(ctx: DrawContext) -> list[Line]:
    """The last findings that closed, one line each; it opens the finding as it was last."""
    palette = ctx.palette
    if not ctx.closed:
        return []
    closed = matching(ctx.closed, ctx.matched)
    hidden = len(ctx.closed) - len(closed)
    rest = f"  {_hidden(hidden, 'finding')}" if hidden else ""
    head = line((" Closed, latest first", palette.strong), (rest, palette.dim))
    lines = [line(("", palette.text)), head]
    for finding in closed[:MOST_CLOSED]:
        until_ns = finding.until_ns or ctx.snapshot.time_ns
        length = lasted(finding.since_ns, until_ns)
        when = f" {time_of_day(finding.since_ns)} to {time_of_day(until_ns)}, {length}"
        text = f"{finding_title(finding)}  {labels.subject_name(finding, ctx.fabric)}"
        lines.append(
            line(
                (" △ ", palette.dim),
                (fit(text, max(0, ctx.width - len(when) - 4)), palette.text),
                (when, palette.dim),
                target=FindingTarget(finding.key),
            )
        )
    return lines


def _recorded_differences(ctx: DrawContext) -> list[Line]:
    """In a recording: the findings that were recorded but are not found today, and the reverse."""
    palette, recorded = ctx.palette, ctx.time.cursor.recorded
    if ctx.time.shown is None or recorded is None or ctx.time.is_frozen_now:
        return []
    if not ctx.time.cursor.is_settled:
        return [line(("   Showing the recorded findings; reading …", palette.dim))]
    then = findings_open_at(RecordedFindings(recorded.notes), recorded.runs_ns, ctx.snapshot)
    lists = (
        ("Recorded, but not found by this version", only_recorded(then, ctx.scene.findings)),
        ("Found by this version, but not recorded", only_recorded(ctx.scene.findings, then)),
    )
    lines: list[Line] = []
    for title, findings in lists:
        if findings:
            lines += [line(("", palette.text)), line((f" {title}", palette.strong))]
        for finding in findings:
            sign, _ = labels.finding_sign(finding, ctx.snapshot, palette)
            since = f"{sign} {time_of_day(finding.since_ns)}"
            name = f"{finding_title(finding)} {labels.subject_name(finding, ctx.fabric)}"
            name = fit(name, max(0, ctx.width - 16))
            lines.append(line((f"   {since} ", palette.dim), (name, palette.text)))
    if not lines and then:
        lines = [line(("   Identical to the recorded findings", palette.dim))]
    return lines
