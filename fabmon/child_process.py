"""Processes that fabmon starts: each has ended when the one who started it is done with it.

A process that outlives the event loop is reaped by nobody. asyncio's own start and wait can be
interrupted: by ctrl+c, and by a second cancellation while the first one is being dealt with.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any, Self, cast

_REAP_S = 1.0
"""Seconds that a process has to end after SIGKILL. One in an uninterruptible read of a file system
does not end: it is left."""


class ChildProcess(asyncio.SubprocessProtocol):
    """A process that leads a group of its own. The rest of the group is killed when it ends."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._exited: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._transport: asyncio.SubprocessTransport | None = None

    async def start(
        self, *arguments: str, stdin: int, stdout: int, environment: Mapping[str, str] | None = None
    ) -> Self:
        """Run a program without a shell. Raises OSError, ValueError."""
        _watch_children_without_threads()
        loop = asyncio.get_running_loop()
        starting = asyncio.ensure_future(
            loop.subprocess_exec(
                lambda: self,
                *arguments,
                stdin=stdin,
                stdout=stdout,
                env=environment,
                start_new_session=True,
            )
        )
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            try:
                await _wait_undisturbed(starting)
            finally:
                # At the end of the loop asyncio cancels its own start, which then waits for ever.
                starting.cancel()
                await self.end()
            raise
        starting.result()
        return self

    @property
    def status(self) -> int:
        """How it ended: its exit status, or minus the number of the signal; 0 before."""
        return (self._transport.get_returncode() or 0) if self._transport is not None else 0

    @property
    def has_exited(self) -> bool:
        """Whether the process has ended."""
        return self._exited.done()

    async def wait(self, timeout_s: float | None = None) -> None:
        """Return when the process has ended, or after the timeout."""
        # Who is cancelled while it awaits a future cancels the future.
        await asyncio.wait([self._exited], timeout=timeout_s)

    async def wait_for_output(self, timeout_s: float) -> None:
        """Return when all that hold its pipes have ended too, or after the timeout."""
        await asyncio.wait([self._closed], timeout=timeout_s)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to the whole group, whether its leader has ended or not."""
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)

    async def end(self) -> None:
        """Kill the group, wait for its leader and close the pipes, also while cancelled."""
        if self._transport is None:
            return
        try:
            if not self._exited.done():
                self.kill()
                await _wait_undisturbed(self._exited)
        finally:
            stdin = cast(asyncio.WriteTransport | None, self.pipe(0))
            if stdin is not None and (not stdin.is_closing() or stdin.get_write_buffer_size()):
                # Input that was not written yet would keep the pipe open.
                stdin.abort()
            self._transport.close()

    def pipe(self, fd: int) -> asyncio.BaseTransport | None:
        """Its standard input, output or error output, where it is a pipe."""
        return self._transport.get_pipe_transport(fd) if self._transport is not None else None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process was started."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def process_exited(self) -> None:
        """The process ended."""
        self._exited.set_result(None)
        self.kill()

    def connection_lost(self, exc: Exception | None) -> None:
        """The process ended and all its output was read."""
        self._closed.set_result(None)


async def _wait_undisturbed(future: asyncio.Future[Any]) -> None:
    """Wait for what ends soon, for a second; raises only then that it was cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    until_s, cancelled = loop.time() + _REAP_S, None
    while not future.done() and loop.time() < until_s:
        try:
            await asyncio.wait([future], timeout=until_s - loop.time())
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _watch_children_without_threads() -> None:
    """Replace the child watcher of Python 3.11, which needs a thread for each child process."""
    if sys.version_info < (3, 12):
        policy = asyncio.get_event_loop_policy()
        watcher = policy.get_child_watcher()
        if isinstance(watcher, asyncio.ThreadedChildWatcher):
            try:
                os.close(os.pidfd_open(os.getpid()))
            except OSError:
                return
            watcher = asyncio.PidfdChildWatcher()
            policy.set_child_watcher(watcher)
        if not watcher.is_active():
            watcher.attach_loop(asyncio.get_running_loop())
