"""What fabmon says of a job of Open MPI is what the job says of itself."""

from __future__ import annotations

import re
import statistics
from itertools import pairwise

import pytest

from tests.lab.mpi_job import JOB_NAME
from tests.lab.mpi_life import (
    LATE_S,
    MEASURED_STEPS,
    NIC_MBPS,
    SLOW_HOST,
    STOPPED_HOST,
    UPLINK_MBPS,
    Life,
    live,
)
from tests.requirements import need_command

# The first waits for all of the job's life.
pytestmark = [pytest.mark.waits, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def life(lab_parts: None) -> Life:
    need_command("mpirun", "openmpi-bin")
    need_command("mpicc", "libopenmpi-dev")
    need_command("salloc", "slurm-client")
    return live()


def test_the_step_time_is_the_jobs_own(life: Life) -> None:
    """Within the error that fabmon says, or a tenth, of some of the steps that were done when
    it said so: on a busy machine they are not all the same, and it measures the last of them."""
    said = [line for line in life.even.said if line["type"] == "iteration"][-1]
    until_s = life.start_s + said["at_s"]
    ends_s = [step.done_s for step in life.even.steps if step.done_s < until_s]
    assert len(ends_s) > MEASURED_STEPS
    steps_s = [after - before for before, after in pairwise(ends_s)]
    own_s = [
        statistics.median(steps_s[first : first + MEASURED_STEPS])
        for first in range(len(steps_s) - MEASURED_STEPS + 1)
    ]
    print(
        f"step: {min(own_s):.2f} to {max(own_s):.2f} s by the job, {said['step_s']:.2f} ±"
        f" {said['error_s']:.2f} s by fabmon, {len(ends_s)} steps"
    )
    error_s = max(said["error_s"], said["step_s"] / 10)
    assert min(own_s) - error_s <= said["step_s"] <= max(own_s) + error_s
    assert len(said["hosts"]) == 8


def test_an_even_job_raises_nothing(life: Life) -> None:
    assert life.even.opened == [], life.even.story


def test_what_a_collision_loses_is_what_the_all_reduce_takes_longer(life: Life) -> None:
    """Three connections share an uplink, and each gets a third of it."""
    lost = 1 - life.even.reduce_s / life.crowded.reduce_s
    print(f"all-reduce: {life.even.reduce_s:.2f} s, then {life.crowded.reduce_s:.2f} s")
    found = [line for line in life.crowded.opened if line["cause"] == "ecmp_collision"]
    print(f"lost: {lost:.0%} by the job, {[line['lost'] for line in found]} by fabmon")
    assert lost == pytest.approx(1 - UPLINK_MBPS / 3 / NIC_MBPS, abs=0.10)
    assert len(found) == len(life.crowded.opened) == 1, life.crowded.story
    assert found[0]["subject"].startswith("leaf1/up")
    assert found[0]["lost"] == pytest.approx(lost, abs=0.10)


def test_a_collision_names_the_job_its_user_and_the_hosts_of_both_ranks(life: Life) -> None:
    """Hosts without queue pairs show at times, by their rates alone, which of the job's flows share
    the link; else it names `some of` those on either side of it."""
    (found,) = [line for line in life.crowded.opened if line["cause"] == "ecmp_collision"]
    (job,) = found["jobs"]
    number = re.fullmatch(rf"job (\d+) {JOB_NAME} \(root\)", job)
    assert number
    said = {each["name"]: each["value"] for each in found["evidence"]}
    near, far = (said[f"job {number[1]} sends {way}"] for way in ("from", "to"))
    print(f"{job}: from {near}, to {far}; truly {life.crowd}")
    assert _is_true(near, life.crowd.near), found["text"]
    assert _is_true(far, life.crowd.far), found["text"]


def _is_true(said: str, hosts: set[str]) -> bool:
    """Whether it names these hosts and no more, or `some of` hosts that have all of these."""
    named = set(said.removeprefix("some of ").split(", "))
    return named >= hosts if said.startswith("some of ") else named == hosts


def test_the_iteration_is_that_of_the_job(life: Life) -> None:
    # Slurm is asked every 30 s, and iterations are reported as rarely: the first may have no name.
    lines = [*life.even.said, *life.crowded.said]
    said = [line for line in lines if line["type"] == "iteration" and line["job"]]
    assert said, "its iterations are not named"
    assert re.fullmatch(rf"job \d+ {JOB_NAME} \(root\)", said[-1]["job"])
    assert said[-1]["hosts"] == [f"gpu{number:03}" for number in range(1, 9)]


def test_a_late_rank_is_the_straggler(life: Life) -> None:
    """The ranks around it send one to four chunks of the ring, then all are silent: it alone has
    moved nothing when all go on with it."""
    found = [(line["cause"], line["subject"]) for line in life.late.opened]
    assert found == [("straggler", SLOW_HOST)], life.late.story
    (line,) = life.late.opened
    said = {each["name"]: each["value"] for each in line["evidence"]}
    print(f"found after {line['at_s'] - life.late.begin_s:.0f} s: {line['text']}")
    assert said["late by"] == pytest.approx(LATE_S, abs=1.0)


def test_a_job_with_a_stopped_rank_is_stalled(life: Life) -> None:
    """Slurm reports it as running; the rank stopped before it had moved anything of the exchange
    that the others began. No link is blamed, and no other host."""
    found = [(line["cause"], line["subject"]) for line in life.stopped.opened]
    assert [cause for cause, _ in found] == ["job_stalled"], life.stopped.story
    (line,) = life.stopped.opened
    print(f"found after {line['at_s'] - life.stopped.begin_s:.0f} s: {line['text']}")
    assert re.fullmatch(rf"job \d+ {JOB_NAME} \(root\)", line["subject"])
    assert f"; {STOPPED_HOST} moved nothing of its last exchange" in line["text"]
