"""Checks of where jobs run."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.audit.survey import NOTE, Problem, Survey
from fabmon.analysis.job_placement import Places, placement_text

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
