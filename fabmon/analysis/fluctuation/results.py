"""Results of a study of variability: numbers for a table, a chart or JSON. None is absent."""

from __future__ import annotations

import msgspec

from fabmon.fabric.jobs.job import Job
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.time_wording import interval

ALL, RAIL, LINK, PAIR, JOB = "all", "rail", "link", "pair", "job"
USER, PARTITION = "user", "partition"
KINDS = (ALL, JOB, USER, PARTITION, RAIL, PAIR, LINK)


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Bandwidth in communication phases, over `samples` of one interval each (and one link).

    `cov` is the coefficient of variation, standard deviation over mean, None of one
    sample. `share` (0 to 1) is the
    part of the watched time that is communication. `whole` is True where only samples that are
    entirely in a phase count; where phases are too short for such samples, all samples of phases
    count, and the bandwidth is a lower bound.
    """

    median_bps: float
    p5_bps: float
    p95_bps: float
    mean_bps: float
    cov: float | None
    samples: int
    share: float
    whole: bool


class Step(msgspec.Struct, frozen=True):
    """A change of level at `at_ns` ± `within_s`: the medians before and after."""

    at_ns: int
    within_s: float
    before_bps: float
    after_bps: float

    @property
    def change(self) -> float:
        """The change as a share of the level before."""
        return self.after_bps / self.before_bps - 1


class Drift(msgspec.Struct, frozen=True):
    """A slope, as a share of the median per hour, and its 95 % confidence interval."""

    per_hour: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


class Slot(msgspec.Struct, frozen=True):
    """An hour of the day (0 to 23) or a day of the week (0 is Monday): statistics of the `cells`
    (means of 10 s) in it; `cov` is None of one."""

    slot: int
    median_bps: float
    p5_bps: float
    p95_bps: float
    cov: float | None
    cells: int


class Part(msgspec.Struct, frozen=True):
    """The lowest, median and highest of the means of 10 s in a part of the time, bits/s."""

    low_bps: float
    median_bps: float
    high_bps: float


class Iterations(msgspec.Struct, frozen=True):
    """The length of a job's iterations in seconds, over `count` iterations."""

    median_s: float
    p5_s: float
    p95_s: float
    count: int


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """One rail, link, pair of switches or job, all jobs of a user or partition, or all rails:
    `kind` is one of KINDS.

    A link has the id of the sending port as its name (`way` tx), or of the receiving port (`rx`)
    where the sender is not watched. `job` is the scheduler's, None of hosts whose traffic moves
    together. `links` is the number of links in it. `spread` is None where it never communicated.
    `strip` are equal parts of the whole time, None where it did not communicate.
    """

    kind: str
    name: str
    display_name: str = ""
    job: Job | None = None
    way: str = ""
    links: int = 1
    line_rate_bps: float | None = None
    spread: Spread | None = None
    steps: tuple[Step, ...] = ()
    drift: Drift | None = None
    hours: tuple[Slot, ...] = ()
    weekdays: tuple[Slot, ...] = ()
    strip: tuple[Part | None, ...] = ()
    iterations: Iterations | None = None
    hosts: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The name by which it is matched between recordings."""
        return f"{self.name} rx" if self.way == "rx" else self.name

    @property
    def label(self) -> str:
        """The name by which it is shown; a link that is counted by its receiver says so."""
        name = self.display_name or self.name
        return f"{name} rx" if self.way == "rx" else name


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """The share of what a leaf sends up that is not from our hosts: `low` to `high`, 0 to 1.

    Both are None where it is unknown; `unseen` is the reason. `sent_bytes` is all that it sent up.
    """

    switch: str
    low: float | None
    high: float | None
    sent_bytes: float
    unseen: str = ""


class Fluctuation(msgspec.Struct, frozen=True, kw_only=True):
    """All results, for the time from `from_ns` to `until_ns` (UTC), sampled every `interval_s`.

    `watched_s` is the part of the time with samples; levels, hours and weekdays are statistics of
    means of `cell_s`, a Spread of single samples. `zone` is the time zone of hours and weekdays.
    `notes` are for a person: what was not observable, and why.
    """

    from_ns: int
    until_ns: int
    watched_s: float
    interval_s: float
    cell_s: float = 10.0
    zone: str = "UTC"
    subjects: tuple[Subject, ...] = ()
    foreign: tuple[Foreign, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def means(self) -> str:
        """What levels, hours and weekdays are statistics of: `means of 10 s`."""
        return f"means of {interval(self.cell_s)}"

    def of(self, kind: str) -> tuple[Subject, ...]:
        """The subjects of one kind."""
        return tuple(each for each in self.subjects if each.kind == kind)

    def redacted(self, redactor: Redactor) -> Fluctuation:
        """The results with pseudonyms of nodes, jobs, users and partitions."""
        change, text = msgspec.structs.replace, redactor.text
        foreign = tuple(
            change(each, switch=text(each.switch), unseen=text(each.unseen))
            for each in self.foreign
        )
        return change(
            self,
            subjects=tuple(_redacted(each, redactor) for each in self.subjects),
            foreign=foreign,
            notes=tuple(map(text, self.notes)),
        )


def _redacted(subject: Subject, redactor: Redactor) -> Subject:
    name, shown, job = subject.name, subject.display_name, subject.job
    if job is not None:
        job = redactor.job(job)
        name = shown = job.label
    elif subject.kind in (USER, PARTITION):
        name = shown = redactor.person(subject.kind, name)
    else:
        name, shown = redactor.text(name), redactor.text(shown)
    hosts = tuple(map(redactor.text, subject.hosts))
    return msgspec.structs.replace(subject, name=name, display_name=shown, job=job, hosts=hosts)
