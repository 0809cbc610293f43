"""Sources whose facts come from a slow command, which runs now and then in a thread.

No read waits for the command, and nothing is left running: the thread ends with it. New facts
change the signature, so that a discovery follows.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import deque
from typing import Callable, Deque, Generic, List, Optional, Sequence, Tuple, TypeVar

from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.source import Failed, Faults, NoData, Source, SourceError
from collectors.wire import Object

T = TypeVar("T")

_FIRST_QUERY_S = 0.25
"""How long a discovery waits for the first result; later ones change the signature."""
_MAX_DUTY = 0.01
"""Greatest share of the time that queries may take: a slow query is repeated less often."""


class BackgroundSource(Source, Generic[T]):
    """Facts that are not counters, from the output of a command.

    A tree at another root carries that output in the file `capture`. `repeat_s` is the minimum time
    from one query to the next.

    `running` is the query in progress, `next_query_s` the monotonic clock from which the next one
    may start.
    """

    every = 10
    deadline_s = 1.0
    repeat_s = 30.0
    capture = ""

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self.running: Optional[QueryThread[T]] = None
        self._known: Optional[T] = None
        self._error: Optional[SourceError] = None
        self.next_query_s = 0.0
        self._changes = 0

    @abstractmethod
    def output(self) -> str:
        """The output of the command on this machine; called in a thread. Raises SourceError."""

    @abstractmethod
    def parse(self, text: str) -> T:
        """The facts in the command's output. Raises Failed for other output."""

    @abstractmethod
    def objects(self, facts: T) -> List[Object]:
        """The objects that report the facts. Raises NoData when there is nothing to report."""

    def differs(self, known: T, facts: T) -> bool:
        """Whether the facts differ from those reported before."""
        return known != facts

    def discover(self) -> List[Object]:
        """The latest facts. Raises SourceError where there are none."""
        if not self.host.is_live:
            return self.objects(self.parse(self._captured()))
        if self._known is None and self._error is None:
            if self.running is None:
                self._start()
            if self.running is not None:
                self.running.join(_FIRST_QUERY_S)
            self._collect()
        if self._error is not None:
            raise self._error
        if self._known is None:
            raise NoData("no answer yet")
        return self.objects(self._known)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """No values: all facts are in the objects."""
        return []

    def signature(self) -> object:
        """Changes when the facts change or are lost. Starts the next query when it is due."""
        if not self.host.is_live:
            return None
        self._collect()
        if self.running is None and time.monotonic() >= self.next_query_s:
            self._start()
        return self._changes, ports.signature(self.host)

    def _start(self) -> None:
        self.next_query_s = time.monotonic() + self.repeat_s
        self.running = QueryThread(self.name, lambda: self.parse(self.output()))
        self.running.start()

    def _captured(self) -> str:
        try:
            with open(self.host.path(self.capture), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            raise NoData(f"no {self.capture} in this tree") from None

    def _collect(self) -> None:
        """Take the result of a query that has ended."""
        query = self.running
        if query is None or query.is_alive():
            return
        self.running = None
        self.next_query_s = max(self.next_query_s, time.monotonic() + query.duration_s / _MAX_DUTY)
        if query.found is not None and self._known is not None:
            is_same = not self.differs(self._known, query.found)
        else:
            is_same = query.found is self._known and str(query.error) == str(self._error)
        if not is_same:
            self._known, self._error = query.found, query.error
            self._changes += 1


class QueryThread(threading.Thread, Generic[T]):
    """One query, then its result `found` or its `error`, and its duration."""

    def __init__(self, name: str, query: Callable[[], T]) -> None:
        super().__init__(name=name, daemon=True)
        self.found: Optional[T] = None
        self.error: Optional[SourceError] = None
        self.duration_s = 0.0
        self._query = query

    def run(self) -> None:
        """Run the query."""
        start_s = time.monotonic()
        try:
            self.found = self._query()
        except SourceError as error:
            self.error = error
        except Exception as error:
            self.error = Failed(f"{self.name}: {error}")
        self.duration_s = time.monotonic() - start_s


def command_output(argv: Sequence[str], timeout_s: float) -> str:
    """What a command prints. Raises Failed with its last error line, or when it takes too long."""
    import subprocess  # costs milliseconds on nodes that need no command

    name = argv[0].rpartition("/")[2]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{name}: no answer in {timeout_s:g} s") from None
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None
    if done.returncode:
        errors = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"{name}: {errors[-1][:200] if errors else f'exit status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def last_lines(argv: Sequence[str], most: int, timeout_s: float) -> Tuple[List[str], int]:
    """The last `most` lines that a command prints, and how many came before them, however many it
    prints. Raises Failed with its last error line, or when it takes too long."""
    import subprocess

    name = argv[0].rpartition("/")[2]
    kept: Deque[bytes] = deque(maxlen=most)
    count = 0
    late = threading.Event()
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None

    def end() -> None:
        late.set()
        process.kill()

    timer = threading.Timer(timeout_s, end)
    timer.daemon = True
    timer.start()
    with process:
        for line in process.stdout or ():
            kept.append(line)
            count += 1
        errors = process.stderr.read() if process.stderr is not None else b""
    timer.cancel()
    if late.is_set():
        raise Failed(f"{name}: no answer in {timeout_s:g} s")
    if process.returncode:
        said = errors.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"{name}: {said[-1][:200] if said else f'exit status {process.returncode}'}")
    return [line.decode("utf-8", "replace") for line in kept], count - len(kept)
