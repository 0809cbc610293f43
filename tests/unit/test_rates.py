"""Counters become rates: wrap, reset, saturation, gaps, and the node's own clock."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import wire
from collectors.wire import Object
from fabmon.fabric.wire.messages import Frame, Hello, MetricInfo, decode
from fabmon.history.live_rates import FrameSlots, LiveRates
from tests.builders import SECOND_NS, frame

WRAP64, WRAP32, SAT16, GAUGE = (
    "netdev_tx_bytes",
    "netdev_carrier_changes",
    "ib_symbol_errors",
    "netdev_mtu",
)


def advance(rates: LiveRates, now_s: float) -> None:
    """What a history does at the end of a tick."""
    rates.advance()
    rates.discard(rates.stale(now_s))


class OneNode:
    """A node with one series of one metric."""

    def __init__(self, metric: str) -> None:
        self.rates = LiveRates()
        layout = wire.BlockLayout("s", 1, [Object("o", "ethernet", "o", {}, (metric,))])
        message = decode(wire.hello([layout], {"interval_s": 1.0}))
        assert isinstance(message, Hello)
        self.hello = message
        self.slots = self.rates.add(message)
        self.now_s = 0.0

    def sample(self, value: int | None, mono_s: float) -> float:
        self.now_s = mono_s
        hello = frame(0, value, mono_ns=int(mono_s * SECOND_NS))
        self.rates.accept([(self.slots, hello)], self.now_s)
        return self.advance(mono_s)

    def advance(self, now_s: float) -> float:
        advance(self.rates, now_s)
        return float(self.rates.rate[self.slots.starts[0] + 1])

    @property
    def is_saturated(self) -> bool:
        return bool(self.rates.saturated[self.slots.starts[0] + 1])


def test_the_first_sample_has_no_rate() -> None:
    assert math.isnan(OneNode(WRAP64).sample(1000, 1.0))


def test_the_rate_is_per_second_of_the_nodes_clock() -> None:
    node = OneNode(WRAP64)
    node.sample(1000, 1.0)
    assert node.sample(3000, 1.5) == pytest.approx(4000)


@given(before=st.integers(0, 2**64 - 1), step=st.integers(0, 2**40), dt_s=st.floats(0.1, 10))
def test_a_64_bit_counter_has_a_rate_unless_it_went_down(
    before: int, step: int, dt_s: float
) -> None:
    node = OneNode(WRAP64)
    node.sample(before, 1.0)
    rate = node.sample((before + step) % 2**64, 1.0 + dt_s)
    if before + step >= 2**64:
        assert math.isnan(rate)
    else:
        dt_ns = int((1.0 + dt_s) * SECOND_NS) - SECOND_NS
        assert rate == pytest.approx(step / dt_ns * 1e9, rel=1e-6)


@given(before=st.integers(0, 2**32 - 1), step=st.integers(0, 499_999_999))
def test_a_32_bit_counter_wraps(before: int, step: int) -> None:
    node = OneNode(WRAP32)
    node.sample(before, 1.0)
    assert node.sample((before + step) % 2**32, 2.0) == pytest.approx(step, rel=1e-6)


def test_a_32_bit_counter_that_goes_down_too_far_was_reset() -> None:
    node = OneNode(WRAP32)
    node.sample(2**31 - 5, 1.0)
    assert math.isnan(node.sample(3, 2.0))
    assert node.sample(4, 3.0) == pytest.approx(1)


@pytest.mark.parametrize("before", [3_000_000_000, 3_700_000_000])
def test_a_32_bit_counter_that_would_have_wrapped_too_fast_was_reset(before: int) -> None:
    node = OneNode(WRAP32)
    node.sample(before, 1.0)
    assert math.isnan(node.sample(5, 2.0))
    assert node.sample(6, 3.0) == pytest.approx(1)


def test_a_32_bit_counter_that_is_read_rarely_may_wrap_by_more() -> None:
    node = OneNode(WRAP32)
    node.sample(3_000_000_000, 1.0)
    assert node.sample(705_032_704, 11.0) == pytest.approx(200e6)


def test_a_saturated_counter_is_unknown_not_quiet() -> None:
    node = OneNode(SAT16)
    assert math.isnan(node.sample(65535, 1.0))
    assert node.is_saturated
    assert math.isnan(node.sample(65535, 2.0))


def test_a_counter_that_reaches_its_maximum_rose_by_the_difference_at_least() -> None:
    node = OneNode(SAT16)
    node.sample(60000, 1.0)
    assert node.sample(65535, 2.0) == pytest.approx(5535)
    assert node.is_saturated
    assert math.isnan(node.sample(65535, 3.0))


def test_a_saturating_counter_that_was_cleared_starts_again() -> None:
    node = OneNode(SAT16)
    node.sample(65535, 1.0)
    assert math.isnan(node.sample(7, 2.0))
    assert not node.is_saturated
    assert node.sample(9, 3.0) == pytest.approx(2)


def test_a_gauge_is_its_level() -> None:
    node = OneNode(GAUGE)
    assert node.sample(9000, 1.0) == 9000
    assert node.sample(1500, 2.0) == 1500


def test_an_absent_value_is_absent_and_the_next_rate_waits_for_two_samples() -> None:
    node = OneNode(WRAP64)
    node.sample(10, 1.0)
    assert math.isnan(node.sample(None, 2.0))
    assert math.isnan(node.sample(30, 3.0))
    assert node.sample(40, 4.0) == pytest.approx(10)


@pytest.mark.parametrize("nonsense", [-1, 2**64, 2**80])
def test_a_value_that_no_counter_can_have_is_absent(nonsense: int) -> None:
    node = OneNode(WRAP64)
    node.sample(10, 1.0)
    assert math.isnan(node.sample(nonsense, 2.0))


def test_a_clock_that_goes_back_gives_no_rate() -> None:
    node = OneNode(WRAP64)
    node.sample(10, 5.0)
    assert math.isnan(node.sample(20, 2.0))
    assert node.sample(30, 3.0) == pytest.approx(10)


def test_a_rate_is_kept_while_the_node_is_late_and_discarded_when_it_is_stale() -> None:
    node = OneNode(WRAP64)
    node.sample(0, 1.0)
    node.sample(5, 2.0)
    assert node.advance(4.4) == pytest.approx(5)
    assert math.isnan(node.advance(4.6))


def test_a_node_that_reconnects_starts_without_values_in_the_same_slots() -> None:
    node = OneNode(WRAP64)
    node.sample(100, 1.0)
    size = node.rates.size
    node.slots = node.rates.add(node.hello, node.slots)
    assert node.rates.size == size
    assert math.isnan(node.sample(200, 2.0))
    assert node.sample(300, 3.0) == pytest.approx(100)


@given(widths=st.lists(st.integers(1, 5), min_size=1, max_size=40))
def test_nodes_keep_their_values_while_the_capacity_grows(widths: list[int]) -> None:
    rates = LiveRates()
    all_slots = []
    for number, width in enumerate(widths):
        item = Object("o", "ethernet", "o", {}, (GAUGE,) * width)
        layout = wire.BlockLayout("s", 1, [item])
        message = decode(wire.hello([layout], {"interval_s": 1.0}))
        assert isinstance(message, Hello)
        slots = rates.add(message)
        rates.accept([(slots, frame(0, *[number] * width))], 1.0)
        all_slots.append(slots)
    advance(rates, 1.0)
    for number, slots in enumerate(all_slots):
        start = slots.starts[0] + 1
        assert (rates.rate[start : slots.stop] == number).all()


def gauges(width: int) -> Hello:
    """A hello of one block of so many gauges; of none without any."""
    item = Object("o", "ethernet", "o", {}, (GAUGE,) * width)
    message = decode(
        wire.hello([wire.BlockLayout("s", 1, [item])] * (width > 0), {"interval_s": 1})
    )
    assert isinstance(message, Hello)
    return message


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60))
def test_layouts_that_change_for_ever_take_bounded_memory_and_disturb_no_other_node(
    hellos: list[tuple[int, int]],
) -> None:
    rates = LiveRates()
    widths: dict[int, int] = {}
    all_slots: dict[int, FrameSlots] = {}
    for seq, (node, width) in enumerate(hellos):
        widths[node] = width
        all_slots[node] = rates.add(gauges(width), all_slots.get(node))
        frames = [
            (all_slots[each], Frame(seq, seq, seq, [[seq, *[each] * count]] * (count > 0)))
            for each, count in widths.items()
        ]
        rates.accept(frames, float(seq))
        advance(rates, float(seq))
        for each, slots in all_slots.items():
            assert (rates.rate[slots.start + 1 : slots.stop] == each).all()
    assert rates.size <= 4 * 10 * len(widths)


@pytest.mark.parametrize("kind", ["sat\u00b2", "sat", "sat0", "sat65", "sat" + "9" * 390])
def test_an_unknown_kind_is_a_gauge(kind: str) -> None:
    hello = msgspec.structs.replace(
        OneNode(GAUGE).hello, metrics={GAUGE: MetricInfo("bytes", kind)}
    )
    rates = LiveRates()
    slots = rates.add(hello)
    rates.accept([(slots, frame(0, 7))], 1.0)
    advance(rates, 1.0)
    assert rates.rate[slots.starts[0] + 1] == 7


def test_a_frame_that_does_not_fit_its_slots_is_ignored() -> None:
    rates = LiveRates()
    hello = OneNode(GAUGE).hello
    bad, good = rates.add(hello), rates.add(hello)
    rates.accept([(good, frame(0, 9000))], 1.0)
    for wrong in (
        frame(0, 1, 2, 3),
        frame(0),
        Frame(0, 1, 1, [[1, 2], [1, 2]]),
        Frame(0, 1, 1, []),
    ):
        rates.accept([(bad, wrong)], 1.0)
    advance(rates, 1.0)
    assert rates.rate[good.starts[0] + 1] == 9000
    assert math.isnan(rates.rate[bad.starts[0] + 1])


def test_a_node_may_have_no_counters() -> None:
    rates = LiveRates()
    message = decode(wire.hello([], {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    rates.accept([(rates.add(message), Frame(0, 1, 1, []))], 1.0)
    advance(rates, 1.0)
