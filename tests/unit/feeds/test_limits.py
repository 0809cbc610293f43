"""The connect limiter, the token bucket, and folded names."""

from __future__ import annotations

import asyncio
import subprocess
import sys

from fabmon.fabric.hosts.nodesets import fold
from fabmon.feeds.node_watch import ConnectLimiter
from fabmon.feeds.session_reader import TokenBucket


async def test_the_connect_limiter_lets_width_connections_open() -> None:
    limiter, inside, most = ConnectLimiter(width=3), 0, 0

    async def enter() -> None:
        nonlocal inside, most
        async with limiter.slot():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    await asyncio.gather(*(enter() for _ in range(12)))
    assert most == 3


async def test_a_connection_that_hangs_gives_its_slot_back() -> None:
    limiter = ConnectLimiter(width=2, slow_s=0.05)
    done = 0

    async def hang() -> None:
        async with limiter.slot():
            await asyncio.sleep(30)

    async def pass_through() -> None:
        nonlocal done
        async with limiter.slot():
            done += 1

    hanging = [asyncio.create_task(hang()) for _ in range(4)]
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*(pass_through() for _ in range(4))), 2)
    assert done == 4
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    entered = asyncio.gather(*(pass_through() for _ in range(4)))
    await asyncio.wait_for(entered, 2)


def test_a_token_bucket_allows_a_burst_and_a_rate() -> None:
    bucket = TokenBucket(10, 2, 0.0)
    assert all(bucket.take(1, 0.0) for _ in range(10))
    assert not bucket.take(1, 0.0)
    bucket = TokenBucket(10, 2, 0.0)
    assert all(bucket.take(2, float(second)) for second in range(1, 1000))


def test_names_are_folded() -> None:
    assert fold(["gpu002", "gpu001", "login1", "gpu003"]) == "gpu[001-003],login1"
    assert fold(["a:b", "10.0.0.1", "10.0.0.2"])


def test_names_that_fit_no_node_set_follow_it() -> None:
    odd = ["sw[1", "@all", "gpu[1-99999999999]", "a b"]
    assert fold([*odd, "gpu001", "gpu002"]) == "gpu[001-002],@all,a b,gpu[1-99999999999],sw[1"
    assert fold(odd[:1]) == "sw[1"
    assert fold([]) == ""


def test_the_ssh_library_is_imported_only_for_hosts_that_need_it() -> None:
    program = (
        "import sys; from fabmon.fabric.model import Host; from fabmon.feeds.live import LiveFeed; "
        "LiveFeed([Host(name='a', via='local'), Host(name='b', via='exec', command='openssh')]); "
        "assert 'asyncssh' not in sys.modules; LiveFeed([Host(name='c')]); "
        "assert 'asyncssh' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
