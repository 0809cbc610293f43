"""Hosts that begin their exchanges late: hand-made iterations of ten seconds, six of exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import LeafSpine, Watched

RATE = 400e9
HOSTS = 8
ITERATION_S, COMPUTES_S = 10, 4


def iterations(watched: Watched, late_s: dict[int, int]) -> Callable[[int], None]:
    """All hosts exchange data, each over an uplink of its own; some begin so many seconds late."""

    def traffic(second: int) -> None:
        watched.fabric.silence()
        into = second % ITERATION_S - COMPUTES_S
        last = max(late_s.values(), default=0)
        for number in range(1, HOSTS + 1):
            starts_s = late_s.get(number, 0)
            if into < starts_s:
                continue
            # Whoever is early moves a little until the last one is there, then all at full rate.
            util = 0.1 if into < last else 0.6
            watched.fabric.send(util * RATE, f"gpu{number:03}/eth0", f"leaf1/up{number}")

    return traffic


@pytest.mark.parametrize("late_s", [2, 3, 4])
def test_a_host_that_is_late_in_each_exchange_is_found(late_s: int) -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    (finding,) = watched.seconds(60, iterations(watched, {3: late_s})).findings
    assert watched.opened() == ["straggler gpu003"]
    numbers = {each.name: each.value for each in finding.evidence}
    assert numbers["late by"] == late_s
    assert numbers["other hosts of the job"] == HOSTS - 1


def test_half_a_job_that_is_late_together_is_none() -> None:
    """They are another job, or a stage of a pipeline."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    watched.seconds(60, iterations(watched, dict.fromkeys(range(1, HOSTS // 2 + 1), 3)))
    assert watched.changes == []


def test_two_hosts_that_move_alike_are_another_job() -> None:
    """They begin when they have computed, and move as much in all."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS + 6, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number in range(1, HOSTS + 7):
            into = (second - (3 if number > HOSTS + 4 else 0)) % ITERATION_S
            if into >= COMPUTES_S:
                watched.fabric.send(0.6 * RATE, f"gpu{number:03}/eth0", f"leaf1/up{1 + number % 8}")

    watched.seconds(60, traffic)
    assert [each for each in watched.opened() if each.startswith("straggler")] == []


def test_hosts_that_are_on_time_are_none() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    watched.seconds(60, iterations(watched, {}))
    assert watched.changes == []


def test_a_host_that_is_late_once_is_none() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    watched.seconds(30, iterations(watched, {}))
    watched.seconds(10, iterations(watched, {3: 3}))
    watched.seconds(30, iterations(watched, {}))
    assert watched.changes == []


def test_a_silence_in_traffic_that_never_stops_is_one_and_not_many() -> None:
    """Steps of a pipeline: hosts are never all silent, and each peak is a new exchange."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number in range(1, HOSTS + 1):
            util = (0.6 if second % 10 == 8 else 0.5, 0.13)[second % 2]
            if number == 3 and 20 <= second < 24:
                util = 0.0
            watched.fabric.send(util * RATE, f"gpu{number:03}/eth0", f"leaf1/up{number}")

    watched.seconds(90, traffic)
    assert watched.changes == []
