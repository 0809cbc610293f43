"""Checks of a fabric before a run: pure functions over what its nodes reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fabmon.analysis.audit import nodes, rails
from fabmon.analysis.audit.survey import FIX, Problem, Survey

_CHECKS: tuple[Callable[[Survey], Iterable[Problem]], ...] = (
    rails.rails_down,
    rails.rails_missing,
    rails.slower_than_peers,
    nodes.pcie_downtrained,
    rails.mtu_differs,
    rails.pfc_differs,
    rails.ecn_differs,
    nodes.flapping,
    rails.leaves_differ,
    rails.miscabled_ports,
    nodes.missing_nvlinks,
    nodes.distant_gpus,
    nodes.shared_with_management,
    nodes.used_by_jobs,
    nodes.errors_added_up,
)


def audit(survey: Survey) -> list[Problem]:
    """All problems of a survey: those to fix, then those that are only information."""
    found = [problem for check in _CHECKS for problem in check(survey)]
    return sorted(found, key=lambda problem: problem.severity != FIX)
