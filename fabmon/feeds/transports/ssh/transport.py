"""Probes over SSH: one connection a node, one channel on it, no terminal."""

from __future__ import annotations

import asyncio

import asyncssh

from fabmon.fabric.model import Host
from fabmon.feeds import bootstrap
from fabmon.feeds.errors import Ended, Unreachable
from fabmon.feeds.transports.base import Session
from fabmon.feeds.transports.ssh.dialer import Dialer, Target, Timeouts
from fabmon.feeds.transports.ssh.session import SshSession

_WINDOW = 512 * 1024
"""Bytes a node may send ahead of what has been read: the most a flood can fill."""


class SshTransport:
    """Starts probes over SSH; jump connections are shared by all its hosts.

    `ssh_config` names a file to read instead of the user's and the system's.
    """

    def __init__(
        self,
        settings: bootstrap.Settings,
        ssh_config: str | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._settings = settings
        self._timeouts = timeouts or Timeouts()
        self._dialer = Dialer(ssh_config, self._timeouts)

    async def open(self, host: Host) -> Session:
        """Log in and start the probe. Raises NodeError."""
        target = Target(host.address or host.name, host.user, host.port)
        connection = await self._dialer.dial(target)
        try:
            async with asyncio.timeout(self._timeouts.login_s):
                _, session = await connection.create_session(
                    SshSession,
                    bootstrap.shell_line(host.python),
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
        session.send(bootstrap.payload(self._settings.of(host)))
        return session

    async def close(self) -> None:
        """Close the jump connections; sessions are closed by those who opened them."""
        await self._dialer.close()
