"""A key goes before frames and ticks, but not for ever."""

from __future__ import annotations

import asyncio

import pytest

from fabmon import key_priority
from fabmon.fabric.model import Host
from fabmon.fabric.wire.hello_limits import HelloLimits
from fabmon.feeds.session_reader import SessionReader
from fabmon.feeds.ticks import Inbox, RealClock
from fabmon.feeds.token_bucket import TokenBucket
from fabmon.key_priority import KeyPriority
from tests.unit.feeds.fakes import FakeSession


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key is waited for as long as the test takes: none ends because the machine is busy."""
    monkeypatch.setattr(key_priority, "_MOST_S", 3600.0)


@pytest.mark.usefixtures("endless")
async def test_what_can_wait_goes_on_once_the_key_is_on_the_screen() -> None:
    priority = KeyPriority()
    assert not priority.is_waited_for()
    await priority.wait()
    priority.pressed()
    assert priority.is_waited_for()
    waiting = [asyncio.create_task(priority.wait()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    priority.shown()
    await asyncio.gather(*waiting)
    assert not priority.is_waited_for()


async def test_a_key_that_is_never_shown_is_waited_for_a_moment() -> None:
    priority = KeyPriority(lambda: 7.0)
    priority.pressed()
    async with asyncio.timeout(60):
        await asyncio.gather(priority.wait(), priority.wait())
    assert not priority.is_waited_for()


def test_while_a_key_is_held_frames_are_read_in_between() -> None:
    now_s = 7.0
    priority = KeyPriority(lambda: now_s)
    waited = 0
    for _ in range(1000):
        priority.pressed()
        waited += priority.is_waited_for()
        now_s += 0.01
    assert 500 < waited < 700


@pytest.mark.usefixtures("endless")
async def test_frames_stay_in_their_pipe_until_the_key_is_on_the_screen() -> None:
    inbox, clock, session = Inbox(1), RealClock(), FakeSession()
    reader = SessionReader(
        "a",
        session,
        inbox,
        clock,
        HelloLimits(Host(name="a")),
        TokenBucket(10.0, 1.0, clock.monotonic()),
        last_command_ids={},
        on_frame=lambda: None,
    )
    reading = asyncio.create_task(reader.run(None))
    inbox.key_priority = KeyPriority(lambda: 7.0)
    inbox.key_priority.pressed()
    session.greet()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not inbox.frames
    inbox.key_priority.shown()
    async with asyncio.timeout(60):
        await inbox.arrived.wait()
    assert len(inbox.frames) == 1
    reading.cancel()
