"""Checks of a fabric before a run: pure functions over what its nodes reported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fabmon.analysis.audit import gpudirect, nodes, rails
from fabmon.analysis.audit.survey import FIX, NOTE, Problem, Survey
from fabmon.analysis.job_summary import Places, placement_text

_MOST_JOBS = 100
_ADVICE = (
    "Name the leaves in the scheduler's topology (Slurm: topology.conf, --switches=N), so that jobs"
    " are placed together; a job that crosses no uplink meets no other job there."
)


def jobs_spread(survey: Survey) -> Iterator[Problem]:
    """Jobs that span more leaves than they must, or that share uplinks with other jobs."""
    snapshot = survey.snapshot
    places = Places(snapshot)
    jobs = snapshot.jobs.jobs[:_MOST_JOBS]
    label_of = {job.number: job.label for job in snapshot.jobs.jobs}
    for job in jobs:
        nodes = snapshot.jobs.nodes_of(job)
        text = placement_text(places.placement(job, nodes), label_of)
        if text:
            yield Problem(
                check="job_placement",
                severity=NOTE,
                ports=tuple(nodes),
                text=f"{job.label}: {text}",
                advice=_ADVICE,
            )


_CHECKS: tuple[Callable[[Survey], Iterable[Problem]], ...] = (
    rails.rails_down,
    rails.rails_missing,
    rails.slower_than_peers,
    rails.line_rate_unknown,
    nodes.doubtful,
    nodes.pcie_downtrained,
    rails.mtu_differs,
    rails.roce_mtu_small,
    rails.pfc_differs,
    rails.ecn_differs,
    nodes.shared_hostnames,
    nodes.flapping,
    rails.leaves_differ,
    rails.miscabled_ports,
    nodes.missing_nvlinks,
    nodes.distant_gpus,
    gpudirect.gpus_without_own_nic,
    gpudirect.gpudirect_missing,
    gpudirect.dma_translated,
    gpudirect.acs_on,
    gpudirect.processes_far_from_nic,
    rails.leaves_oversubscribed,
    nodes.shared_with_management,
    nodes.used_by_jobs,
    nodes.errors_added_up,
    jobs_spread,
)


def audit(survey: Survey) -> list[Problem]:
    """All problems of a survey: those to fix, then those that are only information."""
    found = [problem for check in _CHECKS for problem in check(survey)]
    return sorted(found, key=lambda problem: problem.severity != FIX)
