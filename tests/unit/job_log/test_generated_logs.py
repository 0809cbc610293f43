"""Generated logs: every failure is named, and none is ever taken for a healthy job."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from fabmon.analysis.job_log.job_log import JobLog
from fabmon.report.job_report import ExplainRecord
from tests.unit.job_log.generated_logs import (
    PREFIXES,
    FailedJob,
    failed_jobs,
    healthy_job,
    mutated,
)
from tests.unit.job_log.observed import record_of

NO_FAILURE = "No failure"
LOGS = 200
HEALTHY = 50
MUTATIONS = 12


def read(lines: Sequence[str]) -> tuple[JobLog, ExplainRecord]:
    log = JobLog()
    log.accept("\n".join(lines).encode(), "job.log")
    return log, record_of(log)


def says_no_failure(record: ExplainRecord) -> bool:
    return record.result == "ok" or any(NO_FAILURE in each for each in record.conclusions)


def classes(log: JobLog, record: ExplainRecord) -> set[str]:
    """The classes of failure that a log was read as."""
    found = {each.kind for each in record.observations}
    found |= {"signal"} if log.signals else set()
    found |= {"wrong"} if any(each.wrong for each in record.tests) else set()
    slow = ("over TCP", "GPUDirect RDMA")
    found |= (
        {"slow"} if any(word in text for text in record.conclusions for word in slow) else set()
    )
    return found


def jobs(count: int) -> list[tuple[str, str, FailedJob]]:
    """Jobs of every class behind every prefix in turn: the prefix, an identifier and the job."""
    found: list[tuple[str, str, FailedJob]] = []
    seed = 0
    while len(found) < count:
        drawn = failed_jobs(random.Random(seed))
        for number, job in enumerate(drawn):
            prefix = list(PREFIXES)[(number + seed) % len(PREFIXES)]
            found.append((prefix, f"{job.name}-{number}-{seed}-{prefix}", job))
        seed += 1
    return found[:count]


JOBS = jobs(LOGS)


def test_the_jobs_are_of_every_class_and_prefix() -> None:
    assert {prefix for prefix, _, _ in JOBS} == set(PREFIXES)
    assert len({job.name for _, _, job in JOBS}) == 13


@pytest.mark.parametrize(
    ("prefix", "job"), [(p, j) for p, _, j in JOBS], ids=[i for _, i, _ in JOBS]
)
def test_a_failure_is_named_whatever_wrote_it(prefix: str, job: FailedJob) -> None:
    lines = [PREFIXES[prefix](line) for line in job.lines]
    log, record = read(["step 1 loss 2.3", *lines, "step 2 loss 2.2"])
    assert job.name in classes(log, record), (lines, record.conclusions)
    assert not says_no_failure(record)
    assert record.not_understood == []


@pytest.mark.parametrize("seed", range(HEALTHY))
def test_a_healthy_job_has_no_failure(seed: int) -> None:
    random_ = random.Random(seed)
    prefix = list(PREFIXES)[seed % len(PREFIXES)]
    _, record = read([PREFIXES[prefix](line) for line in healthy_job(random_)])
    assert record.not_understood == []
    assert record.result == "ok", record.conclusions
    assert record.conclusions[-1].startswith(NO_FAILURE)


@pytest.mark.parametrize(
    ("prefix", "job"),
    [(prefix, job) for prefix, _, job in JOBS if job.name != "slow"],
    ids=[name for _, name, job in JOBS if job.name != "slow"],
)
def test_a_line_that_was_changed_is_never_a_healthy_job(prefix: str, job: FailedJob) -> None:
    random_ = random.Random(f"{prefix} {job.lines}")
    for _ in range(MUTATIONS):
        lines = mutated(job.lines, random_)
        _, record = read([PREFIXES[prefix](line) for line in lines])
        assert not says_no_failure(record), lines
