"""What tests ask of the observations of a job: of a log, or of a record in JSON."""

from __future__ import annotations

from typing import Any

from fabmon.analysis.job.log_observations import log_observations
from fabmon.analysis.job.observation import Observation
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.analysis.job_log.places import AllPlaces, Places
from fabmon.report.job_report import ExplainRecord, explain_record

NOWHERE = AllPlaces(())


def record_of(log: JobLog, places: Places = NOWHERE) -> ExplainRecord:
    """The record of a log."""
    return explain_record(log, ["job.log"], log_observations(log, places))


def failures(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The failures of a record in JSON, each with its two ends (empty where not known)."""
    none: dict[str, Any] = {"ranks": [], "host": "", "hcas": [], "ports": [{}]}
    return [
        {
            **each,
            "near": {**none, **each["at"][0]},
            "far": {**none, **each.get("others", [{}])[0]},
            "count": each.get("times", 1),
            "is_consequence": each["weight"] == "consequence",
        }
        for each in found["observations"]
        if "line" in each or "source" in each
    ]


def is_failure(each: Observation) -> bool:
    """Whether an observation is a failure in a log."""
    return each.is_failure


def of_kind(found: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The observations of a kind of a record in JSON."""
    return [each for each in found["observations"] if each["kind"] == kind]


def ranks_of(each: Observation) -> tuple[int, ...]:
    """The ranks that an observation is about."""
    return tuple(rank for end in each.at for rank in end.ranks)
