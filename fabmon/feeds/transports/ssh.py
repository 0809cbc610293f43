"""Probes over SSH: one connection per node with one channel, without a terminal.

Importing this module imports asyncssh, which takes 0.2 s: it is imported when a host needs it.
"""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh

from fabmon.fabric.model import Host
from fabmon.feeds import probe_input
from fabmon.feeds.errors import Ended, Misbehaved, NodeError, Unreachable, with_check
from fabmon.feeds.transports.ssh_dialer import Dialer, SshTarget
from fabmon.feeds.transports.ssh_login import SshTimeouts, misconduct
from fabmon.feeds.transports.transport import LineSession, ProbeSession

_CLOSE_S = 0.5
_WINDOW_BYTES = 512 * 1024
"""Bytes that a node may send before they are read: the limit of a flood."""


class SshTransport:
    """Starts probes over SSH; all hosts share the connections to jump hosts.

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
                    window=_WINDOW_BYTES,
                )
        except BaseException as error:
            connection.abort()
            if (failure := misconduct(connection)) is not None:
                raise failure from None
            if isinstance(error, TimeoutError):
                raise Unreachable("logged in, but no session opened in time", "timeout") from None
            if isinstance(error, (asyncssh.Error, OSError)):
                raise Ended(f"logged in, but the server runs no command: {error}") from None
            raise
        assert isinstance(session, SshSession)
        session.own(connection)
        session.send(probe_input.payload(self._settings.of(host)))
        return session

    async def close(self) -> None:
        """Close the connections to jump hosts. Sessions are closed by their owners."""
        await self._dialer.close()


class SshSession(LineSession, asyncssh.SSHClientSession[bytes]):
    """A channel with a probe, and its connection."""

    def __init__(self) -> None:
        super().__init__(self._pause, self._resume)
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._exit = ""

    def own(self, connection: asyncssh.SSHClientConnection) -> None:
        """Close this connection together with the session."""
        self._connection = connection

    def send(self, data: bytes) -> None:
        """Queue bytes for the probe; dropped once it has closed its input."""
        if self._channel is not None:
            with contextlib.suppress(BrokenPipeError):
                self._channel.write(data)

    async def close(self) -> None:
        """Close the channel and the connection; after 0.5 s without an answer, abort it."""
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
        self._stderr.feed(data)
        if self._stderr.is_flood:
            self._lines.end(Misbehaved("floods its standard error", "flood"))
            if self._channel is not None:
                self._channel.close()

    def eof_received(self) -> bool:
        """The output ended: False closes the console's side too."""
        return False

    def exit_status_received(self, status: int) -> None:
        """The probe ended by itself."""
        self._exit = f"status {status}"

    def exit_signal_received(self, signal: str, core_dumped: bool, msg: str, lang: str) -> None:
        """The probe was killed."""
        self._exit = f"signal {signal}"

    def connection_lost(self, exc: Exception | None) -> None:
        """The channel is closed."""
        self._lines.end(self._end_error(exc))

    def _end_error(self, exc: Exception | None) -> NodeError:
        if (failure := misconduct(self._connection)) is not None:
            return failure
        missing = probe_input.no_python(self._stderr.text)
        if missing is not None:
            return missing
        words = self._stderr.last_line
        tail = f": {words}" if words else ""
        if self._exit:
            return Ended(f"the probe ended with {self._exit}{tail}")
        if exc is not None:
            # asyncssh says no more than this of a TCP connection that ends without a reason.
            why = "" if str(exc) in ("", "Connection lost") else f": {exc}"
            text = f"connection lost{why}{tail}"
            return Ended(with_check(text, "connection lost"), "connection lost")
        return Ended(f"the node closed the session{tail}")

    def _pause(self) -> None:
        if self._channel is not None:
            self._channel.pause_reading()

    def _resume(self) -> None:
        if self._channel is not None:
            self._channel.resume_reading()
