"""The connect limiter, the token bucket, and folded names."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from collectors import wire
from collectors.wire import LOGGED
from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.model import Host
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.fabric.wire.messages import Hello, Notice, decode
from fabmon.feeds.errors import Ended
from fabmon.feeds.node_watch import ConnectLimiter
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Inbox
from fabmon.feeds.token_bucket import TokenBucket
from tests.unit.feeds.fakes import FakeClock, FakeSession
from tests.unit.feeds.wire_lines import hello_line


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
    await asyncio.wait_for(asyncio.gather(*(pass_through() for _ in range(4))), 240)
    assert done == 4
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)
    entered = asyncio.gather(*(pass_through() for _ in range(4)))
    await asyncio.wait_for(entered, 240)


def test_a_token_bucket_allows_a_burst_and_a_rate() -> None:
    bucket = TokenBucket(10, 2, 0.0)
    assert all(bucket.take(1, 0.0) for _ in range(10))
    assert not bucket.take(1, 0.0)
    bucket = TokenBucket(10, 2, 0.0)
    assert all(bucket.take(2, float(second)) for second in range(1, 1000))


def test_names_are_folded() -> None:
    assert fold(["gpu002", "gpu001", "login1", "gpu003"]) == "gpu[001-003],login1"
    assert fold(["a:b", "10.0.0.1", "10.0.0.2"])
    damaged = f"84{'1' * 110}02"
    assert fold(["gpu002", damaged, "gpu001"]) == f"gpu[001-002],{damaged}"


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


async def test_of_messages_of_the_kernel_a_node_may_send_only_so_many() -> None:
    clock, session, inbox = FakeClock(), FakeSession(), Inbox(1)
    limits = HelloLimits(Host(name="gpu001"))
    reader = SessionReader(
        *("gpu001", session, inbox, clock, limits, TokenBucket(10, 1, 0.0)),
        last_command_ids={},
        on_frame=lambda: None,
    )
    session.greet()
    lines = [wire.notice(LOGGED, "kernel_log", "x", str(n), "xid_79") for n in range(500)]
    stamped = json.loads(lines[0])
    stamped[1]["logged_ns"] = 7
    session.put(json.dumps(stamped).encode(), *lines[1:])
    session.put(wire.notice("lost", "ib", "gone", reason="failed"), Ended("over"))
    with pytest.raises(Ended):
        await reader.run(None)
    notices = [notice for _, notice in inbox.take(0, 0).notices]
    assert [notice.event for notice in notices] == [LOGGED] * 100 + ["lost"]
    assert not any(notice.logged_ns for notice in notices)


async def test_a_hello_drops_conditions_and_keeps_messages() -> None:
    inbox = Inbox(1)
    message = Notice(LOGGED, "kernel_log", "x", "xid_79")
    inbox.notices.append(("gpu001", message))
    inbox.notices.append(("gpu001", Notice("lost", "ib")))
    hello = decode(hello_line(boot_id="one"))
    assert isinstance(hello, Hello)
    inbox.add_hello("gpu001", hello, continues=False)
    assert inbox.take(0, 0).notices == (("gpu001", message),)
