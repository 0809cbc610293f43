"""Rails that a job leaves out: one finding keeps one subject, whichever hosts report it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.rails_in_use import spare_rails
from fabmon.analysis.fabric_structure import build_structure
from fabmon.analysis.finding import Change
from fabmon.fabric.jobs.job import Job, JobReport
from fabmon.fabric.model import DOWNLINK, SWITCH, UPLINK, Host, Node
from fabmon.fabric.tick import Tick
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import parse
from tests.builders import frame, hello, new_pipeline, port, tick, up

JOB = """
[topology]
kind = "rail"
hosts = 8
rails = 4
routing = "spray"
[[job]]
name = "train"
compute_s = 1.0
payload_gb = 60.0
demand = 0.7
"""


def uneven(*shares: float, at: float = 0.0, duration_s: float = 60.0) -> str:
    """A fault: each rail gets its share of what the first one sends."""
    return f"""
[[fault]]
kind = "uneven_rails"
at = {at}
for = {duration_s}
shares = {list(shares)}
"""


LEAVES_OUT_R3 = uneven(1.0, 1.0, 1.0, 0.2, at=8.0, duration_s=50.0)
THEN_R2_TOO = uneven(1.0, 1.0, 0.2, 0.2, at=58.0, duration_s=22.0)


def lives(text: str, seconds: int, heard: Callable[[int, Tick], Tick]) -> list[str]:
    """What opens and closes; `heard` is what of a tick comes through."""
    feed = DemoFeed(parse(text))
    pipeline = new_pipeline(feed.hosts)
    changes = []
    for second in range(seconds):
        scene = pipeline.accept(heard(second, feed.step()))
        changes += [
            f"{change} {finding.subject}"
            for change, finding in scene.changes
            if change is not Change.UPDATE
        ]
    return changes


def test_hosts_that_are_heard_late_join_the_finding_of_the_first() -> None:
    def first_only(second: int, tick: Tick) -> Tick:
        if not 5 <= second < 22:
            return tick
        late = tuple(f for f in tick.frames if f[0] == "gpu001" or not f[0].startswith("gpu"))
        return msgspec.structs.replace(tick, frames=late)

    assert lives(JOB + LEAVES_OUT_R3, 110, first_only) == ["open rails r3", "close rails r3"]


def test_a_finding_keeps_its_name_when_another_rail_is_left_out_too() -> None:
    changes = lives(JOB + LEAVES_OUT_R3 + THEN_R2_TOO, 130, lambda _, tick: tick)
    assert changes == ["open rails r3", "close rails r3"]


class Phase(NamedTuple):
    """So many seconds in which the rails of every host send and receive at these rates, Gb/s."""

    seconds: int
    sent: tuple[float, ...]
    received: tuple[float, ...]


def opens(
    *phases: Phase,
    hosts: int = 8,
    is_roce: bool = False,
    of_two: Sequence[Phase] = (),
    jobs: Mapping[int, Sequence[Job]] | None = None,
) -> list[str]:
    """What opens where each rail is of 400G; RoCE would show a queue, by CNPs: its devices count
    waiting for credits as well, as 0. The last two hosts have phases of their own, `of_two`; `jobs`
    are those that Slurm reports from a second on."""
    names = [f"gpu{number:03}" for number in range(1, hosts + 1)]
    rails = [f"mlx5_{rail}" for rail in range(len(phases[0].sent))]
    metrics, state = ("ib_tx_bytes", "ib_rx_bytes", "ib_state"), 4
    ports = [Object(each, "infiniband", each, {}, metrics) for each in rails]
    if is_roce:
        metrics, state = ("netdev_tx_bytes", "netdev_rx_bytes", "netdev_up"), 1
        ports = [port(each, metrics=(*metrics, "rdma_cnp_handled", "ib_tx_wait")) for each in rails]
    end = (state, 0, 0) if is_roce else (state,)
    pipeline = new_pipeline([Host(name=name, speeds=(("*", 400e9),)) for name in names])
    opened = []
    most, two = counts(phases, end), counts(of_two or phases, end)
    for second, (values, of_last) in enumerate(zip(most, two, strict=True)):
        frames = {name: frame(second, *values) for name in names[:-2]}
        frames |= {name: frame(second, *of_last) for name in names[-2:]}
        first = {} if second else {name: hello(*ports) for name in names}
        heard = tick(second, frames, first, () if second else up(*names))
        if jobs is not None and second in jobs:
            report = JobReport(source="squeue", jobs=tuple(jobs[second]))
            heard = msgspec.structs.replace(heard, jobs=report)
        opened += [each.key for change, each in pipeline.accept(heard).changes if change == "open"]
    return opened


def counts(phases: Sequence[Phase], end: tuple[int, ...]) -> Iterator[list[int]]:
    """Second by second what a host has counted: bytes sent and received of each rail, and `end`."""
    total = [0.0] * 2 * len(phases[0].sent)
    for phase in (each for each in phases for _ in range(each.seconds)):
        rates = (rate for pair in zip(phase.sent, phase.received, strict=True) for rate in pair)
        total = [count + rate * 1e9 / 8 for count, rate in zip(total, rates, strict=True)]
        pairs = zip(total[::2], total[1::2], strict=True)
        yield [value for pair in pairs for value in (*map(int, pair), *end)]


def test_hosts_that_leave_out_what_others_left_out_before_are_a_finding_of_their_own() -> None:
    """Both were `rails r2, r3`, of which one was shown."""
    even, fewer = Phase(60, *2 * ((200.0,) * 4,)), (200.0, 200.0, 200.0, 20.0)
    fewest = (200.0, 200.0, 20.0, 20.0)
    most = (even, Phase(60, fewest, fewest), Phase(80, fewer, fewer))
    opened = opens(*most, of_two=(even, Phase(140, fewest, fewest)), is_roce=True)
    assert opened == ["uneven_rails:rails r2, r3", "uneven_rails:rails r3"]


def sends(*gbps: float, even_s: int = 0, receives: bool = True) -> list[str]:
    """What opens where each rail sends at these rates, Gb/s, for a minute, after all of them sent
    at the first rate for `even_s`; it `receives` as much, or nothing in this minute."""
    even, nothing = (gbps[0],) * len(gbps), (0.0,) * len(gbps)
    return opens(Phase(even_s + 1, even, even), Phase(59, gbps, gbps if receives else nothing))


def test_rails_of_inference_are_not_judged() -> None:
    """Requests at 5 to 10 % of line rate: whichever rail has some."""
    assert sends(40, 20, 36, 24) == []
    assert sends(40, 4, 0, 8) == []


def test_a_rail_that_is_left_out_at_full_traffic_is_reported() -> None:
    assert sends(350, 350, 350, 20, even_s=80) == ["uneven_rails:rails r3"]


def test_a_rail_that_is_slow_moves_the_same_in_an_iteration_and_is_not_left_out() -> None:
    """A collision: in each iteration rails r0 and r1 send for a second, and r2 and r3 at a third of
    that rate for three, below what counts as sending."""
    even, fast, slow = (350.0,) * 4, (330.0, 330.0, 110.0, 110.0), (0.0, 0.0, 110.0, 110.0)
    iteration = Phase(1, fast, fast), Phase(2, slow, slow)
    assert opens(Phase(60, even, even), *iteration * 30, is_roce=True) == []


def test_a_rail_that_carries_a_third_of_the_bytes_is_reported_where_a_queue_would_be_seen() -> None:
    even, uneven_rates = (350.0,) * 4, (330.0, 330.0, 110.0, 110.0)
    phases = Phase(80, even, even), Phase(60, uneven_rates, uneven_rates)
    assert opens(*phases, is_roce=True) == ["uneven_rails:rails r2, r3"]


def test_rails_that_waited_for_a_link_catch_up_alone() -> None:
    """A link was down: the rails without it had sent their part of this iteration before."""
    even, nothing = (350.0,) * 4, (0.0,) * 4
    first, last = (350.0, 350.0, 0.0, 0.0), (0.0, 0.0, 350.0, 350.0)
    assert not opens(
        Phase(60, even, even),
        Phase(8, first, first),
        Phase(50, nothing, nothing),
        Phase(15, last, last),
        Phase(20, even, even),
    )


def test_a_rail_that_a_queue_may_slow_is_none_where_nobody_would_see_the_queue() -> None:
    """Neither these hosts' counters nor a watched switch show one; it does not silence a rail."""
    assert sends(350, 350, 350, 100, even_s=80) == []


