"""SSH logins: which host keys are trusted, and the precise reason when a login fails."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import asyncssh

from fabmon.fabric.time_wording import interval
from fabmon.feeds.errors import HostKeyError, LoginRefused, NodeError, Unreachable, with_check

_USER_FILE = "~/.ssh/known_hosts"
_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts",)
_SSH_PORT = 22


class SshTimeouts(NamedTuple):
    """Seconds to a TCP connection, then to the key exchange, then to the end of the login."""

    connect_s: float = 10.0
    silence_s: float = 10.0
    login_s: float = 20.0


class TrustedKeys(NamedTuple):
    """The entries of some known_hosts files, and the files."""

    entries: asyncssh.SSHKnownHosts
    files: Sequence[str]

    def has_entry(self, host: str, address: str, port: int) -> bool:
        """Whether any key is trusted for a host."""
        found = self.entries.match(host, address, port if port != _SSH_PORT else None)
        return bool(found[0])

    def rejection(
        self, host: str, port: int, key: asyncssh.SSHKey | None, jump: str, changed: bool
    ) -> HostKeyError:
        """The error for a key that is not accepted, with the command that accepts it.

        `jump` is the jump host of the connection, or empty: ssh-keyscan cannot use jump hosts.
        """
        file = self.files[0] if self.files else _USER_FILE
        name = host if port == _SSH_PORT else f"[{host}]:{port}"
        shown = f"{key.get_algorithm()} {key.get_fingerprint()}" if key else "of another kind"
        at = "" if port == _SSH_PORT else f"-p {port} "
        if jump:
            accept = f"ssh -J {shlex.quote(jump)} {at}{shlex.quote(host)} true"
        else:
            accept = f"ssh-keyscan {at}{shlex.quote(host)} >> {file}"
        if changed:
            where = "" if file == _USER_FILE else f"-f {file} "
            forget = f"ssh-keygen {where}-R {shlex.quote(name)}"
            return HostKeyError(
                f"host key changed: it is now {shown}. If that is expected: {forget}; {accept}",
                "host key changed",
            )
        return HostKeyError(f"host key unknown: {shown}. Check that fingerprint, then: {accept}")


class KnownHosts:
    """Parsed known_hosts files, shared by all nodes and read again when one changes."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, ...], tuple[object, TrustedKeys]] = {}

    def load(self, configured: object) -> TrustedKeys:
        """The keys in the files that ssh_config names, else in the usual ones. Blocks.

        None (`UserKnownHostsFile none`) means that no key is trusted, never that keys are not
        checked. A missing file or an unreadable line adds nothing.
        """
        if configured is None:
            files: tuple[str, ...] = ()
        elif isinstance(configured, list) and configured:
            files = tuple(str(name) for name in configured)
        else:
            files = (_USER_FILE, *_GLOBAL_FILES)
        stamps = tuple(map(_stamp, files))
        cached = self._cache.get(files)
        if cached is not None and cached[0] == stamps:
            return cached[1]
        trusted = TrustedKeys(asyncssh.SSHKnownHosts(), files)
        for name in files:
            _load_file(trusted.entries, Path(name).expanduser())
        self._cache[files] = (stamps, trusted)
        return trusted


def _load_file(entries: asyncssh.SSHKnownHosts, path: Path) -> None:
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            entries.load(line)
        except ValueError:
            continue


