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
from typing import Any, Callable, Generic, List, Optional, Sequence, TypeVar

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
