"""What is said of fabrics that are not as one wishes: nothing seen, links down, rates unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from rich.cells import cell_len

from collectors.catalog import CATALOG
from fabmon.analysis.finding import Change, Evidence
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import FRONTEND
from fabmon.fabric.snapshot import Floats, Rows
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.time_wording import time_of_day
from fabmon.fabric.wording import Unit
from fabmon.report.page.digest import Bins, digest
from fabmon.report.page.findings import findings as report_findings
from fabmon.report.page.page import cards
from fabmon.report.scene_report import table
from fabmon.scenes.recording_contents import RecordingContents
from fabmon.session.config import load
from fabmon.tui.cells import scale
from fabmon.tui.choices import Choices
from fabmon.tui.palette import Depth, palette
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text import labels
from fabmon.tui.text.header import all_fit, header, panel_title, rare_mark_legend
from fabmon.tui.text.pages import finding, findings, nodes, port, switches
from fabmon.tui.text.timeline import column_of, timeline, with_finding_span
from fabmon.tui.time.cursor import TimeCursor
from tests.tui import scenes
from tests.tui.fabrics import fabric
from tests.tui.recordings import at
from tests.tui.scenes import World, row_of
from tests.tui.worlds import COLLISION, HEALTHY


def _panel(scene: Scene, height: int = 12) -> str:
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    return "\n".join(
        line.text for line in findings.panel(screen_state.draw_context(scene, 60, height))
    )


def test_a_port_of_unknown_line_rate_is_drawn_in_bits_where_others_are_in_percent() -> None:
    scene = HEALTHY.scene(70)
    row = row_of(HEALTHY, "gpu002/mlx5_1")
    rates = scene.snapshot.line_rate_bps.copy()
    rates[row] = np.nan
    scene = Scene(replace(scene.snapshot, line_rate_bps=rates), (), (), ())
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE, Choices(unit=Unit.PERCENT))
    screen_state.take(scene)
    shown = scene.snapshot.fabric.ports[row]
    text = "\n".join(
        line.text for line in port.page(screen_state.draw_context(scene, 100, 40), shown, 5)
    )
    assert "tx, Gb/s, last 5 min, scale to highest value" in text
    assert "100 %│" not in text
    assert "Gb/s│" in text


class _Idle(World):
    def window(self, column: str, rows: Sequence[int] | Rows, ticks: int, end_seq: int) -> Floats:
        return np.zeros_like(super().window(column, rows, ticks, end_seq))


def test_an_idle_port_of_unknown_line_rate_has_a_scale_that_makes_sense() -> None:
    idle = _Idle()
    scene = idle.scene(70)
    row = row_of(idle, "gpu002/mlx5_1")
    rates = scene.snapshot.line_rate_bps.copy()
    rates[row] = np.nan
    snapshot = replace(scene.snapshot, line_rate_bps=rates)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    scene = replace(scene, snapshot=snapshot)
    screen_state.take(scene)
    shown = snapshot.fabric.ports[row]
    text = "\n".join(
        line.text for line in port.page(screen_state.draw_context(scene, 100, 40), shown, 5)
    )
    assert "1.00 b/s│" not in text
    assert "1.00 Gb/s│" in text
    assert "scale to 1.00 Gb/s" in text


def test_links_that_were_down_before_are_no_finding_and_are_said() -> None:
    world = World(down=(row_of(HEALTHY, "gpu002/mlx5_3"),))
    scene = replace(world.scene(70), findings=())
    text = " ".join(_panel(scene).split())
    assert "○ No findings " in text
    assert "1 link has been down since the start: gpu002 r3" in text
    assert "no link is flagged" not in text


def test_a_link_that_a_finding_says_is_down_is_counted_in_the_header() -> None:
    row = row_of(HEALTHY, "gpu002/mlx5_3")
    ports = list(HEALTHY.fabric.ports)
    ports[row] = msgspec.structs.replace(ports[row], role=FRONTEND, peer=None)
    made = msgspec.structs.replace(HEALTHY.fabric, ports=tuple(ports))
    scene = World(fabric=made, down=(row,)).scene(70)
    assert [finding.cause for finding in scene.findings] == ["link_down"]
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    for shown, count in ((scene, 1), (replace(scene, findings=()), 0)):
        screen_state.take(shown)
        assert f"✖ {count} down" in header(screen_state.header_context(120)).text


@pytest.mark.parametrize("width", [60, 80, 160])
def test_findings_that_faded_are_the_count_of_the_header_where_none_holds(width: int) -> None:
    scene = COLLISION.scene(70)
    (held,) = scene.findings
    seen_ns = scene.snapshot.time_ns - 10**10
    faded = msgspec.structs.replace(held, seen_ns=seen_ns)
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(replace(scene, findings=(faded,)))
    shown = header(state.header_context(width)).text
    assert "△ 1 finding" in shown
    assert "▲" not in shown
    state.take(replace(scene, findings=(held, faded)))
    shown = header(state.header_context(width)).text
    assert "▲ 1 " in shown
    assert ("△ 1 " in shown) == (width > 60)


def test_the_report_counts_links_as_the_header_does() -> None:
    scene = HEALTHY.scene(70)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    links = re.search(r"(\d+) links", header(screen_state.header_context(160)).text)
    assert links is not None
    time_ns = scene.snapshot.time_ns
    shown = str(cards(digest([scene], Bins(time_ns, time_ns, 1.0)), ()))
    assert f"<b>{links[1]}</b><span>links</span>" in shown


def test_where_no_finding_is_open_the_last_one_that_ended_is_said_for_ten_minutes() -> None:
    scene = COLLISION.scene(70)
    ended = tuple(
        (Change.CLOSE, msgspec.structs.replace(each, until_ns=scene.snapshot.time_ns))
        for each in scene.findings
    )
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(replace(scene, findings=(), changes=ended))

    def panel(ago_s: int) -> str:
        later = replace(COLLISION.scene(70 + ago_s), findings=())
        screen_state.take(later)
        lines = findings.panel(screen_state.draw_context(later, 60, 20))
        return " ".join(" ".join(line.text for line in lines).split())

    assert "○ No findings: no link is flagged or down △ ended 18 s ago: " in panel(18)
    assert "ended" not in panel(601)


def test_many_links_that_were_down_before_are_counted() -> None:
    rows = tuple(row_of(HEALTHY, f"gpu002/mlx5_{n}") for n in range(5))
    scene = replace(World(down=rows).scene(70), findings=())
    text = " ".join(_panel(scene).split())
    assert "5 links have been down since the start" in text
    assert "gpu002 r0, gpu002 r1, gpu002 r2 and 2 more" in text


def test_nothing_seen_is_not_nothing_wrong() -> None:
    made = fabric(leaves=1, spines=1, hosts=1)
    names = tuple(node.name for node in made.nodes)
    world = World(made, connecting=names)
    assert "○ No findings: no node sends data" in _panel(world.scene(5))
    assert "no link is flagged" not in _panel(world.scene(5))


def test_cells_without_a_rate_are_no_absence_of_findings() -> None:
    scene = replace(HEALTHY.scene(70), findings=())
    heat = np.full_like(scene.snapshot.heat, np.nan)
    unknown = replace(scene, snapshot=replace(scene.snapshot, heat=heat))
    assert "? Nothing is known: no port has a rate" in _panel(unknown)
    assert "No findings" not in _panel(unknown)
    first = HEALTHY.scene(0)
    first = replace(first, snapshot=replace(first.snapshot, heat=np.full_like(heat, np.nan)))
    assert "? Nothing is known yet: the first sample is being taken" in _panel(first)
    assert "nothing is known yet: the first sample is being taken" in table(first)
    heat[:, 1:] = scene.snapshot.heat[:, 1:]
    partly = replace(scene, snapshot=replace(scene.snapshot, heat=heat))
    assert "1 port of" in _panel(partly)
    assert "without a rate: not judged" in _panel(partly)


def test_on_a_machine_with_nothing_to_see_it_says_what_it_takes() -> None:
    scene = replace(HEALTHY.scene(70), findings=())
    rates = np.full_like(scene.snapshot.line_rate_bps, np.nan)
    nodes = (scene.snapshot.fabric.node("gpu001"),)
    alone = msgspec.structs.replace(scene.snapshot.fabric, nodes=nodes)
    laptop = replace(scene.snapshot, line_rate_bps=rates, fabric=alone)
    said = " ".join(_panel(replace(scene, snapshot=laptop), 16).split())
    assert "fabmon --hosts FILE, or fabmon alone in a job of Slurm" in said
    assert "fabmon demo" in said
    assert "fabmon demo" not in _panel(HEALTHY.scene(70))


def test_without_a_line_rate_full_links_are_not_judged_anywhere() -> None:
    scene = replace(HEALTHY.scene(70), findings=())
    rates = np.full_like(scene.snapshot.line_rate_bps, np.nan)
    unknown = replace(scene, snapshot=replace(scene.snapshot, line_rate_bps=rates))
    assert "? Full links are not judged" in _panel(unknown)
    assert "No port has a line rate: add it in the hosts file, as in speed=400G." in " ".join(
        _panel(unknown).split()
    )
    assert "No findings" not in _panel(unknown)
    assert "0 findings, full links are not judged: no port has a line rate" in table(unknown)
    time_ns = scene.snapshot.time_ns
    made = digest([unknown], Bins(time_ns, time_ns, 1.0))
    assert "full links were not judged: no port had a line rate" in str(report_findings(made))
    assert "<small>full links not judged</small>" in str(cards(made, ()))


def test_events_call_causes_as_findings_do() -> None:
    scene = COLLISION.scene(70)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    text = "\n".join(line.text for line in findings.page(screen_state.draw_context(scene, 80)))
    assert "Opened: ECMP collision leaf1" in text
    assert "ecmp_collision" not in text


def test_no_heading_stands_alone() -> None:
    scene = HEALTHY.scene(70)
    shown = [_panel(scene, height).rstrip().splitlines() for height in range(3, 10)]
    assert all("Busiest" not in lines[-1] for lines in shown)


def test_an_engine_that_has_nothing_is_said_where_the_nodes_would_be() -> None:
    scene = HEALTHY.scene(70)
    nobody = msgspec.structs.replace(scene.snapshot.fabric, nodes=())
    scene = replace(scene, snapshot=replace(scene.snapshot, statuses={}, fabric=nobody))
    why = "the engine has no metrics that fabmon knows"
    screen_state = ScreenState(RunFacts("pod7", nothing=lambda: why), Depth.NONE)
    text = "\n".join(
        line.text for line in nodes.nodes_page(screen_state.draw_context(scene, 80), frozenset())
    )
    assert why in text


def test_nodes_that_are_stale_alike_are_one_line() -> None:
    scene = World(quiet=(("gpu002", 68), ("gpu003", 68))).scene(70)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    text = "\n".join(
        line.text for line in nodes.nodes_page(screen_state.draw_context(scene, 100), frozenset())
    )
    assert "▸ ▒ 2 stale, connection  gpu002, gpu003: no frame from it" in text


def _without_data(state: NodeState, reason: str) -> ScreenState:
    """A screen of two nodes in one state."""
    scene = HEALTHY.scene(70)
    nodes = scene.snapshot.fabric.nodes[:2]
    statuses = {
        node.name: NodeStatus(node.name, state, 0, reason, f"cause of {node.name}")
        for node in nodes
    }
    two = msgspec.structs.replace(scene.snapshot.fabric, nodes=nodes)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(
        replace(scene, snapshot=replace(scene.snapshot, statuses=statuses, fabric=two))
    )
    return screen_state


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (NodeState.FAILED, "✖ NO NODE UP 14:07:50Z"),
        (NodeState.LOST, "✖ NO NODE UP 14:07:50Z"),
        (NodeState.CONNECTING, "○ CONNECTING 14:07:50Z"),
        (NodeState.UP, "● LIVE 14:07:50Z"),
    ],
)
def test_the_header_is_live_only_where_a_node_sends_data(state: NodeState, said: str) -> None:
    assert said in header(_without_data(state, "").header_context(80)).text


def test_a_reason_that_does_not_fit_its_line_is_below_it_in_full() -> None:
    reason = "connection refused by gpu001:22: is sshd running, is the port right (port=)?"
    screen_state = _without_data(NodeState.FAILED, reason)
    scene = screen_state.live
    assert scene is not None
    page = nodes.nodes_page(screen_state.draw_context(scene, 80), frozenset())
    text = " ".join(" ".join(each.text for each in page).split())
    assert text.count(reason) == 2
    assert all(cell_len(each.text) <= 80 for each in page)


@pytest.mark.parametrize("names", [("vm",), ("a", "bb"), ("a-host-with-a-name-of-35-characters",)])
def test_nodes_are_below_their_headings_whatever_their_names(
    names: tuple[str, ...],
) -> None:
    scene = HEALTHY.scene(70)
    snapshot = scene.snapshot
    known = snapshot.statuses["gpu001"]
    statuses = {name: msgspec.structs.replace(known, node=name, reason="why") for name in names}
    nobody = msgspec.structs.replace(snapshot.fabric, nodes=())
    scene = replace(scene, snapshot=replace(snapshot, statuses=statuses, fabric=nobody))
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    page = nodes.nodes_page(screen_state.draw_context(scene, 100), frozenset())
    head, *rows = [line.text for line in page][-1 - len(names) :]
    assert head.split() == ["node", "state", "for", "probe", "CPU", "reason"]
    assert len(rows) == len(names)
    for row in rows:
        assert row.index("●") == head.index("state")
        assert row.index("why") == head.index("reason")


def test_a_long_title_is_cut_before_the_unit_and_the_metric_go() -> None:
    screen_state = ScreenState(RunFacts("every 15 s: prometheus.example.org:9090"), Depth.NONE)
    screen_state.take(HEALTHY.scene(70))
    widths = range(40, 140)
    shown = [header(screen_state.header_context(width)).text for width in widths]
    assert all(len(text) <= width for text, width in zip(shown, widths, strict=True))
    assert any("every 1… " in text and "u Gb/s" in text and "m util" in text for text in shown)
    assert not [text for text in shown if "every" in text and "m util" not in text]


def test_whether_all_parts_fit_is_what_a_title_shows() -> None:
    tone = palette(Depth.TRUECOLOR)
    parts = [[("Fabric", tone.text)], [("0 ███ 100 %", tone.text)], [("util", tone.text)]]
    for width in range(8, 60):
        shown = panel_title(parts, width, tone, paused=False).text
        assert all_fit(parts, width) == all(part[0][0] in shown for part in parts), width


def test_the_cursor_is_not_set_into_the_title_of_the_strip() -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(HEALTHY.scene(600))
    heads = 0
    for seq in range(1, 600, 7):
        screen_state.show(HEALTHY.scene(seq))
        ctx = screen_state.timeline_context(100, 3)
        assert ctx is not None
        top = timeline(ctx)[0].text
        title = "═ Last 10 min ══ Busiest link, % of line rate ══ here "
        assert top.replace("▼", "═").startswith(title)
        heads += "▼" in top
    assert heads > 20


@dataclass(frozen=True)
class _ImpossibleLoad(World):
    def worst(self, ticks: int, end_seq: int) -> Floats:
        return np.full(ticks, 92_935.0, np.float32)


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ((120, 3), "now >100 % ── a line rate is wrong"),
        ((60, 3), "now >100 %"),
        ((60, 1), ">100 %"),
    ],
)
def test_an_impossible_load_is_no_percentage(size: tuple[int, int], said: str) -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(_ImpossibleLoad().scene(70))
    ctx = screen_state.timeline_context(*size)
    assert ctx is not None
    first = timeline(ctx)[0].text
    assert said in first
    assert "93" not in first


def test_a_short_recording_fills_the_strip() -> None:
    cursor = TimeCursor(recorded=RecordingContents(at(0), at(7 * 60 - 1)))
    assert cursor.window(at(300), None) == (at(0), at(7 * 60))
    for _ in range(2):  # Beside all of it there is nothing.
        cursor.zoom_by(1, has_now=False)
        assert cursor.span_s(has_now=False) == 600
    cursor.zoom = None
    cursor.zoom_by(-1, has_now=False)
    assert cursor.span_s(has_now=False) == 300
    cursor.zoom_by(1, has_now=False)
    assert cursor.span_s(has_now=False) == 600


def test_an_open_finding_lasts_as_far_as_what_is_shown() -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.TRUECOLOR)
    screen_state.take(COLLISION.scene(400))
    shown = COLLISION.scene(250)
    screen_state.show(shown)
    window = screen_state.timeline_window()
    assert window is not None
    now_ns = shown.snapshot.time_ns
    assert now_ns < window[1]
    ctx = screen_state.timeline_context(120, 3)
    assert ctx is not None
    plain = timeline(ctx)[0]
    drawn = with_finding_span(
        plain, shown.findings[0], window, (0, 120), now_ns, screen_state.palette
    ).text
    last = column_of(now_ns, window, 120)
    assert "━" in drawn[:last]
    assert "━" not in drawn[last + 1 :]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (100, " leaf1 up5  up  8.10 % of time paused, max of rx and tx  tx  393 Gb/s 98.2 %  rx"),
        (90, " leaf1 up5  up  8.10 % of time paused, max of rx and tx  tx  393 Gb/s 98.2 %  …"),
        (60, " leaf1 up5  up  8.10 % of time paused, max of rx and tx  …"),
        (10, " leaf1…  …"),
    ],
)
def test_a_summary_of_a_port_leaves_out_whole_values(width: int, expected: str) -> None:
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE, Choices(metric="pause"))
    screen_state.take(COLLISION.scene(70))
    ctx = screen_state.draw_context(COLLISION.scene(70), width)
    text = labels.port_summary(ctx, row_of(COLLISION, "leaf1/swp37")).text
    assert cell_len(text) <= width
    assert expected in text


def test_a_full_link_that_is_not_flagged_says_why() -> None:
    row, why = row_of(HEALTHY, "leaf1/swp37"), "one NIC accounts for it (gpu001 r0)"
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    full = replace(HEALTHY.scene(70), why_unflagged={row: why})
    screen_state.take(full)
    ctx = screen_state.draw_context(full, 160, 40)
    assert labels.port_summary(ctx, row).text.endswith(f"Full, not flagged: {why}")
    flagged = replace(COLLISION.scene(70), why_unflagged={row_of(COLLISION, "leaf1/swp37"): why})
    screen_state.take(flagged)
    ctx = screen_state.draw_context(flagged, 160, 40)
    assert "not flagged" not in labels.port_summary(ctx, row).text


def test_what_there_is_room_for_is_not_cut() -> None:
    scene = HEALTHY.scene(70)
    snapshot = scene.snapshot
    status = snapshot.statuses["gpu001"]
    since_ns = snapshot.time_ns - 3_599 * 10**9
    statuses = {**snapshot.statuses, "gpu001": msgspec.structs.replace(status, since_ns=since_ns)}
    scene = replace(scene, snapshot=replace(snapshot, statuses=statuses))
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    assert "59 min 59 s" in "".join(
        x.text for x in nodes.nodes_page(screen_state.draw_context(scene, 80), frozenset())
    )


def test_next_to_nothing_has_room_under_its_bar() -> None:
    made = fabric()
    scene = replace(COLLISION, fabric=made).scene(70)
    row = made.groups[0].rows[0]
    tiny = scene.snapshot.line_rate_bps.copy()
    tiny[row] = 1e16
    scene = replace(scene, snapshot=replace(scene.snapshot, line_rate_bps=tiny))
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE, Choices(unit=Unit.PERCENT))
    screen_state.take(scene)
    said = "".join(line.text for line in switches.page(screen_state.draw_context(scene, 120)))
    assert "<.01" in said
    assert "…" not in said


def test_the_uplinks_of_a_switch_are_in_rows_of_the_same_length() -> None:
    """Else the last of 32 is alone in a row of its own."""
    scene = World(fabric(leaves=2, spines=16)).scene(70)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    lines = [line.text for line in switches.page(screen_state.draw_context(scene, 102))]
    labels = [line.split() for line in lines if line.split()[:1] in (["up1"], ["up9"], ["up16"])]
    assert [len(row) for row in labels[:2]] == [8, 8]


def test_the_name_of_every_counter_is_said_in_full() -> None:
    assert max(map(len, CATALOG)) <= port._COUNTER


def test_of_a_lost_node_no_loss_is_said() -> None:
    """Nothing is measured on it: 100 % would be no measurement."""
    node = HEALTHY.fabric.nodes[0]
    lost = scenes.lost(node, HEALTHY.scene(40).snapshot.time_ns)
    scene = replace(HEALTHY.scene(70), findings=(lost,))
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(scene)
    ctx = screen_state.draw_context(scene, 100, 40)
    for made in (finding.page(ctx, lost, open_now=True), findings.page(ctx)):
        text = "\n".join(line.text for line in made)
        assert f"{node.name} is lost" in text
        assert "confidence 100 %" in text.lower()
        assert "100 % of" not in text
        assert "% lost" not in text


def test_a_cell_without_a_line_rate_is_explained_by_the_legend() -> None:
    plain = HEALTHY.scene(60)
    rates = plain.snapshot.line_rate_bps.copy()
    row = row_of(HEALTHY, "gpu002/mlx5_1")
    rates[row] = np.nan
    unrated = replace(plain.snapshot, line_rate_bps=rates)
    for column in (unrated.tx_util, unrated.rx_util):
        column[row] = np.nan
    for scene, is_explained in ((plain, False), (replace(plain, snapshot=unrated), True)):
        screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
        screen_state.take(scene)
        ctx = screen_state.draw_context(scene, 120, 40)
        cells = ctx.codes(scale(ctx.metric, Depth.NONE, False))
        legend = [text for part in rare_mark_legend(ctx.palette, cells) for text, _ in part]
        assert legend == ["? no line rate"] * is_explained
        summary = labels.port_summary(ctx.sized(80), row).text
        assert ("no line rate; hosts file: speed=400G" in summary) == is_explained


def test_what_one_sample_shows_has_no_length_in_list_and_pages() -> None:
    """Not 0 s: it may have lasted two intervals, or begun long before the first sample."""
    scene = COLLISION.scene(70)
    time_ns = scene.snapshot.time_ns
    opened = msgspec.structs.replace(scene.findings[0], since_ns=time_ns, seen_ns=time_ns)
    closed = msgspec.structs.replace(opened, until_ns=time_ns)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    ended = replace(scene, findings=(), changes=((Change.CLOSE, closed),))
    screen_state.take(ended)
    ctx = screen_state.draw_context(ended, 120, 60)
    bins = Bins(time_ns, time_ns, 1.0)
    for is_open, found in ((True, opened), (False, closed)):
        lines = finding.page(ctx, found, open_now=is_open)
        assert " (one sample)" in " ".join(line.text for line in lines)
        change = Change.OPEN if is_open else Change.CLOSE
        changed = replace(scene, findings=(opened,) * is_open, changes=((change, found),))
        html = str(report_findings(digest([changed], bins)))
        assert "(one sample)" in html
    (listed,) = (each.text for each in findings.page(ctx) if each.text.startswith(" △ "))
    assert listed.endswith("Z, one sample")


def test_the_page_of_a_finding_has_both_units_where_bytes_are_chosen() -> None:
    """Its texts, which are the same in every output, have bits."""
    known = COLLISION.scene(70).findings[0]
    made = msgspec.structs.replace(
        known, text="it receives at 140 Gb/s", evidence=(Evidence("received", 140e9, "bps"),)
    )
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(COLLISION.scene(70))
    bits = screen_state.draw_context(COLLISION.scene(70), 100, 40)
    for unit, said in ((Unit.GBYTE, "140 Gb/s (17.5 GB/s)"), (Unit.PERCENT, "140 Gb/s")):
        ctx = replace(bits, choices=replace(bits.choices, unit=unit))
        lines = [each.text for each in finding.page(ctx, made, open_now=True)]
        assert any(each.endswith(f"it receives at {said}") for each in map(str.strip, lines))
        assert any(each.split() == ["received", *said.split()] for each in lines)


def test_the_page_of_a_finding_has_the_numbers_of_its_rule() -> None:
    scene, thresholds = COLLISION.scene(70), load(Path("/dev/null")).thresholds
    state = ScreenState(RunFacts("pod7", thresholds=thresholds), Depth.NONE)
    state.take(scene)
    lines = finding.page(state.draw_context(scene, 100, 40), scene.findings[0], open_now=True)
    text = " ".join(" ".join(line.text for line in lines).split())
    assert "Rule: A link between switches is busier by 12 % than the NICs that share it" in text
    assert "model." not in text


def test_the_page_of_a_finding_that_faded_has_the_evidence_of_its_worst_moment() -> None:
    scene = COLLISION.scene(70)
    known, time_ns = scene.findings[0], scene.snapshot.time_ns
    evidence = (Evidence("lost bandwidth", 65.0, "%"),)
    worst = msgspec.structs.replace(known, lost=0.65, evidence=evidence, seen_ns=time_ns - 10**9)
    faded = msgspec.structs.replace(known, lost=0.1, evidence=(), seen_ns=time_ns, worst=worst)
    screen_state = ScreenState(RunFacts("pod7"), Depth.NONE)
    screen_state.take(replace(scene, findings=(faded,)))
    ctx = screen_state.draw_context(scene, 100, 40)
    for until_ns, said in ((None, "now 10 % lost"), (time_ns, "10 % lost at its end")):
        made = msgspec.structs.replace(faded, until_ns=until_ns)
        lines = finding.page(ctx, made, open_now=until_ns is None)
        text = " ".join(" ".join(line.text for line in lines).split())
        assert said in text
        assert f"Evidence at {time_of_day(worst.seen_ns or 0)}, at its worst" in text
        assert ", at its worst 65 % of the bandwidth lost, confidence" in text
        assert text.count("of the bandwidth lost") == 1
        times = f"{time_of_day(known.since_ns)} to {time_of_day(time_ns)} (37 s)"
        ended = f" {times}, closed, at its worst 65 %"
        assert (ended in text) == (until_ns is not None)
