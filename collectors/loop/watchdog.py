"""Runs reads in a thread, one after the other, so that one that hangs can be abandoned.

A read of a faulty NIC can block for seconds, and no signal interrupts it. All reads of a tick share
one thread: a thread for every source costs more CPU than the reads themselves. Only when a read
exceeds its deadline is its thread abandoned, and a new one takes the remaining reads.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from typing import Any, Callable, Generic, List, NamedTuple, Optional, Sequence, TypeVar

from collectors import clock
from collectors.coverage import Coverage
from collectors.source import Failed, Faults, Logged, NoNews, Source, SourceError, from_oserror
from collectors.wire import Object


class DiscoveryResult(NamedTuple):
    """Result of a discovery: `objects`, or the `error` that it met; `coverage` and `limits` in both
    cases.

    `signature` was taken before the discovery.
    """

    objects: List[Object]
    signature: object
    error: Optional[SourceError]
    coverage: List[Coverage]
    limits: List[str]


class Reading(NamedTuple):
    """Result of a read.

    `values` is None when nothing could be read, and then `error` says why; without an error, there
    was nothing new to read. `mono_ns` is the clock at the start of the read, or the clock at which
    the source says that its values were true. `has_changed` is set when the signature was compared
    and the hardware is no longer what it described. `logged` are events since the last read.
    """

    mono_ns: int
    duration_us: int
    values: Optional[List[Optional[int]]]
    faults: Faults
    error: Optional[SourceError]
    has_changed: bool
    logged: Sequence[Logged] = ()


def discover(source: Source) -> DiscoveryResult:
    """Close the source and let it find its objects again."""
    before = signature(source)
    try:
        source.close()
        found = source.discover()
        return DiscoveryResult(found, before, None, source.coverage, source.limits)
    except Exception as error:
        problem = _as_source_error(error)
        return DiscoveryResult([], before, problem, source.coverage, source.limits)


def read(source: Source, *, reads: bool, looks: bool, known: object) -> Reading:
    """Read the source's values if it `reads`; compare its signature with `known` if it `looks`."""
    faults: Faults = {}
    values: Optional[List[Optional[int]]] = None
    logged: Sequence[Logged] = ()
    failure: Optional[SourceError] = None
    start_ns = clock.monotonic_ns()
    try:
        values = source.read(faults) if reads else None
        logged = source.logged() if reads else ()
    except NoNews:
        pass
    except Exception as error:
        failure = _as_source_error(error)
    end_ns = clock.monotonic_ns()
    at_ns = start_ns if source.values_ns is None else min(source.values_ns, end_ns)
    has_changed = looks and signature(source) != known
    return Reading(at_ns, (end_ns - start_ns) // 1000, values, faults, failure, has_changed, logged)


def signature(source: Source) -> object:
    """The source's signature, which changes with its hardware; None when it cannot be had."""
    try:
        return source.signature()
    except Exception:
        return None


def _as_source_error(error: Exception) -> SourceError:
    if isinstance(error, SourceError):
        return error
    if isinstance(error, OSError):
        return from_oserror(error)
    return Failed(f"{type(error).__name__}: {error}")


if sys.version_info >= (3, 7):
    from queue import SimpleQueue
else:
    from queue import Queue as SimpleQueue

T = TypeVar("T")


class Task(Generic[T]):
    """One call of one source. `answer` is None until the call returns, however late."""

    def __init__(self, work: Callable[[], T], deadline_s: float) -> None:
        self.work = work
        self.deadline_s = deadline_s
        self.answer: Optional[T] = None


class Watchdog:
    """Runs tasks, waiting for none longer than its deadline."""

    def __init__(self) -> None:
        self._thread = _WorkerThread()

    def run(self, tasks: Sequence[Task[T]]) -> None:
        """Run the tasks in order. A task that hangs gets its answer later, or never."""
        rest = list(tasks)
        while rest:
            rest = self._thread.run(rest)
            if rest:
                self._thread = _WorkerThread()
                rest = rest[1:]


class _WorkerThread:
    """One thread. It is used until a task hangs in it; it ends when that task returns."""

    def __init__(self) -> None:
        self._work: "SimpleQueue[Sequence[Task[Any]]]" = SimpleQueue()
        self._done: "SimpleQueue[None]" = SimpleQueue()
        self._lock = threading.Lock()
        self._abandoned = False
        self._current = 0
        self._since_s = 0.0
        threading.Thread(target=self._run_all, name="reads", daemon=True).start()

    def run(self, tasks: List[Task[T]]) -> List[Task[T]]:
        """Run the tasks. Empty when all returned, else the task that hangs and all after it."""
        self._current, self._since_s = 0, time.monotonic()
        self._work.put(tasks)
        while True:
            with self._lock:
                current, since_s = self._current, self._since_s
            deadline_s = tasks[current].deadline_s if current < len(tasks) else 1.0
            left_s = since_s + deadline_s - time.monotonic()
            try:
                self._done.get(timeout=max(0.0, left_s))
                return []
            except queue.Empty:
                with self._lock:  # unless the task that seemed to hang has returned meanwhile
                    self._abandoned = self._current == current
                if self._abandoned:
                    return tasks[current:]

    def _run_all(self) -> None:
        while True:
            for task in self._work.get():
                task.answer = task.work()
                with self._lock:
                    self._current += 1
                    self._since_s = time.monotonic()
                    if self._abandoned:
                        return
            self._done.put(None)
