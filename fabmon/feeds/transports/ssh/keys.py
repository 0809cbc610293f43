"""Host keys: which are trusted, and what to tell a person about one that is not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import asyncssh

from fabmon.feeds.errors import HostKeyError

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
