"""Asks Kubernetes which pods with GPUs run: `kubectl` on this machine, every 30 s.

Pods are asked for beside the ticks, and added to the jobs that Slurm reports. A `kubectl` that
hangs, floods or fails is killed and logged once; the pods that were read last are kept.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import os
import re
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from fabmon.fabric.jobs.job import KUBERNETES, Job, JobReport, start_ns_of
from fabmon.fabric.tick import Tick
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wire.messages import clean
from fabmon.feeds.job_command import PERIOD_S, TIMEOUT_S, CommandError, JobCommand, run_command

_LOG = logging.getLogger("fabmon.feeds")

_MOST_PODS = 20_000
_MOST_TEXT = 253
"""The longest name of a node or pod (RFC 1123)."""
_UID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JOB_LABELS = (
    "jobset.sigs.k8s.io/jobset-name",
    "training.kubeflow.org/job-name",
    "volcano.sh/job-name",
    "ray.io/cluster",
    "batch.kubernetes.io/job-name",
    "job-name",
)
"""Labels with the name of the job that a pod is part of; the first that a pod has counts."""
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


def _field(path: str) -> str:
    return "{" + path + "}"


def _escaped(key: str) -> str:
    return key.replace(".", r"\.")


_COLUMNS = (
    ".metadata.uid",
    ".metadata.namespace",
    ".metadata.name",
    ".spec.nodeName",
    ".status.startTime",
    *(f".spec.containers[*].resources.limits.{_escaped(each)}" for each in _GPUS),
    *(f".metadata.labels.{_escaped(each)}" for each in _JOB_LABELS),
)
_TEMPLATE = "jsonpath={range .items[*]}" + '{"|"}'.join(map(_field, _COLUMNS)) + '{"\\n"}{end}'
_OPTIONS = ["get", "pods", "--all-namespaces", "--field-selector=status.phase=Running"]


class Kubectl(JobCommand):
    """Asks `kubectl` while it is entered; `command` is how it is started, as in a shell.

    `kubectl` alone is asked only where its configuration exists: without one it would ask a server
    on this machine.
    """

    def __init__(
        self, command: str = "kubectl", period_s: float = PERIOD_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        # Its own words may have addresses of the cluster.
        super().__init__("kubectl", "pods", quotes_errors=False, period_s=period_s)
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            _LOG.warning("[jobs] kubectl = %r: %s: pods are not asked for", command, error)
            self._command = []
        self._timeout_s = timeout_s
        self._has_left_out = False

    def why_not_asked(self) -> str:
        """Why there is nothing to ask: no such command, or no configuration of it."""
        if not self._command or shutil.which(self._command[0]) is None:
            return "kubectl is not on the PATH of this machine"
        is_configured = self._command != ["kubectl"] or _has_configuration()
        return "" if is_configured else "kubectl is not configured on this machine"

    def added_to(self, report: JobReport | None) -> JobReport | None:
        """What the scheduler reports, with the pods; the same where no pod was ever read.

        Where the pods could not be read since, a note says why, and from when they are.
        """
        own = self.report
        if not own.read_ns:
            return report
        if report is None or not report.read_ns:
            known = report.jobs if report is not None else ()
            return msgspec.structs.replace(own, jobs=(*known, *own.jobs))
        note = f"pods as of {time_of_day(own.read_ns)}: {own.reason}"
        return msgspec.structs.replace(
            report,
            source=f"{report.source} and kubectl",
            jobs=(*report.jobs, *own.jobs),
            notes=(*report.notes, note) if own.reason else report.notes,
        )

    async def with_pods(self, ticks: AsyncIterator[Tick]) -> AsyncIterator[Tick]:
        """The ticks, with the pods in their jobs."""
        last: JobReport | None = None
        async for tick in ticks:
            last = tick.jobs or last
            # Without a pod ever read there is nothing to add.
            is_new = self.take() is not None and bool(self.report.read_ns)
            if tick.jobs is not None or is_new:
                tick = msgspec.structs.replace(tick, jobs=self.added_to(last))
            yield tick

    async def ask(self) -> tuple[Job, ...]:
        """The jobs of pods that run now. Raises CommandError."""
        arguments = [*self._command, *_OPTIONS, "-o", _TEMPLATE]
        output = await run_command(arguments, self._timeout_s, dict(os.environ), "kubectl")
        text = output.decode("utf-8", "replace")
        jobs = await asyncio.to_thread(jobs_of_pods, text)
        if not jobs and text.strip() and not _UID.match(text):
            raise CommandError("kubectl printed no pods that can be read")
        left_out = text.count("\n") - _MOST_PODS
        if left_out > 0 and not self._has_left_out:
            self._has_left_out = True
            _LOG.warning("kubectl printed more than %d pods: %d are left out", _MOST_PODS, left_out)
        return jobs


def _has_configuration() -> bool:
    try:
        usual = Path.home() / ".kube" / "config"
    except RuntimeError:
        return bool(os.environ.get("KUBECONFIG"))
    return bool(os.environ.get("KUBECONFIG")) or usual.is_file()


def jobs_of_pods(text: str) -> tuple[Job, ...]:
    """The jobs in lines of our template: pods of one namespace and job name are one job.

    Pods without a label of a job and without GPUs are left out, as are lines that are none.
    """
    pods: dict[tuple[str, str], list[tuple[str, str, int]]] = {}
    for line in text.splitlines()[:_MOST_PODS]:
        fields = [clean(each)[:_MOST_TEXT] for each in line.split("|", len(_COLUMNS))]
        if len(fields) != len(_COLUMNS) or not _UID.fullmatch(fields[0]):
            continue
        uid, namespace, name, node, start = fields[:5]
        gpus, labels = fields[5 : 5 + len(_GPUS)], fields[5 + len(_GPUS) :]
        job = next(filter(None, labels), "")
        if node and (job or any(gpus)):
            pods.setdefault((namespace, job or name), []).append((uid, node, _time_ns(start)))
    return tuple(
        Job(
            scheduler=KUBERNETES,
            id=f"{namespace}/{name}",
            partition=namespace,
            nodes=tuple(dict.fromkeys(node for _, node, _ in own)),
            pods=tuple(uid for uid, _, _ in own),
            start_ns=min((start_ns for _, _, start_ns in own if start_ns), default=0),
        )
        for (namespace, name), own in sorted(pods.items())
    )


def _time_ns(text: str) -> int:
    """Nanoseconds since 1970 of `2026-05-04T20:01:00Z`; 0 where it is none."""
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        return 0
    # What Go prints of no time is in the year 1.
    return start_ns_of(at.timestamp()) if at.tzinfo is not None else 0
