"""The jobs of the corpus: how each is started, what is done to it, and when.

A name is that of the fault, and a number where it was done to jobs of several kinds.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.corpus.job import Job

DETAIL = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "JOB_CHECK": "detail"}
VERBOSE = {"TORCH_DISTRIBUTED_DEBUG": "INFO", "TORCH_CPP_LOG_LEVEL": "INFO"}
LABELS = ("--tee", "3")


@dataclass(frozen=True)
class Fault:
    """How the job is started, by a torchrun on each host or `by_mpirun`, and what is done to it:
    `before` it starts, and `breaks` when it has done some steps.

    `inside` is what the job does itself (`tests.corpus.train`): fault, rank, step. `elastic`: the
    nodes meet by c10d, and the job is started anew that often. `late` is a host that is not started
    until the others have given up. `fails` is whether a node ends with an error.
    """

    per_host: int = 1
    inside: tuple[str, int, int] | None = None
    breaks: Callable[[Job], None] | None = None
    before: Callable[[Job], None] | None = None
    options: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    elastic: int | None = None
    late: str = ""
    by_mpirun: bool = False
    fails: bool = True


def _signal(number: signal.Signals, rank: int) -> Callable[[Job], None]:
    return lambda job: job.send(rank, number)


def _forget_own_names(*hosts: str) -> Callable[[Job], None]:
    def forget(job: Job) -> None:
        for host in hosts:
            job.forget(host, host)

    return forget


FAULTS: dict[str, Fault] = {
    "healthy-1": Fault(fails=False),
    "healthy-2": Fault(2, options=LABELS, environment=VERBOSE, elastic=0, fails=False),
    "healthy-3": Fault(environment={"JOB_PROGRESS": "1"}, fails=False),
    "healthy-4": Fault(environment={**VERBOSE, **DETAIL, "JOB_STEPS": "3"}, fails=False),
    "killed-1": Fault(breaks=_signal(signal.SIGKILL, 2)),
    "killed-2": Fault(2, options=LABELS, breaks=_signal(signal.SIGKILL, 5)),
    "killed-3": Fault(environment={"JOB_PROGRESS": "1"}, breaks=_signal(signal.SIGKILL, 3)),
    "restarted-1": Fault(elastic=1, breaks=_signal(signal.SIGKILL, 2)),
    "segfault-1": Fault(breaks=_signal(signal.SIGSEGV, 3)),
    "unreadable-1": Fault(inside=("unreadable", 1, 5)),
    "stopped-1": Fault(breaks=_signal(signal.SIGSTOP, 1)),
    "stopped-2": Fault(2, environment=DETAIL, breaks=_signal(signal.SIGSTOP, 3)),
    "stopped-3": Fault(environment={"JOB_CHECK": "barrier"}, breaks=_signal(signal.SIGSTOP, 2)),
    "asleep-1": Fault(inside=("asleep", 2, 5)),
    "asleep-2": Fault(2, inside=("asleep", 6, 5), environment={**DETAIL, "JOB_PROGRESS": "1"}),
    "late-1": Fault(inside=("late", 3, 0)),
    "late-2": Fault(late="gpu003"),
    "late-3": Fault(late="gpu003", elastic=0),
    "late-4": Fault(late="gpu001"),
    "node-gone-1": Fault(breaks=lambda job: job.lose_power("gpu003")),
    "node-gone-2": Fault(breaks=lambda job: job.end("gpu003")),
    "node-gone-3": Fault(elastic=0, breaks=lambda job: job.end("gpu001")),
    "link-cut-1": Fault(breaks=lambda job: job.cut("gpu004", "eth0")),
    "link-cut-2": Fault(breaks=lambda job: job.cut("leaf2", "up1")),
    "link-cut-3": Fault(before=lambda job: job.cut("gpu004", "eth0")),
    "no-name-1": Fault(before=lambda job: job.forget("gpu003", "gpu001")),
    "no-name-2": Fault(before=_forget_own_names("gpu003", "gpu004")),
    # A single such host connects to all others, and none of them to its loopback address.
    "no-name-3": Fault(before=_forget_own_names("gpu003"), fails=False),
    "port-in-use-1": Fault(before=lambda job: job.occupy("gpu001")),
    "mpirun-healthy-1": Fault(by_mpirun=True, fails=False),
    "mpirun-killed-1": Fault(by_mpirun=True, breaks=_signal(signal.SIGKILL, 2)),
    "mpirun-stopped-1": Fault(by_mpirun=True, breaks=_signal(signal.SIGSTOP, 1)),
    "mpirun-node-gone-1": Fault(by_mpirun=True, breaks=lambda job: job.end("gpu003")),
    "mismatch-1": Fault(inside=("mismatch", 2, 5), environment=DETAIL),
}
