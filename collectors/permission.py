"""Who may read a file that refused us: the group to join, or the account to be."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from typing import List


def who_may(path: str) -> str:
    """In words, which group or account could read `path`; empty when that cannot be told.

    A directory on the way that lets nobody through is named instead of the file.
    """
    for place in _on_the_way(path):
        try:
            found = os.stat(place)
        except OSError:
            return ""
        wanted = os.X_OK if stat.S_ISDIR(found.st_mode) and place != path else os.R_OK
        if not os.access(place, wanted):
            needed = stat.S_IXGRP if wanted == os.X_OK else stat.S_IRGRP
            return _words(place, found, needed)
    return ""


def _on_the_way(path: str) -> List[str]:
    """The directories from the root to a file, then the file."""
    parts = os.path.abspath(path).split(os.sep)
    return [os.sep.join(parts[:end]) or os.sep for end in range(1, len(parts) + 1)]


def _words(path: str, found: os.stat_result, group_bit: int) -> str:
    mode = stat.S_IMODE(found.st_mode)
    if mode & group_bit and found.st_gid != 0:
        return f"{path} is for group {_group(found.st_gid)}: join it (mode {mode:04o})"
    return f"{path} is for {_user(found.st_uid)} alone (mode {mode:04o})"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
