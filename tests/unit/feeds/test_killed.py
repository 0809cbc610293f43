"""After the console is killed no probe is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

CONSOLE = """
import asyncio, sys
from fabmon.fabric.model import Host
from fabmon.feeds.live import LiveFeed

async def main():
    root, *commands = sys.argv[1:]
    hosts = [Host(name="here", via="local")]
    hosts += [Host(name=f"n{i}", via="exec", command=c) for i, c in enumerate(commands)]
    up = set()
    async for tick in LiveFeed(hosts, interval_s=0.2, root=root):
        up |= {node for node, _ in tick.frames}
        if len(up) == len(hosts):
            print("up", flush=True)
            up = set()

asyncio.run(main())
"""


def _marked(mark: str) -> list[int]:
    """Processes with `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_probe_is_left_after_the_console_was_killed(
    empty_root: str, number: signal.Signals
) -> None:
    mark = uuid.uuid4().hex
    commands = ["{python}", "sh -c {probe}", "sh -c 'sh -c \"$1\" | cat' x {probe}"]
    console = subprocess.Popen(
        [sys.executable, "-c", CONSOLE, empty_root, *commands],
        stdout=subprocess.PIPE,
        env={**os.environ, "FABMON_TEST_MARK": mark},
    )
    assert console.stdout is not None
    with console:
        assert console.stdout.readline() == b"up\n"
        assert len(_marked(mark)) >= 5
        console.send_signal(number)
        console.wait(240)
    until = time.monotonic() + 240  # 0.2 s where nothing else runs
    while _marked(mark) and time.monotonic() < until:
        time.sleep(0.05)
    assert _marked(mark) == []
