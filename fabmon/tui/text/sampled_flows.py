"""Flows that a switch sampled (sFlow) on a link."""

from __future__ import annotations

from collections.abc import Sequence

from fabmon.analysis.evidence.flows_on_link import sampled_on_link
from fabmon.fabric.flows.sampled import SampledRate, SampledTraffic
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import RATE, plural, rate
from fabmon.tui.line import Line, fit, line, paragraph, right, wrap
from fabmon.tui.text.draw_context import DrawContext

_MOST = 12
"""Lines of flows."""


def sampled_flows(ctx: DrawContext, rows: Sequence[int], direction: str, way: str) -> list[Line]:
    """The flows that the switch sampled at ports, in a direction there (tx or rx), which is called
    `way`: ends, protocol, rate and its error, samples."""
    palette, sampled = ctx.palette, ctx.snapshot.sampled
    found = sampled_on_link(ctx.snapshot, rows, direction)
    if found is None or sampled is None or not found.flows:
        return []
    text = (
        f"(sFlow, 1 of {found.rate} packets, last {duration(found.seconds)}), {way}; ± is the"
        " error of the estimate at 95 % confidence"
    )
    first, *rest = wrap(text, ctx.width - 16)
    lines = [line((" Sampled flows ", palette.strong), (first, palette.text))]
    lines += paragraph(" ".join(rest), ctx.width, palette.text)
    line_rate_bps = float(ctx.snapshot.line_rate_bps[rows[0]])
    shown, others = found.flows[:_MOST], found.flows[_MOST:]
    for each in shown:
        lines.append(_sampled_flow(ctx, each, sampled, line_rate_bps))
    if others:
        total = sum(each.bps for each in others)
        text = f"and {plural(len(others), 'smaller flow')}, together "
        text += rate(total, line_rate_bps, ctx.choices.unit)
        lines += paragraph(text, ctx.width, palette.dim)
    return lines


def _sampled_flow(
    ctx: DrawContext, each: SampledRate, sampled: SampledTraffic, line_rate_bps: float
) -> Line:
    """`gpu002 r3 :49153 → gpu006 r3  RoCE QP 0x1a2b  92.1 Gb/s ± 6 %  1044 samples`."""
    palette = ctx.palette
    error = each.error_percent
    size = f"{right(rate(each.bps, line_rate_bps, ctx.choices.unit), RATE)} ± {error:.0f} %"
    tail = f"  {plural(each.samples, 'sample')}"
    width = max(20, ctx.width - 3 - RATE - 9 - 15)
    if each.flow is None:
        text = "other flows together"
    else:
        src, dst = sampled.end_name(each.flow.src), sampled.end_name(each.flow.dst)
        sport = f":{each.flow.sport}" if each.flow.sport else ""
        dport = f":{each.flow.dport}" if each.flow.dport and each.flow.qp < 0 else ""
        text = f"{src}{sport} → {dst}{dport}  {each.flow.protocol_name}"
    return line(
        (f"   {fit(text, width)}", palette.text),
        (f" {size:<{RATE + 8}}", palette.tx),
        (tail, palette.dim),
    )
