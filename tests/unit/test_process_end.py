"""The process ends although a thread hangs, and no file takes the place of a standard stream."""

from __future__ import annotations

import subprocess
import sys

HANGING = """
import asyncio, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from fabmon.session.process_end import leave
from fabmon.session import event_loop

async def main():
    asyncio.ensure_future(asyncio.to_thread(time.sleep, 1000))
    pool = ThreadPoolExecutor(1)
    pool.submit(time.sleep, 1000)
    pool.shutdown(wait=False)
    await asyncio.sleep(0.1)
    return 3

others = threading.enumerate()
status = event_loop.run(main())
print("done", end="")
leave(status, others)
"""

CLOSED = """
import os
from fabmon.session.process_end import open_closed_streams

open_closed_streams()
print(os.open("/dev/null", os.O_RDONLY) > 2, file=open("/dev/fd/9", "w"))
"""


def test_threads_that_hang_do_not_keep_the_process() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "done", "")


def test_no_file_is_opened_in_place_of_a_closed_stream() -> None:
    done = subprocess.run(
        [f"exec {sys.executable} -c '{CLOSED}' 9>&1 <&- >&- 2>&-"],
        shell=True,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout == "True\n"
