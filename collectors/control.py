"""The probe's standard input: settings first, then signs of life and requests from the console.

A probe must never outlive its console. When the pipe closes, or no line has come for as long as
the lease runs, the process ends at once, whatever its other threads are doing.
"""

from __future__ import annotations

import json
import os
import select
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

_MAX_SETTINGS = 65536


class Settings(NamedTuple):
    """What the console asks for: one JSON object on one line.

    `interval_s` from one frame to the next, 0.05 to 3600. `lease_s` without a line from the console
    before the probe ends; 0 for no limit. `sources` as `registry.choose` takes them. `root` is the
    tree to read. `encodings` are those that the console reads, the best first.
    """

    interval_s: float = 1.0
    lease_s: float = 0.0
    sources: Optional[List[str]] = None
    root: str = "/"
    encodings: Sequence[str] = ()


class BadSettings(Exception):
    """The settings line is not what it should be; the message says how."""


def parse(line: bytes) -> Settings:
    """Read a settings line. Raises BadSettings; unknown keys are of a newer console and ignored."""
    try:
        given: object = json.loads(line)
    except ValueError as error:
        raise BadSettings(f"settings must be one JSON object on one line: {error}") from None
    if not isinstance(given, dict):
        raise BadSettings("settings must be one JSON object on one line")
    settings = Settings(**{key: given[key] for key in Settings._fields if key in given})
    if not _is_number(settings.interval_s) or not 0.05 <= settings.interval_s <= 3600:
        raise BadSettings(f"interval_s must be 0.05 to 3600, not {settings.interval_s!r}")
    if not _is_number(settings.lease_s) or settings.lease_s < 0:
        raise BadSettings(f"lease_s must be 0 or more, not {settings.lease_s!r}")
    if settings.sources is not None and not _are_names(settings.sources):
        raise BadSettings(f"sources must be a list of names or null, not {settings.sources!r}")
    if not _are_names(settings.encodings):
        raise BadSettings(f"encodings must be a list of names, not {settings.encodings!r}")
    return settings


def read_line(fd: int) -> bytes:
    """One line, byte by byte so that nothing after it is taken. Empty at the end of the pipe."""
    line = bytearray()
    while len(line) < _MAX_SETTINGS:
        byte = os.read(fd, 1)
        if not byte or byte == b"\n":
            break
        line += byte
    return bytes(line)


Take = Callable[[Dict[str, Any]], None]
"""What is done with a line that asks for something; it returns at once."""


def end_with(fd: int, lease_s: float, take: Optional[Take] = None) -> None:
    """From now on end the process when `fd` closes or falls silent for `lease_s` (0: for ever).

    Lines that are JSON objects with keys are handed to `take`; any other is a sign of life.
    """
    threading.Thread(target=_watch, args=(fd, lease_s, take), name="control", daemon=True).start()


def _watch(fd: int, lease_s: float, take: Optional[Take]) -> None:
    timeout_s = lease_s if lease_s > 0 else None
    partial = b""
    while True:
        ready, _, _ = select.select([fd], [], [], timeout_s)
        data = _drain(fd) if ready else b""
        if not data:
            os._exit(0)
        *lines, partial = (partial + data).split(b"\n")
        partial = partial[-_MAX_SETTINGS:]
        for line in lines:
            _hand_on(line, take)


def _hand_on(line: bytes, take: Optional[Take]) -> None:
    """Nothing that a line says may end this thread: the process would outlive its console."""
    try:
        asked = json.loads(line)
        if take is not None and isinstance(asked, dict) and asked:
            take(asked)
    except Exception:
        return


def _drain(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:
        return b""


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(name, str) and name for name in value
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
