"""The links of one GPU, a line each: what it carries both ways, and where it ends."""

from __future__ import annotations

from fabmon.analysis.scene import Scene
from fabmon.fabric.model import NVLINK, Port
from fabmon.tui.line import Line, fit, line, right
from fabmon.tui.metrics import unit_of
from fabmon.tui.stage import Stage
from fabmon.tui.target import PortTarget
from fabmon.tui.text.inspect import state
from fabmon.tui.units import RATE, Unit, percent, rate


def nvlinks(stage: Stage, scene: Scene, gpu: Port, width: int) -> list[Line]:
    """Every link of the GPU; a line opens its link."""
    palette, moment = stage.palette, scene.moment
    links = [
        port
        for port in moment.fabric.node(gpu.node).ports
        if port.role == NVLINK and port.name.startswith(f"{gpu.name}/")
    ]
    if not links:
        return []
    lines = [line((f" Links {len(links)}; each one direction, GB/s", palette.strong))]
    for port in links:
        down = moment.up[port.row] == 0
        bps = {way: float(moment.column(f"{way}_bps")[port.row]) for way in ("tx", "rx")}
        top = float(moment.line_rate_bps[port.row])
        shares = {"tx": moment.tx_util, "rx": moment.rx_util}
        said = "  ".join(
            f"{way} {right(rate(bps[way], top, unit_of(port.kind, Unit.GBIT)), RATE)}"
            f" {right(percent(float(shares[way][port.row])), 6)}"
            for way in ("tx", "rx")
        )
        lines.append(
            line(
                (f" {'✖' if down else ' '} ", palette.gone),
                (fit(port.name.partition("/")[2], 6), palette.strong),
                (fit(state(scene, port.row), 12), palette.gone if down else palette.dim),
                (said, palette.text),
                (fit(f"  {_end(port)}", max(0, width - 70)), palette.dim),
                target=PortTarget(port.row),
            )
        )
    return lines


def _end(port: Port) -> str:
    """`→ nvswitch 0000:05:00.0`, as far as it is known."""
    known = [str(port.info[key]) for key in ("remote", "remote_pci") if key in port.info]
    return f"→ {' '.join(known)}" if known else ""
