"""Calls that read or write files whose file system may not answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


NO_ANSWER = "its file system does not answer"

START_S = 5.0
"""Seconds that a start waits for a file of the state, without which it goes on: a home that is
mounted when it is needed takes some."""


def in_thread(
    function: Callable[P, Result], *arguments: P.args, **keywords: P.kwargs
) -> Future[Result]:
    """The result of a function, once it has ended in a thread that keeps no process."""
    made = Future[Result]()

    def call() -> None:
        try:
            made.set_result(function(*arguments, **keywords))
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return made


def call_within(
    limit_s: float, function: Callable[P, Result], *arguments: P.args, **keywords: P.kwargs
) -> Result:
    """The result of a function, which runs in a thread. Blocks. Raises what it raises, and OSError
    where it has not ended in time: it then runs on, and the process ends without it."""
    made = in_thread(function, *arguments, **keywords)
    try:
        return made.result(limit_s)
    except TimeoutError:
        if made.done():
            raise
        raise OSError(NO_ANSWER) from None


class LimitedThread:
    """Makes one call at a time in a thread, and waits for it for `limit_s` seconds at most."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._running: asyncio.Future[Any] | None = None

    async def call(
        self, function: Callable[P, Result], *arguments: P.args, **keywords: P.kwargs
    ) -> Result:
        """The result of a function. Raises what it raises, and TimeoutError where it, or the call
        before it, has not ended in time: it then runs on, and no other one begins."""
        async with asyncio.timeout(self._limit_s):
            if self._running is not None:
                # Not cancelled with this call: a thread cannot be, and another one would wait too.
                await asyncio.wait([self._running])
                self._running.exception()  # Nobody waits for it any more.
            made = asyncio.to_thread(function, *arguments, **keywords)
            self._running = asyncio.ensure_future(made)
            await asyncio.wait([self._running])
        ended, self._running = self._running, None
        result: Result = ended.result()
        return result
