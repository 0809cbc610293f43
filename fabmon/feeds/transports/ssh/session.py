"""One probe at the other end of an SSH channel."""

from __future__ import annotations

import asyncio
import contextlib

import asyncssh

from fabmon.feeds import bootstrap
from fabmon.feeds.errors import Ended, Misbehaved, NodeError
from fabmon.feeds.transports.lines import Lines, Tail

_CLOSE_S = 0.5
_MAX_ERRORS = 16 * 1024 * 1024


class SshSession(asyncssh.SSHClientSession[bytes]):
    """The channel's lines, and why it ended. It owns its connection."""

    def __init__(self) -> None:
        self._channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._connection: asyncssh.SSHClientConnection | None = None
        self._lines = Lines(self._pause, self._resume)
        self._errors = Tail()
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
        missing = bootstrap.no_python(self._errors.text)
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
