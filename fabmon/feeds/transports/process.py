"""A probe behind a process of this machine: its pipes are the session."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import cast

from fabmon.fabric.hosts import exec_command
from fabmon.fabric.model import Host
from fabmon.feeds import probe_input
from fabmon.feeds.errors import (
    Ended,
    HostKeyError,
    LoginRefused,
    Misbehaved,
    NodeError,
    Unreachable,
)
from fabmon.feeds.transports.transport import LineBuffer, ProbeSession, StderrTail

_GRACE_S = 0.4
_AFTER_EXIT_S = 0.2
_AFTER_EOF_S = 1.0
_MAX_ERRORS = 16 * 1024 * 1024

Explain = Callable[[int, StderrTail], NodeError]
"""What an exit status (negative: a signal) and a standard error mean."""


class ProcessSession(asyncio.SubprocessProtocol):
    """A running process in a process group of its own, and the lines it prints.

    Made by `start`. The group is killed when its leader ends and when the session is closed: no
    part of a pipeline outlives it.
    """

    def __init__(self, explain: Explain) -> None:
        self._explain = explain
        self._errors = StderrTail()
        self._error_bytes = 0
        self._lines = LineBuffer(self._pause, self._resume)
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.Event()

    async def readline(self) -> bytes:
        """The next line. Raises NodeError when the process ended or sent too long a line."""
        return await self._lines.readline()

    def send(self, data: bytes) -> None:
        """Queue bytes for the process; dropped when it no longer listens."""
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(data)

    async def close(self) -> None:
        """Close its standard input, then end its group: asked first, killed within 0.8 s.

        Cancelled, it is killed at once.
        """
        self._lines.end(Ended("closed by the console"))
        if self._transport is None:
            return
        pipe = self._pipe(0)
        if pipe is not None and not pipe.is_closing():
            # What it has not read by now it will not need.
            cast(asyncio.WriteTransport, pipe).abort()
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if not self._exited.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._exited.wait(), _GRACE_S)
                if not self._exited.is_set():
                    self._kill(number)
        except asyncio.CancelledError:
            # What is left open now is closed when it is collected, by a loop that is no more.
            self._kill(signal.SIGKILL)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._exited.wait(), _GRACE_S)
            raise
        finally:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The process runs."""
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """It printed something."""
        if fd == 1:
            self._lines.feed(data)
            return
        self._errors.feed(data)
        self._error_bytes += len(data)
        if self._error_bytes > _MAX_ERRORS:
            self._lines.end(Misbehaved("floods its standard error", "flood"))
            self._kill(signal.SIGKILL)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """It closed a pipe: of no use without its output, so it is given a second to end."""
        if fd == 1 and not self._exited.is_set():
            asyncio.get_running_loop().call_later(_AFTER_EOF_S, self._give_up)

    def process_exited(self) -> None:
        """It ended; what it left in its group ends too."""
        self._exited.set()
        self._kill(signal.SIGKILL)
        # Its last words may still be in the pipes, and a child of it may keep them open.
        asyncio.get_running_loop().call_later(_AFTER_EXIT_S, self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        """It ended and all it printed has been read."""
        self._finish()

    def _finish(self) -> None:
        if self._transport is not None and not self._lines.ended:
            self._lines.end(self._explain(self._transport.get_returncode() or 0, self._errors))

    def _give_up(self) -> None:
        if not self._exited.is_set():
            self._lines.end(Ended("closed its output without ending"))
            self._kill(signal.SIGKILL)

    def _pause(self) -> None:
        pipe = self._pipe(1)
        if pipe is not None:
            cast(asyncio.ReadTransport, pipe).pause_reading()

    def _resume(self) -> None:
        pipe = self._pipe(1)
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.ReadTransport, pipe).resume_reading()

    def _pipe(self, fd: int) -> asyncio.BaseTransport | None:
        return self._transport.get_pipe_transport(fd) if self._transport is not None else None

    def _kill(self, number: signal.Signals) -> None:
        if self._transport is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._transport.get_pid(), number)


