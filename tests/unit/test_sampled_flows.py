"""Flows that switches sampled, on the console: matched with ports, on pages, in recordings."""

from __future__ import annotations

import msgspec
import pytest

from collectors.wire import Object
from fabmon.analysis.finding import WARNING, Finding
from fabmon.fabric.flows.sampled import FlowKey, FlowSamples, RecentSamples, SampledFlow
from fabmon.fabric.model import SWITCH, Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.records import EventsRecord, decode_sanitised
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import flows
from fabmon.tui.text.pages.finding import page as finding_page
from fabmon.tui.text.pages.nodes import nodes_page
from tests.builders import (
    SECOND_NS,
    START_NS,
    frame,
    hello,
    neighbour,
    new_pipeline,
    port,
    tick,
    up,
)

RATE = 400 * 10**9
AGENT, SPINE_AGENT = "10.0.0.1", "10.0.0.2"
METRICS = ("netdev_up", "netdev_tx_bytes", "netdev_rx_bytes", "netdev_speed_bps")
ROCE = FlowKey("10.1.0.1", "10.1.9.2", 17, 49_153, 4791, 0x1A2B)
TCP = FlowKey("10.1.0.7", "192.168.7.7", 6, 50_000, 443)


def addresses(dev: str, *texts: str) -> Object:
    info = {"dev": dev, "addresses": [f"{each}/32" for each in texts]}
    return Object(f"addresses/{dev}", "addresses", None, info, ())


HELLOS: dict[str, Hello] = {
    "leaf1": hello(
        port("up1", "02:00:00:00:00:01", METRICS, ifindex=17),
        port("dn1", "02:00:00:00:00:02", METRICS, ifindex=3),
        addresses("lo", AGENT),
        neighbour("up1", "02:00:00:00:00:03"),
        neighbour("dn1", "02:00:00:00:00:04"),
    ),
    "spine1": hello(
        port("dn1", "02:00:00:00:00:03", METRICS, ifindex=99),
        neighbour("dn1", "02:00:00:00:00:01"),
    ),
    "gpu001": hello(
        port("eth0", "02:00:00:00:00:04", METRICS, ifindex=2),
        addresses("eth0", "10.1.0.1"),
        neighbour("eth0", "02:00:00:00:00:02"),
    ),
}
HOSTS = [
    Host(name="leaf1", role=SWITCH),
    Host(name="spine1", role=SWITCH),
    Host(name="gpu001"),
]


def samples(*sampled: SampledFlow, agent: str = AGENT, node: str = "") -> FlowSamples:
    return FlowSamples(agent, 10.0, 2048, sampled, ((17, "tx", 40, 5 * 10**9),), node=node)


def ticks(*batches: FlowSamples, seconds: int = 3) -> list[Tick]:
    made = []
    for second in range(seconds):
        values = [1, second * 10**9, second * 10**9, RATE]
        frames = {
            name: frame(second, *values * sum(o.port is not None for o in each.blocks[0].objects))
            for name, each in HELLOS.items()
        }
        made.append(tick(second, frames, HELLOS if not second else {}, up(*HELLOS)))
    return [*made[:-1], msgspec.structs.replace(made[-1], sampled=batches)]


def snapshot_of(*batches: FlowSamples) -> Snapshot:
    pipeline = new_pipeline(HOSTS)
    scenes = [pipeline.accept(each) for each in ticks(*batches)]
    return scenes[-1].snapshot


def row(snapshot: Snapshot, name: str) -> int:
    return next(each.row for each in snapshot.fabric.ports if each.id == name)


UPLINK = samples(SampledFlow(17, "tx", ROCE, 900, 10**11), SampledFlow(17, "tx", TCP, 4, 10**9))


def shown(snapshot: Snapshot, name: str, width: int = 119) -> str:
    pipeline = new_pipeline(HOSTS)
    scene = [pipeline.accept(each) for each in ticks(UPLINK)][-1]
    ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(scene, width)
    port = ctx.fabric.ports[row(scene.snapshot, name)]
    return "\n".join(line.text for line in flows.of_port(ctx, port))


def test_an_agent_is_matched_by_the_address_that_its_node_reports() -> None:
    snapshot = snapshot_of(UPLINK)
    assert snapshot.sampled
    found = snapshot.sampled.on_link(snapshot.fabric.ports[row(snapshot, "leaf1/up1")], "tx")
    assert found is not None
    assert [(each.flow, each.bps, each.samples) for each in found.flows] == [
        (ROCE, 80e9, 900),
        (TCP, 0.8e9, 4),
        (None, 4e9, 40),
    ]
    assert found.flows[0].error_percent == pytest.approx(6.53, abs=0.01)
    assert snapshot.sampled.unmatched == ()


