"""The life of an MPI job on a lab, phase by phase, and what fabmon said in each."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from tests.fixtures.slurm import slurm_cluster
from tests.lab import Lab
from tests.lab.layout import CONSOLE
from tests.lab.mpi_job import Crowd, MpiJob, Step
from tests.lab.watching import Line, Watch

NIC_MBPS, UPLINK_MBPS = 16, 24
COMPUTE_S, LATE_S = 3.0, 4.0
"""While all compute, a second without traffic: it shows where an exchange begins."""
MEGABYTES = 4.0
SPREAD, CROWDED = (1, 1, 1, 1), (3, 1)
SLOW_HOST, STOPPED_HOST = "gpu006", "gpu003"
STALLED_S = 60.0
"""Long enough for 30 s of silence, in which Slurm is asked after 10 s, as it is every 30 s."""
MEASURED_STEPS, MEASURED_ERROR = 8, 0.05
WATCHED_S, WATCHED_TICKS = 90, 80
_NICE = -10
"""Of the job, its nodes and its fabmon, which take a tenth of a CPU and measure times: labs that
are built beside them give way."""


@dataclass(frozen=True, slots=True)
class Phase:
    """A time in the life of the job: its own steps, and what fabmon said meanwhile.

    `begin_s` is when it began, on the clock of `at_s`."""

    steps: list[Step]
    said: list[Line]
    begin_s: float

    @property
    def opened(self) -> list[Line]:
        """The findings that opened."""
        return [x for x in self.said if x["type"] == "finding" and x["change"] == "open"]

    @property
    def story(self) -> str:
        """The findings that opened, in words, and what each host sent a second, in Mb/s."""
        lines = [f"{x['cause']} of {x['subject']}: {x['text']}" for x in self.opened]
        sent: dict[str, list[str]] = {}
        for tick in (x for x in self.said if x["type"] == "tick"):
            for link in tick["links"]:
                if link["role"] == "rail":
                    bps = link["tx_bps"]
                    sent.setdefault(link["node"], []).append(
                        "-" if bps is None else f"{bps / 1e6:.0f}"
                    )
        rates = [f"{host} {' '.join(each)}" for host, each in sent.items()]
        return "\n".join([*(lines or ["no finding"]), *rates])

    @property
    def reduce_s(self) -> float:
        """How long an all-reduce took."""
        return statistics.median(step.reduce_s for step in self.steps)


@dataclass(frozen=True, slots=True)
class Life:
    """All of it, in order. `start_s` is when `at_s` was 0, on the clock of the steps; `crowd` are
    the hosts whose connections share an uplink of leaf1 while it is `crowded`."""

    start_s: float
    even: Phase
    crowded: Phase
    crowd: Crowd
    late: Phase
    stopped: Phase


class _Phases:
    """Cuts what fabmon says at the phases of a job."""

    def __init__(self, job: MpiJob, watch: Watch) -> None:
        self._job, self._watch, self._read = job, watch, 0

    def of_steps(self, count: int) -> Phase:
        """So many steps."""
        begin_s = self._watch.now_s()
        return self._phase(self._job.until_steps(count), begin_s)

    def until_measured(self, count: int) -> Phase:
        """So many steps or more, until the step time is reported after them, once a minute, with an
        error of less than `MEASURED_ERROR` by fabmon itself, which had the CPU for its ticks."""
        begin_s, first = self._watch.now_s(), len(self._job.steps)
        self._job.until_steps(count)
        done_s = self._watch.now_s()

        def is_measured(line: Line) -> bool:
            if line["type"] != "iteration" or line["at_s"] < done_s:
                return False
            ticks = [
                each for each in self._watch.ticks() if each["at_s"] > line["at_s"] - WATCHED_S
            ]
            is_watched = len(ticks) >= WATCHED_TICKS
            return bool(is_watched and line["error_s"] < MEASURED_ERROR * line["step_s"])

        self._watch.until(is_measured, timeout_s=600)
        return self._phase(self._job.steps[first:], begin_s)

    def until_stalled(self, most_s: float) -> Phase:
        """Until a job is found stalled, so many seconds at most."""
        begin_s = self._watch.now_s()
        with suppress(AssertionError):
            self._watch.until(lambda line: line.get("cause") == "job_stalled", timeout_s=most_s)
        return self._phase([], begin_s)

    def _phase(self, steps: list[Step], begin_s: float) -> Phase:
        said = self._watch.lines[self._read :]
        self._read += len(said)
        return Phase(steps, said, begin_s)


def _in_console(lab: Lab) -> list[str]:
    """What runs a command in the console's network, with this machine's /sys: slurmd needs cgroups,
    which `ip netns exec` hides."""
    return ["nsenter", f"--net=/run/netns/{lab.ns(CONSOLE)}"]


@contextmanager
def _ahead() -> Iterator[None]:
    """Processes that are started meanwhile have the CPU before others."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def live() -> Life:
    """A job of Slurm whose connections are spread evenly, then crowded; then a rank is late, one
    stops."""
    with (
        _ahead(),
        Lab(4, 2, 4, NIC_MBPS, uplink_mbps=UPLINK_MBPS) as lab,
        slurm_cluster(8, _in_console(lab)) as slurm,
        Watch(lab, environment=slurm.environment) as watch,
    ):
        first, second = (lab.layout.hosts_of(leaf) for leaf in lab.layout.leaves)
        ring = [host for pair in zip(first, second, strict=True) for host in pair]
        watch.until_all_up()
        with MpiJob(lab, ring, COMPUTE_S, MEGABYTES, LATE_S, slurm) as job:
            job.until_steps(1)
            even, crowded = job.find_seeds("leaf1", SPREAD, CROWDED)
            lab.set_hash_seed("leaf1", even)
            lab.set_hash_seed("leaf2", job.find_seeds("leaf2", SPREAD)[0])
            phases = _Phases(job, watch)
            phases.of_steps(2)
            at_first = phases.until_measured(MEASURED_STEPS)
            lab.set_hash_seed("leaf1", crowded)
            crowd = job.crowd("leaf1")
            in_crowd = phases.of_steps(5)
            lab.set_hash_seed("leaf1", even)
            phases.of_steps(3)
            job.send(SLOW_HOST, signal.SIGUSR1)
            with_late = phases.of_steps(5)
            job.send(SLOW_HOST, signal.SIGUSR2)
            phases.of_steps(3)
            while time.monotonic() - job.steps[-1].done_s > COMPUTE_S / 2:
                phases.of_steps(1)  # What the ranks say comes late on a busy machine.
            job.send(STOPPED_HOST, signal.SIGSTOP)
            with_stopped = phases.until_stalled(STALLED_S)
        return Life(watch.start_s, at_first, in_crowd, crowd, with_late, with_stopped)