def test_a_nic_without_a_known_cable_that_was_never_used_with_the_rails_is_no_rail() -> None:
    assert sends(350, 350, 350, 20) == []


def test_what_was_not_watched_yet_is_not_counted_as_nothing_sent() -> None:
    """The busy rails' 55 % were said as 30 % after 22 of the 40 seconds."""
    feed = DemoFeed(parse(JOB + uneven(1.0, 1.0, 1.0, 0.2)))
    pipeline = new_pipeline(feed.hosts)
    said = []
    for _ in range(60):
        said += [each.evidence for each in pipeline.accept(feed.step()).findings]
    busiest = [float(e.value) for each in said for e in each if e.name == "busiest rail"]
    assert len(busiest) > 20
    assert min(busiest) > 0.9 * max(busiest)


def test_a_rail_that_all_hosts_leave_out_from_the_start_is_reported() -> None:
    """It is as fast as the others, and cabled to the same spines."""
    opened = lives(JOB + uneven(1.0, 1.0, 1.0, 0.001), 40, lambda _, tick: tick)
    assert opened == ["open rails r3"]


@pytest.mark.parametrize("has_own_spine", [False, True])
def test_a_nic_on_leaves_with_a_spine_of_their_own_may_be_for_storage(has_own_spine: bool) -> None:
    """Though that spine is cabled to the spines of the rails: one fabric, of two tiers, without
    planes or pods."""
    feed = DemoFeed(parse(JOB))
    snapshot = new_pipeline(feed.hosts).accept(feed.step()).snapshot
    fabric = snapshot.fabric
    structure = build_structure(fabric)
    ((_, rows),) = structure.rail_tables
    busy = structure.rail[rows] < 3
    own = {structure.leaves[place] for place in structure.leaf[rows[~busy]].tolist()}
    if has_own_spine:
        # Of the storage leaves to their spine, of the spines of the rails to that one.
        ports = tuple(
            msgspec.structs.replace(
                port, cable=msgspec.structs.replace(port.cable, node="stspine1")
            )
            if port.cable is not None
            and (port.node if port.role == UPLINK else port.cable.node) in own
            and port.role in (UPLINK, DOWNLINK)
            else port
            for port in fabric.ports
        )
        spine = Node(name="stspine1", role=SWITCH, group="", ports=(), about={})
        fabric = msgspec.structs.replace(fabric, ports=ports, nodes=(*fabric.nodes, spine))
        structure = build_structure(fabric)
    spare = spare_rails(DetectorInput(snapshot, structure), rows, busy)
    assert spare[~busy].tolist() == [not has_own_spine] * len(rows)