def test_the_other_end_of_a_link_has_them_in_the_other_direction() -> None:
    snapshot = snapshot_of(UPLINK)
    assert snapshot.sampled
    spine = snapshot.fabric.ports[row(snapshot, "spine1/dn1")]
    found = snapshot.sampled.on_link(spine, "rx")
    assert found is not None
    assert found.flows[0].flow == ROCE
    assert snapshot.sampled.on_link(spine, "tx") is not None, "the agent sampled none that way"


def test_an_agent_is_matched_by_the_hosts_file() -> None:
    snapshot = snapshot_of(
        samples(SampledFlow(99, "rx", ROCE, 9, 9), agent="10.9.9.9", node="spine1")
    )
    assert snapshot.sampled
    port = snapshot.fabric.ports[row(snapshot, "spine1/dn1")]
    assert snapshot.sampled.on_link(port, "rx") is not None


def test_an_agent_that_is_no_watched_node_is_named_on_the_page_of_nodes() -> None:
    pipeline = new_pipeline(HOSTS)
    scene = [pipeline.accept(each) for each in ticks(samples(agent="10.77.0.1"))][-1]
    assert scene.snapshot.sampled
    assert scene.snapshot.sampled.unmatched == ("10.77.0.1",)
    ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(scene, 119)
    text = "\n".join(line.text for line in nodes_page(ctx, frozenset()))
    assert "sFlow of 10.77.0.1: no watched node has this address" in text


@pytest.mark.parametrize("width", [59, 79, 119])
def test_the_page_of_a_port_shows_them_with_their_errors(width: int) -> None:
    text = shown(snapshot_of(UPLINK), "leaf1/up1", width)
    said = " ".join(text.split())
    assert "Sampled flows (sFlow, 1 of 2048 packets, last 10 s), transmit" in said
    assert "80.0 Gb/s ± 7 %" in said
    assert "800 Mb/s ± 98 %" in said
    assert "900 samples" in said
    assert all(len(line) <= width for line in text.splitlines())
    if width > 100:
        assert "gpu001 r0:49153 → 10.1.9.2 RoCE QP 0x1a2b" in said
        assert "10.1.0.7:50000 → 192.168.7.7:443 TCP" in said


def test_the_page_of_a_hot_uplink_shows_them_too() -> None:
    pipeline = new_pipeline(HOSTS)
    scene = [pipeline.accept(each) for each in ticks(UPLINK)][-1]
    finding = Finding(
        cause="ecmp_collision",
        severity=WARNING,
        subject="leaf1/up1",
        rows=(row(scene.snapshot, "leaf1/up1"),),
        text="leaf1 up1 is full",
        evidence=(),
        advice="",
        confidence=1.0,
        since_ns=START_NS,
    )
    ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(scene, 119)
    text = "\n".join(line.text for line in finding_page(ctx, finding, open_now=True))
    assert "RoCE QP 0x1a2b" in text
    assert "80.0 Gb/s ± 7 %" in text


def test_a_port_whose_switch_samples_nothing_shows_nothing() -> None:
    assert "Sampled" not in shown(snapshot_of(UPLINK), "leaf1/dn1")


def test_samples_are_shown_for_half_a_minute() -> None:
    recent = RecentSamples()
    assert recent.add([UPLINK], START_NS)
    assert not recent.add([], START_NS + 20 * SECOND_NS)
    assert len(recent.by_agent()[AGENT]) == 1
    assert recent.add([UPLINK], START_NS + 25 * SECOND_NS)
    assert recent.add([], START_NS + 40 * SECOND_NS)
    assert len(recent.by_agent()[AGENT]) == 1
    assert recent.add([], START_NS + 60 * SECOND_NS)
    assert recent.by_agent() == {}


def test_a_recording_has_them_and_one_without_has_no_such_key() -> None:
    with_samples = ticks(UPLINK)[-1]
    event = EventsRecord.of(with_samples)
    assert event is not None
    data = msgspec.json.encode(event)
    again = decode_sanitised(data, EventsRecord)
    assert again.tick().sampled == (UPLINK,)
    bare = EventsRecord.of(ticks()[0])
    assert b"sampled" not in msgspec.json.encode(bare)


@pytest.mark.parametrize(
    "damage", [{"seconds": 0}, {"rate": -1}, {"flows": [[1, "tx", ["a", "b", 6], 1, 2**64]]}]
)
def test_a_recording_with_impossible_samples_is_damaged(damage: dict[str, object]) -> None:
    event = EventsRecord.of(ticks(UPLINK)[-1])
    assert event is not None
    fields = msgspec.to_builtins(event)
    fields["sampled"] = [fields["sampled"][0] | damage]
    with pytest.raises(msgspec.ValidationError):
        decode_sanitised(msgspec.json.encode(fields), EventsRecord)


def test_addresses_are_not_in_a_redacted_tick() -> None:
    assert Redactor().tick(ticks(UPLINK)[-1]).sampled == ()
