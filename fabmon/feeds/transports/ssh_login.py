"""Host keys: which are trusted, and what to tell a person about one that is not."""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from fabmon.feeds.errors import HostKeyError, LoginRefused, NodeError, Unreachable

_USER_FILE = "~/.ssh/known_hosts"
_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts",)
_SSH_PORT = 22


class KnownHosts:
    """known_hosts files, parsed once for all nodes and again when one changes."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, ...], tuple[object, asyncssh.SSHKnownHosts]] = {}

    def load(self, files: Sequence[str]) -> asyncssh.SSHKnownHosts:
        """The entries of `files`; a missing file or a line that cannot be read adds nothing."""
        key = tuple(files)
        stamps = tuple(map(_stamp, key))
        cached = self._cache.get(key)
        if cached is not None and cached[0] == stamps:
            return cached[1]
        entries = asyncssh.SSHKnownHosts()
        for name in key:
            _load_file(entries, Path(name).expanduser())
        self._cache[key] = (stamps, entries)
        return entries


def files_of(configured: object) -> list[str]:
    """The files to ask, given what ssh_config names.

    None (`UserKnownHostsFile none`) means nobody is trusted, never that nobody is checked.
    """
    if configured is None:
        return []
    if isinstance(configured, list) and configured:
        return [str(name) for name in configured]
    return [_USER_FILE, *_GLOBAL_FILES]


def has_entry(known: asyncssh.SSHKnownHosts, host: str, address: str, port: int) -> bool:
    """Whether any key is trusted for a host, whichever it is."""
    found = known.match(host, address, port if port != _SSH_PORT else None)
    return bool(found[0])


def refusal(
    host: str,
    port: int,
    key: asyncssh.SSHKey | None,
    files: Sequence[str],
    changed: bool,
    jump: str,
) -> HostKeyError:
    """Why a host's key is not accepted, with the command that mends it.

    `jump` is the host that the connection goes through, or empty: ssh-keyscan cannot go that way.
    """
    file = files[0] if files else _USER_FILE
    name = host if port == _SSH_PORT else f"[{host}]:{port}"
    shown = f"{key.get_algorithm()} {key.get_fingerprint()}" if key is not None else "another kind"
    at = "" if port == _SSH_PORT else f"-p {port} "
    if jump:
        accept = f"ssh -J {shlex.quote(jump)} {at}{shlex.quote(host)} true"
    else:
        accept = f"ssh-keyscan {at}{shlex.quote(host)} >> {file}"
    if changed:
        where = "" if file == _USER_FILE else f"-f {file} "
        forget = f"ssh-keygen {where}-R {shlex.quote(name)}"
        return HostKeyError(
            f"host key changed: it is now {shown}. If that is right: {forget}; {accept}",
            "host key changed",
        )
    return HostKeyError(
        f"host key unknown: {shown}. Check that fingerprint, then: {accept}", "host key unknown"
    )


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


# Watches one login, so that a failure can be told by how far it came.


class LoginObserver(asyncssh.SSHClient):
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
        changed = has_entry(self._known, host, addr, port)
        self._refusal = refusal(host, port, key, self._files, changed, self._jump)
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
            if has_entry(self._known, host, "", port):
                return refusal(host, port, None, self._files, True, self._jump)
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
