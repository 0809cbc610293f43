"""Watches one login, so that a failure can be told by how far it came."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

import asyncssh

from fabmon.feeds.errors import HostKeyError, LoginRefused, NodeError, Unreachable
from fabmon.feeds.transports.ssh import keys


class Watcher(asyncssh.SSHClient):
    """The client side of one connection: refuses unknown keys, answers no questions, takes notes.

    `limit` is moved as the login proceeds: `silence_s` from the TCP connection to the key exchange,
    then `login_s` to the end of the login. `where` is how messages call the other end; `has_keys`
    tells whether there are key files to offer.
    """

    def __init__(
        self,
        *,
        where: str,
        jump: str,
        known: asyncssh.SSHKnownHosts,
        files: Sequence[str],
        has_keys: bool,
        limit: asyncio.Timeout,
        silence_s: float,
        login_s: float,
    ) -> None:
        self._where = where
        self._jump = jump
        self._known = known
        self._files = files
        self._has_keys = has_keys or bool(os.environ.get("SSH_AUTH_SOCK"))
        self._limit = limit
        self._silence_s = silence_s
        self._login_s = login_s
        self._connection: asyncssh.SSHClientConnection | None = None
        self._user: str | None = None
        self._asked: list[str] = []
        self._refusal: HostKeyError | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """TCP is up."""
        self._connection = conn
        self._extend(self._silence_s)

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Asked for a key that known_hosts does not have. The answer is always no."""
        changed = keys.has_entry(self._known, host, addr, port)
        self._refusal = keys.refusal(host, port, key, self._files, changed, self._jump)
        return False

    def begin_auth(self, username: str) -> None:
        """The key exchange is done, the login begins."""
        self._user = username
        self._extend(self._login_s)

    def public_key_auth_requested(self) -> None:
        """Public keys are welcome, and there is no further one to offer."""
        self._asked.append("publickey")

    def password_auth_requested(self) -> None:
        """A password would be welcome."""
        self._asked.append("password")

    def kbdint_auth_requested(self) -> None:
        """An answer from a person would be welcome: a password or a second factor."""
        self._asked.append("keyboard-interactive")

    def explain(self, error: BaseException, host: str, port: int) -> NodeError:
        """What a failed attempt to log in means."""
        if isinstance(error, NodeError):
            return error
        if isinstance(error, TimeoutError):
            return self._explain_timeout()
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._refusal or HostKeyError(f"host key refused: {error.reason}")
        if isinstance(error, asyncssh.PermissionDenied):
            return self._explain_refusal(error)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            if keys.has_entry(self._known, host, "", port):
                return keys.refusal(host, port, None, self._files, True, self._jump)
            return Unreachable(f"{self._where}: no common algorithms: {error.reason}", "ssh")
        if isinstance(error, asyncssh.ChannelOpenError):
            where = f"{self._jump} cannot reach {host}:{port}" if self._jump else self._where
            return Unreachable(f"{where}: {error.reason}")
        if isinstance(error, asyncssh.ProtocolError) and "uthentication" in error.reason:
            return LoginRefused(f"{self._where}: {error.reason}", "permission denied")
        if isinstance(error, asyncssh.DisconnectError):
            return self._explain_disconnect(error)
        return Unreachable(f"{self._where}: {error}")

    def _extend(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _explain_timeout(self) -> NodeError:
        if self._user is not None:
            what = f"no end to the login of {self._user} in {self._login_s:g} s"
        elif self._connection is None:
            what = f"no answer through {self._jump or 'its proxy'} in {self._silence_s:g} s"
        elif not self._connection.get_extra_info("server_version"):
            what = f"accepted TCP and said nothing for {self._silence_s:g} s (is it an SSH server?)"
        else:
            what = f"no end to the key exchange in {self._silence_s:g} s"
        return Unreachable(f"{self._where}: {what}", "timeout")

    def _explain_refusal(self, error: asyncssh.PermissionDenied) -> NodeError:
        methods = ", ".join(dict.fromkeys(self._asked))
        told = f" ({methods})" if methods else ""
        message = f"permission denied{told} for user {self._user or '?'}"
        if "password" in methods or "keyboard-interactive" in methods:
            keys_too = "accepts none of our keys and " if "publickey" in methods else ""
            message += (
                f": it {keys_too}asks for a password or a second factor; for the latter open a "
                "ControlMaster with ssh and use via=exec command=openssh"
            )
        elif not methods:
            message += f": {error.reason}"
        elif not self._has_keys:
            message += ": no key to offer (a key with a passphrase needs an ssh agent)"
        else:
            message += ": it accepts none of our keys"
        return LoginRefused(message, "permission denied")

    def _explain_disconnect(self, error: asyncssh.DisconnectError) -> NodeError:
        version = self._connection and self._connection.get_extra_info("server_version")
        if not version and isinstance(error, asyncssh.ProtocolError):
            return Unreachable(f"{self._where}: not an SSH server: {error.reason}", "ssh")
        if not version:
            what = "closed the connection without a word of SSH (MaxStartups? a firewall?)"
            return Unreachable(f"{self._where} {what}", "closed")
        when = "during the login" if self._user is not None else "before the login"
        return Unreachable(f"{self._where} closed the connection {when}: {error.reason}", "closed")
