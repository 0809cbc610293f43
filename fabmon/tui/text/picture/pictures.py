"""The picture of each finding, by the name that its cause declares, and that of parallel links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from fabmon.analysis.causes import CAUSES, causes_with
from fabmon.analysis.detectors import degraded_link
from fabmon.analysis.evidence.null_model import HashingComparison, compare_with_hashing
from fabmon.analysis.finding import Trait, shown_moment
from fabmon.fabric.model import RAIL, CableReport, Contradiction, Fabric, Port
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.fabric.wording import bit_rate, number, per_second, plural, whole_number
from fabmon.tui.line import Line, PortTarget, fit, line, peer, width_of
from fabmon.tui.text import chart
from fabmon.tui.text.labels import port_state
from fabmon.tui.text.picture import host, pause_tree
from fabmon.tui.text.picture.canvas import LIMIT, Canvas, Loads, bars

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


def group_members(canvas: Canvas) -> list[Port]:
    """The links of the group in physical order, without the affected ports."""
    affected = set(shown_moment(canvas.finding).victims)
    own = [port for port in canvas.ports if port.id not in affected]
    places = {node.name: place for place, node in enumerate(canvas.fabric.nodes)}
    return sorted(own, key=lambda port: (places.get(port.node, 0), port.role, port.index, port.row))


def link_group(canvas: Canvas) -> list[Line]:
    """`leaf1 → spines, transmit …`, a bar per link, and in them what random hashing would load."""
    links = group_members(canvas)
    if not links:
        return []
    loads = Loads(canvas, [port.row for port in links], "tx")
    hashing = compare_with_hashing(shown_moment(canvas.finding))
    shares = np.array([loads.share(port.row) for port in links], np.float32)
    known = shares[np.isfinite(shares)]
    lines, usual = canvas.title(_title(canvas, links)), float("nan")
    if hashing is not None:
        if len(known):
            usual = hashing.usual * float(known.mean())
        text = _hashing_text(hashing, usual)
        gap = canvas.ctx.width - 1 - width_of(lines[-1].spans) - len(text)
        if len(lines) == 1 and gap >= 3:
            lines = [Line((*lines[0].spans, (" " * gap + text, canvas.palette.text)))]
        else:
            lines += canvas.remark(text)
    return lines + bars(canvas, links, loads, canvas.ctx.height - len(lines), usual)


def _title(canvas: Canvas, links: Sequence[Port]) -> str:
    rates = {float(canvas.snapshot.line_rate_bps[port.row]) for port in links}
    each = f", {bit_rate(rates.pop())} each" if len(rates) == 1 else ""
    here = _side(canvas.fabric, {port.node for port in links})
    others = {other.node for port in links if (other := peer(port, canvas.fabric))}
    there = _side(canvas.fabric, others)
    what = f"{here} → {there}, {len(links)} links" if there else f"{len(links)} ports of {here}"
    return f"{what}, transmit{each}, {canvas.basis}"


def _side(fabric: Fabric, names: set[str]) -> str:
    """One node by its name, several nodes of one group by its name, else their number."""
    if len(names) == 1:
        return next(iter(names))
    groups = {node.group for node in fabric.nodes if node.name in names}
    if len(groups) == 1 and (found := groups.pop()):
        return found
    return plural(len(names), "node") if names else ""


def _hashing_text(hashing: HashingComparison, usual: float) -> str:
    """How far random hashing would load the busiest link (`usual`), and what was measured."""
    verdict = "random hashing explains it" if hashing.explains else "more than random"
    where = f" ({LIMIT})" if usual <= 1 else ""
    return (
        f"random hashing of {whole_number(hashing.flows)} flows on {hashing.links} links: busiest"
        f" up to {number(hashing.usual)} times the mean{where};"
        f" measured {number(hashing.seen)}: {verdict}"
    )


PICTURES: Mapping[str, Callable[[Canvas], list[Line]]] = {
    "affected_ports": host.affected_ports,
    "cabling": cabling,
    "host_peers": host.host_peers,
    "kernel_messages": host.kernel_messages,
    "last_traffic": host.last_traffic,
    "link_ends": link_ends,
    "link_group": link_group,
    "numa_nodes": host.numa_nodes,
    "nvlinks": host.nvlinks,
    "pause_cycle": pause_tree.pause_cycle,
    "pause_tree": pause_tree.pause_tree,
    "paused_ports": pause_tree.paused_ports,
    "pcie_links": host.pcie_links,
    "rails": host.rails,
    "receiver": host.receiver,
    "resending_ports": host.resending_ports,
}
"""Drawing functions by the name that a cause declares as its `picture`."""
if _unknown := {cause.picture for cause in CAUSES.values()} - set(PICTURES):
    raise KeyError(f"no such picture: {', '.join(_unknown)}")

OF_GROUPS = frozenset(name for name, cause in CAUSES.items() if cause.picture == "link_group")
"""Names of the causes that are about parallel links."""


def picture(canvas: Canvas) -> list[Line]:
    """The picture of the canvas's finding; none for a cause that is not declared."""
    cause = CAUSES.get(canvas.finding.cause)
    return [] if cause is None else PICTURES[cause.picture](canvas)
