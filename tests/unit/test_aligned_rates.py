"""Rates between common instants, from counters that are read at different ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import build_structure
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import Host
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Frame
from fabmon.history.aligned_rates import AlignedRates
from fabmon.history.history import History
from fabmon.history.ring import RateRing
from fabmon.recording.format.records import SessionRecord
from fabmon.recording.writing.writer import Writer
from tests.builders import SECOND_NS, START_NS, hello, port
from tests.unit.recording.builders import ticks_in

LINE_BPS = 80e9
TICK_S = 0.3
"""When in a second the console's ticks are, as those of a live feed."""

HOUR_S = 3600.0

_NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
"""A failing example is as readable as a shrunk one, which takes minutes."""


def square(period_s: float, share: float = 0.5, shift_s: float = 0.0) -> Callable[[float], float]:
    """Bytes sent until a time, of a link that sends at line rate for a share of each period."""

    def sent(time_s: float) -> float:
        periods, into_s = divmod(time_s + shift_s, period_s)
        return (periods * share * period_s + min(into_s, share * period_s)) * LINE_BPS / 8

    return sent


@dataclass
class Sampled:
    """A node with one port, read once a second at `phase_s`; `late` are seconds whose frame comes
    a tick later, `wall_off_s` is what its wall clock is ahead at a time. From second `lost_at` on
    its counter is absent."""

    sent: Callable[[float], float]
    phase_s: float = 0.0
    late: frozenset[int] = frozenset()
    wall_off_s: Callable[[float], float] = lambda time_s: 0.0
    jitter_s: Sequence[float] = (0.0,)
    lost_at: float = math.inf
    boot_s: float = field(default=-1000.0)

    def sampled_s(self, second: int) -> float:
        return second + self.phase_s + self.jitter_s[second % len(self.jitter_s)]

    def frame(self, second: int) -> Frame:
        time_s = self.sampled_s(second)
        mono_ns = round((time_s - self.boot_s) * 1e9)
        wall_ns = START_NS + round((time_s + self.wall_off_s(time_s)) * 1e9)
        # A counter in bytes is exact at 80 Gb/s: rounding is below a millionth.
        sent = round(self.sent(time_s)) if second < self.lost_at else None
        return Frame(second, wall_ns, mono_ns, [[mono_ns, sent]])

    def arrives_at(self, second: int) -> int:
        """The tick that has the frame of a second."""
        tick = int(np.ceil(self.sampled_s(second) - TICK_S))
        return tick + (second in self.late)


def ticks(nodes: Sequence[Sampled], seconds: int) -> list[Tick]:
    """The console's ticks: each has what was sampled up to 0.3 s of its second, late frames
    excepted."""
    said = hello(port("eth0", metrics=("netdev_tx_bytes",)))
    names = [f"n{number}" for number in range(len(nodes))]
    arriving: dict[int, list[tuple[str, Frame]]] = {}
    for name, node in zip(names, nodes, strict=True):
        at = 0
        for second in range(seconds):
            # Frames of a node stay in order: behind a late one the next waits.
            at = max(at, node.arrives_at(second))
            arriving.setdefault(at, []).append((name, node.frame(second)))
    return [
        Tick(
            seq,
            START_NS + round((seq + TICK_S) * SECOND_NS),
            hellos=tuple((name, said) for name in names) if seq == 0 else (),
            frames=tuple(arriving.get(seq, [])),
        )
        for seq in range(seconds)
    ]


def judged(nodes: Sequence[Sampled], seconds: int = 24) -> tuple[Snapshot, DetectorInput]:
    """The last tick."""
    history = History([Host(name=f"n{number}") for number in range(len(nodes))])
    for tick in ticks(nodes, seconds):
        snapshot = history.accept(tick)
    return snapshot, DetectorInput(snapshot, build_structure(snapshot.fabric))


def gbps(window: Floats) -> list[list[float]]:
    return [(each / 1e9).round(1).tolist() for each in window]


def test_samples_that_coincide_are_used_as_they_are() -> None:
    snapshot, inputs = judged([Sampled(square(4)), Sampled(square(4), phase_s=0.015)])
    raw = snapshot.window("tx_bps", range(2), 10)
    assert np.array_equal(inputs.window("tx_bps"), raw)
    assert snapshot.aligned.spread_s(10, snapshot.seq) == pytest.approx(0.015, abs=1e-5)


def test_equal_links_that_are_sampled_half_a_second_apart_send_the_same() -> None:
    nodes = [Sampled(square(3)), Sampled(square(3), phase_s=-0.5)]
    snapshot, inputs = judged(nodes)
    sent = inputs.window("tx_bps").mean(axis=1)
    assert sent[1] == pytest.approx(sent[0], rel=0.05)
    assert snapshot.aligned.spread_s(10, snapshot.seq) == pytest.approx(0.5, abs=0.01)
    raw = snapshot.window("tx_bps", range(2), 10).mean(axis=1)
    assert abs(raw[1] / raw[0] - 1) > abs(sent[1] / sent[0] - 1)


