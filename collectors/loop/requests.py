"""The probe's standard input: settings first, then signs of life and requests from the console.

A probe must never outlive its console. When the pipe closes, or no line has arrived for as long as
the lease runs, the process ends at once, whatever its other threads are doing.

Requests (a burst, a trace) are carried out in a thread of their own, one after the other, beside
the frames. A request is an object with an `id`. Its answer is lines of the wire that carry the same
`id`; the last of them is `done`, with an `error` when there is less than was requested. Whatever
happens to a request, the frames continue.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from collectors import wire

_MAX_LINE_BYTES = 65536
_MAX_WAITING = 2

_MAX_POLL_MS = 2**31 - 1
"""The longest wait that poll() takes: 24 days."""


class Settings(NamedTuple):
    """The console's settings: one JSON object on one line.

    `interval_s` from one frame to the next, 0.05 to 3600. `lease_s` without a line from the console
    after which the probe ends; 0 for no limit. `sources` as `registry.choose_sources` takes them.
    `root` is the tree to read. `encodings` are those that the console reads, the best first.
    `arguments` are texts for sources by name, as a directory; these sources are read too.
    """

    interval_s: float = 1.0
    lease_s: float = 0.0
    sources: Optional[List[str]] = None
    root: str = "/"
    encodings: Sequence[str] = ()
    arguments: Mapping[str, str] = {}


class BadSettings(Exception):
    """The settings line is invalid; the message says why."""


def parse_settings(line: bytes) -> Settings:
    """Parse a settings line. Raises BadSettings; keys of a newer console are ignored."""
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
    arguments = settings.arguments
    if not isinstance(arguments, dict) or not _are_names([*arguments, *arguments.values()]):
        raise BadSettings(f"arguments must be an object of texts, not {arguments!r}")
    return settings


def read_line(fd: int) -> bytes:
    """One line, byte by byte so that nothing after it is read. Empty at the end of the pipe."""
    line = bytearray()
    while len(line) < _MAX_LINE_BYTES:
        byte = os.read(fd, 1)
        if not byte or byte == b"\n":
            break
        line += byte
    return bytes(line)


OnRequest = Callable[[Dict[str, Any]], None]
"""Called with each control line that holds a request; must return at once."""


def exit_with_console(fd: int, lease_s: float, on_request: Optional[OnRequest] = None) -> None:
    """Start a thread that ends the process when `fd` closes or is silent for `lease_s`.

    0 is no limit. Lines that are non-empty JSON objects are passed to `on_request`; any other line
    is a sign of life.
    """
    arguments = (fd, lease_s, on_request)
    threading.Thread(target=_watch, args=arguments, name="control", daemon=True).start()


def _watch(fd: int, lease_s: float, on_request: Optional[OnRequest]) -> None:
    timeout_ms = min(lease_s * 1000, _MAX_POLL_MS) if lease_s > 0 else None
    readable = select.poll()  # select() refuses descriptors above 1,023
    readable.register(fd, select.POLLIN)
    partial = b""
    while True:
        data = b""
        if readable.poll(timeout_ms):
            with contextlib.suppress(OSError):
                data = os.read(fd, 65536)
        if not data:
            os._exit(0)
        *lines, partial = (partial + data).split(b"\n")
        partial = partial[-_MAX_LINE_BYTES:]
        for line in lines:
            # No content of a line may end this thread: the process would outlive its console.
            with contextlib.suppress(Exception):
                given = json.loads(line)
                if on_request is not None and isinstance(given, dict) and given:
                    on_request(given)


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(
        isinstance(name, str) and name for name in value
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


Reply = Callable[[Dict[str, Any]], None]
"""Takes a part of the answer, without its id."""

Handler = Callable[[Dict[str, Any], Reply], None]
"""Carries out a request and replies with its parts. Raises BadRequest."""


class BadRequest(Exception):
    """The request is invalid; the message says why."""


class RequestWorker:
    """Carries out requests of one `kind`, which is also the kind of the lines of the answer.

    `emit` takes lines of the wire, called from another thread.
    """

    def __init__(self, kind: str, handler: Handler, emit: Callable[[bytes], None]) -> None:
        self._kind = kind
        self._handler = handler
        self._emit = emit
        self._waiting: "queue.Queue[object]" = queue.Queue(_MAX_WAITING)
        threading.Thread(target=self._run, name=kind, daemon=True).start()

    def submit(self, request: object) -> None:
        """Carry the request out after the one before it; of those that wait, two are kept.

        Returns at once: the caller's thread must notice when the console is gone.
        """
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(request)

    def _run(self) -> None:
        while True:
            request = self._waiting.get()
            if isinstance(request, dict) and isinstance(request.get("id"), int):
                self._answer(request)

    def _answer(self, request: Dict[str, Any]) -> None:
        def reply(part: Dict[str, Any]) -> None:
            self._emit(wire.answer(self._kind, {"id": request["id"], **part}))

        last: Dict[str, Any] = {"done": True}
        try:
            self._handler(request, reply)
        except BadRequest as error:
            last["error"] = str(error)
        except Exception as error:
            last["error"] = f"{type(error).__name__}: {error}"
        with contextlib.suppress(OSError):  # The console is gone: the probe ends by itself.
            reply(last)


def number_between(name: str, value: object, low: float, high: float) -> float:
    """The number `value` of a request. Raises BadRequest unless it is from `low` to `high`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise BadRequest(f"{name} must be {low:g} to {high:g}, not {value!r}")
