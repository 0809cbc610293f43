"""The page of one finding: its sentence, advice, a picture, then evidence and affected ports.

On a terminal of 80x24 the sentence, the advice and the picture are visible without scrolling.
"""

from __future__ import annotations

from rich.cells import cell_len

from fabmon.analysis.affected_ports import AffectedPort, affected_ports
from fabmon.analysis.causes import CAUSES, finding_title, loss_and_confidence, sentence
from fabmon.analysis.evidence.null_model import EFFECTIVE_FLOWS, LEAST_FLOWS
from fabmon.analysis.finding import Cause, Finding, shown_moment
from fabmon.analysis.rule_text import rule_text
from fabmon.fabric.time_wording import lasted, time_of_day
from fabmon.fabric.wording import Unit, evidence_value, with_bytes
from fabmon.tui.line import Hit, Line, NodeTarget, fit, line, paragraph, right, wrap
from fabmon.tui.text import flows, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.picture.canvas import Canvas
from fabmon.tui.text.picture.pictures import picture

_NAME = 28
_NUMBER = 14
"""Columns of a number with its unit, at least."""
_LEAST_PICTURE = 8
"""Lines of the picture, however low the screen is."""


def page(ctx: DrawContext, finding: Finding, open_now: bool) -> list[Line]:
    """The whole page; title, advice and picture fit into `ctx.height` lines."""
    title, shown = _title(ctx, finding, open_now), shown_moment(finding)
    if open_now:
        advice = ctx.titled("Advice:", shown.advice) + flows.next_step(ctx, finding)
    else:
        advice = ctx.titled("If it happens again:", shown.advice)
    declared = CAUSES.get(finding.cause)
    room = max(_LEAST_PICTURE, ctx.height - len(title) - len(advice))
    canvas = Canvas(ctx.sized(ctx.width, room), finding)
    return [
        *title,
        *advice,
        *picture(canvas),
        *_evidence(ctx, finding, canvas.moment),
        *ctx.titled("Affected jobs:", ", ".join(shown.jobs)),
        *_victims(ctx, finding),
        *flows.of_finding(ctx, finding),
        *ctx.titled("Not observable:", shown.unseen),
        *ctx.titled("Rule:", _rule(ctx, declared)),
        *ctx.titled("Limits of the rule:", declared.not_observable if declared else ""),
    ]


def _rule(ctx: DrawContext, declared: Cause | None) -> str:
    """The rule of a cause with the thresholds in use; empty for a cause of a newer version."""
    if declared is None:
        return ""
    thresholds = ctx.run.thresholds
    return declared.rule if thresholds is None else rule_text(declared, thresholds)


def _victims(ctx: DrawContext, finding: Finding) -> list[Line]:
    """The NICs of hosts behind switch ports, then other ports, a line per node that opens the node;
    then affected nodes."""
    affected = affected_ports(finding, ctx.fabric)
    if not affected:
        return []
    nodes = {node.name for node in ctx.fabric.nodes}
    hosts = [each for each in affected if each.switch_port]
    alone = [each for each in affected if each.name == each.node]
    ports_of: dict[str, list[str]] = {}
    for each in affected:
        if not each.switch_port and each.name != each.node:
            label = each.name.removeprefix(each.node).lstrip(" /")
            ports_of.setdefault(each.node, []).append(label)
    lines = [line((" Also affected", ctx.palette.strong)), *_names(ctx, hosts, nodes)]
    for name, ports in ports_of.items():
        text = f"   → {name} {labels.fitting_names(ports, max(8, ctx.width - len(name) - 8))}"
        target = NodeTarget(name) if name in nodes else None
        lines.append(line((fit(text, ctx.width).rstrip(), ctx.palette.text), target=target))
    return lines + _names(ctx, alone, nodes)


