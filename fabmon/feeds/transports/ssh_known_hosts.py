"""Which host keys are trusted, and the command that accepts another one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import NamedTuple

import asyncssh
from asyncssh.config import SSHConfig

from fabmon.fabric.input_files import read_input
from fabmon.feeds.errors import HostKeyError

_USER_FILE = "~/.ssh/known_hosts"
_MAX_BYTES = 16 << 20
_GLOBAL_FILES = ("/etc/ssh/ssh_known_hosts",)
_NO_FILES = ("/dev/null", "none")
SSH_PORT = 22


class AcceptCommand(NamedTuple):
    """What the command that accepts a host key is made from.

    `target` is how ssh names the node, `host` and `port` where it is, `alias` its HostKeyAlias or
    empty, `config` the ssh_config that replaces the user's or empty, `jump` the jump host or empty.
    `is_scannable` says whether ssh-keyscan reaches it, which uses neither jump hosts nor proxies.
    """

    target: str
    host: str
    port: int
    alias: str
    config: str
    jump: str
    is_scannable: bool

    @property
    def name(self) -> str:
        """The node's name in known_hosts."""
        return self.alias or (self.host if self.port == SSH_PORT else f"[{self.host}]:{self.port}")

    def text(self, file: str) -> str:
        """A command line that adds the key to a known_hosts file."""
        port = "" if self.port == SSH_PORT else f"-p {self.port} "
        if self.is_scannable and not self.alias:
            folder = Path(file).expanduser().parent
            make = "" if folder.is_dir() else f"mkdir -p -m 700 {_quoted(Path(file).parent)} && "
            return f"{make}ssh-keyscan {port}{shlex.quote(self.host)} >> {_quoted(file)}"
        config = f"-F {_quoted(self.config)} " if self.config else ""
        jump = f"-J {shlex.quote(self.jump)} " if self.jump else ""
        keep = f"-o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={_quoted(file)} "
        return f"ssh {config}{keep}{jump}{port}{shlex.quote(self.target)} true"


class TrustedKeys(NamedTuple):
    """The entries of some known_hosts files, and the file to which a key is added.

    `is_unused_by_ssh` says that ssh_config has ssh keep no host keys at all.
    """

    entries: asyncssh.SSHKnownHosts
    file: str
    is_unused_by_ssh: bool

    def has_entry(self, accept: AcceptCommand) -> bool:
        """Whether any key is trusted for a host."""
        port = accept.port if accept.port != SSH_PORT else None
        found = self.entries.match(accept.alias or accept.host, "", port)
        return bool(found[0])

    def rejection(self, key: asyncssh.SSHKey | None, accept: AcceptCommand) -> HostKeyError:
        """The error for a key that is not accepted, with the command that accepts it."""
        shown = f"{key.get_algorithm()} {key.get_fingerprint()}" if key else "of another kind"
        command = accept.text(self.file)
        if self.has_entry(accept):
            where = "" if self.file == _USER_FILE else f"-f {_quoted(self.file)} "
            forget = f"ssh-keygen {where}-R {shlex.quote(accept.name)}"
            return HostKeyError(
                f"host key changed: it is now {shown}. If that is expected: {forget}; {command}",
                "host key changed",
            )
        why = ""
        if self.is_unused_by_ssh:
            why = " (ssh_config keeps none; fabmon always checks)"
        return HostKeyError(
            f"host key unknown{why}: {shown}. Check that fingerprint, then: {command}"
        )


class KnownHosts:
    """Parsed known_hosts files, shared by all nodes and read again when one changes."""

    def __init__(self) -> None:
        self._cache: dict[tuple[str, ...], tuple[object, TrustedKeys]] = {}

    def load(self, config: SSHConfig) -> TrustedKeys:
        """The keys in the files that ssh_config names, else in the usual ones. Blocks.

        Where ssh_config has ssh keep no keys (`UserKnownHostsFile /dev/null` or `none`), those of
        the usual file are trusted: keys are always checked. A missing file or an unreadable line
        adds nothing.
        """
        user, is_set = _files(config, "UserKnownHostsFile")
        others, others_set = _files(config, "GlobalKnownHostsFile")
        files = (*(user or (_USER_FILE,)), *(others if others_set else _GLOBAL_FILES))
        stamps = tuple(map(_stamp, files))
        cached = self._cache.get(files)
        if cached is not None and cached[0] == stamps:
            trusted = cached[1]
        else:
            trusted = TrustedKeys(asyncssh.SSHKnownHosts(), files[0], is_unused_by_ssh=False)
            for name in files:
                _load_file(trusted.entries, Path(name).expanduser())
            self._cache[files] = (stamps, trusted)
        return trusted._replace(is_unused_by_ssh=is_set and not user)


def _files(config: SSHConfig, option: str) -> tuple[tuple[str, ...], bool]:
    """The files of an option that can keep keys, and whether ssh_config sets the option."""
    value = config.get(option)
    if not isinstance(value, list):
        return (), False
    return tuple(str(name) for name in value if str(name) not in _NO_FILES), True


def _quoted(path: str | Path) -> str:
    """A path for a shell, which still expands a `~` at its beginning."""
    text = str(path)
    return f"~/{shlex.quote(text[2:])}" if text.startswith("~/") else shlex.quote(text)


def _load_file(entries: asyncssh.SSHKnownHosts, path: Path) -> None:
    try:
        text = read_input(path, _MAX_BYTES)
    except OSError:
        return
    for line in text.decode(errors="replace").splitlines():
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
