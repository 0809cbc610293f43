"""Child processes that are cancelled at any moment, and cancelled again while they are ended."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from fabmon.child_process import ChildProcess

SCRIPT = "setsid sleep 1 <&0 & sleep 300 & wait"


class Child(ChildProcess):
    """Sent more than a pipe holds, which what has left its group keeps open."""

    async def run(self) -> None:
        await self.start("sh", "-c", SCRIPT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            pipe = self.pipe(0)
            assert isinstance(pipe, asyncio.WriteTransport)
            pipe.write(bytes(1 << 20))
            pipe.write_eof()
            await self.wait()
        finally:
            await self.end()


def children() -> list[str]:
    return [
        pid
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    ]


async def pass_turns(turns: int) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


@pytest.mark.parametrize("between", [0, 1, 3])
def test_one_that_is_cancelled_twice_leaves_nothing(
    between: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = list[str]()
    before = children()
    monkeypatch.setattr(sys, "unraisablehook", lambda event: late.append(str(event.exc_value)))

    async def cancel_twice(turns: int) -> None:
        running = asyncio.create_task(Child().run())
        await pass_turns(turns)
        running.cancel()
        await pass_turns(between)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()

    for turns in range(24):
        asyncio.run(cancel_twice(turns))
        assert children() == before
    gc.collect()
    assert late == []


async def test_what_leaves_the_group_and_keeps_the_pipes_does_not_delay_the_end() -> None:
    child = ChildProcess()
    script = "setsid sleep 20 & exit 3"
    await child.start("sh", "-c", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    async with asyncio.timeout(240):
        await child.wait()
        await child.end()
    assert child.status == 3


async def test_a_program_that_is_not_there_is_an_error() -> None:
    child = ChildProcess()
    with pytest.raises(FileNotFoundError):
        await child.start("/nonexistent", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    await child.end()
