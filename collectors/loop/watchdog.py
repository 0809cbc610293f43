"""Runs reads in a thread, one after the other, so that one that hangs can be left behind.

A read of a sick NIC can block for seconds, and no signal wakes it. All reads of a tick share one
thread: handing every source to a thread of its own costs more CPU than reading it does. Only when
a read outlasts its deadline is its thread given up, and a new one takes the reads that are left.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Generic, List, Optional, Sequence, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """One question to one source. `answer` is None until it is answered, however late."""

    def __init__(self, work: Callable[[], T], deadline_s: float) -> None:
        self.work = work
        self.deadline_s = deadline_s
        self.answer: Optional[T] = None


class Watchdog:
    """Runs tasks, waiting for none longer than its deadline."""

    def __init__(self) -> None:
        self._lane = _WorkerThread()

    def run(self, tasks: Sequence[Task[T]]) -> None:
        """Run the tasks in order; each is answered when this returns, or late."""
        rest = list(tasks)
        while rest:
            rest = self._lane.run(rest)
            if rest:
                self._lane = _WorkerThread()
                rest = rest[1:]


class _WorkerThread:
    """One thread. It is used until it hangs; then it ends by itself when the hang does."""

    def __init__(self) -> None:
        self._work: "queue.SimpleQueue[Sequence[Task[Any]]]" = queue.SimpleQueue()
        self._done: "queue.SimpleQueue[None]" = queue.SimpleQueue()
        self._turn = threading.Lock()
        self._abandoned = False
        self._current = 0
        self._since_s = 0.0
        threading.Thread(target=self._go, name="lane", daemon=True).start()

    def run(self, tasks: List[Task[T]]) -> List[Task[T]]:
        """Run the tasks; empty when all were answered, else those from the one that hangs on."""
        self._current, self._since_s = 0, time.monotonic()
        self._work.put(tasks)
        while True:
            with self._turn:
                current, since_s = self._current, self._since_s
            deadline_s = tasks[current].deadline_s if current < len(tasks) else 1.0
            left_s = since_s + deadline_s - time.monotonic()
            try:
                self._done.get(timeout=max(0.0, left_s))
                return []
            except queue.Empty:
                if self._abandon(current):
                    return tasks[current:]

    def _abandon(self, hanging: int) -> bool:
        """Give the lane up, unless the task that seemed to hang has ended meanwhile."""
        with self._turn:
            self._abandoned = self._current == hanging
            return self._abandoned

    def _go(self) -> None:
        while True:
            for task in self._work.get():
                task.answer = task.work()
                if not self._goes_on():
                    return
            self._done.put(None)

    def _goes_on(self) -> bool:
        """Step to the next task; False when the lane was given up during the last one."""
        with self._turn:
            self._current += 1
            self._since_s = time.monotonic()
            return not self._abandoned
