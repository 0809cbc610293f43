"""Bursts on the console: put together, judged, and asked for from a real probe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabmon.analysis.burst import BurstSummary, summarise_burst
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState
from fabmon.fabric.wire.messages import Burst, BurstPort, WireError, decode
from fabmon.feeds.live import LiveFeed
from fabmon.history.bursts import BurstAssembler
from fabmon.history.history import History
from tests.fixtures.hosts import ib_host
from tests.unit.feeds.fakes import FakeClock, FakeNodes
from tests.unit.feeds.wire_lines import are, watch

LINE = 400e9
PORTS = (BurstPort("p", "ib", ("ib_tx_bytes", "ib_rx_bytes")),)


def seen(at_s: list[float], bytes_: list[float]) -> BurstSummary:
    found = summarise_burst(np.array(at_s), np.array(bytes_), LINE)
    assert found is not None
    return found


def steady(hz: float, seconds: float, share: float) -> tuple[list[float], list[float]]:
    at_s = np.arange(0, seconds + 0.5 / hz, 1 / hz)
    return at_s.tolist(), (at_s * share * LINE / 8).tolist()


@settings(max_examples=100, deadline=None)
@given(hz=st.floats(20, 100), share=st.floats(0.01, 1.0), seconds=st.floats(1.0, 5.0))
def test_steady_traffic_is_the_same_at_every_pace(hz: float, share: float, seconds: float) -> None:
    found = seen(*steady(hz, seconds, share))
    assert not found.is_coarse
    assert found.resolution_s == pytest.approx(1 / hz)
    assert found.mean_bps == pytest.approx(share * LINE)
    assert found.percentiles_bps == pytest.approx((share * LINE,) * 3)
    assert found.seconds_bps == pytest.approx(share * LINE)


def test_bursts_at_line_rate_that_a_second_hides() -> None:
    """30 ms at 95 % of line rate, then silence, each 100 ms: 28.5 % in the mean."""
    at_s = np.arange(0, 5.001, 0.01)
    busy = (np.arange(len(at_s) - 1) % 10) < 3
    counts = np.concatenate([[0], np.cumsum(busy * 0.95 * LINE / 8 * 0.01)])
    found = seen(at_s.tolist(), counts.tolist())
    assert not found.is_coarse
    assert found.hot_share == pytest.approx(0.3, abs=0.01)
    assert found.longest_hot_s == pytest.approx(0.03)
    assert found.greatest_bps == pytest.approx(0.95 * LINE, rel=0.01)
    assert found.seconds_bps == pytest.approx(0.285 * LINE, rel=0.01)


@settings(max_examples=60, deadline=None)
@given(refresh_s=st.floats(0.05, 0.6), share=st.floats(0.05, 0.95), hz=st.floats(50, 100))
def test_a_counter_that_is_refreshed_more_seldom_says_how_often(
    refresh_s: float, share: float, hz: float
) -> None:
    at_s, counts = steady(hz, 5.0, share)
    held = [np.floor(at / refresh_s) * refresh_s * share * LINE / 8 for at in at_s]
    found = seen(at_s, held)
    assert found.is_coarse
    assert found.resolution_s == pytest.approx(refresh_s, rel=0.1)
    # Without that it would be a link that is idle for most of the time and then beyond its rate.
    assert found.greatest_bps < share * LINE * (1 + 2 / hz / refresh_s)
    assert found.percentiles_bps[0] == pytest.approx(share * LINE, rel=1.2 / hz / refresh_s)
    assert found.mean_bps == pytest.approx(share * LINE, rel=0.1)
    assert counts[-1] >= held[-1]


def test_silence_on_the_link_is_no_coarse_counter() -> None:
    at_s = np.arange(0, 5.001, 0.02)
    busy = ((at_s[1:] > 1.0) & (at_s[1:] < 1.6)) | (at_s[1:] > 4.2)
    counts = np.concatenate([[0], np.cumsum(busy * LINE / 8 * 0.02)])
    found = seen(at_s.tolist(), counts.tolist())
    assert not found.is_coarse
    assert found.longest_hot_s == pytest.approx(0.8, abs=0.03)


def test_there_is_no_summary_of_too_little_or_of_a_reset() -> None:
    assert summarise_burst(np.array([0.0, 0.1]), np.array([0.0, 1.0]), LINE) is None
    assert summarise_burst(np.array([0.0, 0.1, 0.2]), np.array([5.0, 1.0, 2.0]), LINE) is None
    assert summarise_burst(np.array([0.0, 0.1, 0.2]), np.full(3, np.nan), LINE) is None
    unrated = summarise_burst(np.array([0.0, 0.1, 0.2]), np.array([0.0, 1.0, 2.0]), float("nan"))
    assert unrated is not None
    assert np.isnan(unrated.hot_share)


def test_parts_are_put_together_and_the_next_burst_begins_anew() -> None:
    bursts = BurstAssembler()
    bursts.accept([("gpu001", Burst(1, 50, 5, PORTS, {"nv": "none"}))], 7)
    bursts.accept([("gpu001", Burst(1, samples=((10**9, 2**63, 5), (2 * 10**9, 1, None))))], 8)
    port = bursts.of_ports["gpu001", "p"]
    assert (port.time_ns, port.asked_hz, port.done) == (7, 50, False)
    assert port.at_s.tolist() == [0, 1]
    assert port.counts[0].tolist() == [0, float(2**63 + 1)]
    assert port.counts[1][0] == 0
    assert np.isnan(port.counts[1][1])
    assert bursts.of_ports["gpu001", "nv"].error == "none"
    bursts.accept([("gpu001", Burst(1, done=True))], 9)
    assert bursts.of_ports["gpu001", "p"].done
    bursts.accept([("gpu001", Burst(2, 20, 1, PORTS))], 10)
    assert bursts.of_ports["gpu001", "p"].at_s.tolist() == []


def test_samples_of_another_width_or_without_end_are_left_out() -> None:
    bursts = BurstAssembler()
    bursts.accept([("gpu001", Burst(1, 50, 5, PORTS))], 7)
    flood = tuple((n, n, n) for n in range(5000))
    for _ in range(3):
        bursts.accept([("gpu001", Burst(1, samples=((1, 2), *flood)))], 8)
    assert len(bursts.of_ports["gpu001", "p"].at_s) == 8000


def test_a_line_that_is_no_burst_is_refused() -> None:
    with pytest.raises(WireError):
        decode(b'["burst", {"id": 1, "samples": [["x"]]}]')
    with pytest.raises(WireError):
        decode(b'["burst", []]')


async def test_a_burst_from_a_real_probe(tmp_path: Path) -> None:
    tree = ib_host(tmp_path, hcas=2)
    hosts = [Host(name="here", via="local")]
    history = History(hosts, 0.2)

    async def grow() -> None:
        second = 0
        while True:
            second += 1
            tree.grow(second)
            await asyncio.sleep(0.03)

    async with LiveFeed(hosts, interval_s=0.2, root=str(tmp_path)) as feed:
        assert feed.burst("here", ("mlx5_1",), 1.0, 50.0)
        _, ticks = await watch(feed, are(NodeState.UP, "here"))
        for tick in ticks:
            history.accept(tick)
        growing = asyncio.create_task(grow())
        assert feed.burst("here", ("mlx5_1",), 1.0, 50.0) == ""
        assert feed.burst("here", ("mlx5_1",), 1.0, 50.0) == "here already runs a burst"
        assert "reported by another node" in feed.burst("leaf9", ("swp1",), 1.0, 50.0)
        async with asyncio.timeout(240):
            async for tick in feed:
                found = history.accept(tick).bursts.get(("here", "mlx5_1"))
                if found is not None and found.done:
                    break
        growing.cancel()
    assert found is not None
    assert found.error == ""
    assert found.source == "ib"
    assert len(found.at_s) >= 5, "51 where nothing else runs"
    # Of 20 ms: a busy machine makes some of them longer.
    assert np.quantile(np.diff(found.at_s), 0.25) < 0.03
    assert found.counts[0][-1] > 0
    assert summarise_burst(found.at_s, found.counts[0], LINE) is not None


async def test_a_node_without_a_probe_of_ours_refuses_politely() -> None:
    clock, nodes = FakeClock(), FakeNodes()
    hosts = [Host(name="sw1", via="snmp"), Host(name="gpu001", via="ssh")]
    async with LiveFeed(hosts, clock=clock, transports=nodes) as feed:
        await anext(feed)
        await clock.run(0.1)
        for session in nodes.sessions.values():
            session.greet()
        await clock.run(0.5)
        assert feed.burst("sw1", ("e1",), 1, 50) == (
            "sw1 is read through snmp, which cannot sample faster"
        )
        assert feed.burst("gpu001", ("p",), 1, 50) == ""
        assert any(b'"burst"' in line for line in nodes.sessions["gpu001"].sent)


async def test_bursts_that_nobody_asked_for_are_held_against_the_node() -> None:
    clock, nodes = FakeClock(), FakeNodes()
    async with LiveFeed([Host(name="gpu001")], clock=clock, transports=nodes) as feed:
        await anext(feed)
        await clock.run(0.1)
        session = nodes.sessions["gpu001"]
        session.greet()
        session.put(*[b'["burst", {"id": 1, "done": true}]\n'] * 5)
        await clock.run(0.5)
        (status,) = feed.statuses
        assert status.state in (NodeState.LOST, NodeState.FAILED)
        assert "was not requested" in status.reason
