"""Which nodes a run watches: those that are named, those of jobs, those of the job that fabmon is
in, else this machine."""

from __future__ import annotations

import os
import re
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from fabmon.fabric.hosts import nodesets as node_sets
from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.hosts.hosts_file import HostsFileError, from_nodesets, read
from fabmon.fabric.jobs.job import HOSTFILE, Job, JobFilter, JobReport
from fabmon.fabric.jobs.job_table import JobTable
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.wire.messages import printable
from fabmon.fabric.wording import plural
from fabmon.feeds.job_command import CommandError
from fabmon.feeds.kubectl import Kubectl
from fabmon.feeds.squeue import running_jobs
from fabmon.session import event_loop
from fabmon.session.errors import UsageError
from fabmon.session.slow_files import said_if_slow
from fabmon.session.stderr_lines import say

_SLOTS = re.compile(r"\S+(:\d+$|\s.*\bslots=\d+)")
"""A line of a hostfile of MPI or DeepSpeed."""
_CLUSTERSHELL = Path("~/.config/clustershell")
"""Its settings, which are read where it is imported."""


ON_NODES = "nodes:"
"""Before a directory of the nodes, in --nccl-inspector."""


@dataclass(frozen=True, slots=True)
class JobSources:
    """Where jobs are known from: the commands of Slurm and Kubernetes, and `on_nodes`, which asks
    some nodes for the jobs of their processes (None: it is not asked)."""

    squeue: str
    kubectl: str = ""
    on_nodes: Callable[[Sequence[Host]], tuple[Job, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """The nodes to watch, the title of the run, and the jobs that are known from these.

    `known_from` distinguishes the nodes from others of the same title: the hosts file's whole path.
    """

    hosts: list[Host]
    title: str
    known_from: str
    jobs: tuple[Job, ...] = ()


def select_nodes(
    path: Path | None,
    names: Sequence[str],
    jobs: JobFilter,
    sources: JobSources,
    environment: Mapping[str, str] = os.environ,
) -> Selection:
    """The nodes of --hosts and --host; where jobs are selected, those on which they run and all
    switches.

    Without either, the nodes of the jobs, of the job that this process is in, or this machine.
    Jobs are those of squeue and kubectl, the own one, and where squeue does not answer those of the
    processes on the named nodes. Raises UsageError.
    """
    is_named = path is not None or bool(names)
    title = printable(path.stem) if path else ",".join(names)
    known_from = printable(str(path.resolve())) if path else title
    if jobs:
        named = selected_hosts(path, names) if is_named else []
        running = _running(jobs, sources, named, environment)
        hosts = named or _hosts_of(running)
        return Selection(
            _with_jobs(hosts, running, jobs),
            f"{title} {jobs}".strip(),
            f"{known_from} {jobs}".strip(),
            running,
        )
    own, problem = (None, "") if is_named else _own_job(environment)
    if problem:
        say(f"{problem}: this machine is watched")
    if own is not None:
        return Selection(_hosts_of([own]), *2 * (f"job {own.number}",), (own,))
    hosts = selected_hosts(path, names)
    known = _job_of_hostfile(path, hosts) if path is not None else None
    here = socket.gethostname()
    running = () if known is None else (known,)
    return Selection(hosts, title or here, known_from or here, running)


def inspector_of(given: str | None, hosts: list[Host]) -> tuple[Path | None, list[Host]]:
    """The directory of NCCL Inspector's files on this machine that --nccl-inspector names, None for
    none; and the hosts, with `nodes:/DIR` as that of each which has none. Raises UsageError."""
    if given is None or not given.startswith(ON_NODES):
        return None if given is None else Path(given), hosts
    directory = given.removeprefix(ON_NODES)
    if not directory.startswith("/"):
        raise UsageError(f"--nccl-inspector {given}: write the whole path, as in {ON_NODES}/DIR")
    return None, [
        msgspec.structs.replace(host, nccl_inspector=host.nccl_inspector or directory)
        if host.role != SWITCH
        else host
        for host in hosts
    ]


def selected_hosts(path: Path | None, nodesets: Sequence[str]) -> list[Host]:
    """The nodes of --hosts and --host; this machine if neither is given. Raises UsageError."""
    hosts: list[Host] = []
    try:
        with said_if_slow(path or _CLUSTERSHELL):
            hosts += read(path) if path is not None else ()
            hosts += from_nodesets(list(nodesets)) if nodesets else ()
    except HostsFileError as error:
        raise UsageError(str(error)) from None
    counts = Counter(host.name for host in hosts)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise UsageError(f"{', '.join(twice)}: named by both --hosts and --host: remove one")
    return hosts or [Host(name=socket.gethostname(), via="local")]


def _running(
    wanted: JobFilter, sources: JobSources, named: Sequence[Host], environment: Mapping[str, str]
) -> tuple[Job, ...]:
    """The running jobs that a filter selects, at least one."""
    running: list[Job] = []
    reasons: list[str] = []
    try:
        running += event_loop.run(running_jobs(sources.squeue))
    except CommandError as error:
        reasons.append(f"{error}: {error.said}" if error.said else str(error))
    is_slurm_known = not reasons
    own, problem = _own_job(environment)
    if problem:
        reasons.append(problem)
    if own is not None and own.id not in {job.id for job in running}:
        running.append(own)
    is_found = bool(wanted.job) and any(wanted.matches(job) for job in running)
    kubectl = Kubectl(sources.kubectl) if sources.kubectl and not is_found else None
    if kubectl is not None and not kubectl.why_not_asked():
        try:
            running += event_loop.run(kubectl.ask())
        except CommandError as error:
            reasons.append(str(error))
    found = tuple(job for job in running if wanted.matches(job))
    # Processes show the number of their job alone.
    if wanted.job and not found and not is_slurm_known and named and sources.on_nodes is not None:
        say(
            f"{'; '.join(reasons)}: looking for {wanted} among the processes of"
            f" {plural(len(named), 'node')}"
        )
        seen = sources.on_nodes(named)
        running += seen
        found = tuple(job for job in seen if wanted.matches(job))
    if not found:
        others = f"of {plural(len(running), 'running job')}" if running else "no job runs"
        if not reasons:
            raise UsageError(f"{wanted}: no such job runs ({others}): see squeue")
        known = f" ({others} known otherwise)" if running else ""
        raise UsageError(f"{wanted}: {'; '.join(reasons)}{known}")
    return found


def _with_jobs(hosts: list[Host], jobs: Sequence[Job], wanted: JobFilter) -> list[Host]:
    """The hosts on which jobs run, and the switches."""
    table = JobTable(JobReport(source="", jobs=tuple(jobs)), [host.name for host in hosts])
    kept = [host for host in hosts if host.role == SWITCH or host.name in table.on_node]
    if not any(host.role != SWITCH for host in kept):
        raise UsageError(f"{wanted}: runs on none of these nodes: leave out --hosts and --host")
    return kept


def _hosts_of(jobs: Iterable[Job]) -> list[Host]:
    """The nodes of jobs, over SSH; this machine is read directly."""
    here = socket.gethostname().partition(".")[0]
    names = dict.fromkeys(node for job in jobs for node in job.nodes)
    if not names:
        raise UsageError("the job has no nodes: see squeue")
    return [
        msgspec.structs.replace(host, via="local") if host.name.partition(".")[0] == here else host
        for host in (Host(name=name, address=name) for name in names)
    ]


def _own_job(environment: Mapping[str, str]) -> tuple[Job | None, str]:
    """The Slurm job that this process is in, None if it is in none; and why it is not known."""
    number, listed = (environment.get(f"SLURM_JOB_{key}", "") for key in ("ID", "NODELIST"))
    if not number.isdecimal() or not listed:
        return None, ""
    try:
        nodes = tuple(node_sets.expand(Word(listed, 1)))
    except Bad as bad:
        return None, f"the nodes of job {number} are not known: SLURM_JOB_NODELIST: {bad.text}"
    array = environment.get("SLURM_ARRAY_JOB_ID"), environment.get("SLURM_ARRAY_TASK_ID")
    start = environment.get("SLURM_JOB_START_TIME", "")
    job = Job(
        id=number,
        shown_id="_".join(filter(None, array)) if all(array) else "",
        name=environment.get("SLURM_JOB_NAME", ""),
        user=environment.get("SLURM_JOB_USER", ""),
        partition=environment.get("SLURM_JOB_PARTITION", ""),
        nodes=nodes,
        start_ns=int(start) * 10**9 if start.isdecimal() else 0,
    )
    return job, ""


def _job_of_hostfile(path: Path, hosts: Sequence[Host]) -> Job | None:
    """The job that a hostfile of MPI or DeepSpeed is for; None for another hosts file."""
    if not path.is_file():
        return None  # A pipe, which has been read.
    text = path.read_text("utf-8", "replace")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    if not any(lines) or not all(_SLOTS.match(line) for line in lines if line):
        return None
    nodes = tuple(host.name for host in hosts if host.role != SWITCH)
    return Job(scheduler=HOSTFILE, name=printable(path.stem), nodes=nodes)