def test_a_checkpoint_over_some_rails_is_not_judged() -> None:
    """Hosts that only send write to a file system."""
    assert sends(350, 350, 20, 20, even_s=80, receives=False) == []
    assert sends(350, 350, 20, 20, even_s=80) == ["uneven_rails:rails r2, r3"]


def test_a_large_flow_beside_little_traffic_is_no_use_of_rails() -> None:
    """Hosts send a file over one rail; what they exchange with each other is a thousandth of it."""
    even, file, little = (350.0, 350.0), (350.0, 0.1), (0.5, 0.1)
    assert opens(Phase(80, even, even), Phase(60, file, little), is_roce=True) == []


def test_a_nic_that_begins_to_write_while_the_rails_are_silent_is_no_rail() -> None:
    """It serves storage: it receives data to train on, and sends a checkpoint."""
    trains, silent, loads = (350.0,) * 4, (0.0,) * 4, 12.0
    assert not opens(
        Phase(60, (*trains, 0.0), (*trains, loads)),
        Phase(12, (*silent, 0.0), (*silent, loads)),
        Phase(8, (*silent, 25.0), (*silent, loads)),
    )


def test_half_of_the_rails_may_be_left_out_on_purpose() -> None:
    """A job on half of the GPUs of its hosts, from its start."""
    assert lives(JOB + uneven(1.0, 1.0, 0.001, 0.001), 40, lambda _, tick: tick) == []


def test_a_silent_rail_of_eight_is_reported_where_the_other_hosts_use_it() -> None:
    """As with an NCCL_IB_HCA that names seven of eight; it leaves an eighth unused."""
    seven = (*(250.0,) * 7, 0.0)
    found = opens(on_all(90, *EIGHT), of_two=[on_all(90, *seven)])
    assert found == ["uneven_rails:rails r7"]


