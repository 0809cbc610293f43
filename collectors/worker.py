"""A source in a thread of its own, so that a read that hangs costs that source and nothing else."""

from __future__ import annotations

import queue
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from collectors.source import Failed, Faults, Object, Source, SourceError, from_oserror


class Found(NamedTuple):
    """What a discovery brought; `objects` is empty when there is nothing of the source's kind."""

    objects: List[Object]
    signature: object
    error: Optional[SourceError]


class Reading(NamedTuple):
    """What a read brought. `values` is None when nothing could be read; then `error` says why."""

    mono_ns: int
    duration_us: int
    values: Optional[List[Optional[int]]]
    faults: Faults
    error: Optional[SourceError]


class Worker:
    """Asks one source, one question at a time, and never waits longer than its caller allows.

    While a question is unanswered the worker is `busy` and must not be asked another; `settle`
    throws away an answer that came too late.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.busy = False
        self._ask: "queue.SimpleQueue[str]" = queue.SimpleQueue()
        self._answers: "queue.SimpleQueue[object]" = queue.SimpleQueue()
        threading.Thread(target=self._work, name=source.name, daemon=True).start()

    def discover(self) -> None:
        """Start looking for objects; `found` has the answer."""
        self._start("discover")

    def found(self, timeout_s: float) -> Optional[Found]:
        """The discovery's answer; None when it is not there in time."""
        answer = self._wait(timeout_s)
        return answer if isinstance(answer, Found) else None

    def read(self, timeout_s: float) -> Optional[Reading]:
        """The source's values now; None when they are not there in time."""
        self._start("read")
        answer = self._wait(timeout_s)
        return answer if isinstance(answer, Reading) else None

    def signature(self, timeout_s: float) -> Optional[List[object]]:
        """The source's signature, in a list of one; None when it is not there in time."""
        self._start("signature")
        answer = self._wait(timeout_s)
        return answer if isinstance(answer, list) else None

    def settle(self) -> bool:
        """Whether a late answer has come at last; it is thrown away."""
        return self._wait(0.0) is not None

    def _start(self, question: str) -> None:
        self.busy = True
        self._ask.put(question)

    def _wait(self, timeout_s: float) -> Optional[object]:
        try:
            answer = self._answers.get(block=timeout_s > 0, timeout=timeout_s)
        except queue.Empty:
            return None
        self.busy = False
        return answer

    def _work(self) -> None:
        answers: Dict[str, Callable[[], object]] = {
            "discover": self._discover,
            "read": self._read,
            "signature": self._signature,
        }
        while True:
            self._answers.put(answers[self._ask.get()]())

    def _discover(self) -> Found:
        try:
            self.source.close()
            signature = self.source.signature()
            return Found(self.source.discover(), signature, None)
        except SourceError as error:
            return Found([], None, error)
        except OSError as error:
            return Found([], None, from_oserror(error))
        except Exception as error:
            return Found([], None, Failed(f"{type(error).__name__}: {error}"))

    def _read(self) -> Reading:
        faults: Faults = {}
        values: Optional[List[Optional[int]]] = None
        error: Optional[SourceError] = None
        start_ns = time.monotonic_ns()
        try:
            values = self.source.read(faults)
        except SourceError as caught:
            error = caught
        except OSError as caught:
            error = from_oserror(caught)
        except Exception as caught:
            error = Failed(f"{type(caught).__name__}: {caught}")
        duration_us = (time.monotonic_ns() - start_ns) // 1000
        return Reading(start_ns, duration_us, values, faults, error)

    def _signature(self) -> List[object]:
        try:
            return [self.source.signature()]
        except OSError:
            return [None]
