"""The agent's probe: restarted when it ends, with a notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fabmon.agent.serve import ProbeReader
from fabmon.agent.streams import ProbeState, Streams
from fabmon.feeds.errors import Ended, Misbehaved, NodeError
from tests.unit.feeds.fakes import FakeNodes, FakeSession


class Rig:
    """A reader whose probes say what the test wants."""

    def __init__(self) -> None:
        self.nodes = FakeNodes()
        self.state = ProbeState()
        self.streams = Streams()
        self.reader = ProbeReader(self.nodes, self.state, self.streams, 0.01, 0.01, 0.1)
        self.running = asyncio.create_task(self.reader.run())

    async def probe(self, number: int) -> FakeSession:
        """The probe that was started as the so many-th."""
        await self.until(lambda: len(self.nodes.opened) == number)
        return self.nodes.sessions["localhost"]

    async def until(self, what: Callable[[], object]) -> None:
        async with asyncio.timeout(240):
            while not what():  # noqa: ASYNC110 - the reader is not to know of tests
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)


async def test_a_probe_that_ends_is_restarted_and_both_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    first = await rig.probe(1)
    first.greet()
    await rig.until(lambda: rig.state.frame_at_ns)
    first.put(Ended("the probe ended with signal 9"))
    second = await rig.probe(2)
    assert first.closed
    assert rig.state.lost["probe"].text == "the probe ended with signal 9"
    second.put(Ended("the probe ended with signal 9"))
    third = await rig.probe(3)
    third.greet()
    await rig.until(lambda: not rig.state.lost)
    await rig.stop()
    assert [record.message for record in caplog.records] == [
        "the probe ended with signal 9",
        "the probe reads again",
    ]
    assert third.closed


async def test_a_probe_that_falls_silent_is_replaced() -> None:
    rig = Rig()
    (await rig.probe(1)).greet()
    await rig.probe(2)
    assert rig.state.lost["probe"].text == "the probe was silent for 0.1 s"
    await rig.stop()


@pytest.mark.parametrize(
    ("said", "kind", "complaint"),
    [
        (b"Segmentation fault\n", Misbehaved, "not a wire message"),
        (Ended("the probe ended with status 2: no source"), Ended, "no source"),
    ],
)
async def test_a_machine_that_cannot_be_read_at_all_ends_the_agent(
    said: bytes | NodeError, kind: type[NodeError], complaint: str
) -> None:
    rig = Rig()
    (await rig.probe(1)).put(said)
    with pytest.raises(kind, match=complaint):
        await rig.running
