"""The event loop of a run. It ends although a thread waits for a file system that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")


class _Threads(ThreadPoolExecutor):
    """The threads of `asyncio.to_thread`: `process_end.leave` waits for them, for some seconds."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let threads end when they have no more work. Does not wait."""
        super().shutdown(wait=False, cancel_futures=cancel_futures)


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, as of asyncio.run, which waits for threads without a limit."""

    async def with_threads() -> Result:
        asyncio.get_running_loop().set_default_executor(_Threads())
        return await main

    return asyncio.run(with_threads())
