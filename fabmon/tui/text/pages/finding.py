"""One finding, explained: its sentence, a picture, what to do, then the numbers behind it.

On a terminal of 80x24 the sentence, the picture and the advice are seen without scrolling.
"""

from __future__ import annotations

from rich.cells import cell_len

from fabmon.analysis.finding import Finding, sentence
from fabmon.fabric.time_wording import SECOND_NS, duration, time_of_day
from fabmon.fabric.wording import evidence_value, percent
from fabmon.tui.line import Hit, Line, NodeTarget, fit, line, right, wrap
from fabmon.tui.text import flows, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.pictures import picture

_NAME = 28
_LEAST_PICTURE = 8
"""Lines that a picture has, however low the screen is."""


def page(
    ctx: DrawContext,
    finding: Finding,
    open_now: bool,
) -> list[Line]:
    """The whole of a finding; what comes first fits into `height` lines."""
    title = _title(ctx, finding, open_now)
    advice = _section(ctx, "Advice", finding.advice)
    advice += flows.next_step(ctx, finding)
    room = max(_LEAST_PICTURE, ctx.height - len(title) - len(advice))
    return [
        *title,
        *picture(Canvas(ctx.sized(ctx.width, room), finding)),
        *advice,
        *_evidence(ctx, finding),
        *_victims(ctx, finding),
        *flows.of_finding(ctx, finding),
        *_section(ctx, "Not visible", finding.unseen),
    ]


def _section(ctx: DrawContext, title: str, text: str) -> list[Line]:
    """A word, and what there is to say beside it and below; nothing where there is nothing."""
    if not text:
        return []
    first, *rest = wrap(text, ctx.width - len(title) - 5)
    # What follows the first line has the whole width.
    more = wrap(" ".join(rest), ctx.width - 4) if rest else []
    lines = [line((f" {title}: ", ctx.palette.strong), (first, ctx.palette.text))]
    return [*lines, *(line((f"   {part}", ctx.palette.text)) for part in more)]


def _victims(ctx: DrawContext, finding: Finding) -> list[Line]:
    """Who suffers under it, a line a node, which it opens."""
    if not finding.victims:
        return []
    nodes = {node.name for node in ctx.fabric.nodes}
    of: dict[str, list[str]] = {}
    for victim in labels.victim_names(finding, ctx.fabric):
        name, _, port = victim.replace(" ", "/", 1).partition("/")
        of.setdefault(name, []).append(port)
    lines = [line((" Suffers under it", ctx.palette.strong))]
    for name, ports in of.items():
        if ports != [""]:
            said = f"   → {name} {labels.name_list(ports, max(8, ctx.width - len(name) - 8))}"
            target = NodeTarget(name) if name in nodes else None
            lines.append(line((fit(said, ctx.width).rstrip(), ctx.palette.text), target=target))
    alone = [name for name, ports in of.items() if ports == [""]]
    return lines + _names(ctx, alone, nodes)


def _names(ctx: DrawContext, names: list[str], nodes: set[str]) -> list[Line]:
    """Nodes beside each other, as many to a line as it holds; each opens."""
    lines: list[Line] = []
    hits: list[Hit] = []
    text = ""
    for name in [*names, ""]:
        if not name or (text and cell_len(text) + 2 + cell_len(name) > ctx.width):
            if text:
                lines.append(line((text, ctx.palette.text), hits=tuple(hits)))
            text, hits = "", []
        if name:
            text = f"{text}, " if text else "   → "
            if name in nodes:
                start = cell_len(text)
                hits.append(Hit(start, start + cell_len(name), NodeTarget(name)))
            text += name
    return lines


def _title(ctx: DrawContext, finding: Finding, open_now: bool) -> list[Line]:
    """Cause and subject, the sentence, since when, how sure."""
    snapshot = ctx.snapshot
    mark, accent = (
        labels.finding_sign(finding, snapshot, ctx.palette) if open_now else ("△", ctx.palette.dim)
    )
    until = finding.until_ns or snapshot.time_ns
    lasted = duration((until - finding.since_ns) / SECOND_NS)
    when = f"since {time_of_day(finding.since_ns)} ({lasted})"
    if not open_now:
        when = f"not open any more; began {time_of_day(finding.since_ns)}"
    costs = f"costs {percent(finding.lost)} of the bandwidth, " if finding.lost > 0 else ""
    subject = labels.subject_name(finding, snapshot.fabric)
    return [
        line((f" {mark} {labels.cause_title(finding)}  ", accent), (subject, ctx.palette.strong)),
        *(
            line((f"   {part}", ctx.palette.text))
            for part in wrap(sentence(finding, snapshot), ctx.width - 4)
        ),
        *(
            line((f"   {part}", ctx.palette.dim))
            for part in wrap(f"{when}, {costs}{finding.confidence * 100:.0f} % sure", ctx.width - 4)
        ),
    ]


def _evidence(ctx: DrawContext, finding: Finding) -> list[Line]:
    """The numbers behind it, as a table."""
    if not finding.evidence:
        return []
    lines = [line((" Evidence", ctx.palette.strong))]
    longest = max(cell_len(item.name) for item in finding.evidence)
    name = max(_NAME, min(longest + 2, ctx.width - 20))
    for item in finding.evidence:
        value = evidence_value(item.value, item.unit)
        said = value if isinstance(item.value, str) else right(value, 14)
        first, *rest = wrap(said, ctx.width - name - 4) if isinstance(item.value, str) else [said]
        lines.append(line((f"   {fit(item.name, name)}{first}", ctx.palette.text)))
        lines += [line((" " * (name + 3) + part, ctx.palette.text)) for part in rest]
    return lines
