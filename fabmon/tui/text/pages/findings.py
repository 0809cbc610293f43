"""What is wrong now, the costliest first; and that nothing is, when nothing is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from fabmon.analysis.finding import Finding, sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric import time_wording
from fabmon.fabric.model import DOWNLINK, GPU, NVLINK
from fabmon.fabric.snapshot import stale_ports
from fabmon.fabric.time_wording import SECOND_NS, duration, time_of_day
from fabmon.fabric.wording import per_second, percent
from fabmon.recording.reading.recorded_findings import RecordedFindings
from fabmon.tui.line import (
    EventTarget,
    FindingTarget,
    Line,
    PortTarget,
    Span,
    fit,
    line,
    right,
    wrap,
)
from fabmon.tui.text import iteration, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.header import down_links, nodes_up
from fabmon.tui.text.timeline import event_mark
from fabmon.tui.time.findings_at_the_time import findings_open_at, only_recorded

_MOST_EVENTS = 500


def panel(ctx: DrawContext) -> list[Line]:
    """The findings, then the busiest links as far as there is room."""
    lines: list[Line] = []
    chosen = shown(ctx)
    brief = ctx.height < 8 and len(chosen) > 1
    for root, inside in by_root(chosen):
        lines += entry(ctx, root, brief=brief)
        for finding in inside:
            lines += entry(ctx, finding, brief=True, inside=True)
    if not chosen:
        lines.extend(_nothing(ctx))
    room = ctx.height - len(lines) - 2
    if room > 0:
        lines.append(line((" " * ctx.width, ctx.palette.text)))
        lines.extend(busiest(ctx, min(room, 10)))
    return lines


def shown(ctx: DrawContext) -> list[Finding]:
    """The findings that the filter leaves."""
    matched = ctx.matched
    if matched is None:
        return list(ctx.scene.findings)
    return [
        finding
        for finding in ctx.scene.findings
        if any(matched.ports[row] for row in finding.rows)
        or finding.subject.split("/")[0] in matched.nodes
    ]


def by_root(findings: Sequence[Finding]) -> list[tuple[Finding, list[Finding]]]:
    """Each finding that is a root, with those of who waits for it; the order is kept."""
    inside: dict[str, str] = {}
    for each in findings:
        if each.cause == "pause_victim":
            root = next((root for root in findings if _waits(each, root)), None)
            if root is not None:
                inside[each.key] = root.key
    return [
        (root, [each for each in findings if inside.get(each.key) == root.key])
        for root in findings
        if root.key not in inside
    ]


def _waits(victim: Finding, root: Finding) -> bool:
    """Whether a finding is about one who waits for what another finding is about."""
    if root.cause == "pause_victim":
        return False
    named = {name.partition("/")[0].partition(" ")[0] for name in root.victims}
    return victim.subject in named or bool(set(victim.rows) & set(root.rows))


def entry(
    ctx: DrawContext,
    finding: Finding,
    *,
    brief: bool = False,
    inside: bool = False,
) -> list[Line]:
    """One finding: cause, subject and age; its sentence; who suffers. All of it opens it.

    `inside` it stands under its root.
    """
    target, palette = FindingTarget(finding.key), ctx.palette
    sign, accent = labels.finding_sign(finding, ctx.snapshot, palette)
    age = time_wording.age((ctx.snapshot.time_ns - finding.since_ns) / SECOND_NS)
    indent = "  └ " if inside else ""
    title = f"{indent}{sign} {labels.cause_title(finding)}"
    room = ctx.width - len(title) - 9
    subject = labels.subject_name(finding, ctx.fabric)
    if len(subject) > room:
        subject = subject.partition(" → ")[0]
    mark = palette.selection_mark if finding.key == ctx.selected_key else " "
    first = line(
        (mark, palette.strong),
        (title, accent),
        (f"  {fit(subject, max(0, room))}", palette.strong),
        (f"  {right(age, 4)} ", palette.dim),
        target=target,
    )
    if brief:
        return [first]
    lines = [first]
    for text in wrap(sentence(finding, ctx.snapshot), ctx.width - 4):
        lines.append(line((f"   {text}", palette.text), target=target))
    if finding.victims:
        text = "→ " + labels.name_list(labels.victim_names(finding, ctx.fabric), ctx.width - 6)
        lines.append(line((f"   {fit(text, ctx.width - 4)}", palette.dim), target=target))
    return lines


def _nothing(ctx: DrawContext) -> list[Line]:
    """Say that nothing is wrong, and only as far as that is known."""
    palette = ctx.palette
    if ctx.scene.findings:
        count = len(ctx.scene.findings)
        hidden = f"{count} finding{'' if count == 1 else 's'}, none in the filter"
        return [line((f"   {hidden}", palette.dim))]
    up, total = nodes_up(ctx.scene)
    if not up:
        return [line((" ○ No finding", palette.dim), (": nothing is seen.", palette.gone))]
    down = down_links(ctx.scene)
    said = "." if down else ": no link is hot, down or lost."
    lines = [line((" ○ No finding", palette.key), (said, palette.text))]
    lines += [
        line((f"   {part}", palette.gone))
        for part in wrap(_down_already(down, ctx.scene), ctx.width - 4)
    ]
    text = ""
    if up < total:
        text = f"Seen from {up} of {total} nodes: n says what is missing."
    lines.extend(line((f"   {part}", palette.gone)) for part in wrap(text, ctx.width - 4))
    return lines


def _down_already(down: list[int], scene: Scene) -> str:
    """The links that are down without a finding: nobody has seen them up."""
    if not down:
        return ""
    ports = scene.snapshot.fabric.ports
    names = [f"{ports[row].label or ports[row].name} of {ports[row].node}" for row in down[:3]]
    more = f" and {len(down) - 3} more" if len(down) > 3 else ""
    count = "1 link was" if len(down) == 1 else f"{len(down)} links were"
    return f"{count} down already when watching began: {', '.join(names)}{more}."


def busiest(ctx: DrawContext, count: int) -> list[Line]:
    """The ports with the most of the metric in use, as a table."""
    palette, heat, snapshot = ctx.palette, ctx.metric, ctx.snapshot
    values = heat.values(snapshot)
    usable = (np.nan_to_num(values) > 0) & ~stale_ports(snapshot) & (snapshot.up != 0)
    matched = ctx.matched
    if matched is not None:
        usable &= matched.ports
    rows = np.flatnonzero(usable)
    order = rows[np.argsort(-values[rows], kind="stable")].tolist()
    order = _one_end(order, ctx.scene, count, (GPU, NVLINK) if heat.traffic else ())
    title = f"Busiest, {heat.name}"
    order = order[: max(0, count - 1)]
    lines: list[Line] = [line((f"   {title}", palette.dim))] if order else []
    for row in order:
        port = snapshot.fabric.ports[row]
        value = float(values[row])
        said = percent(value) if heat.high == 1 else per_second(value)
        name = labels.link_name(port, snapshot.fabric)
        spans: list[Span] = [
            (f"   {fit(name, max(4, ctx.width - 14))}", palette.text),
            (right(said, 10), palette.text),
        ]
        lines.append(line(*spans, target=PortTarget(row)))
    return lines


def _one_end(order: list[int], scene: Scene, count: int, without: Sequence[str]) -> list[int]:
    """The first rows of an order, of every cable one end: the rail's, or the uplink's.

    Ports `without` some roles.
    """
    ports, known = scene.snapshot.fabric.ports, set(order)
    chosen = (
        row
        for row in order
        if ports[row].role not in without
        and (ports[row].role != DOWNLINK or ports[row].peer not in known)
    )
    return list(islice(chosen, count))


def page(ctx: DrawContext) -> list[Line]:
    """The whole view: open findings in full, then what happened, the latest first."""
    palette = ctx.palette
    lines: list[Line] = []
    for root, inside in by_root(shown(ctx)):
        lines += entry(ctx, root)
        lines += _rest(ctx, root)
        for finding in inside:
            lines += entry(ctx, finding, brief=True, inside=True)
    lines = lines or _nothing(ctx)
    lines += _otherwise(ctx)
    lines += _closed(ctx)
    lines += iteration.page(ctx)
    lines += [
        line(("", palette.text)),
        line((" Events, the latest first", palette.strong), ("  enter goes there", palette.dim)),
    ]
    events = [each for each in ctx.events if each.time_ns <= ctx.snapshot.time_ns]
    for event in reversed(events[-_MOST_EVENTS:]):
        sign = event_mark(event)
        accent = {"▲": palette.hot, "✖": palette.gone}.get(sign, palette.dim)
        text = fit(labels.event_text(event), max(0, ctx.width - 15))
        time = time_of_day(event.time_ns)
        lines.append(
            line(
                (f" {time} ", palette.dim),
                (f"{sign} ", accent),
                (text, palette.text),
                target=EventTarget(event.time_ns, event.text),
            )
        )
    if not events:
        lines.append(line(("   none in sight", palette.dim)))
    return lines


def _closed(ctx: DrawContext) -> list[Line]:
    """What was wrong until a moment ago, a line each, which opens it as it was at last."""
    palette, found = ctx.palette, ctx.closed
    if not found:
        return []
    lines = [line(("", palette.text)), line((" Closed, the latest first", palette.strong))]
    for finding in found:
        until_ns = finding.until_ns or ctx.snapshot.time_ns
        lasted = duration((until_ns - finding.since_ns) / SECOND_NS)
        when = f" {time_of_day(finding.since_ns)} to {time_of_day(until_ns)}, {lasted}"
        said = f"{labels.cause_title(finding)}  {labels.subject_name(finding, ctx.fabric)}"
        lines.append(
            line(
                (f" {labels.finding_mark(finding)} ", palette.dim),
                (fit(said, max(0, ctx.width - len(when) - 4)), palette.text),
                (when, palette.dim),
                target=FindingTarget(finding.key),
            )
        )
    return lines


def _otherwise(ctx: DrawContext) -> list[Line]:
    """Where what was recorded is shown: what was found then and is not today, and the reverse."""
    palette, recorded = ctx.palette, ctx.time.cursor.recorded
    if ctx.time.shown is None or recorded is None or ctx.time.is_frozen_now:
        return []
    then = findings_open_at(RecordedFindings(recorded.notes), recorded.runs_ns, ctx.snapshot)
    lists = (
        ("Found then, as recorded, not found today", only_recorded(then, ctx.scene.findings)),
        ("Found today, not found then", only_recorded(ctx.scene.findings, then)),
    )
    lines: list[Line] = []
    for title, found in lists:
        if found:
            lines += [line(("", palette.text)), line((f" {title}", palette.strong))]
        for finding in found:
            since = f"{labels.finding_mark(finding)} {time_of_day(finding.since_ns)}"
            subject = labels.subject_name(finding, ctx.fabric)
            named = f"{labels.cause_title(finding)} {subject}"
            lines.append(
                line(
                    (f"   {since} ", palette.dim),
                    (fit(named, max(0, ctx.width - 16)), palette.text),
                )
            )
    if not ctx.time.cursor.is_settled:
        return [line(("   findings are those of then, as recorded …", palette.dim))]
    if not lines and then:
        lines = [line(("   the same was found then, as recorded", palette.dim))]
    return lines


def _rest(ctx: DrawContext, finding: Finding) -> list[Line]:
    """Advice and the number behind it, under a finding."""
    target = FindingTarget(finding.key)
    sure = f"costs {percent(finding.lost)} of the bandwidth, " if finding.lost > 0 else ""
    texts = [f"{sure}{finding.confidence * 100:.0f} % sure. {finding.advice}"]
    return [
        line((f"   {part}", ctx.palette.dim), target=target)
        for text in texts
        for part in wrap(text, ctx.width - 4)
    ]
