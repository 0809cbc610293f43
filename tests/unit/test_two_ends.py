"""The two ends of a cable check each other: a unit that is wrong at one end is said, and healthy
cables are not. What a rate cannot be is never drawn as a share."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable

import numpy as np
import pytest

from collectors.wire import Object
from fabmon.alerts.metrics_server import watch_metrics
from fabmon.analysis.audit import audit
from fabmon.analysis.audit.survey import Survey
from fabmon.analysis.evidence.doubtful_rates import DoubtfulRate
from fabmon.analysis.scene import Scene
from fabmon.fabric.measures import measure
from fabmon.fabric.model import Host
from fabmon.fabric.openmetrics import OPENMETRICS
from fabmon.fabric.wording import Unit
from fabmon.history.history import History
from fabmon.query.items import link_items
from fabmon.report.rates import CsvRates
from fabmon.report.scene_report import report_json
from fabmon.tui.cells import DOUBTFUL, scale
from fabmon.tui.metrics import traffic_text
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.pages import port as port_page
from tests.builders import LeafSpine, Watched, frame, hello, tick, up

LINE_BPS = 100e9
HOST, LEAF = "gpu001/eth0", "leaf1/down1"


def after(
    seconds: int,
    traffic: Callable[[LeafSpine, int], None],
    speeds: dict[str, float] | None = None,
) -> Scene:
    """The scene after some seconds of traffic on the cable of HOST and LEAF."""
    fabric = LeafSpine(hosts=2, rate_bps=LINE_BPS, speeds=speeds)

    def second(number: int) -> None:
        fabric.silence()
        traffic(fabric, number)

    return Watched(fabric).seconds(seconds, second)


def counts(
    sent: float, received: float, host: float = 1.0, leaf: float = 1.0
) -> Callable[[LeafSpine, int], None]:
    """Constant traffic of the host, of which both ends count a multiple."""

    def traffic(fabric: LeafSpine, _: int) -> None:
        fabric.sent[HOST], fabric.received[LEAF] = sent * host, sent * leaf
        fabric.received[HOST], fabric.sent[LEAF] = received * host, received * leaf

    return traffic


def found(scene: Scene) -> list[tuple[str, str]]:
    """Port and check of what is doubtful."""
    ports = scene.snapshot.fabric.ports
    return [(ports[each.row].id, each.check) for each in scene.doubtful]


@pytest.mark.parametrize("factor", [4, 8])
@pytest.mark.parametrize("received", [20e9, 8e9, 40e6])
@pytest.mark.parametrize("low", [HOST, LEAF])
def test_an_end_with_another_unit(factor: int, received: float, low: str) -> None:
    host, leaf = (1 / factor, 1.0) if low == HOST else (1.0, 1 / factor)
    scene = after(70, counts(40e9, received, host, leaf))
    assert found(scene) == [(low, "ends_differ")]
    words = {4: "a quarter of", 8: "an eighth of"}[factor]
    assert scene.doubtful[0].text.startswith(f"counts {words} the bytes that ")
    assert scene.doubtful_rows == {
        port.row for port in scene.snapshot.fabric.ports if port.id in (HOST, LEAF)
    }


def test_every_output_for_programs_says_which_rates_are_doubtful() -> None:
    scene = after(70, counts(40e9, 8e9, host=1 / 4))
    (doubtful,) = scene.doubtful
    doubt = f"{scene.snapshot.fabric.ports[doubtful.row].display_name} {doubtful.text}"
    links = json.loads(report_json(scene))["tick"]["links"]
    found = {f"{link['node']}/{link['port']}": link["doubt"] for link in links if link["doubt"]}
    assert sorted(found) == [HOST, LEAF]
    assert set(found.values()) == {doubt}
    rows = [port.row for port in scene.snapshot.fabric.ports]
    assert {link.id for link in link_items(scene, rows) if link.doubt == doubt} == {
        HOST,
        LEAF,
    }
    table = io.BytesIO()
    CsvRates(table).accept(scene.snapshot, None)
    in_csv = {
        f"{row['node']}/{row['port']}": row["doubt"]
        for row in csv.DictReader(io.StringIO(table.getvalue().decode()))
        if row["doubt"]
    }
    assert in_csv == found
    assert "\nfabmon_watch_doubtful_ports 2\n" in watch_metrics(scene, 0.0, OPENMETRICS)


def test_a_fabric_of_which_one_switch_counts_words() -> None:
    """The traffic varies, as that of a job does."""
    dice = random.Random(1)

    def traffic(fabric: LeafSpine, _: int) -> None:
        for number in (1, 2):
            sent, received = dice.uniform(20e9, 90e9), dice.uniform(20e9, 90e9)
            fabric.sent[f"gpu00{number}/eth0"] = sent
            fabric.received[f"leaf1/down{number}"] = sent / 4
            fabric.received[f"gpu00{number}/eth0"] = received
            fabric.sent[f"leaf1/down{number}"] = received / 4

    assert found(after(70, traffic)) == [
        ("leaf1/down1", "ends_differ"),
        ("leaf1/down2", "ends_differ"),
    ]


def lossy(share: float, back: float = 10e9) -> Callable[[LeafSpine, int], None]:
    """A receiver that drops a share of what arrives, and what it sends back."""

    def traffic(fabric: LeafSpine, _: int) -> None:
        fabric.sent[HOST], fabric.received[LEAF] = 80e9, 80e9 * (1 - share)
        fabric.sent[LEAF] = fabric.received[HOST] = back

    return traffic


def bursts(shift: int) -> Callable[[LeafSpine, int], None]:
    """Traffic in every fourth second, of which the leaf is polled `shift` seconds later."""

    def traffic(fabric: LeafSpine, second: int) -> None:
        fabric.sent[HOST] = fabric.received[HOST] = 90e9 * (second % 4 == 0)
        fabric.received[LEAF] = fabric.sent[LEAF] = 90e9 * ((second - shift) % 4 == 0)

    return traffic


def once(fabric: LeafSpine, second: int) -> None:
    """A fifth of the time the ends differ by 4, as while one is read late."""
    counts(40e9, 20e9, leaf=0.25 if second % 5 == 0 else 1.0)(fabric, second)


def idle(fabric: LeafSpine, second: int) -> None:
    counts(4e6, 4e6, leaf=0.25)(fabric, second)


@pytest.mark.parametrize(
    "traffic",
    [
        counts(90e9, 90e9),
        counts(90e9, 90e9, host=0.97),
        counts(90e9, 90e9, leaf=0.5),
        counts(90e9, 90e9, leaf=0.3),
        lossy(0.3),
        lossy(0.75),
        lossy(0.875),
        lossy(0.75, 80e6),
        lossy(0.75, 0),
        bursts(1),
        bursts(3),
        once,
        idle,
    ],
)
def test_healthy_and_lossy_cables_are_not_doubted(
    traffic: Callable[[LeafSpine, int], None],
) -> None:
    assert found(after(90, traffic)) == []


@pytest.mark.parametrize("members", [4, 8])
def test_a_bond_or_a_breakout_is_not_compared_with_a_member(members: int) -> None:
    """The rate of the whole is a multiple of that of one: so is its line rate."""
    scene = after(70, counts(80e9, 80e9, leaf=1 / members), speeds={LEAF: LINE_BPS / members})
    assert found(scene) == []


def test_an_end_without_counters_is_not_compared() -> None:
    fabric = LeafSpine(hosts=1, rate_bps=LINE_BPS)
    watched = Watched(fabric, ("leaf", "spine"))
    assert found(watched.seconds(70, lambda _: counts(40e9, 40e9)(fabric, 0))) == []


def test_a_few_seconds_prove_nothing() -> None:
    assert found(after(11, counts(40e9, 40e9, leaf=0.25))) == []


def test_a_rate_above_the_line_rate_is_said_and_has_no_share() -> None:
    scene = after(30, counts(40e9, 1e9, host=8.0, leaf=8.0))
    assert sorted(found(scene)) == [(HOST, "above_line_rate"), (LEAF, "above_line_rate")]
    text = scene.doubtful[0].text
    assert "320 Gb/s is 3.2 times the line rate, 100 Gb/s" in text
    row = scene.doubtful[0].row
    shares = np.append(measure("tx").values(scene.snapshot), measure("rx").values(scene.snapshot))
    assert np.nanmax(shares) < 1.1
    assert "320 %" not in traffic_text(scene.snapshot, row, Unit.GBIT)


def test_a_single_late_read_is_not_said() -> None:
    def traffic(fabric: LeafSpine, second: int) -> None:
        counts(90e9, 90e9, host=2.0 if second == 29 else 1.0)(fabric, second)

    scene = after(31, traffic)
    assert found(scene) == []


@pytest.mark.parametrize(
    ("metrics", "share"),
    [
        (("pcie_tx_bps", "pcie_rx_bps"), 0.918),  # by GPM, with the headers of packets
        (("pcie_tx_bytes", "pcie_rx_bytes"), 1.02),
    ],
)
def test_pcie_of_a_gpu_is_a_share_of_what_is_measured(
    metrics: tuple[str, str], share: float
) -> None:
    """A real H100 at PCIe 5 x16 showed 1.02 of the payload, as GPM includes headers."""
    link_bps = 32e9 * 16 * 128 / 130
    measured_bps = 1.02 * 0.9 * link_bps
    facts = {"pcie_max_speed_gtps": 32.0, "pcie_width": 16}
    said = hello(Object("gpu0", "gpu", "gpu0", facts, metrics))
    history = History([Host(name="gpu001")])
    for second in range(3):
        level = metrics[0].endswith("bps")
        value = int(measured_bps if level else measured_bps / 8 * (second + 1))
        made = tick(
            second,
            {"gpu001": frame(second, value, value)},
            {"gpu001": said} if second == 0 else {},
            up("gpu001") if second == 0 else (),
        )
        snapshot = history.accept(made)
    assert snapshot.tx_util[0] == pytest.approx(share, rel=0.01)


def test_doctor_says_it() -> None:
    scene = after(70, counts(40e9, 20e9, leaf=0.25))
    problems = audit(Survey(scene.snapshot, {}, {}, {}, {}))
    (problem,) = [each for each in problems if each.check == "ends_differ"]
    assert (problem.severity, problem.ports) == ("fix", (LEAF,))
    assert problem.text == (
        "counts a quarter of the bytes that gpu001 r0 counts at the other end of the cable"
    )
    assert "words of 4 bytes" in problem.advice


@pytest.mark.parametrize("end", [HOST, LEAF])
def test_the_page_of_a_port_says_it_and_its_cell_has_no_share(end: str) -> None:
    scene = after(70, counts(40e9, 20e9, leaf=0.25))
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    ctx = screen_state.draw_context(scene, 100, 40)
    port = next(each for each in scene.snapshot.fabric.ports if each.id == end)
    text = " ".join(" ".join(line.text for line in port_page.page(ctx, port, 5)).split())
    what = "counts a quarter of the bytes that gpu001 r0 counts at the other end of the cable"
    assert f"? Rate in doubt: {'' if end == LEAF else 'leaf1 dn1 '}{what}." in text
    assert text.startswith("up in doubt: tx ")
    codes = ctx.codes(scale(ctx.metric, Depth.NONE, digits=False))
    assert codes[port.row] == DOUBTFUL


def test_what_is_doubtful_has_both_ends() -> None:
    assert DoubtfulRate(3, None, "", "", "").rows == (3,)
    assert DoubtfulRate(3, 7, "", "", "").rows == (3, 7)
