"""The page of one port: traffic, congestion, facts, findings, charts, flows and every counter."""

from __future__ import annotations

import re
from collections import defaultdict

import numpy as np

from collectors.catalog import CATALOG, GAUGE
from fabmon.analysis.audit.rails import roce_mtu
from fabmon.fabric.model import DOWNLINK, GPU, UPLINK, Fabric, Port
from fabmon.fabric.routing_mode import UNKNOWN
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import RATE, Unit, byte_rate, counter_rate, gauge, per_second, percent
from fabmon.tui.line import Line, PortTarget, fit, flow, line, paragraph, peer, right, wrap
from fabmon.tui.metrics import traffic_text, unit_of
from fabmon.tui.text import flows, labels
from fabmon.tui.text.draw_context import DrawContext
from fabmon.tui.text.gpu_activity import activity
from fabmon.tui.text.labels import port_state
from fabmon.tui.text.pages.port_charts import burst_section, charts
from fabmon.tui.text.pages.port_facts import congestion, port_facts, role_text
from fabmon.tui.time.trend import Trend

_COUNTER = 34
"""Cells of the longest name of a counter."""
GPU_FAMILIES = ("nvlink", "xgmi", "pcie")
"""Metrics whose rates are shown in GB/s, as the vendors do."""
_NUMBERED = re.compile(r"(_prio|_codewords_s)\d+$")
_TOPICS = (
    ("traffic", "Traffic"),
    ("packets", "Packets"),
    ("pause", "Pause"),
    ("congestion", "Congestion"),
    ("error", "Errors"),
    ("drop", "Drops"),
    ("corrected", "Corrected errors; a good link has them too"),
    ("state", "State"),
    ("probe", "Probe"),
    ("other", "Others"),
)


def page(ctx: DrawContext, port: Port, shown: int | Trend) -> list[Line]:
    """The whole page; its charts show the last `shown` minutes, or a trend."""
    palette, row = ctx.palette, port.row
    state_style = palette.gone if ctx.snapshot.up[row] == 0 else palette.strong
    state = f" {port_state(ctx.scene, row)}  "
    traffic = traffic_text(ctx.snapshot, row, ctx.choices.unit)
    if row in ctx.scene.doubtful_rows:
        traffic = f"in doubt: {traffic}"
    lines = [line((state, state_style), (traffic, palette.text))]
    for doubt in ctx.scene.doubtful:
        if row in doubt.rows:
            name = "" if row == doubt.row else f"{ctx.fabric.ports[doubt.row].display_name} "
            text = f"? Rate in doubt: {name}{doubt.text}. {doubt.advice}"
            lines += paragraph(text, ctx.width, palette.accent, indent=1)
    parts = [
        [(f" {name} ", palette.dim), (text, palette.text if value > 0 else palette.dim)]
        for name, text, value in congestion(ctx, row)
    ]
    lines += [Line(tuple(spans)) for spans in flow(parts, ctx.width, palette.text)]
    facts = filter(
        None,
        (
            port.id,
            _cabled(port, ctx.fabric),
            role_text(port),
            _routing(port, ctx.fabric),
            port_facts(port.info),
            _mtus(ctx, port),
            _sampled(ctx.snapshot, row),
        ),
    )
    lines += paragraph(", ".join(facts), ctx.width, palette.dim, indent=1)
    does = activity(ctx.snapshot, port)
    if does:
        lines += paragraph(does, ctx.width, palette.text, indent=1)
    if why := labels.why_not_flagged(ctx, row):
        lines.append(line((f" {why}", palette.dim)))
    for finding in ctx.scene.findings:
        if row in finding.rows:
            lines += labels.finding_paragraph(ctx, finding)
    lines += [*charts(ctx, port, shown), *burst_section(ctx, port), *flows.of_port(ctx, port)]
    if port.role == GPU:
        lines += nvlinks(ctx, port)
    return lines + counters(ctx, port)


def _mtus(ctx: DrawContext, port: Port) -> str:
    """`MTU 9000, RDMA MTU 4096 (derived)` of a RoCE port; empty for others."""
    mtu = float(ctx.snapshot.column("netdev_mtu")[port.row])
    active = roce_mtu(mtu) if port.kind == "ethernet" and port.info.get("rdma") else None
    return f"MTU {mtu:g}, RDMA MTU {active} (derived)" if active is not None else ""


def _sampled(snapshot: Snapshot, row: int) -> str:
    """`read every 26 s, 12 s ago` of a port that is read less often than every other tick; by sFlow
    the interval is the sender's, which is a fact of the port where it is known."""
    if snapshot.period_s[row] < 2 * snapshot.interval_s:
        return ""
    every, age_s = duration(float(snapshot.period_s[row])), float(snapshot.age_s[row])
    ago = f"{duration(age_s)} ago" if np.isfinite(age_s) else ""
    if snapshot.fabric.ports[row].info.get("driver") == "sflow":
        return f"last counters {ago}" if ago else ""
    return ", ".join(filter(None, (f"read every {every}", ago)))


def _cabled(port: Port, fabric: Fabric) -> str:
    """The other end of the port's cable, with its sources; empty where it is not known."""
    other = peer(port, fabric)
    if port.cable is None:
        return f"cabled to {other.display_name} ({other.id})" if other is not None else ""
    sources = ", ".join(port.cable.known_from)
    if other is None:
        far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
        return f"cabled to {far} ({sources}; not watched)"
    return f"cabled to {other.display_name} ({other.id}; {sources})"