def test_a_late_frame_is_neither_a_gap_nor_a_repeated_rate() -> None:
    late = Sampled(square(4), late=frozenset({18}))
    snapshot, inputs = judged([Sampled(square(4)), Sampled(square(4)), late])
    on_time, _, corrected = gbps(inputs.window("tx_bps"))
    assert corrected == on_time
    assert gbps(snapshot.window("tx_bps", range(3), 10))[2] != on_time


def test_a_node_that_is_late_now_is_unknown_now_and_holds_nobody_back() -> None:
    late = Sampled(square(4), late=frozenset({23}))
    snapshot, inputs = judged([Sampled(square(4)), Sampled(square(4)), late])
    window = inputs.window("tx_bps")
    assert gbps(window[:2]) == gbps(snapshot.window("tx_bps", range(2), 10))
    assert np.isnan(window[2]).tolist() == [False] * 9 + [True]


def test_a_node_at_the_boundary_of_two_slots_leaves_nobody_unknown() -> None:
    """In earlier ticks some of its samples are in the slot after theirs; that after the last one is
    still to come, and holds nothing yet."""
    boundary = Sampled(square(6), jitter_s=(0.0, 0.02, -0.02))
    _, inputs = judged([Sampled(square(6), phase_s=0.25), boundary], 22)
    assert np.isfinite(inputs.window("tx_bps")).all()


def test_a_counter_that_is_lost_is_known_until_then() -> None:
    """Also where a node at the boundary of two slots has a sample in the slot after."""
    lost = Sampled(square(6), lost_at=21)
    boundary = Sampled(square(6), jitter_s=(0.0, 0.02, -0.02))
    others = [Sampled(square(6), phase_s=0.25), boundary]
    for seconds in (22, 23, 24):
        _, inputs = judged([*others, lost], seconds)
        unknown = np.isnan(inputs.window("tx_bps"))
        assert not unknown[:2].any()
        assert unknown[2].sum() == seconds - 21


def test_a_port_that_is_new_on_a_node_has_no_past() -> None:
    aligned = AlignedRates(1.0, RateRing(60))
    for seq in range(12):
        ports = 2 if seq < 9 else 3
        aligned.regroup(np.array([0, 1, 1])[:ports], np.array([False, False]))
        end_s = np.array([seq + 1.0, seq + 1.3])
        heat = np.full((len(HEAT), ports), 5, np.float32)
        aligned.append(seq, heat, end_s - 1, end_s)
    window = aligned.window("tx_bps", 6, 11)
    assert (window[:2] == 5).all()
    assert np.isnan(window[2, :2]).all()
    assert (window[2, 4:] == 5).all()


def test_a_read_that_was_late_and_the_next_one_are_two_samples() -> None:
    aligned = AlignedRates(1.0, RateRing(60))
    aligned.regroup(np.array([0, 1]), np.array([False, False]))
    late_s = 4.0
    for seq in range(9):
        before_s, late_s = late_s if seq > 4 else seq - 1.0, seq + 0.6 * (seq == 5)
        rate = 50 if seq == 6 else 10
        heat = np.tile(np.array([10, rate], np.float32), (len(HEAT), 1))
        end_s = np.array([float(seq), late_s])
        aligned.append(seq, heat, np.array([seq - 1.0, before_s]), end_s)
    window = aligned.window("tx_bps", 4, 8)
    assert window[1] == pytest.approx([10, 0.6 * 10 + 0.4 * 50, 10, 10])


def test_a_tick_in_which_nothing_arrived_repeats_no_rate() -> None:
    nodes = [Sampled(square(4), late=frozenset({19})) for _ in range(3)]
    _, inputs = judged(nodes)
    _, on_time = judged([Sampled(square(4)) for _ in range(3)])
    assert gbps(inputs.window("tx_bps")) == gbps(on_time.window("tx_bps"))


@pytest.mark.parametrize(
    "wall_off_s",
    [
        lambda time_s: HOUR_S,
        lambda time_s: -HOUR_S,
        lambda time_s: HOUR_S * (int(time_s) % 2),
        lambda time_s: HOUR_S if time_s > 18 else 0.0,
        lambda time_s: 0.7 * (int(time_s) % 2),
    ],
    ids=["ahead", "behind", "to and fro", "stepped", "to and fro by less than a second"],
)
def test_a_wrong_wall_clock_costs_nothing(wall_off_s: Callable[[float], float]) -> None:
    wrong = Sampled(square(4), wall_off_s=wall_off_s)
    others = [Sampled(square(4)), Sampled(square(4)), Sampled(square(4))]
    _, inputs = judged([*others, wrong])
    window = gbps(inputs.window("tx_bps"))
    assert window[3] == window[0]
    late = Sampled(square(4), late=frozenset({18}), wall_off_s=wall_off_s)
    _, inputs = judged([*others, late])
    assert gbps(inputs.window("tx_bps"))[3] == window[0]


