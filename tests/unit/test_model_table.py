"""What the bottleneck model believes at one tick, as text, and `fabmon replay --model-at`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.fabric_structure import NONE, FabricStructure, build_structure
from fabmon.analysis.finding import Condition
from fabmon.analysis.model.bottlenecks import OWN_QUEUE, Bottleneck, BottleneckModel, Place
from fabmon.analysis.model.candidates import Candidate
from fabmon.analysis.model.evidence import ANOTHER_LINK, ONE_NIC
from fabmon.analysis.model.shared_links import SharedLinks, shared_links
from fabmon.analysis.model.signs import Signs
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.tick import Tick
from fabmon.recording.writing.writer import Writer
from fabmon.report.model_table import Counters, ModelTick, model_table, model_tick
from fabmon.session.config import load
from tests.builders import START_NS, LeafSpine, new_pipeline
from tests.unit.recording.builders import session, write
from tests.unit.test_cli import fabmon_here

HOSTS = 4


@cache
def thresholds() -> ModelThresholds:
    return load(Path("/dev/null")).thresholds.model


@cache
def structure() -> FabricStructure:
    fabric = LeafSpine(hosts=HOSTS)
    scene = new_pipeline(fabric.hosts).accept(fabric.step())
    return build_structure(scene.snapshot.fabric)


def row(port: str) -> int:
    return next(each.row for each in structure().fabric.ports if each.id == port)


def nics(*names: str) -> np.ndarray:
    return np.array([row(f"{name}/eth0") for name in names], np.intp)


@cache
def uplinks() -> SharedLinks:
    return next(each for each in shared_links(structure()) if not each.is_inward)


def link(port: str = "leaf1/up1", *sharers: str, **changes: object) -> Candidate:
    """An uplink that is full, twice as busy as two NICs that may share it."""
    level = np.where(uplinks().rows == row(port), np.float32(0.96), np.float32(0.2))
    made = Candidate(
        row=row(port),
        group=uplinks(),
        receiver=NONE,
        util=np.array([0.9, 0.96, 0.96, 0.98, 1.0], np.float32),
        group_util=np.full(5, 0.39, np.float32),
        load_bps=96e6,
        level=level,
        sharers=nics(*(sharers or ("gpu001", "gpu002"))),
        rates=np.array([48e6, 48e6], np.float32),
        ends_busy=0.48,
        alone=NONE,
        full=np.array([False, True, True, True, True]),
        slowed=nics("gpu001", "gpu002"),
        slowed_busy=0.48,
        evidence=7.9,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def signs(**known: dict[str, float]) -> Signs:
    """Signs of some ports by id; NaN of all others."""
    ports = len(structure().peer)
    fields = {name: np.full(ports, np.nan, np.float32) for name in Signs.__slots__}
    fields["vanishes"] = np.zeros(len(structure().fabric.nodes), np.float32)
    for name, values in known.items():
        for port, value in values.items():
            fields[name][row(port)] = value
    return Signs(**fields)


def bottleneck(of: Candidate, place: Place = Place.LINK, named: Sequence[str] = ()) -> Bottleneck:
    return Bottleneck(
        place=place,
        link=of,
        lost=0.48,
        is_upper_bound=False,
        named=nics(*named),
        flows=2,
        slowed_by=OWN_QUEUE,
        lasted_ticks=6,
        peak_util=1.0,
    )


def tick(
    *candidates: Candidate,
    bottlenecks: Sequence[Bottleneck] = (),
    seen: Signs | None = None,
    counters: Sequence[Counters] = (),
) -> ModelTick:
    return ModelTick(
        time_ns=START_NS,
        structure=structure(),
        thresholds=thresholds(),
        candidates=candidates,
        bottlenecks=tuple(bottlenecks),
        signs=seen or signs(),
        links=8,
        counters=tuple(counters),
    )


def text_of(made: ModelTick) -> str:
    """The table with its lines joined, so that it does not matter where they are broken."""
    return " ".join(model_table(made).split())


def test_a_link_is_described_with_its_evidence() -> None:
    t = thresholds()
    own, ends = 2.8, 1.4
    terms = (("base", -1.2), ("full", 0.5), ("busier than its NICs", 2.004), ("own queue", own))
    llr = sum(value for _, value in terms)
    one = link(of_queue=own, of_ends=ends, terms=terms, llr=llr)
    seen = signs(own={"leaf1/up1": own}, sends={"gpu001/eth0": ends}, waits={"leaf1/up1": 0.0})
    found = bottleneck(one, named=("gpu001", "gpu002"))
    text = text_of(tick(one, bottlenecks=[found], seen=seen))
    assert "2025-11-21 04:40:00Z bottleneck model: 8 links between switches, 1 of them" in text
    assert "0 last hops may hold NICs; 1 bottleneck " in text
    assert "leaf1 up1 (leaf1/up1)" not in text  # One name is enough where both are the same.
    for part in (
        "leaf1 up1 to spine1",
        f"evidence 7.9 (flags at {t.flags:.1f}): bottleneck for 6 ticks, its flows lose 48 %",
        f"; seen by {OWN_QUEUE}",
        "busy 96 % on average of 5 ticks, 100 % at most, 100 % now; the 3 other links",
        "of its group 20 %",
        "NICs 2 share it (gpu001 r0, gpu002 r0); 48 % busy: the link is 2 times as busy",
        "signs own queue +2.8; senders +1.4; waiting 0 ",
        "this tick +4.10: base -1.20, full +0.50, busier than its NICs +2.00, own queue +2.80 Log",
    ):
        assert part in text


def test_what_is_not_observable_is_not_zero() -> None:
    text = text_of(
        tick(
            link(),
            counters=[
                Counters("ECN marks of switches", "port", 12, 0, False),
                Counters("CNPs that NICs handle", "port", 8, 6, True),
                Counters("drops of switches", "port", 12, 12, False),
                Counters("bytes that vanish in switches", "switch", 5, 5, True),
            ],
        )
    )
    assert "signs own queue ·; senders ·; waiting ·" in text
    absent = "ECN marks of switches, CNPs that NICs handle (known of 6 of 8 ports)"
    assert f"Not observable: {absent} Counted, but nowhere seen" in text
    assert "in the last 10 ticks: drops of switches Log-odds" in text


def test_a_link_that_one_nic_accounts_for() -> None:
    text = text_of(tick(link(alone=row("gpu003/eth0"), limits=(ONE_NIC,), llr=-3.0)))
    assert "NICs gpu003 r0 alone accounts for it signs" in text
    # Its own queue weighs more than the rates of NICs.
    queue = thresholds().veto
    text = text_of(tick(link(alone=row("gpu003/eth0"), of_queue=queue, llr=2.5)))
    assert "gpu003 r0 alone accounts for it; but it shows a queue; 2 may share it" in text


def test_a_link_that_another_one_brings_or_is_busier_than() -> None:
    text = text_of(tick(link(brought_by=row("leaf1/up2"), limits=(ANOTHER_LINK,))))
    assert "NICs leaf1 up2 brings what it carries signs" in text
    text = text_of(tick(link(as_busy=0.6)))
    assert "another link that NICs as busy share is busier: this one is 60 % as busy" in text


def test_a_nic_that_may_be_in_the_place_of_a_sharer() -> None:
    one = link(instead=nics("gpu003"))
    text = text_of(tick(one, bottlenecks=[bottleneck(one)]))
    assert "2 may share it (gpu001 r0, gpu002 r0), or gpu003 r0 in the place of one; " in text
    assert "; at least 2 of 3 do; 48 % busy" in text


def test_parts_of_next_to_nothing_are_left_out_and_the_rest_adds_up() -> None:
    terms = (("base", -1.004), ("own queue", 0.003), ("full", 0.3045), ("less traffic now", -1e-9))
    text = text_of(tick(link(terms=terms, llr=sum(value for _, value in terms))))
    assert "this tick -0.70: base -1.00, full +0.30 Log-odds" in text


def test_why_a_link_with_enough_evidence_is_no_bottleneck() -> None:
    enough = link(evidence=9.0, llr=1.0)
    why = "no bottleneck, a fuller link holds its flows, or they would lose too little"
    assert why in text_of(tick(enough))
    against = link(evidence=9.0, llr=-2.5)
    assert "no bottleneck, this tick is against it" in text_of(tick(against))
    whole = bottleneck(link("leaf1/up2"), Place.GROUP)
    assert "part of the bottleneck of its group" in text_of(tick(enough, bottlenecks=[whole]))


def test_bottlenecks_of_groups_and_of_last_hops() -> None:
    one = link()
    text = text_of(tick(one, bottlenecks=[bottleneck(one, Place.GROUP)]))
    assert "bottleneck of the whole group (4 links) for 6 ticks" in text
    assert "2 may share it (gpu001 r0, gpu002 r0); 2 do; 48 % busy" in text
    hop = link("leaf1/down3", group=None, receiver=row("gpu003/eth0"), level=np.empty(0))
    text = text_of(tick(hop))
    assert "1 last hop may hold NICs" in text
    assert "to gpu003 r0, last hop evidence" in text
    assert "of its group" not in text


def test_the_most_evidence_comes_first_and_the_rest_is_counted() -> None:
    idle = np.full(5, 0.3, np.float32)
    many = [link(evidence=each / 10) for each in range(1, 26)]
    quiet = link("leaf1/up2", evidence=0.0, util=idle)
    text = model_table(tick(*many, quiet, link("leaf1/up3", evidence=0.0)))
    blocks = [line for line in text.splitlines() if line.startswith("    evidence")]
    assert len(blocks) == 20
    assert "evidence  2.5" in blocks[0]
    assert "and 6 links with no more evidence" in text
    assert "leaf1 up2" not in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_an_idle_fabric() -> None:
    assert "No link may hold NICs: none is busier than they are and full" in text_of(tick())


class Recorder:
    """A detector that keeps what the model believes at every tick."""

    def __init__(self) -> None:
        self.model = BottleneckModel(thresholds())
        self.ticks: list[ModelTick] = []

    def __call__(self, inputs: DetectorInput) -> tuple[Condition, ...]:
        self.ticks.append(model_tick(inputs, self.model))
        return ()


def collision(seconds: int) -> list[Tick]:
    """Two of four hosts send by one uplink, which is full, at times; it marks, and they are
    slowed."""
    fabric = LeafSpine(hosts=HOSTS, metrics=("rdma_cnp_handled",))
    ticks = []
    for second in range(seconds):
        fabric.silence()
        rest = 0.4 if second % 7 == 6 else 1.0
        for sender in ("gpu001", "gpu002"):
            fabric.send(49e6 * rest, f"{sender}/eth0", "leaf1/up1")
        fabric.send(60e6, "gpu003/eth0", "leaf1/up2")
        fabric.send(90e6 * rest, "spine3/swp1", "leaf1/down4")
        fabric.counted = {
            ("gpu001/eth0", "rdma_cnp_handled"): 5000.0,
            ("leaf1/up1", "netdev_tx_drops"): 400.0 if second > 20 else 0.0,
        }
        ticks.append(fabric.step())
    return ticks


def test_what_is_written_of_a_tick_adds_up() -> None:
    recorder = Recorder()
    pipeline = new_pipeline(LeafSpine(hosts=HOSTS).hosts, judged_by=lambda _: (recorder,))
    for made in collision(40):
        pipeline.accept(made)
    totals = set()
    for each in recorder.ticks:
        for line in text_of(each).split("this tick ")[1:]:
            total, _, parts = line.split(" Log-odds")[0].partition(": ")
            values = [float(value) for value in re.findall(r" ([+-]\d+\.\d\d)(?=,|$| )", parts)]
            assert sum(values) == pytest.approx(float(total), abs=0.001)
            totals.add(total)
    assert len(totals) > 4


def test_replay_prints_what_the_model_believes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    fabric = LeafSpine(hosts=HOSTS)
    writer = Writer.create(path, session(fabric))
    for made in collision(40):
        writer.write(made)
    writer.close()
    early, late = (fabmon_here("replay", str(path), "--model-at", at) for at in ("+2s", "04:40:30"))
    assert early.returncode == late.returncode == 0, late.stderr
    assert late.stdout.startswith("2025-11-21 04:40:30Z  bottleneck model: 8 links")
    assert late.stdout.splitlines()[3].strip() == "leaf1 up1 to spine1"
    assert ": bottleneck for" in late.stdout
    assert ": bottleneck for" not in early.stdout
    assert "(gpu001 r0, gpu002 r0)" in late.stdout
    redacted = fabmon_here("replay", str(path), "--model-at", "+30s", "--redact").stdout
    assert "gpu001" not in redacted
    assert ": bottleneck for" in redacted


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model-at", "2020-01-01"), "--model-at 2020-01-01 is not in the recording: 2025"),
        (("--model-at", "noon"), "--model-at noon: write a time such as 14:03"),
        (("--model-at", "+1s", "--format", "json"), "--model-at prints one tick as text"),
        (("--model-at", "+1s", "--at", "+1s"), "--model-at prints one tick as text"),
    ],
)
def test_mistakes_are_explained(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    path = tmp_path / "a.fabrec"
    write(path, collision(3))
    done = fabmon_here("replay", str(path), *options)
    assert done.returncode == 2
    assert message in done.stderr
