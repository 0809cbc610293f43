"""Files and directories that no other user can read, replace or redirect.

What is written may be in a directory that others can write to, such as /tmp or that of a web
server: they may put links, and files of their own, at any name in it. Modes are set on open files,
new files are opened only where there is nothing, and names are looked up in an open directory.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_OWN = 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_EXCLUSIVE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def make_directory(path: Path) -> None:
    """Make a directory and the missing ones above it, each for its owner alone. Raises OSError."""
    # Not mkdir(parents=True): that gives the mode to the last one only.
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except FileNotFoundError:
        if path == path.parent:
            raise
        make_directory(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_file(path: Path, mode: int = _OWN) -> Iterator[IO[bytes]]:
    """A new file, which only its owner may read: what fabmon writes names hosts and users.

    It has its name once it is complete, since part of a file would look like all of it; else
    nothing is left. Raises as `unfinished`.
    """
    with unfinished(path) as part, os.fdopen(os.open(part, _EXCLUSIVE, mode), "wb") as file:
        yield file


@contextmanager
def unfinished(path: Path) -> Iterator[Path]:
    """The name beside `path` of what will have that name once it is complete.

    Nothing is left of it after an error or a signal that ends fabmon, also right after it was
    made; nothing is replaced, also nothing that was made meanwhile. Raises OSError,
    FileExistsError also for a link.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    part = _beside(path)
    try:
        yield part
        _give_name(part, path)
    except BaseException as error:
        with suppress(OSError):
            part.unlink()
        if isinstance(error, OSError) and error.filename == str(part):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _beside(path: Path) -> Path:
    return path.with_name(f".fabmon.{secrets.token_hex(8)}")


def _give_name(part: Path, path: Path) -> None:
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # A file system without hard links.
        os.close(os.open(path, _EXCLUSIVE, _OWN))
        part.rename(path)
    else:
        part.unlink()


def write_new(path: Path, data: bytes, mode: int = _OWN) -> None:
    """Write a new file, or nothing. Raises OSError, FileExistsError also for a link."""
    with new_file(path, mode) as file:
        file.write(data)


def replace_file(path: Path, data: bytes, *, keeps_mode: bool = False) -> None:
    """Put a complete file in the place of one that may be there; a link is replaced, not followed.

    Only its owner may read it; with `keeps_mode` also those who may read what is replaced, if that
    is the user's own file. Raises OSError.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        part = f".fabmon.{secrets.token_hex(8)}"
        try:
            opened = os.open(part, _EXCLUSIVE, _OWN, dir_fd=directory)
            with os.fdopen(opened, "wb") as file:
                file.write(data)
                if keeps_mode:
                    os.fchmod(opened, _mode(path.name, directory))
                file.flush()
                os.fsync(opened)  # After a power failure the name may be there without the data.
            os.rename(part, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(part, dir_fd=directory)
            raise
    finally:
        os.close(directory)


def _mode(name: str, directory: int) -> int:
    """The mode of a regular file of this user, without the right of others to write. One that has
    another name too may have been put there, for its mode."""
    with suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        is_own = found.st_uid == os.geteuid() and found.st_nlink == 1
        if stat.S_ISREG(found.st_mode) and is_own:
            return stat.S_IMODE(found.st_mode) & 0o644
    return _OWN


def check_writable(directory: Path) -> None:
    """Raise OSError if no file can be made in a directory."""
    probe = _beside(directory / "probe")
    try:
        os.close(os.open(probe, _EXCLUSIVE, _OWN))
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(directory)) from None
    finally:
        with suppress(OSError):
            probe.unlink()


def open_own(path: Path, flags: int) -> int:
    """A descriptor of the user's own file or pipe, or of a device; where it is made, for its owner
    alone. Raises OSError, also for a link and for a file or pipe of another user, who would read
    what is written.
    """
    try:
        # Without O_NONBLOCK a named pipe would wait for its other end.
        opened = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _OWN)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _refused(path, "it is a link: name the file itself") from None
        raise
    found = os.fstat(opened)
    if not stat.S_ISCHR(found.st_mode) and found.st_uid != os.geteuid():
        os.close(opened)
        raise _refused(path, "owned by another user")
    return opened


def check_private(path: Path, home: Path) -> None:
    """Raise PermissionError unless this user alone can change what is at a path.

    `home` and what is below it, to `path`, must be this user's own, no links, and not writable by
    others. Raises OSError if one is missing.
    """
    below = path.relative_to(home).parts
    for each in (home.joinpath(*below[:depth]) for depth in range(len(below) + 1)):
        check_owner(each)
    check_place(home.parent)


def check_state(directory: Path) -> None:
    """Raise PermissionError unless this user alone can change what is in a directory of the state
    directory; the state directory may be a link. Raises OSError if one is missing."""
    check_place(directory.parent.parent)
    home = directory.parent.resolve()
    check_private(home / directory.name, home)


def check_owner(path: Path, *, is_any_fine: bool = False) -> int:
    """The owner of a path that is no link. Raises PermissionError unless that is this user (or
    `is_any_fine`), and others cannot write to it; OSError where there is none."""
    found = path.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise _refused(path, "it is a link: remove it")
    if not is_any_fine and found.st_uid != os.geteuid():
        raise _refused(path, "it belongs to another user")
    if found.st_mode & _OTHERS_WRITE:
        raise _refused(path, f"others can write to it: chmod go-w {path}")
    return found.st_uid


def check_place(directory: Path) -> None:
    """Raise PermissionError if another user could replace what this user puts into a directory.

    The directory and those above it must belong to this user or root; where everyone can write, as
    in /tmp, only with the sticky bit.
    """
    # In a user namespace the owner of / may not be 0.
    trusted = {os.geteuid(), 0, Path("/").stat().st_uid}
    directory = directory.resolve()
    for each in (directory, *directory.parents):
        found = each.stat()
        if found.st_uid not in trusted:
            raise _refused(each, "it belongs to another user")
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise _refused(each, "everyone can replace files in it")


def _refused(path: Path, why: str) -> PermissionError:
    return PermissionError(errno.EACCES, why, str(path))