def test_a_layout_that_changes_within_a_tick_forgets_the_early_samples_of_the_one_before() -> None:
    aligned = AlignedRates(1.0, RateRing(60))
    aligned.regroup(np.array([0]), np.array([False]))
    heat = np.ones((len(HEAT), 1), np.float32)
    aligned.add_early(heat, np.array([0.0]), np.array([1.0]))
    aligned.regroup(np.array([0, 1]), np.array([False, False]))
    heat = np.ones((len(HEAT), 2), np.float32)
    aligned.append(0, heat, np.array([0.5, 0.5]), np.array([1.5, 1.5]))
    assert aligned.spread_s(1, 0) == 0.0


def test_the_past_of_a_port_that_was_reset_is_not_invented() -> None:
    def sent(time_s: float) -> float:
        return square(2)(time_s) + (1e15 if time_s < 19 else 0)

    _, inputs = judged([Sampled(sent, phase_s=-0.4), Sampled(square(2))])
    unknown = np.isnan(inputs.window("tx_bps"))
    assert 1 <= unknown[0].sum() <= 2
    assert not unknown[1].any()


def test_a_replay_has_the_same_windows_as_the_session_that_was_recorded(tmp_path: Path) -> None:
    late = frozenset({9, 18})
    nodes = [
        Sampled(square(3), phase_s=-0.4, late=late, jitter_s=(0.0, 0.03, -0.02)),
        Sampled(square(3), wall_off_s=lambda time_s: HOUR_S),
        Sampled(square(3)),
    ]
    hosts = [Host(name=f"n{number}") for number in range(len(nodes))]
    live, replayed = History(hosts), History(hosts)
    record = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=tuple(hosts))
    writer = Writer.create(tmp_path / "some.fabmon", record)
    windows = []
    for tick in ticks(nodes, 24):
        snapshot = live.accept(tick)
        writer.write(tick)
        windows.append(snapshot.aligned.window("tx_bps", 10, snapshot.seq))
    writer.close()
    for tick, window in zip(ticks_in(tmp_path / "some.fabmon"), windows, strict=True):
        snapshot = replayed.accept(tick)
        again = snapshot.aligned.window("tx_bps", 10, snapshot.seq)
        assert np.array_equal(again, window, equal_nan=True)
    assert snapshot.aligned.spread_s(10, snapshot.seq) > 0.3


@pytest.mark.parametrize("phase_s", [0.0, -0.4])
def test_the_window_of_some_ports_is_their_part_of_that_of_all(phase_s: float) -> None:
    nodes = [Sampled(square(3), phase_s=phase_s), Sampled(square(4)), Sampled(square(5))]
    snapshot, _ = judged(nodes)
    all_ports = snapshot.aligned.window("tx_bps", 10, snapshot.seq)
    some = snapshot.aligned.window("tx_bps", 10, snapshot.seq, np.array([2, 0]))
    assert np.isfinite(some).all()
    assert np.array_equal(some, all_ports[[2, 0]])


phases = st.floats(-0.69, 0.29)
jitters = st.lists(st.floats(-0.05, 0.05), min_size=1, max_size=7)
lates = st.frozensets(st.integers(3, 20), max_size=6)


@settings(deadline=None, max_examples=40, phases=_NO_SHRINKING)
@given(
    period_s=st.floats(1.0, 9.0),
    share=st.floats(0.2, 0.8),
    nodes=st.lists(st.tuples(phases, jitters, lates), min_size=2, max_size=6),
)
def test_the_sum_of_a_window_is_what_counters_advanced(
    period_s: float, share: float, nodes: list[tuple[float, list[float], frozenset[int]]]
) -> None:
    sent = square(period_s, share)
    sampled = [Sampled(sent, phase, late, jitter_s=jitter) for phase, jitter, late in nodes]
    # A node without late frames makes it known what the latest common instant must be.
    _, inputs = judged([*sampled, Sampled(sent, 0.1)])
    window = inputs.window("tx_bps")
    known = ~np.isnan(window)
    assert known[:, :-2].all(), "late frames leave no gap"
    assert (window[known] <= LINE_BPS * 1.001).all(), "nor twice the rate"
    total_bits = window[:, :-2].sum(axis=1)
    # Between two samples a link may have sent first and then not: at each end of the window the
    # interpolated counter is wrong by a quarter of the sampling interval at most.
    longest_s = 1.1 + max((len(late) > 0) for _, _, late in nodes)
    assert np.ptp(total_bits) <= 4 * 0.25 * longest_s * LINE_BPS


@settings(deadline=None, max_examples=40, phases=_NO_SHRINKING)
@given(nodes=st.lists(st.tuples(phases, jitters, lates), min_size=2, max_size=5))
def test_constant_rates_are_exact_whenever_they_are_sampled(
    nodes: list[tuple[float, list[float], frozenset[int]]],
) -> None:
    def sent(time_s: float) -> float:
        return time_s * 40e9 / 8

    sampled = [Sampled(sent, phase, late, jitter_s=jitter) for phase, jitter, late in nodes]
    _, inputs = judged([*sampled, Sampled(sent)])
    window = inputs.window("tx_bps")
    assert window[~np.isnan(window)] == pytest.approx(40e9, rel=1e-5)
