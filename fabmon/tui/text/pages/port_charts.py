"""A burst of a port: its curves, and what one sample a second hides."""

from __future__ import annotations

import numpy as np
from rich.style import Style

from fabmon.analysis.burst import HOT, PERCENTILES, BurstSummary, summarise_burst
from fabmon.fabric import wording
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import WAYS, BurstSamples, Floats
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import Unit
from fabmon.tui.line import Line, Span, fit, line, right, wrap
from fabmon.tui.metrics import unit_of
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext

SECONDS, HZ = 5.0, 50.0
"""What `B` asks for."""

_AXIS = 10
_ROWS = 6
_SOURCES = {
    "ib": "port_xmit_data and port_rcv_data (on RoCE: RDMA alone)",
    "netdev": "the kernel's stack (without RDMA)",
}


def burst_section(ctx: DrawContext, port: Port) -> list[Line]:
    """The last burst of a port; nothing where there was none."""
    samples = ctx.snapshot.bursts.get((port.node, port.name))
    if samples is None:
        return []
    palette = ctx.palette
    lines = [_title(ctx, samples)]
    if samples.error:
        lines += [line((f"   {part}", palette.hot)) for part in wrap(samples.error, ctx.width - 4)]
    line_rate = float(ctx.snapshot.line_rate_bps[port.row])
    unit = unit_of(port.kind, ctx.unit)
    styles = {"tx": palette.tx, "rx": palette.rx}
    for number, way in enumerate(WAYS):
        seen = summarise_burst(samples.at_s, samples.counts[number], line_rate)
        if seen is not None:
            lines += _curve(ctx, way, seen, samples, line_rate, styles[way], unit)
            lines += [
                line((f"   {part}", palette.text))
                for part in wrap(_said(way, seen, line_rate, unit), ctx.width - 4)
            ]
            if seen.is_coarse:
                lines += [line((f"   {part}", palette.hot)) for part in _coarse(seen, ctx.width)]
    return lines


def _title(ctx: DrawContext, samples: BurstSamples) -> Line:
    when = time_of_day(samples.time_ns)
    state = "" if samples.done else ", coming in"
    who = f", {_SOURCES[samples.source]}" if samples.source in _SOURCES else ""
    pace = f"{samples.asked_hz:g} Hz for {samples.asked_s:g} s"
    text = f" Burst of {when}, {pace}{state}{who}"
    return line((fit(text, ctx.width), ctx.palette.strong))


def _curve(
    ctx: DrawContext,
    way: str,
    seen: BurstSummary,
    samples: BurstSamples,
    line_rate: float,
    style: Style,
    unit: Unit,
) -> list[Line]:
    """The rates over the burst, on an axis from nothing to the line rate."""
    palette = ctx.palette
    columns = max(10, ctx.width - _AXIS - 2)
    top = line_rate if line_rate > 0 else max(seen.greatest_bps, 1.0)
    top = max(top, seen.greatest_bps)
    values = _evenly(seen, samples.asked_s, 2 * columns)
    draw = chart.braille if palette.depth.rgb else chart.bars
    lines = []
    for row, text in enumerate(draw(values, columns, _ROWS, top)):
        share = {0: 1.0, _ROWS // 2: 1 - (_ROWS // 2) / _ROWS, _ROWS - 1: 0.0}.get(row)
        said = "" if share is None else wording.rate(top * share, top, unit)
        spans: list[Span] = [(f"{right(said, _AXIS)}│", palette.dim), (text, style)]
        lines.append(Line(tuple(spans)))
    end = f"{samples.asked_s:g} s"
    axis = f"{' ' * _AXIS}└{way} 0 s"
    lines.append(line((axis + "─" * (ctx.width - 1 - len(axis) - len(end)) + end, palette.dim)))
    return lines


def _evenly(seen: BurstSummary, seconds: float, columns: int) -> Floats:
    """[columns] the rate at evenly spaced times: the one whose middle is nearest, a gap beyond."""
    times = (np.arange(columns) + 0.5) * seconds / columns
    after = np.clip(np.searchsorted(seen.at_s, times), 1, max(1, len(seen.at_s) - 1))
    if len(seen.at_s) < 2:
        nearest = np.zeros(columns, np.intp)
    else:
        nearer = times - seen.at_s[after - 1] < seen.at_s[after] - times
        nearest = np.where(nearer, after - 1, after)
    values = seen.rate_bps[nearest].astype(np.float32)
    values[np.abs(seen.at_s[nearest] - times) > 2 * seen.resolution_s + seconds / columns] = np.nan
    return values


def _said(way: str, seen: BurstSummary, line_rate: float, unit: Unit) -> str:
    """Percentiles, the time above 90 %, the longest burst, and what a second would have shown."""

    def rate(bps: float) -> str:
        return wording.rate(bps, line_rate, unit)

    if not seen.greatest_bps:
        return f"{way}: the counter did not move; read every {_time(seen.resolution_s)}."
    parts = [
        f"p{share} {rate(bps)}"
        for share, bps in zip(PERCENTILES, seen.percentiles_bps, strict=True)
    ]
    parts += [f"greatest {rate(seen.greatest_bps)}", f"mean {rate(seen.mean_bps)}"]
    text = f"{way}: {', '.join(parts)}; "
    if not np.isnan(seen.hot_share):
        hot = f"{HOT * 100:.0f} % of line rate for {wording.percent(seen.hot_share)} of the time"
        text += f"above {hot}, longest {_time(seen.longest_hot_s)}; "
    return f"{text}at 1 Hz at most {rate(seen.seconds_bps)}. Resolution {_time(seen.resolution_s)}."


def _coarse(seen: BurstSummary, width: int) -> list[str]:
    every = _time(seen.resolution_s)
    text = (
        f"The counter moves every {every}: it is refreshed no faster, or traffic is that regular. "
        "Nothing finer can be told."
    )
    return wrap(text, width - 4)


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{wording.number(seconds * 1000)} ms"
    return f"{wording.number(seconds)} s"
