"""Pictures of a cable: the state and recent errors of both ends, and what sources report of it."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.causes import causes_with
from fabmon.analysis.detectors import degraded_link
from fabmon.analysis.finding import Trait
from fabmon.fabric.model import RAIL, CableReport, Contradiction, Port
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.fabric.wording import bit_rate, per_second, whole_number
from fabmon.tui.line import Line, PortTarget, fit, line, peer
from fabmon.tui.text import chart
from fabmon.tui.text.labels import port_state
from fabmon.tui.text.picture.canvas import Canvas

_LOOK_BACK_S = 120
"""How long errors and carrier changes are kept."""
_ERRORS, _FLAPS = ("errors", "damage"), ("carrier changes", "flaps")
_CHANGES_CARRIER = causes_with(Trait.STOPS_PAUSE_FRAMES)
"""Causes of which carrier changes are drawn; of the others, errors."""
_NAME = 18
_STATE = 12
_STRIP = 30
_MOST_TIMES = 3


def link_ends(canvas: Canvas) -> list[Line]:
    """Both ends, each with its errors or carrier changes over time."""
    what, column = _FLAPS if canvas.finding.cause in _CHANGES_CARRIER else _ERRORS
    both = _both(canvas)
    lines = canvas.title(f"The link now, and its {what} in the last {_LOOK_BACK_S // 60} min")
    for port in both[: max(1, (canvas.ctx.height - 1) // 2)]:
        lines += _end(canvas, port, what, column)
    if canvas.finding.cause == degraded_link.CAUSE.name and both:
        lines += _comparable_rates(canvas, both[0])
    return lines


def cabling(canvas: Canvas) -> list[Line]:
    """The other end of a cable according to each of two sources."""
    rows = set(canvas.finding.rows)
    found = [each for each in canvas.fabric.contradictions if each.row in rows]
    lines = canvas.title("The other end of the cable, by source")
    for each in found[: max(1, (canvas.ctx.height - 1) // 2)]:
        lines += _contradiction(canvas, each)
    return lines if found else []


def _both(canvas: Canvas) -> list[Port]:
    """The port at fault and its peer; of a host whose links are all down, its rails."""
    if not canvas.ports:
        return []
    first = canvas.ports[0]
    if canvas.finding.subject == first.node:
        return [port for port in canvas.ports if port.node == first.node]
    other = peer(first, canvas.fabric)
    return [first] if other is None else [first, other]


def _end(canvas: Canvas, port: Port, what: str, column: str) -> list[Line]:
    """Two lines: state, line rate and traffic; then the errors or carrier changes over time."""
    palette, snapshot, width = canvas.palette, canvas.snapshot, canvas.ctx.width
    down = canvas.is_down(port.row)
    tx, rx = (canvas.ctx.traffic(port.row, direction) for direction in ("tx", "rx"))
    rates = f"  line rate {bit_rate(snapshot.line_rate_bps[port.row])}  tx {tx}  rx {rx}"
    room = max(0, width - 3 - _NAME - _STATE)
    if len(rates) > room:
        rates = rates.replace("  line rate", "  of")
    values = canvas.window(column, [port.row], _LOOK_BACK_S)[0]
    columns = min(_STRIP, max(8, width - 48))
    top = float(np.nan_to_num(values).max(initial=0.0)) or 1.0
    text = fit(f" {_over_time(canvas, values, what)}", max(0, width - 5 - columns))
    target = PortTarget(port.row)
    return [
        line(
            (" ✖ " if down else " ▲ ", palette.gone if down else palette.accent),
            (fit(port.display_name, _NAME), palette.strong),
            (
                fit(port_state(canvas.ctx.scene, port.row), _STATE),
                palette.gone if down else palette.dim,
            ),
            (fit(rates, room), palette.text),
            target=target,
        ),
        line(
            (f"     {chart.spark(values, columns, top)}", palette.tx),
            (text, palette.dim),
            target=target,
        ),
    ]


def _over_time(canvas: Canvas, values: Floats, what: str) -> str:
    """The highest and the last error rate, or when the carrier changed."""
    if canvas.ctx.time.is_reading:
        return f"{what}: being read from the recording"
    known = np.nan_to_num(values)
    if not np.isfinite(values).any():
        return f"{what}: not counted here"
    if not known.any():
        return f"no {what}"
    if what == "errors":
        return f"up to {per_second(float(known.max()))}, now {per_second(float(values[-1]))}"
    snapshot = canvas.snapshot
    ago_s = (len(values) - 1 - np.flatnonzero(known)) * snapshot.interval_s
    times = [time_of_day(snapshot.time_ns - int(each * SECOND_NS)) for each in ago_s.tolist()]
    count = whole_number(round(float(known.sum() * snapshot.interval_s)))
    return f"{count}, the last at {', '.join(times[: -_MOST_TIMES - 1 : -1])}"


def _comparable_rates(canvas: Canvas, port: Port) -> list[Line]:
    """The line rates of the ports that should have the same one, where they differ."""
    group = canvas.fabric.group_of(port.row)
    if group is not None:
        rows, what = list(group.rows), "its group"
    elif port.role == RAIL:
        ports = canvas.fabric.ports
        rows = [each.row for each in ports if each.role == RAIL and each.label == port.label]
        what = f"rail {port.label}"
    else:
        return []
    rates = canvas.snapshot.line_rate_bps[rows]
    known, counts = np.unique(rates[np.isfinite(rates)], return_counts=True)
    if len(known) < 2:
        return []
    pairs = zip(known.tolist(), counts.tolist(), strict=True)
    text = ", ".join(f"{count} at {bit_rate(each)}" for each, count in pairs)
    return canvas.remark(f"Line rates of {what}: {text}")


def _contradiction(canvas: Canvas, each: Contradiction) -> list[Line]:
    """Two lines: the report that is doubted, and the one that is used."""
    palette, target = canvas.palette, PortTarget(each.row)
    port = canvas.fabric.ports[each.row]
    here, used = port.display_name, ": used" if port.cable is not None else ": not used"
    room = max(0, canvas.ctx.width - 8 - _NAME)
    return [
        line(
            (f"   {fit(here, _NAME)}", palette.strong),
            (fit(f"── {_report(each.doubted)}", room), palette.accent),
            target=target,
        ),
        line(
            (f"   {'':{_NAME}}", palette.text),
            (fit(f"╌╌ {_report(each.believed)}{used}", room), palette.dim),
            target=target,
        ),
    ]


def _report(report: CableReport) -> str:
    far = f"{report.node}/{report.port}" if report.port else report.node
    return f"{far}  ({report.source}, {report.by})"
