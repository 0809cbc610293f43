"""Asks Slurm which jobs run: `squeue` on this machine; the answer is added to the next tick."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import shutil
from collections.abc import AsyncIterator, Sequence

import msgspec

from fabmon.fabric.jobs import squeue_output
from fabmon.fabric.jobs.job import HOSTFILE, Job
from fabmon.fabric.tick import Tick
from fabmon.feeds.job_command import PERIOD_S, TIMEOUT_S, CommandError, JobCommand, run_command


class Squeue(JobCommand):
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
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        super().__init__(
            "squeue",
            "jobs",
            known=tuple(known),
            always=tuple(job for job in known if job.scheduler == HOSTFILE),
            quotes_errors=quotes_errors,
            period_s=period_s,
        )
        self._command = command
        self._timeout_s = timeout_s
        self._wants_json = False

    async def with_jobs(self, ticks: AsyncIterator[Tick]) -> AsyncIterator[Tick]:
        """The ticks, with what `squeue` reported since the one before, and when."""
        read_ns = 0
        async for tick in ticks:
            report, now_ns = self.take(), self.report.read_ns
            if report is not None or now_ns != read_ns:
                again_ns = now_ns if now_ns != read_ns else 0
                tick = msgspec.structs.replace(tick, jobs=report, jobs_read_ns=again_ns)
            read_ns = now_ns
            yield tick

    async def ask(self) -> tuple[Job, ...]:
        """The jobs that run now. Raises CommandError."""
        mark = secrets.token_hex(4)
        options = ["--json"] if self._wants_json else squeue_output.line_options(mark)
        try:
            inherited = squeue_output.environment(dict(os.environ))
            arguments = [*_arguments(self._command), *options]
            output = await run_command(arguments, self._timeout_s, inherited, "squeue")
            # Node lists of large jobs take milliseconds each.
            parsed = await asyncio.to_thread(squeue_output.parse, output, mark)
        except CommandError:
            self._wants_json = not self._wants_json
            raise
        except squeue_output.NotSqueue as error:
            self._wants_json = not self._wants_json
            raise CommandError("squeue printed no list of jobs", str(error)) from None
        if parsed.unread and not parsed.jobs:
            raise CommandError(f"none of {parsed.unread} jobs of squeue could be read")
        return parsed.jobs

    def why_not_asked(self) -> str:
        """Why there is nothing to ask: no such command."""
        return why_not_asked(self._command)


async def running_jobs(command: str) -> tuple[Job, ...]:
    """The jobs that run now, by one question in either form. Raises CommandError."""
    squeue = Squeue(command)
    with contextlib.suppress(CommandError):
        return await squeue.ask()
    return await squeue.ask()


def why_not_asked(command: str) -> str:
    """Why there is nothing to ask; empty where there is."""
    try:
        arguments = _arguments(command)
    except CommandError as error:
        return str(error)
    if not arguments:
        return "[jobs] squeue is empty in fabmon.toml"
    missing = shutil.which(arguments[0]) is None
    return f"{arguments[0]} is not on the PATH of this machine" if missing else ""


def _arguments(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise CommandError(f"[jobs] squeue = {command!r}: {error}") from None
