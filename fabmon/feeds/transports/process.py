"""Probes run by a process of this machine: the `exec` and `local` transports.

`exec` runs any command that carries standard input and output (ssh, kubectl exec, srun, podman
exec). `local` runs the probe on the console's own machine, with the same archive and loader.
"""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, cast

from fabmon.child_process import ChildProcess
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
    with_check,
)
from fabmon.feeds.transports.transport import LineSession, ProbeSession, StderrTail

if TYPE_CHECKING:
    from fabmon.feeds.transports.ssh_credentials import Credentials

_GRACE_S = 0.4
"""Seconds that a process group has to end after its input was closed, and after SIGTERM."""

_AFTER_EXIT_S = 0.2
"""Seconds to wait for output that is still in the pipes after the process ended."""

_AFTER_EOF_S = 1.0
"""Seconds that a process has to end after it closed its output."""

_OPENSSH_MESSAGES: tuple[tuple[str, type[NodeError], str], ...] = (
    ("IDENTIFICATION HAS CHANGED", HostKeyError, "host key changed"),
    ("Host key verification failed", HostKeyError, "host key"),
    ("Permission denied", LoginRefused, "permission denied"),
    ("Connection refused", Unreachable, "refused"),
    ("timed out", Unreachable, "timeout"),
    ("No route to host", Unreachable, "no route"),
    ("Could not resolve hostname", Unreachable, "unknown name"),
    ("Connection closed by", Unreachable, "closed"),
)
"""Text on OpenSSH's standard error -> the error class and its `cause`."""

_OPENSSH_FAILED = 255
_OPENSSH_REFUSED = "Permission denied ("
"""How OpenSSH ends when a login is refused; the methods that are left follow in the text. Other
programs write "Permission denied" for other reasons."""

Explain = Callable[[int, StderrTail], NodeError]
"""The error for an exit status (negative: a signal) and what was written on standard error."""


class ExecTransport:
    """Starts the command of each host. `ssh_config` is passed to the `openssh` preset with -F."""

    def __init__(self, settings: probe_input.ProbeSettings, ssh_config: str | None = None) -> None:
        self._settings = settings
        self._ssh_config = ssh_config
        self._reader = ThreadPoolExecutor(1, "fabmon-ssh-keys")
        self._credentials: Credentials | None = None

    async def open(self, host: Host) -> ProbeSession:
        """Start the probe. Raises Unreachable when the command is invalid or cannot be run."""
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
        explain = functools.partial(_explain_command, arguments[0], self._until_keys_change)
        return await _start(arguments, probe_input.payload(self._settings.of(host)), explain)

    async def close(self) -> None:
        """End the thread that looks at keys; sessions share no connection."""
        self._reader.shutdown(wait=False, cancel_futures=True)

    async def _until_keys_change(self) -> None:
        """Return when ssh_config, a key in ~/.ssh or the keys of the agent are different from now.

        All hosts share one look. Key files elsewhere that ssh_config names are not watched.
        """
        if self._credentials is None:
            # Imported after a refusal only: most commands are no ssh.
            from fabmon.feeds.transports.ssh_credentials import Credentials, config_files

            agent = os.environ.get("SSH_AUTH_SOCK")
            self._credentials = Credentials(
                config_files(self._ssh_config), self._reader, agents=[agent] if agent else []
            )
        await self._credentials.until_changed(await self._credentials.state())


class LocalTransport:
    """Starts the probe with the console's own Python, or with the host's `python` if it is set."""

    def __init__(self, settings: probe_input.ProbeSettings) -> None:
        self._settings = settings

    async def open(self, host: Host) -> ProbeSession:
        """Start the probe. Raises Unreachable when the interpreter cannot be run."""
        arguments = [host.python or sys.executable, "-E", "-c", probe_input.LOADER]
        return await _start(arguments, probe_input.payload(self._settings.of(host)), _explain_probe)

    async def close(self) -> None:
        """Do nothing: sessions share no connection."""