def _names(ctx: DrawContext, affected: list[AffectedPort], nodes: set[str]) -> list[Line]:
    """Names side by side, as many per line as fit; each opens its node."""
    lines: list[Line] = []
    hits: list[Hit] = []
    text = ""
    for each in affected:
        if text and cell_len(text) + 2 + cell_len(each.text) > ctx.width:
            lines.append(line((text, ctx.palette.text), hits=tuple(hits)))
            text, hits = "", []
        text = f"{text}, " if text else "   → "
        if each.node in nodes:
            start = cell_len(text)
            hits.append(Hit(start, start + cell_len(each.text), NodeTarget(each.node)))
        text += each.text
    return lines + ([line((text, ctx.palette.text), hits=tuple(hits))] if text else [])


def _title(ctx: DrawContext, finding: Finding, open_now: bool) -> list[Line]:
    """Cause and subject, the sentence, since when, the loss and the confidence."""
    palette, snapshot = ctx.palette, ctx.snapshot
    began = time_of_day(finding.since_ns)
    until_ns = finding.until_ns or snapshot.time_ns
    length = lasted(finding.since_ns, until_ns)
    if open_now:
        mark, accent = labels.finding_sign(finding, snapshot, palette)
        when = f"since {began} ({length})"
    else:
        mark, accent, when = "△", palette.dim, f"closed; open since {began}"
        if finding.until_ns is not None:
            when = f"{began} to {time_of_day(until_ns)} ({length}), closed"
    subject = labels.subject_name(finding, ctx.fabric)
    return [
        line((f" {mark} {finding_title(finding)}  ", accent), (subject, palette.strong)),
        *paragraph(_in_unit(ctx, sentence(finding, snapshot)), ctx.width, palette.text),
        *paragraph(
            f"{when}, {loss_and_confidence(finding)}",
            ctx.width,
            palette.dim,
        ),
    ]


def _in_unit(ctx: DrawContext, text: str) -> str:
    """A text of a finding, which has rates in bits, with bytes too where these are the unit."""
    return with_bytes(text) if ctx.choices.unit is Unit.GBYTE else text


def _evidence(ctx: DrawContext, finding: Finding, moment: str) -> list[Line]:
    """The evidence as a table: name and value, of the moment of the sentence and picture; with its
    time where that has passed."""
    shown = shown_moment(finding)
    if not shown.evidence:
        return []
    when = f"  at {moment}" if moment else ""
    lines = [line((" Evidence", ctx.palette.strong), (when, ctx.palette.dim))]
    longest = max(cell_len(item.name) for item in shown.evidence)
    name_width = max(_NAME, min(longest + 2, ctx.width - 20))
    values = [_in_unit(ctx, evidence_value(each.value, each.unit)) for each in shown.evidence]
    numbers = [
        cell_len(value)
        for value, each in zip(values, shown.evidence, strict=True)
        if not isinstance(each.value, str)
    ]
    number_width = min(max([_NUMBER, *numbers]), ctx.width - name_width - 3)
    for item, value in zip(shown.evidence, values, strict=True):
        if isinstance(item.value, str):
            first, *rest = wrap(value, ctx.width - name_width - 4)
        else:
            first, rest = right(value, number_width), []
        lines.append(line((f"   {fit(item.name, name_width)}{first}", ctx.palette.text)))
        lines += [line((" " * (name_width + 3) + part, ctx.palette.text)) for part in rest]
    return lines + _flow_counts(ctx, shown)


def _flow_counts(ctx: DrawContext, finding: Finding) -> list[Line]:
    """What the numbers of flows count, where there are several."""
    found = {each.name: each for each in finding.evidence}
    least, effective = found.get(LEAST_FLOWS), found.get(EFFECTIVE_FLOWS)
    if least is None or effective is None:
        return []
    count = evidence_value(least.value, least.unit)
    text = f"At least {count} carry this traffic, by the rates and queue pairs of the senders."
    if effective.unit.endswith("QPs"):
        queue_pairs = effective.unit.removeprefix("of ")
        text += f" {queue_pairs} may use these links, idle ones included."
    equal = evidence_value(effective.value, "")
    text += f" Effective flows: {equal} equal flows would be as uneven."
    return paragraph(text, ctx.width, ctx.palette.dim)
