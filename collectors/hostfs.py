"""All file access of the node half, below a root that tests and captures can replace."""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from typing import List, Optional

_PAGE_BYTES = 4096


class File:
    """A file kept open and read again from its start: 0.8 us a counter instead of 12.

    `fd` is its descriptor, for loops that cannot afford a call; -1 once it is closed. Like a file
    object of Python, it is closed when its last reference is gone.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def read(self) -> bytes:
        """The current content of a file within one page, as every sysfs attribute is.

        Raises OSError; ENODEV when the device behind it is gone.
        """
        return os.pread(self.fd, _PAGE_BYTES, 0)

    def read_all(self) -> bytes:
        """The current content of a file of any size.

        Files in /proc return whole lines, a page or less at a time: a short read is not the end.
        """
        parts: List[bytes] = []
        offset = 0
        while True:
            data = os.pread(self.fd, 16 * _PAGE_BYTES, offset)
            if not data:
                return b"".join(parts)
            parts.append(data)
            offset += len(data)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    __del__ = close


class HostFS:
    """The machine's `/sys` and `/proc`, or a tree of the same layout.

    Paths are given without a leading slash, as in `sys/class/net`.
    """

    def __init__(self, root: str = "/") -> None:
        self.root = root

    @property
    def is_live(self) -> bool:
        """Whether this is the running machine, the one that ioctls and netlink report on."""
        return self.root == "/"

    def path(self, *parts: str) -> str:
        """The real path of a file below the root."""
        return os.path.join(self.root, *parts)

    def open(self, *parts: str) -> File:
        """Open a file for repeated reads. Raises OSError."""
        return File(self.path(*parts))

    def text(self, *parts: str) -> Optional[str]:
        """The stripped text of a file of at most 64 KiB; None when it is absent or unreadable."""
        try:
            with open(self.path(*parts), "rb") as file:
                return file.read(65536).decode("utf-8", "replace").strip()
        except OSError:
            return None

    def number(self, *parts: str) -> Optional[int]:
        """The decimal integer in a small file; None when absent, unreadable or not a number."""
        text = self.text(*parts)
        try:
            return None if text is None else int(text)
        except ValueError:
            return None

    def names(self, *parts: str) -> List[str]:
        """The sorted entries of a directory; empty when it does not exist. Raises OSError."""
        try:
            return sorted(os.listdir(self.path(*parts)))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            raise

    def exists(self, *parts: str) -> bool:
        """Whether the path exists."""
        return os.path.exists(self.path(*parts))

    def resolve(self, *parts: str) -> str:
        """The target of a path with links followed, relative to the root (`sys/devices/...`)."""
        return os.path.relpath(os.path.realpath(self.path(*parts)), os.path.realpath(self.root))


def readable_by(path: str) -> str:
    """Which group or account may read the file at `path`, in words; empty when that is unknown.

    A parent directory that this account may not enter is named instead of the file.
    """
    parts = os.path.abspath(path).split(os.sep)
    for end in range(1, len(parts) + 1):
        place = os.sep.join(parts[:end]) or os.sep
        try:
            found = os.stat(place)
        except OSError:
            return ""
        is_parent = stat.S_ISDIR(found.st_mode) and place != path
        if not os.access(place, os.X_OK if is_parent else os.R_OK):
            return _owner_text(place, found, stat.S_IXGRP if is_parent else stat.S_IRGRP)
    return ""


def selinux_text(root: str = "/") -> str:
    """That SELinux enforces its policy on this process, and as what; empty where it does not.

    Its policy may refuse what the mode of a file allows.
    """
    fs = HostFS(root)
    if fs.number("sys/fs/selinux/enforce") != 1:
        return ""
    context = (fs.text("proc/self/attr/current") or "").strip("\0")
    kind = context.split(":")[2] if context.count(":") > 1 else "an unknown domain"
    return f"SELinux enforces its policy on {kind}: ausearch -m AVC shows what it refused"


def _owner_text(path: str, found: os.stat_result, group_bit: int) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if mode & group_bit and found.st_gid != 0:
        try:
            group = grp.getgrgid(found.st_gid).gr_name
        except KeyError:
            group = str(found.st_gid)
        return f"{path} is for group {group}: join it (mode {mode:04o})"
    try:
        user = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        user = str(found.st_uid)
    return f"{path} is for {user} alone (mode {mode:04o})"