def _explain_command(
    program: str, until_keys_change: Callable[[], Awaitable[None]], status: int, stderr: StderrTail
) -> NodeError:
    missing = probe_input.no_python(stderr.text)
    if missing is not None:
        return missing
    name = program.rpartition("/")[2]
    if probe_input.quotes_shell_line(stderr.text):
        why = "the command ran no shell for {probe}: write sh -c {probe}"
        return Ended(f"{name} ended with {_status_text(status)}: {why}", "command")
    message = f"{name} ended with {_exit_text(status, stderr)}"
    for words, kind, cause in _OPENSSH_MESSAGES:
        if words in stderr.text:
            is_login = status == _OPENSSH_FAILED and _OPENSSH_REFUSED in stderr.text
            is_of_ssh = status == _OPENSSH_FAILED and (kind is not LoginRefused or is_login)
            error = kind(with_check(message, cause, "sshd") if is_of_ssh else message, cause)
            if isinstance(error, LoginRefused) and is_login:
                error.until_changed = until_keys_change
            return error
    return Ended(message)


def _explain_probe(status: int, stderr: StderrTail) -> NodeError:
    return Ended(f"the probe ended with {_exit_text(status, stderr)}")


def _exit_text(status: int, stderr: StderrTail) -> str:
    """How a process ended, as in `status 1: the last line on standard error`."""
    how, words = _status_text(status), stderr.last_line
    return f"{how}: {words}" if words else how


def _status_text(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"status {status}"


class ProcessSession(LineSession, ChildProcess):
    """A running process in its own process group, and the lines that it prints.

    The group is killed when its leader ends and when the session is closed, so that no part of a
    pipeline outlives it.
    """

    def __init__(self, explain: Explain) -> None:
        LineSession.__init__(self, self._pause, self._resume)
        ChildProcess.__init__(self)
        self._explain = explain

    def send(self, data: bytes) -> None:
        """Queue bytes for the process; dropped once it has closed its input."""
        pipe = self.pipe(0)
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.WriteTransport, pipe).write(data)

    async def close(self) -> None:
        """Close the input and end the group: SIGTERM after 0.4 s, SIGKILL after 0.8 s.

        If this call is cancelled, the group is killed at once.
        """
        self._lines.end(Ended("closed by the console"))
        pipe = self.pipe(0)
        if pipe is not None and not pipe.is_closing():
            # abort() drops input that was not written yet: the process no longer needs it.
            cast(asyncio.WriteTransport, pipe).abort()
        try:
            await self.wait(_GRACE_S)
            if not self.has_exited:
                self.kill(signal.SIGTERM)
                await self.wait(_GRACE_S)
        finally:
            await self.end()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """The process printed something."""
        if fd == 1:
            self._lines.feed(data)
            return
        self._stderr.feed(data)
        if self._stderr.is_flood:
            self._lines.end(Misbehaved("floods its standard error", "flood"))
            self.kill()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The process closed a pipe. Without its output it is useless: it gets 1 s to end."""
        if fd == 1 and not self.has_exited:
            asyncio.get_running_loop().call_later(_AFTER_EOF_S, self._end_without_output)

    def process_exited(self) -> None:
        """The process ended; the rest of its group is killed."""
        super().process_exited()
        # Its last output may still be in the pipes, which a child of it may keep open.
        asyncio.get_running_loop().call_later(_AFTER_EXIT_S, self._finish)

    def connection_lost(self, exc: Exception | None) -> None:
        """The process ended and all its output was read."""
        super().connection_lost(exc)
        self._finish()

    def _finish(self) -> None:
        if not self._lines.ended:
            self._lines.end(self._explain(self.status, self._stderr))

    def _end_without_output(self) -> None:
        if not self.has_exited:
            self._lines.end(Ended("closed its output without ending"))
            self.kill()

    def _pause(self) -> None:
        pipe = self.pipe(1)
        if pipe is not None:
            cast(asyncio.ReadTransport, pipe).pause_reading()

    def _resume(self) -> None:
        pipe = self.pipe(1)
        if pipe is not None and not pipe.is_closing():
            cast(asyncio.ReadTransport, pipe).resume_reading()


async def _start(arguments: Sequence[str], stdin: bytes, explain: Explain) -> ProcessSession:
    """Run a program without a shell and send it `stdin`. Raises Unreachable when it cannot run."""
    session = ProcessSession(explain)
    try:
        await session.start(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Unreachable(f"no command {arguments[0]!r} on this machine", "no command") from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"cannot run {arguments[0]!r}: {error}", "no command") from None
    session.send(stdin)
    return session
