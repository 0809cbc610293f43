"""The probe's standard input: settings first, then signs of life and requests from the console.

A probe must never outlive its console. When the pipe closes, or no line has come for as long as
the lease runs, the process ends at once, whatever its other threads are doing.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from collectors import wire

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


def parse_settings(line: bytes) -> Settings:
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


OnRequest = Callable[[Dict[str, Any]], None]
"""What is done with a line that asks for something; it returns at once."""


def exit_with_console(fd: int, lease_s: float, take: Optional[OnRequest] = None) -> None:
    """From now on end the process when `fd` closes or falls silent for `lease_s` (0: for ever).

    Lines that are JSON objects with keys are handed to `take`; any other is a sign of life.
    """
    threading.Thread(target=_watch, args=(fd, lease_s, take), name="control", daemon=True).start()


def _watch(fd: int, lease_s: float, take: Optional[OnRequest]) -> None:
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


def _hand_on(line: bytes, take: Optional[OnRequest]) -> None:
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


# What a console asks for beside the frames: done in a thread of its own, one after the other.
#
# An errand is an object with an `id`. Its answer is lines of the wire that carry the same `id`; the
# last of them is `done`, with an `error` where there is less than was asked for. Whatever happens
# to an errand, frames go on.


_MOST_WAITING = 2

Emit = Callable[[bytes], None]
Reply = Callable[[Dict[str, Any]], None]
"""Takes a part of the answer, without its id."""

Handler = Callable[[Dict[str, Any], Reply], None]
"""Does what is asked for and tells its parts. Raises BadAsk."""


class BadRequest(Exception):
    """The request is not what it should be; the message says how."""


class RequestWorker:
    """Errands of one `kind`, which is also the kind of the lines that answer them.

    `emit` takes lines of the wire from another thread.
    """

    def __init__(self, kind: str, do: Handler, emit: Emit) -> None:
        self._kind = kind
        self._do = do
        self._emit = emit
        self._asked: "queue.Queue[object]" = queue.Queue(_MOST_WAITING)
        self._thread: Optional[threading.Thread] = None

    def ask(self, given: object) -> None:
        """Have it done when the one before is; more than two that wait are dropped.

        Returns at once: who calls this has to notice when the console is gone.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._go, name=self._kind, daemon=True)
            self._thread.start()
        with contextlib.suppress(queue.Full):
            self._asked.put_nowait(given)

    def _go(self) -> None:
        while True:
            given = self._asked.get()
            if not isinstance(given, dict) or not isinstance(given.get("id"), int):
                continue
            number = given["id"]

            def tell(part: Dict[str, Any], number: int = number) -> None:
                self._emit(wire.answer(self._kind, {"id": number, **part}))

            last: Dict[str, Any] = {"done": True}
            try:
                self._do(given, tell)
            except BadRequest as error:
                last["error"] = str(error)
            except Exception as error:
                last["error"] = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):  # Nobody listens any more: the probe ends by itself.
                tell(last)


def number_between(name: str, value: object, low: float, high: float) -> float:
    """A number of a request. Raises BadAsk unless it is from `low` to `high`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise BadRequest(f"{name} must be {low:g} to {high:g}, not {value!r}")
