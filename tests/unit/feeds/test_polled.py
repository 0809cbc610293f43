"""Polled nodes: their readings become the same wire as a probe's."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from collectors.wire import Object
from fabmon.fabric.wire.messages import Frame, Hello, Message, Notice, check, decode
from fabmon.feeds.errors import NodeError, Unreachable
from fabmon.feeds.transports.polled import NodeReading, PolledSession, SourceBlock, SourceFailure

ETH = (Object("eth0", "ethernet", "eth0", {}, ("netdev_tx_bytes",)),)
TWO = (*ETH, Object("eth1", "ethernet", "eth1", {}, ("netdev_tx_bytes",)))


def reading(
    objects: tuple[Object, ...],
    values: Sequence[int | None] | None,
    failures: Mapping[str, SourceFailure] | None = None,
    boot_id: str = "b",
) -> NodeReading:
    return NodeReading(
        [SourceBlock("scrape", objects, values, 1)], {"boot_id": boot_id}, failures or {}
    )


class Replies:
    """A node whose readings are listed; the last one repeats."""

    def __init__(self, *replies: NodeReading | NodeError) -> None:
        self.replies = list(replies)
        self.polls = 0
        self.closed = False

    async def poll(self) -> NodeReading:
        self.polls += 1
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, NodeError):
            raise reply
        return reply

    async def close(self) -> None:
        self.closed = True


async def read_messages(replies: Replies, count: int) -> list[Message]:
    session = PolledSession(replies, "leaf1", 0.01)
    async with asyncio.timeout(240):
        return [decode(await session.readline()) for _ in range(count)]


async def test_a_hello_comes_first_and_again_only_when_the_objects_change() -> None:
    replies = Replies(reading(ETH, [1]), reading(tuple(ETH), [2]), reading(TWO, [3, None]))
    hello, *rest = await read_messages(replies, 5)
    assert isinstance(hello, Hello)
    assert (hello.hostname, hello.boot_id, hello.interval_s) == ("leaf1", "b", 0.01)
    assert [type(each) for each in rest] == [Frame, Frame, Hello, Frame]
    grown, last = rest[2], rest[3]
    assert isinstance(grown, Hello)
    assert isinstance(last, Frame)
    check(last, grown)
    assert last.blocks == [[1, 3, None]]


async def test_a_source_that_was_not_read_this_time_has_no_block() -> None:
    _, _, frame = await read_messages(Replies(reading(ETH, [1]), reading(ETH, None)), 3)
    assert isinstance(frame, Frame)
    assert frame.blocks == [None]


async def test_a_failure_is_reported_when_it_begins_and_when_it_ends() -> None:
    bad = {"dcgm": SourceFailure("failed", "connection refused")}
    replies = Replies(reading(ETH, [1], bad), reading(ETH, [2], bad), reading(ETH, [3]))
    notices = [each for each in await read_messages(replies, 6) if isinstance(each, Notice)]
    assert [(each.event, each.source, each.reason) for each in notices] == [
        ("lost", "dcgm", "failed"),
        ("recovered", "dcgm", ""),
    ]


async def test_a_lasting_failure_is_reported_again_after_a_new_hello() -> None:
    bad = {"dcgm": SourceFailure("failed", "connection refused")}
    lines = await read_messages(Replies(reading(ETH, [1], bad), reading(TWO, [1, 2], bad)), 6)
    assert [type(each) for each in lines] == [Hello, Notice, Frame] * 2


async def test_a_reboot_makes_a_new_hello_with_the_same_objects() -> None:
    lines = await read_messages(Replies(reading(ETH, [9]), reading(ETH, [1], boot_id="c")), 5)
    assert [type(each) for each in lines] == [Hello, Frame, Hello, Frame, Frame]
    assert isinstance(lines[2], Hello)
    assert lines[2].boot_id == "c"


async def test_a_node_that_never_answered_fails_immediately() -> None:
    replies = Replies(Unreachable("nobody there", "refused"))
    with pytest.raises(Unreachable, match="nobody there"):
        await read_messages(replies, 1)
    assert replies.polls == 1


async def test_two_failed_polls_are_tolerated_and_three_are_not() -> None:
    gone = Unreachable("no answer", "timeout")
    replies = Replies(reading(ETH, [1]), gone, gone, reading(ETH, [2]), gone)
    session = PolledSession(replies, "leaf1", 0.01)
    async with asyncio.timeout(240):
        assert [type(decode(await session.readline())) for _ in range(3)] == [Hello, Frame, Frame]
        with pytest.raises(Unreachable):
            await session.readline()
    assert replies.polls == 4 + 3
    await session.close()
    assert replies.closed


async def test_a_change_of_the_nodes_facts_makes_a_new_hello() -> None:
    before, after = reading(ETH, [1]), reading(ETH, [2])._replace(about={"boot_id": "c"})
    hellos = [
        each for each in await read_messages(Replies(before, after), 4) if isinstance(each, Hello)
    ]
    assert [each.boot_id for each in hellos] == ["b", "c"]


async def test_a_counter_width_other_than_the_catalogs_is_in_the_hello() -> None:
    objects = (Object("1", "infiniband", "1", {}, ("ib_tx_wait", "ib_tx_bytes")),)
    wide = reading(objects, [1 << 40, 1])._replace(kinds={"ib_tx_wait": "wrap64"})
    hello, _ = await read_messages(Replies(wide), 2)
    assert isinstance(hello, Hello)
    assert {name: info.kind for name, info in hello.metrics.items()} == {
        "ib_tx_wait": "wrap64",
        "ib_tx_bytes": "wrap64",
    }
    plain, _ = await read_messages(Replies(reading(objects, [1, 1])), 2)
    assert isinstance(plain, Hello)
    assert plain.metrics["ib_tx_wait"].kind == "sat32"
