"""Hosts that begin their exchanges late: hand-made iterations of ten seconds, six of exchange."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.builders import LeafSpine, Watched

RATE = 400e9
PERIOD_S = 60
HOSTS = 8
ITERATION_S, COMPUTES_S = 10, 4


def exchange(watched: Watched, number: int, bps: float) -> None:
    """A host sends over an uplink of its own, and receives as much."""
    watched.fabric.send(bps, f"gpu{number:03}/eth0", f"leaf1/up{number}", f"leaf1/down{number}")


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
            exchange(watched, number, util * RATE)

    return traffic


@pytest.mark.parametrize("late_s", [2, 3, 4])
def test_a_host_that_is_late_in_each_exchange_is_found(late_s: int) -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    (finding,) = watched.seconds(60, iterations(watched, {3: late_s})).findings
    assert watched.opened() == ["straggler gpu003"]
    numbers = {each.name: each.value for each in finding.evidence}
    assert numbers["late by"] == late_s
    assert numbers["other hosts of the job"] == HOSTS - 1
    assert finding.victims == tuple(f"gpu{n:03}" for n in range(1, HOSTS + 1) if n != 3)


def all_to_all(watched: Watched, late_s: int, every_s: int, rate_bps: float = RATE) -> None:
    """A minute of exchanges of a second: the others do not wait for gpu003, and exchange with it
    when it is there. It is silent until then, and may be there as late as when the next begins."""

    def traffic(second: int) -> None:
        watched.fabric.silence()
        into = second % every_s
        for number in range(1, HOSTS + 1):
            at_s = late_s if number == 3 else 0
            util = 0.4 if into == at_s else 0.05 if into == late_s else 0.0
            exchange(watched, number, util * rate_bps)

    watched.seconds(60, traffic)


def test_a_host_that_is_late_by_less_than_an_exchange_takes_is_found() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number in range(1, HOSTS + 1):
            into = second % 8 - (2 if number == 3 else 0)
            util = 0.6 if 0 <= into < 4 else 0.0
            exchange(watched, number, util * RATE)

    watched.seconds(60, traffic)
    assert watched.opened() == ["straggler gpu003"]


@pytest.mark.parametrize(("late_s", "every_s"), [(2, 6), (3, 6), (3, 4), (1, 3)])
def test_a_host_that_is_late_in_an_all_to_all_is_found(late_s: int, every_s: int) -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    all_to_all(watched, late_s, every_s)
    assert watched.opened() == ["straggler gpu003"]


def test_a_late_host_is_found_among_hosts_of_other_line_rates() -> None:
    """Half of the hosts have 200G: all of the job move the same bytes."""
    slow = {f"gpu{number:03}/eth0": RATE / 2 for number in range(1, HOSTS + 1, 2)}
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE, speeds=slow))
    all_to_all(watched, late_s=2, every_s=6)
    assert watched.opened() == ["straggler gpu003"]


def test_a_late_host_is_found_in_a_job_whose_nics_are_slower_than_most() -> None:
    """Twelve other hosts are four times as fast, and idle."""
    fast = {f"gpu{number:03}/eth0": 4 * RATE for number in range(HOSTS + 1, HOSTS + 13)}
    watched = Watched(LeafSpine(uplinks=20, hosts=HOSTS + 12, rate_bps=RATE, speeds=fast))
    watched.seconds(60, iterations(watched, {3: 2}))
    assert watched.opened() == ["straggler gpu003"]


def test_a_host_that_is_slower_in_each_exchange_is_not_late() -> None:
    """It begins with the others, and takes twice as long."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        into = second % 12
        for number in range(1, HOSTS + 1):
            util = (0.3 if into < 8 else 0.0) if number == 3 else 0.6 if into < 4 else 0.0
            exchange(watched, number, util * RATE)

    watched.seconds(60, traffic)
    assert watched.changes == []


def test_a_host_that_is_done_before_the_others_is_not_late() -> None:
    """It is silent while the others finish their exchange."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        into = second % 10
        for number in range(1, HOSTS + 1):
            tail = 0.0 if number == 3 else 0.06
            util = 0.5 if into < 4 else tail if into < 7 else 0.0
            exchange(watched, number, util * RATE)

    watched.seconds(60, traffic)
    assert watched.changes == []


def test_a_host_that_seems_to_end_early_and_to_begin_late_is_not_late() -> None:
    """The others are sampled between its samples: parts of their bursts are in the ticks around."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        of_most, of_one = (0.2, 0.8, 0.8, 0.5, 0.1), (0.0, 0.85, 0.85, 0.7, 0.0)
        into = second % 7
        for number in range(1, HOSTS + 1):
            util = (of_one if number == 3 else of_most)[into] if into < 5 else 0.0
            exchange(watched, number, util * RATE)

    watched.seconds(60, traffic)
    assert watched.changes == []


