"""Asks Slurm which jobs run: `squeue` on this machine, every 30 s and never more often.

The queue is asked beside the ticks, and what it answers is added to the next tick. A `squeue` that
hangs, floods or fails is killed and logged once; the jobs that were read last are kept, with the
reason why there are no newer ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from typing import Self

import msgspec

from fabmon.fabric.jobs import squeue_output
from fabmon.fabric.jobs.job import HOSTFILE, Job, JobReport
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import clean

_LOG = logging.getLogger("fabmon.feeds")

PERIOD_S = 30.0
"""Seconds from one question to the next: each is work for the controller of the cluster."""
_TIMEOUT_S = 20.0
_MAX_BYTES = 8 << 20
"""The longest answer: 80,000 jobs in lines. JSON of 8 MB takes 30 ms to parse."""
_MAX_ERROR_BYTES = 1 << 16
_REAP_S = 1.0
_NOT_CONFIGURED = b"Could not establish a configuration source"


class SqueueError(Exception):
    """`squeue` did not say which jobs run. `said` are its own words, empty where it said none."""

    def __init__(self, reason: str, said: str = "") -> None:
        super().__init__(reason)
        self.said = said


class NotConfigured(SqueueError):
    """`squeue` is installed on a machine that is in no cluster."""


class Squeue:
    """Asks `squeue` while it is entered; `take` returns what is new.

    `command` is how it is started, as in a shell: `squeue`, or `ssh head squeue`. Without
    `quotes_errors` its own words are not in reasons and logs: they may hold names. `known` are jobs
    that are known without asking; those of hostfiles remain. After a failure the other form of
    output is asked for.
    """

    def __init__(
        self,
        command: str = "squeue",
        *,
        known: Sequence[Job] = (),
        quotes_errors: bool = True,
        period_s: float = PERIOD_S,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._command = command
        self._quotes_errors = quotes_errors
        self._period_s = period_s
        self._timeout_s = timeout_s
        self._wants_json = False
        self._named = tuple(job for job in known if job.scheduler == HOSTFILE)
        self._report = JobReport(source="squeue", jobs=tuple(known))
        self._new: JobReport | None = self._report if known else None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._ask_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def take(self) -> JobReport | None:
        """The last report, if it was not taken before."""
        new, self._new = self._new, None
        return new

    async def with_jobs(self, ticks: AsyncIterator[Tick]) -> AsyncIterator[Tick]:
        """The ticks, with what `squeue` reported since the one before."""
        async for tick in ticks:
            report = self.take()
            yield tick if report is None else msgspec.structs.replace(tick, jobs=report)

    async def ask(self) -> tuple[Job, ...]:
        """The jobs that run now. Raises SqueueError."""
        mark = secrets.token_hex(4)
        options = ["--json"] if self._wants_json else squeue_output.line_options(mark)
        try:
            inherited = squeue_output.environment(dict(os.environ))
            arguments = [*_arguments(self._command), *options]
            output = await run_command(arguments, self._timeout_s, inherited, "squeue")
            # Node lists of large jobs take milliseconds each.
            parsed = await asyncio.to_thread(squeue_output.parse, output, mark)
        except SqueueError:
            self._wants_json = not self._wants_json
            raise
        except squeue_output.NotSqueue as error:
            self._wants_json = not self._wants_json
            raise SqueueError("squeue printed no list of jobs", str(error)) from None
        if parsed.unread and not parsed.jobs:
            raise SqueueError(f"none of {parsed.unread} jobs of squeue could be read")
        return parsed.jobs

    async def _ask_again(self) -> None:
        if reason := why_not_asked(self._command):
            self._new = self._report = msgspec.structs.replace(self._report, reason=reason)
            return
        while True:
            began_s = time.monotonic()
            try:
                jobs = (*await self.ask(), *self._named)
                self._note(JobReport(source=self._report.source, read_ns=time.time_ns(), jobs=jobs))
            except NotConfigured as error:
                self._new = self._report = msgspec.structs.replace(self._report, reason=str(error))
                return
            except SqueueError as error:
                quoted = f": {error.said}" if error.said and self._quotes_errors else ""
                self._note(msgspec.structs.replace(self._report, reason=f"{error}{quoted}"))
            except Exception as error:
                _LOG.exception("internal error while asking squeue")
                reason = f"internal error: {type(error).__name__}"
                self._note(msgspec.structs.replace(self._report, reason=reason))
            await asyncio.sleep(self._period_s - (time.monotonic() - began_s))

    def _note(self, report: JobReport) -> None:
        if report.reason and not self._report.reason:
            _LOG.warning("jobs are not known: %s", report.reason)
        elif self._report.reason and not report.reason:
            _LOG.warning("jobs are known again")
        is_first = bool(report.read_ns) and not self._report.read_ns
        if is_first or not report.says_the_same(self._report):
            self._new = report
        self._report = report


async def running_jobs(command: str) -> tuple[Job, ...]:
    """The jobs that run now, by one question in either form. Raises SqueueError."""
    squeue = Squeue(command)
    with contextlib.suppress(SqueueError):
        return await squeue.ask()
    return await squeue.ask()


def why_not_asked(command: str) -> str:
    """Why there is nothing to ask; empty where there is."""
    try:
        arguments = _arguments(command)
    except SqueueError as error:
        return str(error)
    if not arguments:
        return "[jobs] squeue is empty in fabmon.toml"
    missing = shutil.which(arguments[0]) is None
    return f"{arguments[0]} is not on the PATH of this machine" if missing else ""


def _arguments(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise SqueueError(f"[jobs] squeue = {command!r}: {error}") from None


class _Answer(asyncio.SubprocessProtocol):
    """What a process prints: `done` when it and all that hold its pipes have ended, or when it has
    printed too much: `problem` says so then."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.printed = {1: bytearray(), 2: bytearray()}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.exited = asyncio.Event()
        self.problem = ""
        self._process = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._process = transport.get_pid() or 0

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.printed[fd] += data
        most = _MAX_BYTES if fd == 1 else _MAX_ERROR_BYTES
        if len(self.printed[fd]) > most and not self.done.done():
            self.problem = f"{self._name} printed more than {most >> 10:,} KiB"
            self.done.set_result(None)
            self.kill()

    def process_exited(self) -> None:
        self.exited.set()
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def kill(self) -> None:
        """Kill the process and its children, whether it has ended or not."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)


async def run_command(
    arguments: list[str], timeout_s: float, environment: dict[str, str], name: str
) -> bytes:
    """What a command prints, which errors call by a name. Raises SqueueError. None of its processes
    is left then."""
    try:
        transport, answer = await asyncio.get_running_loop().subprocess_exec(
            lambda: _Answer(name),
            *arguments,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise SqueueError(f"{arguments[0]} cannot be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout_s):
            await answer.done
    except TimeoutError:
        raise SqueueError(f"{name} has not answered for {timeout_s:g} s") from None
    finally:
        answer.kill()
        # A process in an uninterruptible read of a file system does not end when it is killed.
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(answer.exited.wait(), _REAP_S)
        finally:
            transport.close()
    if answer.problem:
        raise SqueueError(answer.problem)
    status, errors = transport.get_returncode(), bytes(answer.printed[2])
    if status:
        if _NOT_CONFIGURED in errors:
            raise NotConfigured("Slurm is not configured on this machine")
        how = f"signal {-status}" if status < 0 else f"status {status}"
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise SqueueError(f"{name} ended with {how}", clean(last))
    return bytes(answer.printed[1])
