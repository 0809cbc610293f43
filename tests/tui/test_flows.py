"""Who is on a link, on the pages of a finding and of a port."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len

from fabmon.fabric.forwarding_tables import ForwardingTables
from fabmon.fabric.model import RAIL, UPLINK, Fabric
from fabmon.fabric.routing_mode import ADAPTIVE, STATIC, Routing
from fabmon.fabric.snapshot import Floats, Snapshot
from fabmon.fabric.time_wording import SECOND_NS
from fabmon.fabric.wire.messages import Notice
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import flows
from fabmon.tui.text.pages.port import page as port_page
from tests.connections import reported_pairs, ring
from tests.tui import golden
from tests.tui.running import running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION

SEQ = 70
HOSTS = tuple(f"gpu{n:03d}" for n in range(1, 9))


TALKING = replace(COLLISION, queue_pairs=reported_pairs(ring(HOSTS), HOSTS))


def page(world: World, width: int, row: int | None = None) -> str:
    """The section of the collision, or of a port."""
    scene = world.scene(SEQ)
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    if row is None:
        lines = flows.of_finding(screen_state.draw_context(scene, width), scene.findings[0])
    else:
        lines = flows.of_port(
            screen_state.draw_context(scene, width), scene.snapshot.fabric.ports[row]
        )
    assert all(cell_len(line.text) <= width for line in lines)
    return "\n".join(line.text for line in lines)


def nic(host: str, rail: int) -> int:
    """The row of a NIC."""
    return COLLISION.fabric.node(host).ports[rail].row


@pytest.mark.parametrize("width", [59, 79, 119])
def test_a_hot_uplink_has_the_flows_that_may_be_on_it(width: int) -> None:
    said = page(TALKING, width)
    golden.check(f"flows-collision-{width + 1}", said)
    assert "Flows (from the hosts' queue pairs)" in said
    assert "gpu004 r0" in said, "it sends to the other leaf"
    assert "gpu002 r0" not in said, "its receivers are below the same leaf"
    assert "switch does not report which flow" in " ".join(said.split())


def test_flows_of_now_below_a_finding_of_an_earlier_moment_say_so() -> None:
    scene = TALKING.scene(SEQ)
    ctx = ScreenState(RunFacts("pod7"), Depth.NONE).draw_context(scene, 119)
    (now,) = scene.findings
    then_ns = scene.snapshot.time_ns - 20 * SECOND_NS
    ended = msgspec.structs.replace(now, seen_ns=then_ns, until_ns=then_ns)
    faded = msgspec.structs.replace(now, lost=0.1, worst=ended)
    first = " Flows and their rates are of 14:07:50Z, not of 14:07:30Z:"
    for finding, note in ((now, []), (ended, [first]), (faded, [first])):
        said = [line.text.rstrip() for line in flows.of_finding(ctx, finding)]
        assert [text for text in said if text.startswith(" Flows and")] == note
        assert any(text.startswith(" Flows (") for text in said)


def test_a_nic_has_its_own_flows_and_no_doubt() -> None:
    said = page(TALKING, 119, nic("gpu004", 3))
    golden.check("flows-nic-120", said)
    assert "may be" not in said
    assert said.count("gpu004 r3  ") == 2


def test_where_a_host_does_not_tell_what_is_open_is_said() -> None:
    wires = ring(HOSTS).end("gpu001/mlx5_0", 5, 6, job="8812")
    similar = wires.connect("gpu002/mlx5_7", "gpu005/mlx5_7", 9, 8).connect(
        "gpu003/mlx5_7", "gpu006/mlx5_7", 9, 8
    )
    said = page(replace(COLLISION, queue_pairs=reported_pairs(similar, HOSTS, "gpu004")), 79)
    golden.check("flows-partly-known-80", said)
    assert "one of 2" in said
    assert "unknown" in said
    assert "Queue pairs are known of 3 of the 4 hosts that can send here." in said


class Waves(World):
    """Two NICs send more and less, one more and the other less, and the uplink with the first."""

    def util(self, seq: int) -> tuple[Floats, Floats]:
        tx, rx = super().util(seq)
        wave = 0.3 * np.sin(seq / 5)
        tx[self.guilty[0]] = 0.5 + wave
        tx[nic("gpu002", 1)], tx[nic("gpu003", 2)] = 0.6 + wave, 0.6 - wave
        return tx, rx


WHY = "no rdma command on this node: it comes with iproute2"
NOTICES = tuple((h, Notice("lost", "qps", reason="unsupported", text=WHY)) for h in HOSTS)


def test_without_queue_pairs_hosts_that_move_with_the_link_are_inferred() -> None:
    said = page(Waves(COLLISION.fabric, collides=30, notices=NOTICES), 79)
    golden.check("flows-inferred-80", said)
    assert "NICs that correlate with this link (inferred)" in said
    assert "gpu002 r1" in said
    assert "gpu003" not in said
    assert WHY in " ".join(said.split())
    assert "Flows" not in said


def test_where_nobody_moves_with_the_link_nobody_is_named() -> None:
    said = page(replace(COLLISION, notices=NOTICES), 119)
    assert said == f" Flows: queue pairs are not known ({WHY})"
    assert page(COLLISION, 119) == ""


def test_a_silent_nic_says_why_or_nothing() -> None:
    assert page(COLLISION, 79, nic("gpu001", 0)) == ""
    notices = (("gpu001", Notice("lost", "qps", reason="denied", text="not permitted")),)
    assert page(replace(COLLISION, notices=notices), 79, nic("gpu001", 0)) == (
        " Flows: queue pairs are not known (not permitted)"
    )


async def test_the_pages_of_a_finding_and_of_a_port_have_it() -> None:
    async with running(TALKING, size=(120, 100)) as run:
        await run.press("4", "enter")
        assert "Flows (from the hosts' queue pairs), transmit: 32 queue pairs may" in run.text
        await run.press("enter")
        assert run.view == "port"
        assert "Flows (from the hosts' queue pairs), transmit" in run.text


class Swings(Waves):
    """The same, and the hosts tell what they send."""


def test_of_what_may_be_on_a_link_the_likeliest_come_first_and_it_is_said_above_them() -> None:
    world = Swings(COLLISION.fabric, collides=30, queue_pairs=reported_pairs(ring(HOSTS), HOSTS))
    said = page(world, 119).splitlines()
    nics = [line.split(" → ")[0].strip() for line in said if " → " in line]
    assert nics[0] == "gpu004 r3", "it suffers"
    explained = next(n for n, line in enumerate(said) if "does not report which flow" in line)
    assert explained < next(n for n, line in enumerate(said) if " → " in line)


def test_what_to_run_next_has_the_names_of_two_hosts() -> None:
    def next_of(world: World, options: str | None = "--hosts FILE") -> str:
        scene, screen_state = world.scene(SEQ), ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
        screen_state.run = replace(screen_state.run, nodes_options=options)
        lines = flows.next_step(screen_state.draw_context(scene, 79), scene.findings[0])
        return "".join(line.text for line in lines)

    said = "`fabmon trace {} {} --hosts FILE` shows the link of each flow."
    assert next_of(TALKING) == " Next: " + said.format("gpu004", "gpu005")
    assert next_of(replace(COLLISION, notices=NOTICES)) == " Next: " + said.format(
        "gpu002", "gpu005"
    )
    assert next_of(TALKING, None) == ""


def infiniband(fabric: Fabric, lids_per_nic: int = 1) -> Fabric:
    """The fabric with forwarding tables: NIC n has LID n + 1, an uplink for each LID in turn."""
    ports = [
        msgspec.structs.replace(port, info={**port.info, "port_number": int(port.name[3:])})
        if port.name.startswith("swp")
        else port
        for port in fabric.ports
    ]
    nics = [port for port in ports if port.role == RAIL]
    leaf_of = {nic.row: ports[nic.peer].node for nic in nics if nic.peer is not None}
    tables: dict[str, bytes] = {}
    for node in fabric.nodes:
        own = [ports[port.row] for port in node.ports]
        if not own or own[0].name[:3] != "swp":
            continue
        up = [port for port in own if port.role == UPLINK]
        table = bytearray(b"\xff")
        for nic in nics:
            ways = [port for port in own if port.peer == nic.row] or up
            ways = ways or [
                port
                for port in own
                if port.peer is not None and ports[port.peer].node == leaf_of[nic.row]
            ]
            table += bytes([ways[nic.row % len(ways)].info["port_number"]]) * lids_per_nic
        tables[node.name] = bytes(table)
    return msgspec.structs.replace(
        fabric,
        ports=tuple(ports),
        routing={node.name: Routing(STATIC, "InfiniBand") for node in fabric.nodes},
        forwarding=ForwardingTables(tables),
    )


def test_on_infiniband_the_tables_say_which_flows_are_on_a_link() -> None:
    said = page(replace(TALKING, fabric=infiniband(COLLISION.fabric)), 79)
    golden.check("flows-infiniband-80", said)
    assert "from the forwarding tables" in said
    assert "does not report which flow" not in said


@pytest.mark.parametrize(
    ("mode", "words"),
    [(STATIC, "sources=+ib_fabric on one node reads them"), (ADAPTIVE, "Routing is adaptive:")],
)
def test_without_tables_that_decide_flows_may_use_the_link(mode: str, words: str) -> None:
    routing = {"leaf1": Routing(mode, "InfiniBand")}
    fabric = msgspec.structs.replace(COLLISION.fabric, routing=routing)
    said = " ".join(page(replace(TALKING, fabric=fabric), 79).split())
    assert words in said
    assert "its hash" not in said
    assert "may use it" in said


def test_a_port_of_a_switch_says_how_links_are_selected() -> None:
    world = replace(COLLISION, fabric=infiniband(COLLISION.fabric))
    uplink = next(port for port in world.fabric.node("leaf1").ports if port.role == UPLINK)
    ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(world.scene(SEQ), 119)
    said = " ".join(" ".join(line.text for line in port_page(ctx, uplink, 1)).split())
    assert "routing static (InfiniBand)" in said


def test_a_port_that_is_read_slowly_says_how_old_its_values_are() -> None:
    scene = COLLISION.scene(SEQ)
    port = scene.snapshot.fabric.node("leaf1").ports[0]
    ages, periods = scene.snapshot.age_s.copy(), np.ones(len(scene.snapshot.up), np.float32)
    ages[port.row], periods[port.row] = 12, 26
    snapshot = replace(scene.snapshot, age_s=ages, period_s=periods)

    def said(snapshot: Snapshot) -> str:
        shown = replace(scene, snapshot=snapshot)
        ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(shown, 119)
        text = " ".join(line.text for line in port_page(ctx, snapshot.fabric.ports[port.row], 1))
        return " ".join(text.split())

    assert "read every 26 s, 12 s ago" in said(snapshot)
    # By sFlow the switch sends them: 26 s may be assumed.
    info = {"driver": "sflow", "counters": "sent at an interval not known yet"}
    ports = [*snapshot.fabric.ports]
    ports[port.row] = msgspec.structs.replace(port, info=info)
    fabric = msgspec.structs.replace(snapshot.fabric, ports=tuple(ports))
    sent = said(replace(snapshot, fabric=fabric))
    assert "counters sent at an interval not known yet, last counters 12 s ago" in sent
    assert "26 s" not in sent


def test_on_infiniband_the_pairs_of_hosts_are_known_without_queue_pairs() -> None:
    fabric = infiniband(COLLISION.fabric, lids_per_nic=2)
    said = page(replace(COLLISION, fabric=fabric), 79)
    golden.check("flows-infiniband-pairs-80", said)
    assert "pairs of hosts share this link" in " ".join(said.split())
    assert "may use another of its paths" in said
    ctx = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR).draw_context(
        replace(COLLISION, fabric=fabric).scene(SEQ), 79
    )
    assert flows.next_step(ctx, ctx.scene.findings[0]) == [], "there is nothing to probe"
