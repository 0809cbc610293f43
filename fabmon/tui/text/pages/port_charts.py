"""Charts of a port: its traffic over minutes or a trend, and a burst sampled at high rate."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.style import Style

from fabmon.analysis.burst import HOT, PERCENTILES, BurstSummary, summarise_burst
from fabmon.fabric import wording
from fabmon.fabric.model import Port
from fabmon.fabric.snapshot import WAYS, BurstSamples, Floats
from fabmon.fabric.time_wording import MINUS, interval, measured, time_of_day
from fabmon.fabric.wording import Unit, rounded_percent, trimmed
from fabmon.tui.line import Line, Span, fit, line, paragraph, right
from fabmon.tui.metrics import unit_of
from fabmon.tui.palette import Depth
from fabmon.tui.text import chart
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.time.trend import Trend

SPANS = (1, 2, 5, 10)
"""Minutes that the charts can show from memory."""
SECONDS, HZ = 5.0, 50.0
"""Length and rate of a burst started with `B`."""
_AXIS = 10
_MEAN_ROWS = 4
"""A lower chart has no room for the mean beside the highest value."""
_BURST_ROWS = 6
_IDLE_BPS = 1e9
"""The top of a chart without any traffic where no line rate is known."""
_SOURCES = {
    "ib": "port_xmit_data and port_rcv_data (on RoCE: only RDMA)",
    "netdev": "the kernel's network stack (without RDMA)",
}


class _Curve(NamedTuple):
    """Bits/s of a direction, the time it covers as text, and the labels of its two ends.

    `mean` is [values] where `values` are the highest of bins; None where they are ticks.
    """

    values: Floats
    mean: Floats | None
    over: str
    ends: tuple[str, str]


def charts(ctx: DrawContext, port: Port, shown: int | Trend) -> list[Line]:
    """Charts of tx and rx over the last `shown` minutes or a trend, side by side where they fit."""
    palette = ctx.palette
    beside = ctx.width >= 100
    rows = max(3, min(10, (ctx.height - 12) // (1 if beside else 2)))
    each = (ctx.width - 3) // 2 if beside else max(ctx.width - 2, _AXIS + 2)
    curves = _curves(ctx, port, shown, (each - _AXIS - 1) * (2 if palette.depth.rgb else 1))
    top = float(ctx.snapshot.line_rate_bps[port.row])
    scale = "line rate"
    if not top > 0:
        known = np.concatenate([curve.values for curve in curves.values()])
        known = known[np.isfinite(known)]
        top = float(known.max(initial=0.0))
        scale = "highest value"
    # Without a line rate there is no percentage to show.
    is_share_unknown = ctx.choices.unit is Unit.PERCENT and scale != "line rate"
    unit = unit_of(port.kind, Unit.GBIT if is_share_unknown else ctx.choices.unit)
    if not top:
        top = _IDLE_BPS
        scale = wording.rate(top, top, unit)
    tx, rx = (
        _chart(ctx.sized(each, rows), direction, curves[direction], (top, scale), style, unit)
        for direction, style in (("tx", palette.tx), ("rx", palette.rx))
    )
    if not beside:
        return [Line(tuple(spans)) for spans in (*tx, *rx)]
    gap: Span = ("  ", palette.text)
    return [Line((*left, gap, *after)) for left, after in zip(tx, rx, strict=True)]


def _curves(ctx: DrawContext, port: Port, shown: int | Trend, bins: int) -> dict[str, _Curve]:
    """tx and rx of the last minutes, or of a trend in at most `bins` bins."""
    names = [f"{direction}_bps" for direction in WAYS]
    if isinstance(shown, int):
        ticks = max(2, round(shown * 60 / ctx.snapshot.interval_s))
        over, ends = f"last {shown} min", (f"{MINUS}{shown} min", "now")
        return {
            direction: _Curve(ctx.snapshot.window(name, [port.row], ticks)[0], None, over, ends)
            for direction, name in zip(WAYS, names, strict=True)
        }
    tier = shown.of([port], names, of_line_rate=False, most_bins=bins)
    return {
        direction: _Curve(most, mean, shown.resolution(tier.wanted.bin_ns), shown.ends)
        for direction, most, mean in zip(WAYS, tier.highest[:, 0], tier.mean[:, 0], strict=True)
    }


def _chart(
    ctx: DrawContext,
    direction: str,
    curve: _Curve,
    scale: tuple[float, str],
    style: Style,
    unit: Unit,
) -> list[list[Span]]:
    """A curve of `ctx.height` rows between its axes; `scale` is its top and what that is."""
    palette, rows, width = ctx.palette, ctx.height, ctx.width
    columns = width - _AXIS - 1
    title = f" {direction}, {unit}, {curve.over}"
    has_mean = curve.mean is not None and rows >= _MEAN_ROWS and palette.depth is not Depth.NONE
    for part in (", bright: mean" if has_mean else "", f", scale to {scale[1]}"):
        title += part if len(title) + len(part) <= width else ""
    lines: list[list[Span]] = [[(fit(title, width), palette.dim)]]
    levels = np.zeros(columns, int)
    if has_mean and curve.mean is not None:
        levels = chart.levels(curve.mean, columns, rows, scale[0])
    for row, (label, text) in enumerate(_drawn(ctx, curve.values, columns, rows, scale[0], unit)):
        if has_mean:
            inside = (levels >= rows - row).tolist()
            spans = _runs(text, [style if each else palette.dim for each in inside])
        else:
            spans = [(text, style)]
        lines.append([label, *spans])
    start, end = curve.ends
    axis = " " * _AXIS + "└" + start + "─" * (columns - len(start) - len(end)) + end
    lines.append([(fit(axis, width), palette.dim)])
    return lines


def _drawn(
    ctx: DrawContext, values: Floats, columns: int, rows: int, top: float, unit: Unit
) -> list[tuple[Span, str]]:
    """A curve in `rows` rows, each with its label on the axis: at the top, middle and bottom."""
    draw = chart.braille if ctx.palette.depth.rgb else chart.bars
    shares = {0: 1.0, rows // 2: 1 - (rows // 2) / rows, rows - 1: 0.0}
    found = []
    for row, text in enumerate(draw(values, columns, rows, top)):
        share = shares.get(row)
        label = "" if share is None else wording.rate(top * share, top, unit)
        found.append(((f"{right(label, _AXIS)}│", ctx.palette.dim), text))
    return found


def _runs(text: str, styles: Sequence[Style]) -> list[Span]:
    """Characters with a style each, as few spans."""
    pairs = zip(text, styles, strict=True)
    return [
        ("".join(char for char, _ in run), style)
        for style, run in itertools.groupby(pairs, key=lambda pair: pair[1])
    ]


def burst_section(ctx: DrawContext, port: Port) -> list[Line]:
    """The last burst of a port: a curve and statistics per direction; nothing without a burst."""
    samples = ctx.snapshot.bursts.get((port.node, port.name))
    if samples is None:
        return []
    palette = ctx.palette
    line_rate_bps = float(ctx.snapshot.line_rate_bps[port.row])
    unit = unit_of(port.kind, ctx.choices.unit)
    lines = [_burst_title(ctx, samples), *paragraph(samples.error, ctx.width, palette.accent)]
    for number, direction in enumerate(WAYS):
        burst = summarise_burst(samples.at_s, samples.counts[number], line_rate_bps)
        if burst is None:
            continue
        style = palette.tx if direction == "tx" else palette.rx
        lines += _burst_curve(ctx, direction, burst, samples.asked_s, line_rate_bps, style, unit)
        lines += paragraph(
            _statistics(direction, burst, line_rate_bps, unit), ctx.width, palette.text
        )
        if burst.is_coarse:
            text = (
                f"The counter changes every {measured(burst.resolution_s)}: it is refreshed no"
                " faster, or the traffic has that period. Shorter bursts are not visible."
            )
            lines += paragraph(text, ctx.width, palette.accent)
    return lines


def _burst_title(ctx: DrawContext, samples: BurstSamples) -> Line:
    state = "" if samples.done else ", in progress"
    source = f", {_SOURCES[samples.source]}" if samples.source in _SOURCES else ""
    pace = f"{trimmed(samples.asked_hz)} Hz for {interval(samples.asked_s)}"
    text = f" Burst of {time_of_day(samples.time_ns)}, {pace}{state}{source}"
    return line((fit(text, ctx.width), ctx.palette.strong))


def _burst_curve(
    ctx: DrawContext,
    direction: str,
    burst: BurstSummary,
    seconds: float,
    line_rate_bps: float,
    style: Style,
    unit: Unit,
) -> list[Line]:
    """The rates over the burst, on a scale from 0 to the line rate."""
    columns = max(10, ctx.width - _AXIS - 2)
    line_bps = line_rate_bps if line_rate_bps > 0 else 0.0
    top = max(line_bps, burst.greatest_bps) or _IDLE_BPS
    values = _evenly(burst, seconds, 2 * columns)
    lines = [
        line(label, (text, style))
        for label, text in _drawn(ctx, values, columns, _BURST_ROWS, top, unit)
    ]
    end = interval(seconds)
    axis = f"{' ' * _AXIS}└{direction} 0 s"
    axis += "─" * (ctx.width - 1 - len(axis) - len(end)) + end
    return [*lines, line((axis, ctx.palette.dim))]


def _evenly(burst: BurstSummary, seconds: float, columns: int) -> Floats:
    """[columns]: the rate at evenly spaced times, from the nearest sample; NaN where it is far."""
    times = (np.arange(columns) + 0.5) * seconds / columns
    after = np.clip(np.searchsorted(burst.at_s, times), 1, max(1, len(burst.at_s) - 1))
    if len(burst.at_s) < 2:
        nearest = np.zeros(columns, np.intp)
    else:
        nearer = times - burst.at_s[after - 1] < burst.at_s[after] - times
        nearest = np.where(nearer, after - 1, after)
    values = burst.rate_bps[nearest].astype(np.float32)
    far = np.abs(burst.at_s[nearest] - times) > 2 * burst.resolution_s + seconds / columns
    values[far] = np.nan
    return values


def _statistics(direction: str, burst: BurstSummary, line_rate_bps: float, unit: Unit) -> str:
    """Percentiles, time near line rate, the longest burst, and what 1 Hz sampling would show."""

    def rate(bps: float) -> str:
        return wording.rate(bps, line_rate_bps, unit)

    resolution = measured(burst.resolution_s)
    if not burst.greatest_bps:
        return f"{direction}: the counter did not change; read every {resolution}."
    percentiles = zip(PERCENTILES, burst.percentiles_bps, strict=True)
    parts = [f"p{share} {rate(bps)}" for share, bps in percentiles]
    parts += [f"maximum {rate(burst.greatest_bps)}", f"mean {rate(burst.mean_bps)}"]
    text = f"{direction}: {', '.join(parts)}; "
    if not np.isnan(burst.hot_share):
        share = f"{rounded_percent(HOT)} of line rate for {rounded_percent(burst.hot_share)}"
        text += f"above {share} of the time, longest {measured(burst.longest_hot_s)}; "
    return f"{text}at 1 Hz at most {rate(burst.seconds_bps)}. Resolution {resolution}."
