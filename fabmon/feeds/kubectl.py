"""Asks Kubernetes which pods with GPUs run: `kubectl` on this machine, every 30 s.

Pods are asked for beside the ticks, and added to the jobs that Slurm reports. A `kubectl` that
hangs, floods or fails is killed and logged once; the pods that were read last are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import os
import re
import shlex
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

import msgspec

from fabmon.fabric.jobs.job import KUBERNETES, Job, JobReport
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import clean
from fabmon.feeds.squeue import PERIOD_S, SqueueError, run_command

_LOG = logging.getLogger("fabmon.feeds")

_TIMEOUT_S = 20.0
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


class Kubectl:
    """Asks `kubectl` while it is entered; `command` is how it is started, as in a shell.

    `kubectl` alone is asked only where its configuration exists: without one it would ask a server
    on this machine.
    """

    def __init__(
        self, command: str = "kubectl", period_s: float = PERIOD_S, timeout_s: float = _TIMEOUT_S
    ) -> None:
        self.jobs: tuple[Job, ...] = ()
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            _LOG.warning("[jobs] kubectl = %r: %s: pods are not asked for", command, error)
            self._command = []
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._reason = ""
        self._read_ns = 0
        self._is_new = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        is_configured = self._command != ["kubectl"] or _has_configuration()
        if self._command and is_configured and shutil.which(self._command[0]):
            self._task = asyncio.create_task(self._ask_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def added_to(self, report: JobReport | None) -> JobReport | None:
        """What the scheduler reports, with the pods; the same where no pod was ever read."""
        if not self._read_ns:
            return report
        if report is None or not report.read_ns:
            jobs = (*(report.jobs if report is not None else ()), *self.jobs)
            return JobReport(source="kubectl", read_ns=self._read_ns, jobs=jobs)
        source = f"{report.source} and kubectl"
        return msgspec.structs.replace(report, source=source, jobs=(*report.jobs, *self.jobs))

    async def with_pods(self, ticks: AsyncIterator[Tick]) -> AsyncIterator[Tick]:
        """The ticks, with the pods in their jobs."""
        last: JobReport | None = None
        async for tick in ticks:
            last = tick.jobs or last
            is_new, self._is_new = self._is_new, False
            if tick.jobs is not None or is_new:
                tick = msgspec.structs.replace(tick, jobs=self.added_to(last))
            yield tick

    async def ask(self) -> tuple[Job, ...]:
        """The jobs of pods that run now. Raises SqueueError."""
        arguments = [*self._command, *_OPTIONS, "-o", _TEMPLATE]
        output = await run_command(arguments, self._timeout_s, dict(os.environ), "kubectl")
        return jobs_of_pods(output.decode("utf-8", "replace"))

    async def _ask_again(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                jobs, reason = await self.ask(), ""
            except SqueueError as error:
                # Its own words may have addresses of the cluster.
                jobs, reason = self.jobs, str(error)
            except Exception as error:
                _LOG.exception("internal error while asking kubectl")
                jobs, reason = self.jobs, f"internal error: {type(error).__name__}"
            if reason and not self._reason:
                _LOG.warning("pods are not known: %s", reason)
            elif self._reason and not reason:
                _LOG.warning("pods are known again")
            self._reason = reason
            if not reason:
                self._is_new |= jobs != self.jobs or not self._read_ns
                self.jobs, self._read_ns = jobs, time.time_ns()
            await asyncio.sleep(max(0.0, self._period_s - (time.monotonic() - began_s)))


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
        fields = [clean(each)[:_MOST_TEXT] for each in line.split("|")]
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
    return max(0, int(at.timestamp())) * 1_000_000_000 if at.tzinfo is not None else 0