def test_half_a_job_that_is_late_together_is_none() -> None:
    """They are another job, or a stage of a pipeline."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    watched.seconds(60, iterations(watched, dict.fromkeys(range(1, HOSTS // 2 + 1), 3)))
    assert watched.changes == []


@pytest.mark.parametrize("once_early", [False, True])
def test_two_hosts_that_move_alike_are_another_job(once_early: bool) -> None:
    """They begin when they have computed, and move as much in all; in one exchange one of them is
    early."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS + 6, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number in range(1, HOSTS + 7):
            is_early = once_early and number == HOSTS + 5 and 30 <= second < 40
            into = (second - (3 if number > HOSTS + 4 and not is_early else 0)) % ITERATION_S
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


def test_a_host_that_is_late_twice_with_exchanges_on_time_between_is_none() -> None:
    """As one that another job holds up: among eight hosts that is chance."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    late, on_time = iterations(watched, {3: 2}), iterations(watched, {})
    watched.seconds(60, lambda second: (late if second // 10 in (2, 4) else on_time)(second))
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
            exchange(watched, number, util * RATE)

    watched.seconds(90, traffic)
    assert watched.changes == []


def test_the_last_stage_of_a_pipeline_is_no_straggler() -> None:
    """It begins last, and only receives, then only sends: nobody waits for it as in a ring."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    late = iterations(watched, {3: 3})

    def traffic(second: int) -> None:
        late(second)
        direction = (watched.fabric.sent, watched.fabric.received)[second // 10 % 2]
        direction["gpu003/eth0"] = 0.0

    watched.seconds(90, traffic)
    assert watched.changes == []


def ring_bytes(late_s: float, chunk_s: float = 0.3, compute_s: float = 2.5) -> list[list[float]]:
    """[hosts][seconds]: share of line rate that hosts send in all-reduces of a ring, the third
    host late.

    Nobody sends a chunk before the next host is ready for it, nor before its own last one is there.
    """
    sent = [[0.0] * PERIOD_S for _ in range(HOSTS)]
    done_s = [0.0] * HOSTS
    while min(done_s) < PERIOD_S:
        done_s = [each + compute_s + (late_s if n == 2 else 0.0) for n, each in enumerate(done_s)]
        for _ in range(2 * (HOSTS - 1)):
            starts_s = [max(done_s[n], done_s[(n + 1) % HOSTS]) for n in range(HOSTS)]
            done_s = [max(starts_s[n], starts_s[n - 1]) + chunk_s for n in range(HOSTS)]
            for n, start_s in enumerate(starts_s):
                for second in range(int(start_s), min(int(start_s + chunk_s) + 1, PERIOD_S)):
                    within_s = min(start_s + chunk_s, second + 1) - max(start_s, second)
                    sent[n][second] += max(0.0, within_s)
    return sent


def ring(watched: Watched, late_s: float) -> None:
    """A minute of all-reduces over a ring of hosts that are all under one leaf."""
    sent = ring_bytes(late_s)

    def traffic(second: int) -> None:
        watched.fabric.silence()
        for number in range(HOSTS):
            near, far = number + 1, (number + 1) % HOSTS + 1
            bps = 0.95 * RATE * sent[number][second]
            watched.fabric.send(bps, f"gpu{near:03}/eth0", f"leaf1/down{far}")

    watched.seconds(PERIOD_S, traffic)


@pytest.mark.parametrize("late_s", [3.0, 4.0, 4.5])
def test_a_host_that_all_of_a_ring_wait_for_is_found(late_s: float) -> None:
    """The others send one to four chunks, and all are silent until it begins."""
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    ring(watched, late_s)
    assert watched.opened() == ["straggler gpu003"]


def test_nobody_is_late_in_a_ring_that_is_on_time() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    ring(watched, 0.0)
    assert watched.changes == []


def test_a_host_that_is_on_time_again_is_not_found_anew_when_another_one_stops() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))
    late, on_time = iterations(watched, {3: 3}), iterations(watched, {})
    watched.seconds(42, lambda second: (late if second < 18 else on_time)(second))

    def stopped(second: int) -> None:
        watched.fabric.silence()
        for number in range(1, HOSTS + 1):
            if number != 6 and second < 6:
                exchange(watched, number, 0.1 * RATE)

    watched.seconds(15, stopped)
    assert watched.opened() == ["straggler gpu003"]


def test_a_host_that_has_no_part_in_an_exchange_before_the_one_of_all_is_not_late() -> None:
    watched = Watched(LeafSpine(uplinks=8, hosts=HOSTS, rate_bps=RATE))

    def traffic(second: int) -> None:
        watched.fabric.silence()
        into = second % ITERATION_S
        for number in range(1, HOSTS + 1):
            util = 0.6 if into >= 6 else 0.4 if into == 2 and number != 3 else 0.0
            exchange(watched, number, util * RATE)

    watched.seconds(PERIOD_S, traffic)
    assert watched.changes == []
