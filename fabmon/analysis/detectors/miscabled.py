"""Two sources name different far ends for one port: a cable is in the wrong place, or the plan is.

Contradictions that belong together are one finding: cables that are swapped, and a switch in the
place of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.finding import WARNING, Cause, Condition, Evidence, Trait
from fabmon.fabric.model import UPLINK, CableReport, Contradiction, Fabric
from fabmon.fabric.topology.claims import AND, MAC

CAUSE = Cause(
    name="miscabled",
    title="Miscabled link",
    meaning="two sources name different far ends of a port: the cable or the plan is wrong",
    severity=WARNING,
    rule=(
        "Two sources name different far ends for one port: the plan, LLDP or the discovery of"
        " InfiniBand, learned MAC addresses; or a node reports a cable to a port whose two ends"
        " report another. Contradictions that share a port, or are about the same two nodes, are"
        " one finding."
    ),
    inputs="Two of: a topology file, LLDP or discovery, neighbours",
    not_observable="Which of the two is wrong, the cable or the plan",
    picture="cabling",
    advice="Look at the two ends of the cable; move it, or correct the plan.",
    traits=(Trait.OF_LINK,),
)

_MAX_EVIDENCE = 16
"""Ports of one finding whose far ends are listed."""

_BOTH_ENDS, _ONE_END, _BY_MAC = 0.95, 0.8, 0.7
"""Confidence, 0 to 1: two ends agree with each other against the plan; one end reports it; it is
known from learned MAC addresses only."""


def miscabled_links(inputs: DetectorInput) -> tuple[Condition, ...]:
    """One condition for each set of related contradictions, computed once for a fabric."""
    return inputs.structure.once(miscabled_conditions)


def miscabled_conditions(fabric: Fabric) -> tuple[Condition, ...]:
    """One condition for each set of related contradictions of a fabric."""
    return tuple(_condition(fabric, part) for part in _related(fabric))


def _related(fabric: Fabric) -> Iterator[list[Contradiction]]:
    """Contradictions that share a port, or that confuse the same two nodes."""
    roots: dict[object, object] = {}

    def root(key: object) -> object:
        while roots.setdefault(key, key) != key:
            key = roots[key]
        return key

    for each in fabric.contradictions:
        for key in _keys(fabric, each):
            roots[root(key)] = root(each.row)
    parts: dict[object, list[Contradiction]] = {}
    for each in fabric.contradictions:
        parts.setdefault(root(each.row), []).append(each)
    yield from parts.values()


def _keys(fabric: Fabric, each: Contradiction) -> Iterator[object]:
    """What a contradiction is about: ports as (node, port), and the two nodes that differ."""
    port = fabric.ports[each.row]
    yield port.node, port.name
    for report in (each.believed, each.doubted):
        if report.port:
            yield report.node, report.port
    nodes = {each.believed.node, each.doubted.node}
    if len(nodes) == 2:
        yield frozenset(nodes)


def _condition(fabric: Fabric, part: list[Contradiction]) -> Condition:
    # Uplinks first: a cable between switches is what a person looks for.
    part = sorted(part, key=lambda each: (fabric.ports[each.row].role != UPLINK, each.row))
    first = part[0]
    here = fabric.ports[first.row]
    believed, doubted = first.believed, first.doubted
    if believed.source == doubted.source:
        # Of one source neither is a plan: a node may be wrong, or may lie, about its own cable.
        text = (
            f"{here.id} is reported to be cabled to {_far_end(doubted)} ({_origin(doubted)}) and to"
            f" {_far_end(believed)} ({_origin(believed)})"
        )
    else:
        text = (
            f"{here.id} is cabled to {_far_end(doubted)} ({_origin(doubted)}),"
            f" not to {_far_end(believed)} ({_origin(believed)})"
        )
    ends = {frozenset((fabric.ports[each.row].id, _far_end(each.doubted))) for each in part}
    if len(ends) > 1:
        what = "differ from" if believed.source != doubted.source else "contradict each other by"
        text = f"{len(ends)} cables {what} {believed.source}: {text}; and {len(ends) - 1} more"
    used = _origin(believed) if here.cable is not None else "neither"
    return Condition(
        cause=CAUSE.name,
        severity=CAUSE.severity,
        subject=here.id,
        rows=tuple(dict.fromkeys(each.row for each in part)),
        text=text,
        evidence=tuple(
            Evidence(
                fabric.ports[each.row].id,
                f"{_origin(each.believed)}: {_far_end(each.believed)};"
                f" {_origin(each.doubted)}: {_far_end(each.doubted)}",
            )
            for each in part[:_MAX_EVIDENCE]
        ),
        advice=f"{CAUSE.advice} Until then fabmon uses {used}.",
        confidence=_confidence(part),
        unseen="" if here.peer is not None else "the other end: it is not watched",
    )


def _far_end(report: CableReport) -> str:
    return f"{report.node}/{report.port}" if report.port else report.node


def _origin(report: CableReport) -> str:
    """`config pod7.toml:12`, `LLDP of leaf1 and spine1`."""
    between = " " if ":" in report.by else " of "
    return f"{report.source}{between}{report.by}"


def _confidence(part: Iterable[Contradiction]) -> float:
    doubted = [each.doubted for each in part]
    if all(each.source == MAC for each in doubted):
        return _BY_MAC
    return _BOTH_ENDS if any(AND in each.by for each in doubted) else _ONE_END
