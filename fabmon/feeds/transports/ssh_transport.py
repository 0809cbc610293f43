"""One probe at the other end of an SSH channel."""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh

from fabmon.fabric.model import Host
from fabmon.feeds import probe_input
from fabmon.feeds.errors import Ended, Misbehaved, NodeError, Unreachable
from fabmon.feeds.transports.ssh_dialer import Dialer, SshTarget, SshTimeouts
from fabmon.feeds.transports.transport import LineBuffer, ProbeSession, StderrTail

_CLOSE_S = 0.5
_MAX_ERRORS = 16 * 1024 * 1024


class SshSession(asyncssh.SSHClientSession[bytes]):
    """The channel's lines, and why it ended. It owns its connection."""

    def __init__(self) -> None:
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lines = LineBuffer(self._pause, self._resume)
        self._errors = StderrTail()
        self._error_bytes = 0
        self._exit = ""

    def own(self, connection: asyncssh.SSHClientConnection) -> None:
        """Close this connection too when the session is closed."""
        self._connection = connection

    async def readline(self) -> bytes:
        """The next line. Raises NodeError when the session ended or sent too long a line."""
        return await self._lines.readline()

    def send(self, data: bytes) -> None:
        """Queue bytes for the probe; dropped when it no longer listens."""
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError):
                self._channel.write(data)

    async def close(self) -> None:
        """Close the channel and the connection; a server that does not answer is cut off."""
        self._lines.end(Ended("closed by the console"))
        if self._channel is not None:
            self._channel.close()
        if self._connection is not None:
            self._connection.close()
            try:
                await asyncio.wait_for(self._connection.wait_closed(), _CLOSE_S)
            except TimeoutError:
                self._connection.abort()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        """The channel is open."""
        self._channel = chan

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        """The probe printed something."""
        if datatype is None:
            self._lines.feed(data)
            return
        self._errors.feed(data)
        self._error_bytes += len(data)
        if self._error_bytes > _MAX_ERRORS:
            self._lines.end(Misbehaved("floods its standard error", "flood"))
            if self._channel is not None:
                self._channel.close()

    def eof_received(self) -> bool:
        """No more output: close our side as well."""
        return False

    def exit_status_received(self, status: int) -> None:
        """The probe ended by itself."""
        self._exit = f"status {status}"

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """The probe was killed."""
        self._exit = f"signal {signal}"

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is gone."""
        self._lines.end(self._explain(exc))

    def _explain(self, exc: Exception | None) -> NodeError:
        missing = probe_input.no_python(self._errors.text)
        if missing is not None:
            return missing
        words = self._errors.last_line
        tail = f": {words}" if words else ""
        if self._exit:
            return Ended(f"the probe ended with {self._exit}{tail}")
        if exc is not None:
            return Ended(f"connection lost: {exc}{tail}", "connection lost")
        return Ended(f"the node closed the session{tail}")

    def _pause(self) -> None:
        if self._channel is not None:
            self._channel.pause_reading()

    def _resume(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()


# Probes over SSH: one connection a node, one channel on it, no terminal.


_WINDOW = 512 * 1024
"""Bytes a node may send ahead of what has been read: the most a flood can fill."""


class SshTransport:
    """Starts probes over SSH; jump connections are shared by all its hosts.

    `ssh_config` names a file to read instead of the user's and the system's.
    """

    def __init__(
        self,
        settings: probe_input.ProbeSettings,
        ssh_config: str | None = None,
        timeouts: SshTimeouts | None = None,
    ) -> None:
        self._settings = settings
        self._timeouts = timeouts or SshTimeouts()
        self._dialer = Dialer(ssh_config, self._timeouts)

    async def open(self, host: Host) -> ProbeSession:
        """Log in and start the probe. Raises NodeError."""
        target = SshTarget(host.address or host.name, host.user, host.port)
        connection = await self._dialer.dial(target)
        try:
            async with asyncio.timeout(self._timeouts.login_s):
                _, session = await connection.create_session(
                    SshSession,
                    probe_input.shell_line(host.python),
                    encoding=None,
                    request_pty=False,
                    x11_forwarding=False,
                    env=None,
                    send_env=None,
                    window=_WINDOW,
                )
        except BaseException as error:
            connection.abort()
            if isinstance(error, TimeoutError):
                raise Unreachable("logged in, and no session opened in time", "timeout") from None
            if isinstance(error, (asyncssh.Error, OSError)):
                raise Ended(f"logged in, and no command may be run: {error}") from None
            raise
        assert isinstance(session, SshSession)
        session.own(connection)
        session.send(probe_input.payload(self._settings.of(host)))
        return session

    async def close(self) -> None:
        """Close the jump connections; sessions are closed by those who opened them."""
        await self._dialer.close()
