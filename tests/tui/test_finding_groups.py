"""Many findings of one cause at one place are one line, and thousands are drawn in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fabmon.analysis.finding import Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.model import RAIL, UPLINK, Fabric, Port
from fabmon.tui.palette import Depth
from fabmon.tui.run_facts import RunFacts
from fabmon.tui.screen_state import ScreenState
from fabmon.tui.text.finding_groups import finding_groups
from fabmon.tui.text.header import header
from fabmon.tui.text.pages import findings
from tests import work
from tests.tui.running import running
from tests.tui.worlds import HEALTHY, big

FABRIC = HEALTHY.fabric
UPLINKS = [port for port in FABRIC.node("leaf1").ports if port.role == UPLINK]


def flapping(port: Port, lost: float = 0.1, cause: str = "flapping_link") -> Finding:
    return Finding(
        cause=cause,
        severity="critical",
        subject=port.id,
        rows=(port.row,),
        text=f"{port.display_name} changed carrier 9 times in the last 2 min",
        evidence=(),
        advice="Reseat the cable.",
        confidence=0.95,
        lost=lost,
        since_ns=HEALTHY.scene(60).snapshot.time_ns,
    )


def lines(found: Sequence[Finding], fabric: Fabric = FABRIC) -> list[str]:
    return [each.subject(fabric) for each in finding_groups(found, fabric) if not each.is_single]


def with_findings(found: Sequence[Finding], scene: Scene | None = None) -> Scene:
    return replace(scene or HEALTHY.scene(70), findings=tuple(found))


def panel(scene: Scene, width: int = 60) -> list[str]:
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    return [line.text.rstrip() for line in findings.panel(state.draw_context(scene, width, 12))]


def test_uplinks_of_a_leaf_are_one_line_with_their_number_names_and_highest_loss() -> None:
    found = [flapping(port, 0.02 * number) for number, port in enumerate(UPLINKS, 1)]
    shown = panel(with_findings(found))
    assert shown[0][1:].split("  ")[:2] == ["▸▲ Flapping link", "8 uplinks of leaf1"]
    assert shown[1].strip() == "up1-up8, up to 16 % lost"
    assert not any("changed carrier" in line for line in shown)


def test_two_findings_are_shown_in_full() -> None:
    shown = panel(with_findings([flapping(port) for port in UPLINKS[:2]]))
    assert sum("changed carrier" in line for line in shown) == 2


def test_one_rail_of_each_host_is_grouped_by_the_leaf_of_the_hosts() -> None:
    rails = [port for port in FABRIC.ports if port.label == "r3" and port.role == RAIL]
    below = [p for p in rails if FABRIC.node(p.node).group == "leaf1"]
    others = [p for p in rails if p not in below][:2]
    assert lines([flapping(port) for port in below + others]) == [f"{len(below)} rails under leaf1"]


def test_causes_are_not_mixed() -> None:
    found = [flapping(port) for port in UPLINKS[:4]]
    found += [flapping(port, cause="degraded_link") for port in UPLINKS[4:]]
    assert lines(found) == ["4 uplinks of leaf1", "4 uplinks of leaf1"]


def test_a_group_is_where_its_most_severe_finding_is() -> None:
    lone = flapping(FABRIC.node("gpu001").ports[0], cause="straggler")
    groups = finding_groups([lone, *map(flapping, UPLINKS)], FABRIC)
    assert [each.first.cause for each in groups] == ["straggler", "flapping_link"]
    assert [len(each.findings) for each in groups] == [1, 8]


def test_the_title_counts_findings_not_lines() -> None:
    scene = with_findings([flapping(port) for port in UPLINKS])
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    assert len(findings.shown(state.draw_context(scene, 60, 12))) == 8


async def test_enter_and_the_arrows_list_the_findings_of_a_group_and_enter_explains_one() -> None:
    async with running(size=(160, 48)) as run:
        await run.send(with_findings([flapping(port) for port in UPLINKS]))
        assert "▸▲ Flapping link  8 uplinks of leaf1" in run.text
        await run.press("tab", "enter")
        assert "▾▲ Flapping link  8 uplinks of leaf1" in run.text
        assert "└ ▲ leaf1 up8 → spine4" in run.text
        await run.press("left")
        assert "└ ▲ leaf1" not in run.text
        await run.press("right", "j", "enter")
        assert run.view == "finding"
        assert "Flapping link leaf1 up1" in run.lines[1]


async def test_a_selected_group_marks_all_its_ports() -> None:
    async with running(size=(160, 48)) as run:
        await run.send(with_findings([flapping(port) for port in UPLINKS]))
        await run.press("tab")
        scene = run.app.screen_state.scene
        assert scene is not None
        selection = run.app.screen_state.selection(scene)
        assert selection is not None
        assert {port.row for port in UPLINKS} <= set(selection.rows.tolist())


BIG = big()


def many(count: int) -> Scene:
    """Findings on `count` ports all over a fabric of 16,896 ports, every second one a congested
    path, with an event each."""
    scene = BIG.scene(70)
    ports = [port for port in BIG.fabric.ports if port.role in (RAIL, UPLINK)]
    found = [
        flapping(ports[number * 3 % len(ports)], cause=("flapping_link", "congested_path")[odd])
        for number in range(count)
        for odd in [number % 2]
    ]
    opened = [
        Event(each.since_ns, 0, "finding", f"open {each.cause} {each.subject}") for each in found
    ]
    return replace(scene, findings=tuple(found), events=tuple(opened[:500]))


@pytest.mark.parametrize("size", [(60, 18), (240, 70)])
async def test_two_thousand_findings_do_not_slow_the_screen(size: tuple[int, int]) -> None:
    scene = many(2_000)
    async with running(BIG, size=size) as run:
        for key in ("1", "4"):
            await run.press(key)
            await run.app.take(scene)  # makes what is kept
            with work.counted() as done:
                await run.app.take(scene)
            assert done.lines < 600_000
            assert "Flapping link" in run.text


def test_the_list_is_bounded_whatever_is_found() -> None:
    scene = many(2_000)
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    for group in state.groups(scene):
        state.fold(group.key)
    ctx = state.draw_context(scene, 60, 40)
    assert len(findings.panel(ctx)) < 200
    assert len(findings.shown(ctx)) == 2_000


def test_the_work_grows_with_the_number_of_findings_not_with_its_square() -> None:
    def lines_for(count: int) -> int:
        found = many(count).findings
        with work.counted() as done:
            finding_groups(found, BIG.fabric)
        return done.lines

    assert lines_for(2_000) < 12 * lines_for(250)


def test_the_header_counts_a_link_as_down_while_a_finding_says_so() -> None:
    """Carrier may be back in the tick in which the finding is still open."""
    port = FABRIC.node("gpu002").ports[3]
    scene = with_findings([flapping(port, cause="link_down")])
    assert scene.snapshot.up[port.row] == 1
    state = ScreenState(RunFacts("pod7"), Depth.NONE)
    state.take(scene)
    assert "✖ 1 down" in header(state.header_context(160)).text
