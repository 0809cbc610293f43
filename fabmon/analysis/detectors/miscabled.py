"""Two sources name different far ends for one port: the cable is in the wrong place, or the plan.

What belongs together is one finding: cables that are swapped, and a switch that stands where
another one was planned.
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
    severity=WARNING,
    picture="cabling",
    traits=(Trait.OF_LINK,),
)


_MOST_NAMED = 16
_BOTH_ENDS = 0.95
_ONE_END = 0.8
_BY_MAC = 0.7


class Miscabled:
    """The conditions of a fabric are worked out once, when it changes: they do not tick."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._conditions: tuple[Condition, ...] = ()

    def __call__(self, inputs: DetectorInput) -> tuple[Condition, ...]:
        """One condition for each set of contradictions that hang together."""
        fabric = inputs.snapshot.fabric
        if fabric is not self._fabric:
            self._fabric = fabric
            self._conditions = miscabled(fabric)
        return self._conditions


def miscabled(fabric: Fabric) -> tuple[Condition, ...]:
    """The contradictions of a fabric, those that hang together as one."""
    return tuple(_condition(fabric, part) for part in _together(fabric))


def _together(fabric: Fabric) -> Iterator[list[Contradiction]]:
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
    for said in (each.believed, each.doubted):
        if said.port:
            yield said.node, said.port
    nodes = {each.believed.node, each.doubted.node}
    if len(nodes) == 2:
        yield frozenset(nodes)


def _condition(fabric: Fabric, part: list[Contradiction]) -> Condition:
    part = sorted(part, key=lambda each: _order(fabric, each))
    first = part[0]
    here = fabric.ports[first.row]
    rows = tuple(dict.fromkeys(each.row for each in part))
    believed, doubted = _ends(first)
    text = (
        f"{here.id} is cabled to {doubted} ({_who(first.doubted)}),"
        f" not to {believed} ({_who(first.believed)})"
    )
    cables = len({frozenset((fabric.ports[each.row].id, _end(each.doubted))) for each in part})
    if cables > 1:
        text = (
            f"{cables} cables are not where {first.believed.source} has them: {text};"
            f" and {cables - 1} more"
        )
    return Condition(
        cause="miscabled",
        severity=WARNING,
        subject=here.id,
        rows=rows,
        text=text,
        evidence=tuple(_evidence(fabric, part)),
        advice="Look at the cable's two ends; move it, or mend the plan. Until then fabmon goes by"
        f" {_who(first.believed)}.",
        confidence=_confidence(part),
        unseen="" if here.peer is not None else "the other end is not watched",
    )


def _order(fabric: Fabric, each: Contradiction) -> tuple[bool, int]:
    """Uplinks before what is below: a cable between switches is what a person looks for."""
    return fabric.ports[each.row].role != UPLINK, each.row


def _evidence(fabric: Fabric, part: Iterable[Contradiction]) -> Iterator[Evidence]:
    """What is said of each port, and by whom."""
    for place, each in enumerate(part):
        if place == _MOST_NAMED:
            return
        believed, doubted = _ends(each)
        yield Evidence(
            fabric.ports[each.row].id,
            f"{_who(each.believed)}: {believed}; {_who(each.doubted)}: {doubted}",
        )


def _ends(each: Contradiction) -> tuple[str, str]:
    return _end(each.believed), _end(each.doubted)


def _end(said: CableReport) -> str:
    return f"{said.node}/{said.port}" if said.port else said.node


def _who(said: CableReport) -> str:
    """`config pod7.toml:12`, `LLDP of leaf1 and spine1`."""
    return f"{said.source} {said.by}" if ":" in said.by else f"{said.source} of {said.by}"


def _confidence(part: Iterable[Contradiction]) -> float:
    """Two ends that agree with each other against the plan say it more surely than one."""
    doubted = [each.doubted for each in part]
    if all(each.source == MAC for each in doubted):
        return _BY_MAC
    return _BOTH_ENDS if any(AND in each.by for each in doubted) else _ONE_END
