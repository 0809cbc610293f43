"""What a console asks for beside the frames: done in a thread of its own, one after the other.

An errand is an object with an `id`. Its answer is lines of the wire that carry the same `id`; the
last of them is `done`, with an `error` where there is less than was asked for. Whatever happens to
an errand, frames go on.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any, Callable, Dict, Optional

from collectors import wire

_MOST_WAITING = 2

Emit = Callable[[bytes], None]
Tell = Callable[[Dict[str, Any]], None]
"""Takes a part of the answer, without its id."""

Do = Callable[[Dict[str, Any], Tell], None]
"""Does what is asked for and tells its parts. Raises BadAsk."""


class BadAsk(Exception):
    """The request is not what it should be; the message says how."""


class Errands:
    """Errands of one `kind`, which is also the kind of the lines that answer them.

    `emit` takes lines of the wire from another thread.
    """

    def __init__(self, kind: str, do: Do, emit: Emit) -> None:
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
            except BadAsk as error:
                last["error"] = str(error)
            except Exception as error:
                last["error"] = f"{type(error).__name__}: {error}"
            with contextlib.suppress(OSError):  # Nobody listens any more: the probe ends by itself.
                tell(last)


def number(name: str, value: object, low: float, high: float) -> float:
    """A number of a request. Raises BadAsk unless it is from `low` to `high`."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
        return float(value)
    raise BadAsk(f"{name} must be {low:g} to {high:g}, not {value!r}")
