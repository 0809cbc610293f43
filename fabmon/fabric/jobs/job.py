"""A job of the scheduler, and a report of all running jobs."""

from __future__ import annotations

import msgspec

from fabmon.fabric.time_wording import TimeNs

SLURM = "slurm"
HOSTFILE = "hostfile"
KUBERNETES = "kubernetes"
"""Schedulers: Slurm, Kubernetes, or none but a hostfile of MPI or DeepSpeed that names the job."""

_LAST_S = (1 << 63) // 10**9
"""In 2262: the clocks of records have 64 bits."""


def start_ns_of(at_s: float) -> int:
    """The wall clock in ns of a start that a scheduler reports; 0, unknown, where it is no time
    since 1970 or one that no record can hold."""
    return int(at_s) * 10**9 if 0 < at_s < _LAST_S else 0


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A running job. Texts are empty where they are not known.

    `id` is its number: the one in the cgroups of its processes. A task of an array or a part of a
    heterogeneous job has a `shown_id` besides (`8801_3`, `8801+1`). `nodes` have the scheduler's
    names. `start_ns` is the wall clock of its last start, 0 where unknown: a requeued job keeps its
    number. A job of Kubernetes has its namespace and name as `id`, and the uids of its `pods`.
    """

    scheduler: str = SLURM
    id: str = ""
    shown_id: str = ""
    name: str = ""
    user: str = ""
    partition: str = ""
    nodes: tuple[str, ...] = ()
    start_ns: TimeNs = 0
    pods: tuple[str, ...] = ()

    @property
    def number(self) -> str:
        """Its number as users write it: `8801`, `8801_3`; the name of a job without one."""
        return self.shown_id or self.id or self.name

    @property
    def label(self) -> str:
        """`job 8801 llama-70b (anna)`, without what is not known."""
        name = self.name if self.number != self.name else ""
        user = f"({self.user})" if self.user else ""
        return " ".join(filter(None, ("job", self.number, name, user)))

    def is_called(self, text: str) -> bool:
        """Whether a user means this job by `8801` (an array with all its tasks) or `8801_3`, one of
        Kubernetes by `research/llama-70b` or `llama-70b`."""
        base = self.shown_id.replace("+", "_").partition("_")[0]
        alone = self.id.rpartition("/")[2]
        return bool(text) and text in (self.id, self.shown_id, base, self.number, alone)


def names_in_label(label: str) -> set[str]:
    """What the job is called that has a label, such as `job 8801_3 llama 70b (anna)`: all that
    is_called() says, its name, user and label. Findings have labels alone."""
    whole = label.removeprefix("job ")
    head, _, user = (
        whole.removesuffix(")").rpartition(" (") if whole[-1:] == ")" else (whole, "", "")
    )
    number, _, name = head.partition(" ")
    numbers = {number, number.replace("+", "_").partition("_")[0], number.rpartition("/")[2]}
    return {label, whole, head, whole.partition(" ")[2], name, user, *numbers} - {""}


class JobReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All running jobs, as last read.

    `source` says from what (`squeue`), `read_ns` when (wall clock; 0: never). `reason` says why
    they could not be read since, empty where they could: then they are at most a minute old.
    `notes` are sentences on other sources whose jobs are old.
    """

    source: str
    read_ns: TimeNs = 0
    reason: str = ""
    jobs: tuple[Job, ...] = ()
    notes: tuple[str, ...] = ()

    def says_the_same(self, other: JobReport | None) -> bool:
        """Whether only the time of the last read differs."""
        return other is not None and (self.reason, self.jobs, self.notes) == (
            other.reason,
            other.jobs,
            other.notes,
        )


class JobFilter(msgspec.Struct, frozen=True):
    """Jobs that a user selects: by number (`8801`, `8801_3`), name, user or partition; all that are
    given have to match."""

    job: str = ""
    user: str = ""
    partition: str = ""

    def __bool__(self) -> bool:
        return bool(self.job or self.user or self.partition)

    def __str__(self) -> str:
        parts = (("job", self.job), ("user", self.user), ("partition", self.partition))
        return ", ".join(f"{key} {value}" for key, value in parts if value)

    def matches(self, job: Job) -> bool:
        """Whether it selects a job."""
        return (
            (not self.job or job.is_called(self.job) or job.name == self.job)
            and self.user in ("", job.user)
            # A pending job may name several partitions, a running one has one.
            and self.partition in ("", job.partition)
        )
