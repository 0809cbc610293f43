"""A command that says which jobs run: asked beside the ticks, every 30 s and never more often.

One that hangs, floods or fails is killed and logged once; the jobs that were read last are kept,
with the reason why there are no newer ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import time
from abc import ABC, abstractmethod
from typing import Self

import msgspec

from fabmon.child_process import ChildProcess
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.wire.messages import clean

_LOG = logging.getLogger("fabmon.feeds")

PERIOD_S = 30.0
"""Seconds from one question to the next: each is work for the controller of the cluster."""
TIMEOUT_S = 20.0
_MAX_BYTES = 8 << 20
"""The longest answer: 80,000 jobs in lines. JSON of 8 MB takes 30 ms to parse."""
_MAX_ERROR_BYTES = 1 << 16
_NOT_CONFIGURED = b"Could not establish a configuration source"


class CommandError(Exception):
    """A command did not say which jobs run. `said` are its own words, empty where it said none."""

    def __init__(self, reason: str, said: str = "") -> None:
        super().__init__(reason)
        self.said = said


class NotConfigured(CommandError):
    """`squeue` is installed on a machine that is in no cluster."""


class JobCommand(ABC):
    """Asks while it is entered; `take` returns what is new.

    `name` is the command's, `what` it is asked for (`jobs`). Without `quotes_errors` its own words
    are not in reasons and logs: they may hold names. `known` are jobs that are known without
    asking, `always` those of them that remain.
    """

    def __init__(
        self,
        name: str,
        what: str,
        *,
        known: tuple[Job, ...] = (),
        always: tuple[Job, ...] = (),
        quotes_errors: bool,
        period_s: float,
    ) -> None:
        self.report = JobReport(source=name, jobs=known)
        self._what = what
        self._always = always
        self._quotes_errors = quotes_errors
        self._period_s = period_s
        self._new: JobReport | None = self.report if known else None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._ask_again())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    @abstractmethod
    async def ask(self) -> tuple[Job, ...]:
        """The jobs that run now. Raises CommandError."""

    @abstractmethod
    def why_not_asked(self) -> str:
        """Why there is nothing to ask; empty where there is."""

    def take(self) -> JobReport | None:
        """The last report, if it was not taken before."""
        new, self._new = self._new, None
        return new

    async def _ask_again(self) -> None:
        if reason := self.why_not_asked():
            self._new = self.report = msgspec.structs.replace(self.report, reason=reason)
            return
        while True:
            began_s = time.monotonic()
            try:
                jobs = (*await self.ask(), *self._always)
                self._note(JobReport(source=self.report.source, read_ns=time.time_ns(), jobs=jobs))
            except NotConfigured as error:
                self._new = self.report = msgspec.structs.replace(self.report, reason=str(error))
                return
            except CommandError as error:
                quoted = f": {error.said}" if error.said and self._quotes_errors else ""
                self._note(msgspec.structs.replace(self.report, reason=f"{error}{quoted}"))
            except Exception as error:
                _LOG.exception("internal error while asking %s", self.report.source)
                reason = f"internal error: {type(error).__name__}"
                self._note(msgspec.structs.replace(self.report, reason=reason))
            await asyncio.sleep(max(0.0, self._period_s - (time.monotonic() - began_s)))

    def _note(self, report: JobReport) -> None:
        if report.reason and not self.report.reason:
            _LOG.warning("%s are not known: %s", self._what, report.reason)
        elif self.report.reason and not report.reason:
            _LOG.warning("%s are known again", self._what)
        is_first = bool(report.read_ns) and not self.report.read_ns
        if is_first or not report.says_the_same(self.report):
            self._new = report
        self.report = report


class _Answer(ChildProcess):
    """What a process prints: `done` when it and all that hold its pipes have ended, or when it has
    printed too much: `problem` says so then."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self.printed = {1: bytearray(), 2: bytearray()}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.problem = ""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.printed[fd] += data
        most = _MAX_BYTES if fd == 1 else _MAX_ERROR_BYTES
        if len(self.printed[fd]) > most and not self.done.done():
            self.problem = f"{self._name} printed more than {most >> 10:,} KiB"
            self.done.set_result(None)
            self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.done.done():
            self.done.set_result(None)


async def run_command(
    arguments: list[str], timeout_s: float, environment: dict[str, str], name: str
) -> bytes:
    """What a command prints, which errors call by a name. None of its processes is left then.

    Raises CommandError.
    """
    answer = _Answer(name)
    try:
        await answer.start(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, environment=environment
        )
    except OSError as error:
        raise CommandError(f"{arguments[0]} cannot be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout_s):
            await answer.done
    except TimeoutError:
        raise CommandError(f"{name} has not answered for {timeout_s:g} s") from None
    finally:
        await answer.end()
    if answer.problem:
        raise CommandError(answer.problem)
    status, errors = answer.status, bytes(answer.printed[2])
    if status:
        if _NOT_CONFIGURED in errors:
            raise NotConfigured("Slurm is not configured on this machine")
        how = f"signal {-status}" if status < 0 else f"status {status}"
        last = errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
        raise CommandError(f"{name} ended with {how}", clean(last))
    return bytes(answer.printed[1])
