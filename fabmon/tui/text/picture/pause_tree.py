"""Who waits for whom: from the root of a pause tree hop by hop, or once round a circle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np

from fabmon.fabric.model import Port
from fabmon.fabric.wording import percent, rate
from fabmon.tui.line import Line, NodeTarget, PortTarget, fit, line, peer, right
from fabmon.tui.palette import Depth
from fabmon.tui.text import chart
from fabmon.tui.text import labels as words
from fabmon.tui.text.picture.canvas import RECENT_S, Canvas

_BAR = 10
_NAME = 16


def pause_tree(canvas: Canvas) -> list[Line]:
    """The root, then level by level the switches whose ports wait for the level before."""
    if not canvas.ports:
        return []
    first = _root(canvas)
    lines = [*canvas.title(f"Who waits for it, hop by hop; mean of {RECENT_S} s"), first]
    hops = list(_hops(canvas))
    room = max(1, canvas.height - len(lines))
    shown = hops if len(hops) <= room else hops[: room - 1]
    lines += [_hop(canvas, level, ports) for level, ports in shown]
    left = hops[len(shown) :]
    if left:
        count = sum(len(ports) for _, ports in left)
        said = f"   and {count} more ports of {len(left)} nodes"
        lines.append(line((said, canvas.palette.dim)))
    return lines


def pause_cycle(canvas: Canvas) -> list[Line]:
    """Each port and the node that it waits for, until the first again."""
    lines = canvas.title("Who waits for whom, once round")
    for port in canvas.ports[: max(1, canvas.height - 1)]:
        other = peer(port, canvas.fabric)
        waits = f"waits for {other.node}" if other is not None else "waits"
        lines.append(_held(canvas, f"   ↻ {words.port_name(port)} {waits}", port, 38))
    return lines


def paused_ports(canvas: Canvas) -> list[Line]:
    """The ports of a host that are told to wait."""
    lines = canvas.title(f"Told to wait, and by whom is not seen; mean of {RECENT_S} s")
    ports = canvas.ports[: max(1, canvas.height - 1)]
    return lines + [_held(canvas, f"   {words.port_name(port)}", port, 24) for port in ports]


def _root(canvas: Canvas) -> Line:
    """The guilty port: how long it makes the network wait, and what it gets meanwhile."""
    palette, port = canvas.palette, canvas.ports[0]
    share = _share(canvas, [port.row], "pause_tx")
    other = peer(port, canvas.fabric)
    if other is not None:
        share = np.fmax(share, _share(canvas, [other.row], "pause_rx", "stall"))
    bps = np.nan_to_num(canvas.window("rx_bps", [port.row], RECENT_S)[0])
    moving = bps[bps > 0]
    got = rate(
        float(moving.mean()) if len(moving) else float("nan"),
        float(canvas.snapshot.line_rate_bps[port.row]),
        canvas.ctx.unit,
    )
    return line(
        (
            f" {words.finding_mark(canvas.finding)} {fit(words.port_name(port), _NAME + 8)}",
            palette.hot,
        ),
        (_bar(canvas, float(share[0])), palette.hot),
        (f" {right(percent(float(share[0])), 6)} holds others", palette.text),
        (f"  receives {got}", palette.text),
        target=PortTarget(port.row),
    )


def _hops(canvas: Canvas) -> Iterator[tuple[int, list[Port]]]:
    """(hop, the ports of one node that wait there), from the root outwards; -1 for those that hang
    in the air, because what is between is not watched.
    """
    root = canvas.ports[0].node
    left = [port for port in canvas.ports[1:] if port.node != root]
    holders, level = {root}, 0
    while left and holders:
        here = [
            port
            for port in left
            if (other := peer(port, canvas.fabric)) is not None and other.node in holders
        ]
        yield from ((level, ports) for ports in _by_node(here))
        holders = {port.node for port in here}
        left = [port for port in left if port not in here]
        level += 1
    yield from ((-1, ports) for ports in _by_node(left))


def _by_node(ports: Sequence[Port]) -> list[list[Port]]:
    chosen = sorted(ports, key=lambda port: (port.node, port.role, port.index))
    return [list(own) for _, own in groupby(chosen, key=lambda port: port.node)]


def _hop(canvas: Canvas, level: int, ports: list[Port]) -> Line:
    palette = canvas.palette
    share = _share(canvas, [port.row for port in ports], "pause_rx", "stall")
    top = float(np.nanmax(share)) if np.isfinite(share).any() else float("nan")
    indent = "  " * max(0, level)
    name = fit(f"{indent}└ {ports[0].node}", _NAME + 8)
    labels = _labels(ports)
    count = "" if len(ports) == 1 else f"{len(ports)} ports: "
    said = f" {right(percent(top), 6)} waits{' at most' if len(ports) > 1 else ''}  {count}{labels}"
    target = PortTarget(ports[0].row) if len(ports) == 1 else NodeTarget(ports[0].node)
    room = canvas.width - 3 - len(name) - _BAR
    return line(
        (f"   {name}", palette.text),
        (_bar(canvas, top), palette.tx),
        (fit(said, max(0, room)), palette.dim),
        target=target,
    )


def _labels(ports: list[Port]) -> str:
    """`dn1-dn4, up2`: labels, runs of them as one."""
    told: list[str] = []
    run: list[Port] = []
    for port in [*ports, None]:
        if run and (port is None or port.role != run[-1].role or port.index != run[-1].index + 1):
            first, last = run[0].label or run[0].name, run[-1].label or run[-1].name
            told.append(first if len(run) == 1 else f"{first}-{last}")
            run = []
        if port is not None:
            run.append(port)
    return ", ".join(told)


def _held(canvas: Canvas, said: str, port: Port, width: int) -> Line:
    share = float(_share(canvas, [port.row], "pause_rx", "stall")[0])
    return line(
        (f"{fit(said, width)} ", canvas.palette.text),
        (_bar(canvas, share), canvas.palette.hot),
        (f" {right(percent(share), 6)} of the time", canvas.palette.text),
        target=PortTarget(port.row),
    )


def _share(
    canvas: Canvas, rows: Sequence[int], *columns: str
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[rows]: mean share of time over the last seconds, the greatest of the columns."""
    seen = [canvas.window(column, rows, RECENT_S) for column in columns]
    known = np.stack([np.where(np.isfinite(each), each, np.nan) for each in seen])
    counted = np.isfinite(known)
    with np.errstate(invalid="ignore"):
        means = np.where(counted, known, 0).sum(axis=2) / counted.sum(axis=2)
    best: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = np.fmax.reduce(means, axis=0)
    return best


def _bar(canvas: Canvas, share: float) -> str:
    if canvas.palette.depth is Depth.NONE:
        return ("#" * round(share * _BAR if share > 0 else 0)).ljust(_BAR)
    return chart.hbar(share, _BAR)
