"""The choices of the screen that the state directory keeps from one run to the next.

`$XDG_STATE_HOME/fabmon/screen.json` has the names and values of the table [screen] of fabmon.toml.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabmon.error_log import log_path
from fabmon.fabric.wording import file_error
from fabmon.private_files import make_directory, open_own, replace_file

_MOST_BYTES = 1 << 16


def kept_path() -> Path:
    """The path of the file."""
    return log_path().with_name("screen.json")


def load_kept() -> tuple[dict[str, Any], str]:
    """What was kept, and why the file is ignored; empty if it is not, or there is none.

    Values are not checked: they may be those of another version.
    """
    try:
        path = kept_path()
        values = json.loads(_read(path))
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"kept choices are ignored: {path}: {file_error(error)}"
    except (ValueError, RecursionError):
        return {}, f"kept choices are ignored: {path} is damaged; the next change replaces it"
    except RuntimeError as error:
        return {}, f"kept choices are ignored: {error}"
    if not isinstance(values, dict):
        return {}, f"kept choices are ignored: {path} is damaged; the next change replaces it"
    return values, ""


def keep(changes: Mapping[str, Any]) -> str:
    """Write changed choices into the file, beside what it has; returns why that failed.

    The file is replaced at once, with mode 0600. That of another user is not touched.
    """
    if not changes:
        return ""
    try:
        path = kept_path()
        make_directory(path.parent)
        try:
            before = json.loads(_read(path))
        except (FileNotFoundError, ValueError, RecursionError):
            before = {}
        values = {**(before if isinstance(before, dict) else {}), **changes}
        replace_file(path, (json.dumps(values, indent=1) + "\n").encode())
    except OSError as error:
        return f"the choices were not kept: {error.filename or path}: {file_error(error)}"
    except RuntimeError as error:
        return f"the choices were not kept: {error}"
    return ""


def _read(path: Path) -> str:
    """The text of a regular file of this user. Raises OSError, ValueError for other text."""
    number = open_own(path, os.O_RDONLY)
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        if status.st_size > _MOST_BYTES:
            raise ValueError("too large")
        return file.read(_MOST_BYTES + 1).decode("utf-8")
