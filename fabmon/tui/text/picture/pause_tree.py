"""Pictures of pause: the tree of ports that wait for a receiver, or a cycle of waiting ports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from fabmon.analysis.detectors import incast
from fabmon.analysis.recent_load import recent_ticks
from fabmon.fabric.measures import known_mean
from fabmon.fabric.model import Port
from fabmon.fabric.names import natural
from fabmon.fabric.snapshot import Floats
from fabmon.fabric.time_wording import SECOND_NS, time_of_day
from fabmon.fabric.wording import label_runs, percent, plural, rate
from fabmon.tui.line import Line, NodeTarget, PortTarget, Target, fit, line, peer, right
from fabmon.tui.text.picture.canvas import Canvas

_BAR = 10
_NAME = 16
_INFINIBAND = "infiniband"
_WAITING = ("pause_rx", "stall")
"""HEAT columns of the share of time in which a port may not send."""


def pause_tree(canvas: Canvas) -> list[Line]:
    """The root, then hop by hop the switches whose ports wait for the hop before."""
    if not canvas.ports:
        return []
    worst = _worst(canvas)
    lines = [
        *canvas.title(f"Ports that wait for it, hop by hop; {worst.basis}"),
        _root(canvas, worst),
    ]
    hops = list(_hops(canvas))
    room = max(1, canvas.ctx.height - len(lines))
    shown = hops if len(hops) <= room else hops[: room - 1]
    lines += [_hop(canvas, worst, level, ports) for level, ports in shown]
    rest = hops[len(shown) :]
    if rest:
        count = sum(len(ports) for _, ports in rest)
        text = f"and {plural(count, 'more port')} of {plural(len(rest), 'node')}"
        lines.append(line((f"   {text}", canvas.palette.dim)))
    return lines


def pause_cycle(canvas: Canvas) -> list[Line]:
    """Each port and the node that it waits for, up to the first port again."""
    lines = canvas.title(f"Each port waits for the next one, in a cycle; {canvas.basis}")
    for port in canvas.ports[: max(1, canvas.ctx.height - 1)]:
        other = peer(port, canvas.fabric)
        waits = f"waits for {other.node}" if other is not None else "waits"
        lines.append(_waiting(canvas, f"   ↻ {port.display_name} {waits}", port, 38))
    return lines


def paused_ports(canvas: Canvas) -> list[Line]:
    """The ports of a host that are paused, or wait for credits."""
    has_credits = any(port.kind == _INFINIBAND for port in canvas.ports)
    waits = "Waiting for credits of" if has_credits else "Paused by"
    lines = canvas.title(f"{waits} a port that is not watched; {canvas.basis}")
    ports = canvas.ports[: max(1, canvas.ctx.height - 1)]
    return lines + [_waiting(canvas, f"   {port.display_name}", port, 24) for port in ports]


class _Second(NamedTuple):
    """A tick of the seconds of a picture, counted from the last (-1), and what the title says."""

    tick: int
    basis: str


def _worst(canvas: Canvas) -> _Second:
    """The second in which the port at fault paused the network most: that of the sentence."""
    share = _root_shares(canvas)
    worst = int(share.argmax()) - len(share)
    ago_s = canvas.before_s - (worst + 1) * canvas.snapshot.interval_s
    at = time_of_day(canvas.snapshot.time_ns - round(ago_s * SECOND_NS))
    when = "after the finding" if canvas.is_later else "when they waited most"
    return _Second(worst, f"at {at}, {when}")


def _root_shares(canvas: Canvas) -> Floats:
    """[ticks]: share of time in which the port at fault pauses the network, or in which others wait
    for the switch before a full receiver; 0 where unknown."""
    port = canvas.ports[0]
    if canvas.finding.cause == incast.CAUSE.name:
        rows = [each.row for each in canvas.ports if each.row not in (port.row, canvas.subject.row)]
        waits = [
            np.nan_to_num(_aligned(canvas, column, rows)).max(axis=0, initial=0)
            for column in _WAITING
        ]
        most: Floats = np.fmax(*waits)
        return most
    shares = _aligned(canvas, "pause_tx", [port.row])[0]
    other = peer(port, canvas.fabric)
    for column in _WAITING if other is not None else ():
        assert other is not None
        shares = np.fmax(shares, _aligned(canvas, column, [other.row])[0])
    known: Floats = np.nan_to_num(shares)
    return known


def _aligned(canvas: Canvas, column: str, rows: Sequence[int]) -> Floats:
    """[rows, ticks] of the seconds of the picture, between the same instants of all ports as in
    the rules."""
    snapshot = canvas.snapshot
    ticks, later = recent_ticks(snapshot), round(canvas.before_s / snapshot.interval_s)
    wanted = np.asarray(rows, np.intp)
    return snapshot.aligned.window(column, ticks + later, snapshot.seq, wanted)[:, :ticks]


def _root(canvas: Canvas, worst: _Second) -> Line:
    """The port at fault: how long it pauses the network, and what it receives."""
    palette, port = canvas.palette, canvas.subject
    share = float(_root_shares(canvas)[worst.tick])
    received = rate(
        float(_aligned(canvas, "rx_bps", [port.row])[0, worst.tick]),
        float(canvas.snapshot.line_rate_bps[port.row]),
        canvas.ctx.choices.unit,
    )
    is_incast = canvas.finding.cause == incast.CAUSE.name
    does = "others wait" if is_incast or port.kind == _INFINIBAND else "pauses others"
    return line(
        (f" {canvas.subject_mark} {fit(port.display_name, _NAME + 8)}", palette.accent),
        (canvas.bar(share, _BAR), palette.accent),
        (f" {right(percent(share), 6)} {does}  receives {received}", palette.text),
        target=PortTarget(port.row),
    )


def _hops(canvas: Canvas) -> Iterator[tuple[int, list[Port]]]:
    """(hop, the waiting ports of one node), from the root outwards.

    The hop is -1 for nodes that are connected to no hop because what is between is not watched.
    """
    root = canvas.ports[0].node
    own = canvas.finding.subject
    left = [port for port in canvas.ports[1:] if port.node != root and port.id != own]
    previous, level = {root}, 0
    while left and previous:
        here = [
            port
            for port in left
            if (other := peer(port, canvas.fabric)) is not None and other.node in previous
        ]
        yield from ((level, ports) for ports in _by_node(here))
        previous = {port.node for port in here}
        left = [port for port in left if port not in here]
        level += 1
    yield from ((-1, ports) for ports in _by_node(left))


def _by_node(ports: Sequence[Port]) -> list[list[Port]]:
    ordered = sorted(ports, key=lambda port: (natural(port.node), port.role, port.index))
    return [list(own) for _, own in groupby(ordered, key=lambda port: port.node)]


def _hop(canvas: Canvas, worst: _Second, level: int, ports: list[Port]) -> Line:
    """The waiting ports of one node: the highest share of time, and their labels."""
    palette = canvas.palette
    rows = [port.row for port in ports]
    shares = np.stack([_aligned(canvas, each, rows)[:, worst.tick] for each in _WAITING])
    top = float(np.nanmax(shares)) if np.isfinite(shares).any() else float("nan")
    name = fit(f"{'  ' * max(0, level)}└ {ports[0].node}", _NAME + 8)
    labels = label_runs((port.label or port.name, port.role, port.index) for port in ports)
    target: Target
    if len(ports) == 1:
        text, target = f"waits  {labels}", PortTarget(ports[0].row)
    else:
        text, target = f"waits at most  {len(ports)} ports: {labels}", NodeTarget(ports[0].node)
    room = max(0, canvas.ctx.width - 3 - len(name) - _BAR)
    return line(
        (f"   {name}", palette.text),
        (canvas.bar(top, _BAR), palette.tx),
        (fit(f" {right(percent(top), 6)} {text}", room), palette.dim),
        target=target,
    )


def _waiting(canvas: Canvas, text: str, port: Port, width: int) -> Line:
    """A text in `width` cells, and the share of time in which the port waits."""
    share = float(_shares(canvas, [port.row], *_WAITING)[0])
    return line(
        (f"{fit(text, width)} ", canvas.palette.text),
        (canvas.bar(share, _BAR), canvas.palette.accent),
        (f" {right(percent(share), 6)} of the time", canvas.palette.text),
        target=PortTarget(port.row),
    )


def _shares(canvas: Canvas, rows: Sequence[int], *columns: str) -> Floats:
    """[rows]: mean share of time over the last seconds, the highest of the columns."""
    means = [known_mean(canvas.recent(column, rows)) for column in columns]
    highest: Floats = np.fmax.reduce(means, axis=0)
    return highest
