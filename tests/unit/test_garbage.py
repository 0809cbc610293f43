"""What the garbage collector visits while nodes connect, and later."""

from __future__ import annotations

import gc
import os
import platform

import pytest

from fabmon.fabric.garbage_collection import GarbageSchedule
from fabmon.fabric.tick import Tick
from tests.bench.process import rss_mb
from tests.builders import hello

pytestmark = pytest.mark.usefixtures("unchanged_collector")


def _tick(seq: int, *nodes: str) -> Tick:
    return Tick(seq, seq * 10**9, hellos=tuple((node, hello()) for node in nodes))


def test_what_new_nodes_reported_is_visited_no_more_once_all_have() -> None:
    schedule = GarbageSchedule()
    facts = [[] for _ in range(1000)]  # type: list[list[int]]
    before = gc.get_freeze_count()
    schedule.accept(_tick(0, "a", "b"))
    schedule.accept(_tick(1, "c"))
    assert gc.get_freeze_count() <= before
    schedule.accept(_tick(2))
    assert gc.get_freeze_count() >= before + len(facts)


def test_cycles_are_freed_once_a_minute() -> None:
    now_s = 0.0
    schedule = GarbageSchedule(lambda: now_s)
    freed: list[int] = []
    cycle: list[object] = [_Freed(freed)]
    cycle.append(cycle)
    gc.collect(0)
    gc.collect(1)
    del cycle
    schedule.accept(_tick(0))
    assert not freed
    now_s = 61.0
    schedule.accept(_tick(1))
    assert freed == [1]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_memory_freed_between_what_stays_is_returned_once_a_minute() -> None:
    now_s = 0.0
    schedule = GarbageSchedule(lambda: now_s)
    schedule.accept(_tick(0))
    blocks = [bytes(20_000) for _ in range(4000)]
    stays = blocks[::10]
    del blocks
    full_mb = rss_mb(os.getpid())
    now_s = 61.0
    schedule.accept(_tick(1))
    assert stays
    assert rss_mb(os.getpid()) < full_mb - 40


class _Freed:
    """Notes that it was freed."""

    def __init__(self, freed: list[int]) -> None:
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append(1)


def test_a_node_that_restarts_freezes_nothing() -> None:
    schedule = GarbageSchedule()
    schedule.accept(_tick(0, "a"))
    schedule.accept(_tick(1))
    frozen = gc.get_freeze_count()
    kept = [[] for _ in range(1000)]  # type: list[list[int]]
    schedule.accept(_tick(2, "a"))
    schedule.accept(_tick(3))
    assert kept
    assert gc.get_freeze_count() <= frozen
