"""What fabmon says of a job of Open MPI is what the job says of itself."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fabmon.analysis.causes import CAUSES
from tests.lab import Lab
from tests.lab.mpi_job import MpiJob, Step
from tests.lab.watching import Line, Watch
from tests.requirements import need_command

NIC_MBPS, UPLINK_MBPS = 16, 24
COMPUTE_S, LATE_S = 1.5, 4.0
MEGABYTES = 2.3
SPREAD, CROWDED = (1, 1, 1, 1), (3, 1)
SLOW_HOST, STOPPED_HOST = "gpu006", "gpu003"
STALLED_S = 20.0

pytestmark = pytest.mark.timeout(400)


@dataclass(frozen=True, slots=True)
class Phase:
    """A time in the life of the job: its own steps, and what fabmon said meanwhile."""

    steps: list[Step]
    said: list[Line]

    @property
    def opened(self) -> list[Line]:
        """The findings that opened."""
        return [x for x in self.said if x["type"] == "finding" and x["change"] == "open"]

    @property
    def told(self) -> list[str]:
        """The findings that opened, in words."""
        return [f"{x['cause']} of {x['subject']}: {x['text']}" for x in self.opened]

    @property
    def reduce_s(self) -> float:
        """How long an all-reduce took."""
        return statistics.median(step.reduce_s for step in self.steps)


@dataclass(frozen=True, slots=True)
class Life:
    """All of it, in order."""

    even: Phase
    crowded: Phase
    late: Phase
    stopped: Phase


class _Phases:
    """Cuts what fabmon says at the phases of a job."""

    def __init__(self, job: MpiJob, watch: Watch) -> None:
        self._job, self._watch, self._read = job, watch, 0

    def of_steps(self, count: int) -> Phase:
        return self._phase(self._job.until_steps(count))

    def of_seconds(self, seconds: float) -> Phase:
        time.sleep(seconds)
        return self._phase([])

    def _phase(self, steps: list[Step]) -> Phase:
        said = self._watch.lines[self._read :]
        self._read += len(said)
        return Phase(steps, said)


@pytest.fixture(scope="module")
def life(lab_parts: None) -> Iterator[Life]:
    """A job whose connections are spread evenly, then crowded; then a rank is late, one stops."""
    need_command("mpirun", "openmpi-bin")
    need_command("mpicc", "libopenmpi-dev")
    with Lab(4, 2, 4, NIC_MBPS, uplink_mbps=UPLINK_MBPS) as lab, Watch(lab) as watch:
        first, second = (lab.layout.hosts_of(leaf) for leaf in lab.layout.leaves)
        ring = [host for pair in zip(first, second, strict=True) for host in pair]
        watch.until_all_up()
        with MpiJob(lab, ring, COMPUTE_S, MEGABYTES, LATE_S) as job:
            job.until_steps(1)
            even, crowded = job.find_seeds("leaf1", SPREAD, CROWDED)
            lab.set_hash_seed("leaf1", even)
            lab.set_hash_seed("leaf2", job.find_seeds("leaf2", SPREAD)[0])
            phases = _Phases(job, watch)
            phases.of_steps(2)
            at_first = phases.of_steps(10)
            lab.set_hash_seed("leaf1", crowded)
            in_crowd = phases.of_steps(6)
            lab.set_hash_seed("leaf1", even)
            phases.of_steps(3)
            job.send(SLOW_HOST, signal.SIGUSR1)
            with_late = phases.of_steps(5)
            job.send(SLOW_HOST, signal.SIGUSR2)
            phases.of_steps(3)
            job.send(STOPPED_HOST, signal.SIGSTOP)
            with_stopped = phases.of_seconds(STALLED_S)
        yield Life(at_first, in_crowd, with_late, with_stopped)


def test_the_step_time_is_the_jobs_own(life: Life) -> None:
    said = [line for line in life.even.said if line["type"] == "rhythm"]
    assert said, "no iterations were measured"
    steps = life.even.steps
    own_s = (steps[-1].done_s - steps[0].begin_s) / len(steps)
    print(f"step: {own_s:.2f} s by the job, {said[-1]['step_s']:.2f} s by fabmon")
    assert said[-1]["step_s"] == pytest.approx(own_s, rel=0.05)
    assert len(said[-1]["hosts"]) == 8


def test_an_even_job_raises_nothing(life: Life) -> None:
    assert life.even.told == []


def test_what_a_collision_loses_is_what_the_all_reduce_takes_longer(life: Life) -> None:
    """Three connections share an uplink, and each gets a third of it."""
    lost = 1 - life.even.reduce_s / life.crowded.reduce_s
    print(f"all-reduce: {life.even.reduce_s:.2f} s, then {life.crowded.reduce_s:.2f} s")
    found = [line for line in life.crowded.opened if line["cause"] == "ecmp_collision"]
    print(f"lost: {lost:.0%} by the job, {[line['lost'] for line in found]} by fabmon")
    assert lost == pytest.approx(1 - UPLINK_MBPS / 3 / NIC_MBPS, abs=0.07)
    assert len(found) == len(life.crowded.opened) == 1, life.crowded.told
    assert found[0]["subject"].startswith("leaf1/up")
    assert found[0]["lost"] == pytest.approx(lost, abs=0.10)


def test_a_late_rank_is_the_straggler(life: Life) -> None:
    found = [(line["cause"], line["subject"]) for line in life.late.opened]
    assert found == [("straggler", SLOW_HOST)], life.late.told


def test_a_stopped_rank_blames_no_link_and_no_other_host(life: Life) -> None:
    """Who is silent in a job where all are silent cannot be seen, unless counters show it."""
    found = [(line["cause"], line["subject"]) for line in life.stopped.opened]
    stalled = [subject for cause, subject in found if cause == "job_stalled"]
    others = [each for each in found if each[0] != "job_stalled"]
    assert set(others) <= {("straggler", STOPPED_HOST)}, life.stopped.told
    if "job_stalled" in CAUSES:
        assert len(stalled) == 1, life.stopped.told