def _routing(port: Port, fabric: Fabric) -> str:
    """How the switch selects a link for a flow, and how that is known; empty for other ports and
    where it is not known."""
    routing = fabric.routing_of(port.row)
    if port.role not in (UPLINK, DOWNLINK) or routing.mode == UNKNOWN:
        return ""
    return f"routing {routing.mode} ({routing.reason})"


def nvlinks(ctx: DrawContext, gpu: Port) -> list[Line]:
    """The NVLinks of a GPU, a line each that opens it: state, tx, rx and the other end."""
    palette, snapshot = ctx.palette, ctx.snapshot
    links = next((each for own, each in ctx.fabric.node(gpu.node).gpu_links() if own == gpu), [])
    lines = []
    if links:
        lines = [line((f" {len(links)} links, each one direction, GB/s", palette.strong))]
    for port in links:
        down = snapshot.up[port.row] == 0
        unit = unit_of(port.kind, Unit.GBIT)
        traffic = "  ".join(
            f"{direction} {right(ctx.traffic(port.row, direction, unit), RATE)}"
            f" {right(percent(float(util[port.row])), 6)}"
            for direction, util in (("tx", snapshot.tx_util), ("rx", snapshot.rx_util))
        )
        known = [str(port.info[key]) for key in ("remote", "remote_pci") if key in port.info]
        end = f"  → {' '.join(known)}" if known else ""
        lines.append(
            line(
                (f" {'✖' if down else ' '} ", palette.gone),
                (fit(port.name.partition("/")[2], 6), palette.strong),
                (fit(port_state(ctx.scene, port.row), 12), palette.gone if down else palette.dim),
                (traffic, palette.text),
                (fit(end, max(0, ctx.width - 70)), palette.dim),
                target=PortTarget(port.row),
            )
        )
    return lines


def counters(ctx: DrawContext, port: Port) -> list[Line]:
    """Every counter of the port by topic, with its rate and meaning; then those that are absent.

    Words of the filter select counters by name.
    """
    snapshot, palette = ctx.snapshot, ctx.palette
    words = [term for term in ctx.choices.terms if not term.operator]
    topics: dict[str, list[str]] = defaultdict(list)
    missing = []
    for name in dict.fromkeys((*CATALOG, *snapshot.columns)):
        if not all((term.value in name) is not term.negated for term in words):
            continue
        if name not in snapshot.columns or np.isnan(snapshot.column(name)[port.row]):
            missing.append(name)
        else:
            topics[CATALOG[name].topic if name in CATALOG else "other"].append(name)
    lines: list[Line] = []
    if snapshot.saturated[port.row]:
        text = "? A counter is at its maximum: its true value is unknown (perfquery -R resets it)"
        lines.append(line((f" {text}", palette.accent)))
    of = "  this tick"
    for topic, title in _TOPICS:
        if topics[topic]:
            lines.append(line((f" {title}", palette.strong), (of, palette.dim)))
            of = ""
        for name in sorted(topics[topic]):
            lines += _counter(ctx, name, float(snapshot.column(name)[port.row]))
    families = {_family(name) for names in topics.values() for name in names}
    similar = [each.row for each in ctx.fabric.ports if each.kind == port.kind]
    expected = [
        name
        for name in missing
        if _family(name) in families
        or (name in snapshot.columns and not np.isnan(snapshot.column(name)[similar]).all())
    ]
    return lines + _absent(ctx, expected)


def _absent(ctx: DrawContext, names: list[str]) -> list[Line]:
    """Counters that the port lacks, of families that it or another port of its kind has."""
    if not names:
        return []
    text = "  ".join(dict.fromkeys(sorted(_NUMBERED.sub(r"\1*", name) for name in names)))
    title = " Absent here: not supported, not permitted, or not yet known"
    if ctx.time.is_reading:
        title = " Being read from the recording"
    return [line((title, ctx.palette.strong)), *paragraph(text, ctx.width, ctx.palette.dim)]


def _family(name: str) -> str:
    return name.partition("_")[0].rstrip("0123456789")


def _counter(ctx: DrawContext, name: str, value: float) -> list[Line]:
    """A counter's name and rate, with its meaning beside or below it."""
    metric, palette = CATALOG.get(name), ctx.palette
    if metric is None:
        text, meaning = per_second(value), ""
    elif metric.kind == GAUGE:
        is_gpu_rate = metric.unit == "bps" and _family(name) in GPU_FAMILIES
        text = (
            byte_rate(value)
            if is_gpu_rate
            else gauge(value, metric.unit, is_setting=metric.topic == "state")
        )
        meaning = metric.meaning
    else:
        text, meaning = counter_rate(value, metric.unit), metric.meaning
    first = (f"   {fit(name, _COUNTER)}{right(text, 18)}", palette.text)
    if ctx.width < 100:
        return [line(first), *paragraph(meaning, ctx.width - 1, palette.dim, indent=5)]
    part, *rest = wrap(meaning, ctx.width - _COUNTER - 24) or [""]
    indent = " " * (_COUNTER + 23)
    return [
        line(first, (f"  {part}", palette.dim)),
        *(line((indent + each, palette.dim)) for each in rest),
    ]
