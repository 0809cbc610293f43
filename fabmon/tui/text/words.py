"""How ports and findings are called."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event
from fabmon.fabric.model import Fabric, Port
from fabmon.tui.target import peer

_CAUSES = {"ecmp_collision": "ECMP collision", "gpu_nic_numa": "GPU far from its NIC"}
_GONE = ("down", "lost", "failed", "dead", "stale")


def cause(finding: Finding) -> str:
    """A cause as a person says it."""
    return _said(finding.cause)


def event(event_: Event) -> str:
    """What happened, with its cause as a person says it."""
    did, _, rest = event_.text.partition(" ")
    name, space, about = rest.partition(" ")
    if event_.kind != "finding":
        return event_.text
    return f"{did} {_said(name)}{space}{about}"


def _said(name: str) -> str:
    return _CAUSES.get(name, name.replace("_", " "))


def gone(finding: Finding) -> bool:
    """Whether it is about something that is not there any more."""
    return finding.cause.endswith(_GONE)


def mark(finding: Finding) -> str:
    """`✖` for something gone, `▲` for something to look at."""
    return "✖" if gone(finding) else "▲"


def port(port: Port) -> str:
    """`leaf1 up5`: the one name that a port has on the screen."""
    return port.called


def both_ends(port_: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5 dn1`; without an arrow where the other end is not watched."""
    other = peer(port_, fabric)
    return port(port_) if other is None else f"{port(port_)} → {port(other)}"


def victims(finding: Finding, fabric: Fabric) -> list[str]:
    """Who suffers under it; ports as everything else on the screen calls them."""
    nodes = {name.partition("/")[0] for name in finding.victims}
    known = {each.id: port(each) for each in fabric.ports if each.node in nodes}
    return [known.get(name, name) for name in finding.victims]


def subject(finding: Finding, fabric: Fabric) -> str:
    """What a finding is about, with the other end of the cable."""
    first = finding.rows[0] if finding.rows else None
    if first is None or not 0 <= first < len(fabric.ports):
        return finding.subject
    here = fabric.ports[first]
    if finding.subject not in (here.id, f"{here.node}/{here.label}"):
        return finding.subject
    return link(here, fabric)


def link(port_: Port, fabric: Fabric) -> str:
    """`leaf1 up5 → spine5`; without an arrow where the other end is not watched."""
    other = peer(port_, fabric)
    return port(port_) if other is None else f"{port(port_)} → {other.node}"


def several(names: Sequence[str], width: int) -> str:
    """As many names as `width` cells hold, and how many more there are."""
    for count in range(len(names), 1, -1):
        left = len(names) - count
        said = ", ".join(names[:count]) + (f" and {left} more" if left else "")
        if cell_len(said) <= width:
            return said
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
