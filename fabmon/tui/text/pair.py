"""The cables between two switches, one by one."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.finding import sentence
from fabmon.analysis.scene import Scene
from fabmon.fabric.crossings import UNKNOWN, Crossing
from fabmon.fabric.model import Fabric, Port
from fabmon.tui.line import Line, Span, fit, line, wrap
from fabmon.tui.metrics import traffic_words
from fabmon.tui.stage import Stage, lit
from fabmon.tui.target import FindingTarget, PairTarget, PortTarget
from fabmon.tui.text import words
from fabmon.tui.text.inspect import state
from fabmon.tui.units import ABSENT, Unit, rate


def title(pair: PairTarget) -> str:
    """`leaf1 → spine3`."""
    return f"{pair.low} → {pair.high if pair.high != UNKNOWN else '?'}"


def page(
    stage: Stage, scene: Scene, pair: PairTarget, crossings: tuple[Crossing, ...], width: int
) -> list[Line]:
    """A block for each cable: its two ends, what it carries each way, who says that it is there."""
    palette, moment = stage.palette, scene.moment
    hot = lit(scene)
    lines = [line((f" {_count(len(crossings))}; tx is from {pair.low}", palette.strong))]
    if pair.high == UNKNOWN:
        lines[0] = line(
            (
                f" {_count(len(crossings))} of {pair.low} whose other end nobody tells of",
                palette.strong,
            )
        )
    for crossing in crossings:
        row = crossing.low if crossing.low is not None else crossing.high
        if row is None or row >= len(moment.fabric.ports):
            continue
        port = moment.fabric.ports[row]
        ends = {each for each in crossing if each is not None}
        down = moment.up[row] == 0
        sign, accent = (
            ("✖", palette.gone)
            if down
            else ("▲", palette.hot)
            if ends & hot
            else (" ", palette.text)
        )
        target = PortTarget(row)
        traffic = traffic_words(moment, row, stage.choices.unit)
        lines.append(
            line(
                (f" {sign} ", accent),
                (fit(_ends(port, moment.fabric), max(20, width - 16)), palette.strong),
                (fit(state(scene, row), 12), palette.gone if down else palette.dim),
                target=target,
            )
        )
        if crossing.low is None:
            traffic += f"  (as {port.node} counts it: its tx is towards {pair.low})"
        lines += [
            line((f"     {part}", palette.text), target=target) for part in wrap(traffic, width - 6)
        ]
        lines.append(line((f"     {known(port)}", palette.dim), target=target))
    rows = {row for crossing in crossings for row in crossing if row is not None}
    for finding in scene.findings:
        if rows & set(finding.rows):
            accent = palette.gone if words.gone(finding) else palette.hot
            text = (
                f"{words.mark(finding)} {words.cause(finding)}: {sentence(finding, scene.moment)}"
            )
            lines += [
                line((f" {part}", accent), target=FindingTarget(finding.key))
                for part in wrap(text, width - 2)
            ]
    return lines


def inspect(stage: Stage, scene: Scene, pair: PairTarget, crossings: tuple[Crossing, ...]) -> Line:
    """What a cell of the matrix stands for, in one line: the busiest of its links, each way."""
    palette, moment = stage.palette, scene.moment
    spans: list[Span] = [
        (f" {title(pair)}  ", palette.strong),
        (f"{_count(len(crossings))}  ", palette.dim),
    ]
    unit = stage.choices.unit if stage.choices.unit is not Unit.PERCENT else Unit.GBIT
    for way, (near, far) in (("up", (0, 1)), ("down", (1, 0))):
        most: tuple[float, str] = (-1.0, ABSENT)
        for crossing in crossings:
            sender, receiver = crossing[near], crossing[far]
            row, side = (receiver, "rx") if sender is None else (sender, "tx")
            if row is None or np.isnan(bps := float(moment.column(f"{side}_bps")[row])):
                continue
            line_rate = float(moment.line_rate_bps[row])
            share = rate(bps, line_rate, Unit.PERCENT)
            most = max(most, (bps, f"{rate(bps, line_rate, unit):>9} {share:>6}"))
        spans.append((f"{way} {most[1]}  ", palette.text))
    rows = {row for crossing in crossings for row in crossing if row is not None}
    gone = sum(
        any(row is not None and moment.up[row] == 0 for row in crossing) for crossing in crossings
    )
    if gone:
        spans.append((f"✖ {gone} down  ", palette.gone))
    for finding in scene.findings:
        if rows & set(finding.rows[:1]):
            accent = palette.gone if words.gone(finding) else palette.hot
            spans.append((f"{words.mark(finding)} {words.cause(finding)}  ", accent))
    return Line(tuple(spans))


def known(port: Port) -> str:
    """`known from config, LLDP`: who says where a port's cable leads."""
    if port.cable is None:
        return "the other end is not known: no route, LLDP or topology names it"
    sources = f"known from {', '.join(port.cable.known_from)}"
    return sources if port.peer is not None else f"{sources}; the other end is not watched"


def _count(links: int) -> str:
    return f"{links} link" if links == 1 else f"{links} links"


def _ends(port: Port, fabric: Fabric) -> str:
    if port.peer is not None or port.cable is None:
        return words.both_ends(port, fabric)
    far = f"{port.cable.node}/{port.cable.port}".rstrip("/")
    return f"{words.port(port)} → {far}"
