"""The event loop of a run, and the signals that end it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

from fabmon.session.errors import Exit

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_SIGNAL_STATUS = 128
"""The exit status after a signal is this plus the number of the signal."""


class EndSignals:
    """While entered, signals do not kill the process: the first one calls what `on_end` was given.

    Further ones are ignored. A signal that arrives before there is anything to call is remembered.
    """

    def __init__(self, numbers: Sequence[signal.Signals] = _SIGNALS) -> None:
        self._numbers = numbers
        self.status: Exit | None = None
        self._end: Callable[[Exit], None] | None = None

    def __enter__(self) -> Self:
        """Handle the signals. Needs a running event loop."""
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.add_signal_handler(number, self._receive, number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the signals kill the process again."""
        loop = asyncio.get_running_loop()
        for number in self._numbers:
            loop.remove_signal_handler(number)

    def on_end(self, end: Callable[[Exit], None]) -> None:
        """Call `end` with the exit status when a signal arrives; at once if one has arrived."""
        self._end = end
        if self.status is not None:
            end(self.status)

    def _receive(self, number: int) -> None:
        if self.status is not None:
            return
        self.status = Exit(_SIGNAL_STATUS + number)
        if self._end is not None:
            self._end(self.status)


Result = TypeVar("Result")


class _Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: the process waits for them for some seconds."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end when they have no more work. Does not wait."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, as of asyncio.run, which waits for threads without a limit."""

    async def with_threads() -> Result:
        asyncio.get_running_loop().set_default_executor(_Threads())
        return await main

    return asyncio.run(with_threads())
