"""The graph of pauses, its cycles and victims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import numpy as np
import pytest

from fabmon.analysis.detectors.pause_deadlock import cycle_of, pause_deadlocks
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.flow_control import TIME_WITHOUT_CREDITS
from fabmon.analysis.evidence.pause_graph import PauseGraph
from fabmon.analysis.evidence.senders_place import LastSeen
from fabmon.analysis.finding import Condition
from fabmon.fabric.tick import Tick
from fabmon.session.config import load
from tests.builders import LeafSpine, Watched, frame, hello, port


def chain(nodes: int, *more: tuple[int, int]) -> PauseGraph:
    """Row n belongs to node n + 1, which waits for node n; `more` are (node, node it waits for)."""
    waits = [*((number + 1, number) for number in range(nodes - 1)), *more]
    by_pauser: dict[int, list[int]] = {}
    for row, (_, pauser) in enumerate(waits):
        by_pauser.setdefault(pauser, []).append(row)
    everyone = np.ones(len(waits), np.bool_)
    return PauseGraph(
        paused=everyone,
        pauses=everyone,
        share=np.zeros(len(waits), np.float32),
        by_pauser=by_pauser,
        node_of=np.array([waiter for waiter, _ in waits], np.intp),
    )


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_chain_is_no_cycle_however_long(nodes: int) -> None:
    graph = chain(nodes)
    assert cycle_of(graph, 0, graph.paused) == []


@pytest.mark.parametrize("nodes", [3, 2000])
def test_a_cycle_is_followed_to_its_end(nodes: int) -> None:
    cycle = chain(nodes, (0, nodes - 1))
    assert cycle_of(cycle, 0, cycle.paused) == list(reversed(range(nodes)))
    assert set(cycle_of(cycle, nodes // 2, cycle.paused)) == set(range(nodes))


def test_who_waits_for_a_cycle_is_not_in_it() -> None:
    graph = chain(3, (0, 2), (3, 1))
    assert cycle_of(graph, 3, graph.paused) == []
    assert cycle_of(graph, 1, graph.paused) != []


def test_of_two_cycles_the_shorter_is_returned() -> None:
    graph = chain(5, (0, 4), (0, 1))
    assert cycle_of(graph, 0, graph.paused) == [5, 0]


def test_a_cycle_of_ports_that_are_stuck_is_found_beside_a_shorter_one_of_others() -> None:
    graph = chain(5, (0, 4), (0, 1))
    stuck = np.ones(6, np.bool_)
    stuck[5] = False
    assert cycle_of(graph, 0, stuck) == [4, 3, 2, 1, 0]


def deadlocks(
    *waits: tuple[str, str], kind: str = "ethernet", seen: LastSeen | None = None
) -> list[Condition]:
    """What is reported where each first switch waits for the second one, and nothing moves; the
    port that waits is named after both. `seen` is what was reported before."""
    nodes = sorted({node for pair in waits for node in pair})
    by_pauser: dict[int, list[int]] = {}
    for row, (_, pauser) in enumerate(waits):
        by_pauser.setdefault(nodes.index(pauser), []).append(row)
    own = np.array([nodes.index(waiter) for waiter, _ in waits], np.intp)
    all_ports = np.ones(len(waits), np.bool_)
    graph = PauseGraph(
        all_ports, all_ports, np.ones(len(waits), np.float32), by_pauser=by_pauser, node_of=own
    )
    ids = [f"{waiter}/{pauser}" for waiter, pauser in waits]
    ports = [
        SimpleNamespace(id=name, node=waiter, kind=kind)
        for name, (waiter, _) in zip(ids, waits, strict=True)
    ]
    structure = SimpleNamespace(
        node=own,
        leaves=tuple(each for each in nodes if each.startswith("leaf")),
        fabric=SimpleNamespace(ports=ports),
        labels=lambda rows: " ".join(ids[row] for row in rows),
        ids=lambda rows: [ids[row] for row in rows],
    )
    inputs = SimpleNamespace(
        structure=structure,
        sent=np.zeros((len(waits), 10)),
        once=lambda *_: graph,
        window=lambda _: np.ones((len(waits), 10)),
        snapshot=SimpleNamespace(seq=0),
    )
    t = load(Path("/dev/null")).thresholds.model
    return list(pause_deadlocks(cast("DetectorInput", inputs), seen or LastSeen(), t))


def test_cycles_that_wait_for_each_other_are_one_deadlock_at_a_leaf() -> None:
    at_core, at_leaf = ("core1", "agg1"), ("leaf1", "agg1")
    (found,) = deadlocks(at_core, at_core[::-1], at_leaf, at_leaf[::-1], ("leaf2", "agg1"))
    assert found.subject == "leaf1/agg1"
    assert set(found.victims) == {"core1/agg1", "agg1/core1", "leaf2/agg1"}
    assert found.unseen == "which of several cycles was the first"


def test_an_open_deadlock_stays_one_when_a_cycle_at_a_leaf_is_seen_later() -> None:
    at_core, at_leaf = ("core1", "agg1"), ("leaf1", "agg1")
    seen = LastSeen()
    before = deadlocks(at_core, at_core[::-1], seen=seen)
    (found,) = deadlocks(at_core, at_core[::-1], at_leaf, at_leaf[::-1], seen=seen)
    assert found.key == before[0].key


def test_on_infiniband_it_is_a_loop_of_credits() -> None:
    one = ("leaf1", "spine1")
    (found,) = deadlocks(one, one[::-1], kind="infiniband")
    assert "2 ports wait for each other's credits in a cycle" in found.text
    assert "PFC" not in found.advice
    assert TIME_WITHOUT_CREDITS in {each.name for each in found.evidence}


def test_cycles_that_do_not_wait_for_each_other_are_two_deadlocks() -> None:
    one, other = ("leaf1", "spine1"), ("leaf2", "spine2")
    found = deadlocks(one, one[::-1], other, other[::-1])
    assert [each.subject for each in found] == ["leaf1/spine1", "leaf2/spine2"]
    assert [each.unseen for each in found] == ["", ""]


@pytest.mark.parametrize(
    ("others", "waits", "is_found"),
    [(0.03, 0.2, False), (0.03, 0.3, True), (0.018, 0.2, True), (0.0, 0.2, True)],
)
def test_on_infiniband_a_switch_that_waits_for_a_fifth_of_the_time_is_background(
    others: float, waits: float, is_found: bool
) -> None:
    """A host receives at 70 % of line rate; its switch waits for credits meanwhile. Where others
    wait for 3 % of the time, some may wait for a fifth; where hardly any waits it is the host."""
    watched = Watched(receivers(dict.fromkeys(range(1, 13), others) | {3: waits}))
    watched.seconds(20)
    assert watched.opened() == (["slow_receiver gpu003/eth0"] if is_found else [])


def test_what_all_loaded_ports_wait_is_background_though_others_with_less_traffic_do_not() -> None:
    """Five of twelve ports wait for a fifth of the time; NICs count nothing."""
    fabric = receivers({number: 0.2 if number <= 5 else 0.0 for number in range(1, 13)})
    for number in range(6, 13):
        fabric.received[f"gpu{number:03}/eth0"] = fabric.sent[f"leaf1/down{number}"] = 20e9
    for number in range(1, 13):
        fabric.send(280e9, f"gpu{number:03}/eth0")
    watched = Watched(fabric)
    watched.seconds(30)
    assert watched.opened() == []


def test_receivers_that_finish_last_have_waited_as_the_others_did() -> None:
    """At the end of an exchange two of twelve receive for four seconds more."""
    fabric = receivers(dict.fromkeys(range(1, 13), 0.2))
    watched = Watched(fabric)
    watched.seconds(20)
    for number in range(3, 13):
        fabric.counted[f"leaf1/down{number}", "ib_ext_tx_wait"] = 0.0
        fabric.received[f"gpu{number:03}/eth0"] = fabric.sent[f"leaf1/down{number}"] = 0.0
    watched.seconds(4)
    assert watched.opened() == []


def test_a_host_that_gives_few_credits_for_three_seconds_is_not_slow() -> None:
    fabric = receivers({})
    watched = Watched(fabric)
    for waits in (0.0, 0.3, 0.0):
        fabric.counted["leaf1/down3", "ib_ext_tx_wait"] = waits * LINE_BPS / BITS_PER_WAIT
        watched.seconds(20 if waits == 0 else 3)
    assert watched.opened() == []


@pytest.mark.parametrize("name", ["gpu003/eth0", "leaf1/up1"])
def test_a_port_that_is_gone_is_no_slow_receiver(name: str) -> None:
    """It had neither a node nor a name: `/`."""
    pauses = "pfc_tx_pause_us_prio3"
    fabric = LeafSpine(2, 4, LINE_BPS, metrics=(pauses,), leaf_metrics=(pauses,))
    fabric.send(0.7 * LINE_BPS, "leaf1/down3")
    fabric.counted[name, pauses] = 600_000
    step, node = fabric.step, name.partition("/")[0]

    def step_without_ports() -> Tick:
        seq, made = fabric.seq, step()
        if seq < 8:
            return made
        hellos = ((node, hello(port("other", "other"))),) if seq == 8 else ()
        other = (node, frame(seq, 1, 0, 0, 0))
        frames = tuple(other if each[0] == node else each for each in made.frames)
        return msgspec.structs.replace(made, frames=frames, hellos=hellos)

    fabric.step = step_without_ports  # type: ignore[method-assign]
    watched = Watched(fabric)
    watched.seconds(16)
    assert watched.opened() == ["slow_receiver gpu003/eth0"] * (node == "gpu003")


LINE_BPS, BITS_PER_WAIT = 400e9, 64


def receivers(waits: Mapping[int, float]) -> LeafSpine:
    """Twelve hosts that receive at 70 % of line rate on InfiniBand; their switch has no credits for
    a share of the time, by host."""
    fabric = LeafSpine(4, 12, LINE_BPS, leaf_metrics=("ib_ext_tx_wait",))
    for number in range(1, 13):
        fabric.send(0.7 * LINE_BPS, f"leaf1/down{number}")
        counted = waits.get(number, 0.0) * LINE_BPS / BITS_PER_WAIT
        fabric.counted[f"leaf1/down{number}", "ib_ext_tx_wait"] = counted
    return fabric


@pytest.mark.parametrize("is_late", [False, True])
def test_rnr_is_advice_only_where_receives_are_posted_too_late(is_late: bool) -> None:
    """A receive that is not posted makes RNR NAKs, not pause: pause has its reason in the host's
    PCIe and memory."""
    line_bps, bits_per_wait = 400e9, 64
    fabric = LeafSpine(
        4, 12, line_bps, leaf_metrics=("ib_ext_tx_wait",), metrics=("rdma_out_of_buffer",)
    )
    for number in range(1, 13):
        fabric.send(0.7 * line_bps, f"leaf1/down{number}")
    fabric.counted["leaf1/down3", "ib_ext_tx_wait"] = 0.5 * line_bps / bits_per_wait
    fabric.counted["gpu003/eth0", "rdma_out_of_buffer"] = 1000.0 if is_late else 0.0
    watched = Watched(fabric)
    (finding,) = watched.seconds(20).findings
    assert finding.cause == "slow_receiver"
    first, _, rest = finding.advice.partition("Besides")
    assert "PCIe (width, speed" in first
    assert "RNR" not in first
    assert ("RNR" in rest) == is_late


@pytest.mark.parametrize("seen", [("",), ("gpu",)])
@pytest.mark.parametrize("sent_bps", [0.0, 40e9])
def test_a_level_that_most_hosts_have_is_usual_whoever_else_is_watched(
    seen: tuple[str, ...], sent_bps: float
) -> None:
    """Twelve hosts receive and pause their switch, one far more. Ports of the leaf do not count
    pause, which is not 0, and hosts that only receive are busy as well."""
    fabric = LeafSpine(4, 12, 400e9, metrics=("pfc_tx_pause_us_prio3",))
    for number in range(1, 13):
        host = f"gpu{number:03}/eth0"
        fabric.send(40e9, f"leaf1/down{number}")
        fabric.send(sent_bps, host)
        fabric.counted[host, "pfc_tx_pause_us_prio3"] = 0.65e6 if number == 3 else 0.22e6
    (finding,) = Watched(fabric, seen=seen).seconds(20).findings
    assert (finding.cause, finding.subject) == ("slow_receiver", "gpu003/eth0")


def test_idle_hosts_do_not_make_the_usual_level_of_the_busy_ones_unusual() -> None:
    fabric = LeafSpine(4, 60, 400e9, metrics=("pfc_tx_pause_us_prio3",))
    for number in range(1, 61):
        fabric.send(40e9 if number <= 12 else 0, f"leaf1/down{number}")
        pause = 0.22e6 if number <= 12 else 0.0
        fabric.counted[f"gpu{number:03}/eth0", "pfc_tx_pause_us_prio3"] = pause
    assert Watched(fabric).seconds(20).findings == ()


def test_a_host_that_receives_at_line_rate_is_as_fast_as_its_link_however_much_it_pauses() -> None:
    fabric = LeafSpine(4, 12, 400e9, metrics=("pfc_tx_pause_us_prio3",))
    fabric.send(390e9, "leaf1/down3")
    fabric.counted["gpu003/eth0", "pfc_tx_pause_us_prio3"] = 0.3e6
    watched = Watched(fabric)
    watched.seconds(20)
    assert "slow_receiver gpu003/eth0" not in watched.opened()


class NarrowWait(LeafSpine):
    """A leaf of InfiniBand whose counters of waiting have 32 bits, and stick at their maximum."""

    def _port_values(self, name: str, metrics: Sequence[str]) -> list[int]:
        values = super()._port_values(name, metrics)
        return [
            min(value, (1 << 32) - 1) if metric == "ib_tx_wait" else value
            for value, metric in zip(values, metrics, strict=True)
        ]


@pytest.mark.parametrize(("gbps", "is_found"), [(200, True), (400, False)])
def test_what_a_counter_of_waiting_counts_until_it_is_full_is_evidence(
    gbps: int, is_found: bool
) -> None:
    """A switch port waits for half of the time: at 200 Gb/s its counter is full in the third
    second, at 400 Gb/s in the second one, which is too short a time to judge by."""
    line_bps, bits_per_wait = gbps * 1e9, 64
    fabric = NarrowWait(4, 12, line_bps, leaf_metrics=("ib_tx_wait",))
    for number in range(1, 13):
        fabric.send(0.4 * line_bps, f"leaf1/down{number}")
    watched = Watched(fabric)
    watched.seconds(20)
    fabric.counted["leaf1/down3", "ib_tx_wait"] = 0.5 * line_bps / bits_per_wait
    watched.seconds(10)
    assert ("slow_receiver gpu003/eth0" in watched.opened()) == is_found
