"""Sources whose facts come from a command that takes its time: asked now and then, in a thread.

No read waits for the answer, and nothing is left running: the thread ends with it. What is told
anew is told by the signature, so that a discovery follows.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from typing import Callable, Generic, List, Optional, Sequence, TypeVar

from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.source import Failed, Faults, NoData, Source, SourceError
from collectors.wire import Object

T = TypeVar("T")

_FIRST_LOOK_S = 0.25
"""How long a discovery waits for the first answer; later ones are announced."""
_SHARE = 0.01
"""Part of the time that a question may take: one that is answered slowly is asked less."""


class BackgroundSource(Source, Generic[T]):
    """Facts that do not tick. `again_s` is the time from one question to the next, at the least."""

    every = 10
    deadline_s = 1.0
    again_s = 30.0

    def __init__(self, host: HostFS) -> None:
        super().__init__(host)
        self._question: Optional[QueryThread[T]] = None
        self._known: Optional[T] = None
        self._error: Optional[SourceError] = None
        self._next_s = 0.0
        self._changes = 0

    @abstractmethod
    def ask(self) -> T:
        """The facts of this machine; called in a thread. Raises SourceError."""

    @abstractmethod
    def captured(self) -> T:
        """The facts that a tree at another root carries. Raises SourceError."""

    @abstractmethod
    def objects(self, facts: T) -> List[Object]:
        """How they are told. Raises NoData when there is nothing to tell."""

    def is_news(self, known: T, facts: T) -> bool:
        """Whether facts are worth telling anew."""
        return known != facts

    def discover(self) -> List[Object]:
        """The facts as last heard. Raises SourceError where there are none."""
        if not self.host.is_live:
            return self.objects(self.captured())
        if self._known is None and self._error is None:
            if self._question is None:
                self._begin()
            if self._question is not None:
                self._question.join(_FIRST_LOOK_S)
            self._hear()
        if self._error is not None:
            raise self._error
        if self._known is None:
            raise NoData("no answer yet")
        return self.objects(self._known)

    def read(self, faults: Faults) -> List[Optional[int]]:
        """Nothing: the facts are all in the objects."""
        return []

    def signature(self) -> object:
        """Changes when something else is told, or nothing any more. Asks again when it is time."""
        if not self.host.is_live:
            return None
        self._hear()
        if self._question is None and time.monotonic() >= self._next_s:
            self._begin()
        return self._changes, ports.signature(self.host)

    def _begin(self) -> None:
        self._next_s = time.monotonic() + self.again_s
        self._question = QueryThread(self.name, self.ask)
        self._question.start()

    def _hear(self) -> None:
        """Take the answer, if there is one."""
        question = self._question
        if question is None or question.is_alive():
            return
        self._question = None
        self._next_s = max(self._next_s, time.monotonic() + question.took_s / _SHARE)
        if self._is_same(question):
            return
        self._known, self._error = question.found, question.error
        self._changes += 1

    def _is_same(self, question: "QueryThread[T]") -> bool:
        if question.found is None or self._known is None:
            both = question.found is None and self._known is None
            return both and self._error is not None and str(question.error) == str(self._error)
        return not self.is_news(self._known, question.found)


class QueryThread(threading.Thread, Generic[T]):
    """One question, and then its answer or why there is none, and how long it took."""

    def __init__(self, name: str, ask: Callable[[], T]) -> None:
        super().__init__(name=name, daemon=True)
        self.found: Optional[T] = None
        self.error: Optional[SourceError] = None
        self.took_s = 0.0
        self._ask = ask
        self._of = name

    def run(self) -> None:
        """Ask."""
        start_s = time.monotonic()
        try:
            self.found = self._ask()
        except SourceError as error:
            self.error = error
        except Exception as error:
            self.error = Failed(f"{self._of}: {error}")
        self.took_s = time.monotonic() - start_s


def command_output(argv: Sequence[str], patience_s: float) -> str:
    """What a command prints. Raises Failed when it ends badly, with what it said, or hangs."""
    import subprocess  # costs milliseconds on nodes that need no command

    name = argv[0].rpartition("/")[2]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=patience_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{name}: no answer in {patience_s:g} s") from None
    except OSError as error:
        raise Failed(f"{name}: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Failed(f"{name}: {said[-1][:200] if said else f'exit status {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")