def test_a_nic_of_eight_that_nobody_uses_may_be_for_something_else() -> None:
    job = JOB.replace("rails = 4", "rails = 8")
    assert lives(job + uneven(*(1.0,) * 7, 0.001), 60, lambda _, tick: tick) == []
    two = uneven(*(1.0,) * 6, 0.001, 0.001)
    assert lives(job + two, 60, lambda _, tick: tick) == ["open rails r6, r7"]


def test_one_of_two_rails_is_left_out_where_several_hosts_do_so() -> None:
    """Two hosts with a flow on one rail each, while the others are idle, may have large flows."""
    both, one, idle = on_all(80, 350.0, 350.0), on_all(60, 350.0, 10.0), on_all(60, 0.0, 0.0)
    assert opens(both, one) == ["uneven_rails:rails r1"]
    assert opens(both, idle, of_two=[both, one]) == []


def test_a_rail_of_half_the_speed_that_is_full_is_not_left_out() -> None:
    assert sends(388, 388, 388, 190, even_s=80) == []


def on_all(seconds: int, *gbps: float) -> Phase:
    """Rails that send and receive at the same rates."""
    return Phase(seconds, gbps, gbps)


EIGHT, SIX = (250.0,) * 8, (*(250.0,) * 6, 0.0, 0.0)
ALL = tuple(f"gpu{number:03}" for number in range(1, 9))


def job(number: str, *nodes: str) -> Job:
    """A job on some hosts."""
    return Job(id=number, nodes=nodes)


@pytest.mark.parametrize(("idle_s", "is_left_out"), [(60, True), (130, False)])
def test_the_next_job_may_use_fewer_gpus_of_its_hosts(idle_s: int, is_left_out: bool) -> None:
    """After two minutes without traffic; a checkpoint is shorter."""
    found = opens(on_all(90, *EIGHT), on_all(idle_s, *(0.0,) * 8), on_all(90, *SIX))
    assert found == ["uneven_rails:rails r6, r7"] * is_left_out


@pytest.mark.parametrize(("number", "is_left_out"), [("1", True), ("2", False)])
def test_another_job_may_use_fewer_gpus_of_its_hosts(number: str, is_left_out: bool) -> None:
    """The same job does not stop using rails."""
    jobs = {1: [job("1", *ALL)], 90: [job(number, *ALL)]}
    found = opens(on_all(90, *EIGHT), on_all(90, *SIX), jobs=jobs)
    assert found == ["uneven_rails:rails r6, r7"] * is_left_out


def test_a_small_job_beside_it_does_not_change_which_rails_a_job_uses() -> None:
    """Jobs that need no rails come and go on the same hosts."""
    train = job("1", *ALL)
    jobs = {1: [train], 85: [train, job("2", *ALL)], 100: [train], 110: [train, job("3", *ALL)]}
    found = opens(on_all(90, *EIGHT), on_all(90, *SIX), jobs=jobs)
    assert found == ["uneven_rails:rails r6, r7"]


def test_a_job_on_half_of_the_gpus_is_not_compared_with_another_job() -> None:
    jobs = {1: [job("1", *ALL[:6]), job("2", *ALL[6:])]}
    half = (*(250.0,) * 4, *(0.0,) * 4)
    assert not opens(on_all(90, *EIGHT), of_two=[on_all(90, *half)], jobs=jobs)


def test_two_jobs_on_half_of_the_gpus_each_differ_in_their_rates() -> None:
    """Beside hosts that use all rails; a half that is silent, or fewer that are slow, are left out
    by the same job."""
    halves = (*(250.0,) * 4, *(60.0,) * 4)
    silent, fewer = (*(250.0,) * 4, *(0.0,) * 4), (*(250.0,) * 5, *(60.0,) * 3)
    all_rails = on_all(90, *EIGHT)
    assert not opens(all_rails, is_roce=True, of_two=[on_all(90, *halves)])
    found = opens(all_rails, is_roce=True, of_two=[on_all(90, *silent)])
    assert found == ["uneven_rails:rails r4, r5, r6, r7"]
    found = opens(all_rails, is_roce=True, of_two=[on_all(90, *fewer)])
    assert found == ["uneven_rails:rails r5, r6, r7"]
