"""The two ends of a cable: state, line rate, and what went wrong there in the last minutes."""

from __future__ import annotations

import numpy as np

from fabmon.fabric.model import RAIL, CableReport, Contradiction, Port
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.fabric.wording import bit_rate, per_second, whole_number
from fabmon.tui.line import Line, PortTarget, fit, line, peer
from fabmon.tui.text import chart, labels
from fabmon.tui.text.labels import port_state
from fabmon.tui.text.picture.canvas import Canvas

_LOOK_BACK_S = 120
"""How long errors and changes of carrier are kept."""
_WHAT = {
    "error_burst": ("errors", "damage"),
    "degraded_link": ("errors", "damage"),
    "flapping_link": ("changes of carrier", "flaps"),
    "link_down": ("changes of carrier", "flaps"),
}
_NAME = 18
_STRIP = 30
_MOST_TIMES = 3


def ends(canvas: Canvas) -> list[Line]:
    """Both ends, with a strip of errors or of changes of carrier."""
    what, column = _WHAT[canvas.finding.cause]
    both = _both(canvas)
    lines = canvas.title(f"The link, and its {what} in the last {_LOOK_BACK_S // 60} min")
    for port in both[: max(1, (canvas.height - 1) // 2)]:
        lines += _end(canvas, port, what, column)
    if canvas.finding.cause == "degraded_link" and both:
        lines += _equals(canvas, both[0])
    return lines


def contradictions(canvas: Canvas) -> list[Line]:
    """Where each source has the cable's other end."""
    rows = set(canvas.finding.rows)
    told = [each for each in canvas.fabric.contradictions if each.row in rows]
    lines = canvas.title("Where the other end is, and who says so")
    for each in told[: max(1, (canvas.height - 1) // 2)]:
        lines += _said(canvas, each)
    return lines if told else []


def _both(canvas: Canvas) -> list[Port]:
    """The guilty port and its peer; of a host all of whose links are down, the rails."""
    if not canvas.ports:
        return []
    first = canvas.ports[0]
    if canvas.finding.subject == first.node:
        return [port for port in canvas.ports if port.node == first.node]
    other = peer(first, canvas.fabric)
    return [first] if other is None else [first, other]


def _end(canvas: Canvas, port: Port, what: str, column: str) -> list[Line]:
    palette, snapshot = canvas.palette, canvas.snapshot
    down = canvas.is_down(port.row)
    rated = bit_rate(float(snapshot.line_rate_bps[port.row]))
    traffic = f"tx {bit_rate(float(snapshot.column('tx_bps')[port.row]))}  rx "
    traffic += bit_rate(float(snapshot.column("rx_bps")[port.row]))
    said = f"  line rate {rated}  {traffic}"
    seen = canvas.window(column, [port.row], _LOOK_BACK_S)[0]
    columns = min(_STRIP, max(8, canvas.width - 48))
    known = seen[np.isfinite(seen)]
    top = float(known.max()) if len(known) else 0.0
    target = PortTarget(port.row)
    return [
        line(
            (" ✖ " if down else " ▲ ", palette.gone if down else palette.hot),
            (fit(labels.port_name(port), _NAME), palette.strong),
            (fit(port_state(canvas.scene, port.row), 12), palette.gone if down else palette.dim),
            (fit(said, max(0, canvas.width - 3 - _NAME - 12)), palette.text),
            target=target,
        ),
        line(
            (f"     {chart.spark(seen, columns, top or 1.0)}", palette.tx),
            (fit(f" {_told(canvas, seen, what)}", max(0, canvas.width - 5 - columns)), palette.dim),
            target=target,
        ),
    ]


def _told(canvas: Canvas, seen: np.ndarray, what: str) -> str:
    """The most errors a second, or when the carrier changed."""
    known = np.nan_to_num(seen)
    if not np.isfinite(seen).any():
        return f"{what}: not counted here"
    if not known.any():
        return f"no {what}"
    if what == "errors":
        return f"{per_second(float(known.max()))} at most, now {per_second(float(seen[-1]))}"
    snapshot = canvas.snapshot
    ago = (len(seen) - 1 - np.flatnonzero(known)) * snapshot.interval_s
    times = [time_of_day(snapshot.time_ns - int(each * SECOND_NS)) for each in ago.tolist()]
    count = whole_number(round(float(known.sum() * snapshot.interval_s)))
    return f"{count}, the last at {', '.join(times[: -_MOST_TIMES - 1 : -1])}"


def _equals(canvas: Canvas, port: Port) -> list[Line]:
    """What line rate the ports have that ought to be alike."""
    group = canvas.fabric.group_of(port.row)
    if group is not None:
        rows, what = list(group.rows), "its group"
    elif port.role == RAIL:
        rows = [
            each.row
            for each in canvas.fabric.ports
            if each.role == RAIL and each.label == port.label
        ]
        what = f"rail {port.label}"
    else:
        return []
    rates = canvas.snapshot.line_rate_bps[rows]
    known, counts = np.unique(rates[np.isfinite(rates)], return_counts=True)
    if len(known) < 2:
        return []
    pairs = zip(known.tolist(), counts.tolist(), strict=True)
    told = ", ".join(f"{count} at {bit_rate(each)}" for each, count in pairs)
    return canvas.said(f"line rates of {what}: {told}")


def _said(canvas: Canvas, each: Contradiction) -> list[Line]:
    palette, target = canvas.palette, PortTarget(each.row)
    here = labels.port_name(canvas.fabric.ports[each.row])
    room = max(0, canvas.width - 8 - _NAME)
    return [
        line(
            (f"   {fit(here, _NAME)}", palette.strong),
            (fit(f"── {_who(each.doubted)}", room), palette.hot),
            target=target,
        ),
        line(
            (f"   {'':{_NAME}}", palette.text),
            (fit(f"╌╌ {_who(each.believed)}: believed", room), palette.dim),
            target=target,
        ),
    ]


def _who(said: CableReport) -> str:
    far = f"{said.node}/{said.port}" if said.port else said.node
    return f"{far}  ({said.source}, {said.by})"
