"""What a careful engineer looks at before a run: pure functions over what was heard of a fabric."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fabmon.analysis.audit import cabling, nodes, numa, presence, rails
from fabmon.analysis.audit.fault import MEND, Fault
from fabmon.analysis.audit.survey import Survey

_CHECKS: tuple[Callable[[Survey], Iterable[Fault]], ...] = (
    presence.down,
    presence.missing,
    rails.slower_than_peers,
    nodes.pcie_downtrained,
    rails.mtu_differs,
    rails.pfc_differs,
    rails.ecn_differs,
    nodes.flapping,
    rails.leaves_differ,
    cabling.contradicted,
    numa.gpus_far,
    nodes.shared_with_management,
    nodes.errors_added_up,
)


def audit(survey: Survey) -> list[Fault]:
    """Every fault, what to mend before what to know."""
    found = [fault for check in _CHECKS for fault in check(survey)]
    return sorted(found, key=lambda fault: fault.severity != MEND)