async def start(arguments: Sequence[str], first: bytes, explain: Explain) -> ProcessSession:
    """Run a program without any shell and send it `first`. Raises Unreachable when it cannot."""
    _watch_children_without_threads()
    loop = asyncio.get_running_loop()
    try:
        _, session = await loop.subprocess_exec(
            lambda: ProcessSession(explain), *arguments, start_new_session=True
        )
    except FileNotFoundError:
        raise Unreachable(f"no command {arguments[0]!r} on this machine", "no command") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"cannot run {arguments[0]!r}: {error}", "no command") from None
    session.send(first)
    return session


def why(status: int, errors: StderrTail) -> str:
    """How a process ended, for a person: `status 1: its last words`."""
    how = f"signal {-status}" if status < 0 else f"status {status}"
    words = errors.last_line
    return f"{how}: {words}" if words else how


def _watch_children_without_threads() -> None:
    """Python 3.11 waits for each child in a thread of its own: a thousand for a thousand nodes."""
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


# Any command that carries standard input and output: ssh, kubectl exec, srun, podman exec.


_SAYINGS: tuple[tuple[str, type[NodeError], str], ...] = (
    ("IDENTIFICATION HAS CHANGED", HostKeyError, "host key changed"),
    ("Host key verification failed", HostKeyError, "host key"),
    ("Permission denied", LoginRefused, "permission denied"),
    ("Connection refused", Unreachable, "refused"),
    ("timed out", Unreachable, "timeout"),
    ("No route to host", Unreachable, "no route"),
    ("Could not resolve hostname", Unreachable, "unknown name"),
    ("Connection closed by", Unreachable, "closed"),
)
"""What OpenSSH says on standard error, and what it means."""


class ExecTransport:
    """Starts the command of each host. `ssh_config` is handed to the `openssh` preset with -F."""

    def __init__(self, settings: probe_input.ProbeSettings, ssh_config: str | None = None) -> None:
        self._settings = settings
        self._ssh_config = ssh_config

    async def open(self, host: Host) -> ProbeSession:
        """Start the probe. Raises Unreachable when the command is wrong or cannot be run."""
        template = host.command or ""
        try:
            arguments = exec_command.fill(
                exec_command.split(template),
                node=host.address or host.name,
                python=host.python or "python3",
                probe=probe_input.shell_line(host.python),
                loader=probe_input.LOADER,
                user=host.user,
                port=host.port,
            )
        except ValueError as error:
            raise Unreachable(str(error), "command") from None
        if template == "openssh" and self._ssh_config is not None:
            arguments[1:1] = ["-F", self._ssh_config]
        explain = functools.partial(_explain, arguments[0])
        return await start(arguments, probe_input.payload(self._settings.of(host)), explain)

    async def close(self) -> None:
        """Nothing is shared."""


def _explain(program: str, status: int, errors: StderrTail) -> NodeError:
    missing = probe_input.no_python(errors.text)
    if missing is not None:
        return missing
    message = f"{program.rpartition('/')[2]} ended with {why(status, errors)}"
    for words, kind, cause in _SAYINGS:
        if words in errors.text:
            return kind(message, cause)
    return Ended(message)


# This machine: the same archive, loader and pipe as everywhere else, without a network.


class LocalTransport:
    """Starts the probe with the console's own Python, or the host's `python` when it is set."""

    def __init__(self, settings: probe_input.ProbeSettings) -> None:
        self._settings = settings

    async def open(self, host: Host) -> ProbeSession:
        """Start the probe. Raises Unreachable when the interpreter cannot be run."""
        python = host.python or sys.executable
        arguments = [python, "-E", "-c", probe_input.LOADER]
        return await start(arguments, probe_input.payload(self._settings.of(host)), _explain_local)

    async def close(self) -> None:
        """Nothing is shared."""


def _explain_local(status: int, errors: StderrTail) -> NodeError:
    return Ended(f"the probe ended with {why(status, errors)}")