def _stamp(name: str) -> tuple[int, int] | None:
    try:
        status = Path(name).expanduser().stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class LoginObserver(asyncssh.SSHClient):
    """The client side of one login: rejects unknown keys, answers no prompts, notes the progress.

    `limit` is moved as the login proceeds, by the `timeouts`. `where` names the server in messages;
    `has_keys` says whether there are key files to offer.
    """

    def __init__(
        self,
        *,
        where: str,
        jump: str,
        trusted: TrustedKeys,
        has_keys: bool,
        limit: asyncio.Timeout,
        timeouts: SshTimeouts,
    ) -> None:
        self._where = where
        self._jump = jump
        self._trusted = trusted
        self._has_keys = has_keys or bool(os.environ.get("SSH_AUTH_SOCK"))
        self._limit = limit
        self._timeouts = timeouts
        self._connection: asyncssh.SSHClientConnection | None = None
        self._user: str | None = None
        self._requested: list[str] = []
        self._rejection: HostKeyError | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """TCP is connected."""
        self._connection = conn
        self._extend(self._timeouts.silence_s)

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Reject a key that is not in known_hosts."""
        changed = self._trusted.has_entry(host, addr, port)
        self._rejection = self._trusted.rejection(host, port, key, self._jump, changed)
        return False

    def begin_auth(self, username: str) -> None:
        """The key exchange is done, the login begins."""
        self._user = username
        self._extend(self._timeouts.login_s)

    def public_key_auth_requested(self) -> None:
        """The server accepts public keys; None says that there are no more to offer."""
        self._requested.append("publickey")

    def password_auth_requested(self) -> None:
        """The server accepts a password; None offers none."""
        self._requested.append("password")

    def kbdint_auth_requested(self) -> None:
        """The server asks for a password or a second factor; None offers none."""
        self._requested.append("keyboard-interactive")

    def error(self, error: BaseException, host: str, port: int) -> NodeError:
        """The NodeError for a login that failed with `error`."""
        if isinstance(error, TimeoutError):
            return self._timeout_error()
        if isinstance(error, asyncssh.HostKeyNotVerifiable):
            return self._rejection or HostKeyError(f"host key rejected: {error.reason}")
        if isinstance(error, asyncssh.PermissionDenied):
            return self._permission_error(error)
        if isinstance(error, asyncssh.KeyExchangeFailed):
            if self._trusted.has_entry(host, "", port):
                return self._trusted.rejection(host, port, None, self._jump, changed=True)
            return Unreachable(f"{self._where}: no common algorithms: {error.reason}", "ssh")
        if isinstance(error, asyncssh.ChannelOpenError):
            where = f"{self._jump} cannot reach {host}:{port}" if self._jump else self._where
            return Unreachable(f"{where}: {error.reason}")
        if isinstance(error, asyncssh.ProtocolError) and "uthentication" in error.reason:
            return LoginRefused(f"{self._where}: {error.reason}", "permission denied")
        if isinstance(error, asyncssh.DisconnectError):
            return self._disconnect_error(error)
        return Unreachable(f"{self._where}: {error}")

    def _extend(self, seconds: float) -> None:
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    def _timeout_error(self) -> NodeError:
        silence = f"{interval(self._timeouts.silence_s)}"
        if self._user is not None:
            what = f"the login of {self._user} did not finish in {interval(self._timeouts.login_s)}"
        elif self._connection is None:
            what = f"no answer through {self._jump or 'its proxy'} in {silence}"
        elif not self._connection.get_extra_info("server_version"):
            what = f"TCP connected, then silence for {silence} (is it an SSH server?)"
        else:
            what = f"the key exchange did not finish in {silence}"
        return Unreachable(f"{self._where}: {what}", "timeout")

    def _permission_error(self, error: asyncssh.PermissionDenied) -> NodeError:
        methods = ", ".join(dict.fromkeys(self._requested))
        listed = f" ({methods})" if methods else ""
        message = f"permission denied{listed} for user {self._user or '?'}"
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
            message = with_check(f"{message}: it accepts none of our keys", "permission denied")
        return LoginRefused(message, "permission denied")

    def _disconnect_error(self, error: asyncssh.DisconnectError) -> NodeError:
        version = self._connection and self._connection.get_extra_info("server_version")
        if not version and isinstance(error, asyncssh.ProtocolError):
            return Unreachable(f"{self._where}: not an SSH server: {error.reason}", "ssh")
        if not version:
            what = "closed the connection before SSH began (MaxStartups? a firewall?)"
            return Unreachable(f"{self._where} {what}", "closed")
        when = "during the login" if self._user is not None else "before the login"
        return Unreachable(f"{self._where} closed the connection {when}: {error.reason}", "closed")
