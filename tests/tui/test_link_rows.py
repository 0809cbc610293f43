"""The rows of links in the timeline: which links, what they show, and where their time is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.finding import Change, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import RAIL
from fabmon.fabric.time_wording import time_of_day
from fabmon.tui.line import width_of
from fabmon.tui.text.link_rows import link_rows
from fabmon.tui.widgets.lines import TimelineView
from tests.tui.fabrics import fabric
from tests.tui.recordings import Watching, at, replaying
from tests.tui.running import Running, running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY

TALL = (160, 60)
FABRIC = HEALTHY.fabric
NIC = FABRIC.node("gpu006").ports[3]
SECOND_NS = 10**9


def rows(run: Running) -> list[str]:
    """The lines of the timeline below that of the busiest link."""
    strip = run.app.screen.query_one(TimelineView)
    lines = run.lines[strip.region.y : strip.region.y + strip.size.height]
    busiest = next(place for place, line in enumerate(lines) if line.startswith("   busiest"))
    return [line.rstrip() for line in lines[busiest + 1 :]]


def names(run: Running) -> list[str]:
    return [" ".join(line.split()[:3]) for line in rows(run)]


@asynccontextmanager
async def paused(directory: Path, *, seconds: int, from_s: float) -> AsyncIterator[Running]:
    """A replay of a collision from 20 to 45 s that was paused soon after it began to play."""
    path = directory / "a.fabrec"
    Watching().record(path, seconds)
    async with replaying(path, size=TALL, from_s=from_s) as run:
        await run.press("space")
        yield run


async def test_the_flagged_link_is_first_then_the_busiest_of_every_leaf() -> None:
    async with running(COLLISION, size=TALL) as run:
        found = rows(run)
        assert found[0].startswith(" ▲ leaf1 up5 ")
        others = [line.split()[:2] for line in found[1:]]
        assert {"leaf1", "leaf2"} == {leaf for leaf, _ in others}
        assert others == sorted(others, key=lambda each: (each[0], int(each[1][2:])))
        assert not any("▲" in line for line in found[1:])


async def test_rows_stay_where_they_are_until_a_finding_opens_or_a_minute_is_over() -> None:
    async with running(HEALTHY, size=TALL) as run:
        before = names(run)
        await run.send(*(HEALTHY.scene(seq) for seq in range(72, 76)))
        assert [name.split()[:2] for name in names(run)] == [name.split()[:2] for name in before]


async def test_links_have_rows_as_soon_as_rates_are_known() -> None:
    before = World(FABRIC, broken=("tx_bps", "rx_bps"))
    async with running(before, size=TALL) as run:
        assert "Busiest link, % of line rate" in run.text
        await run.send(HEALTHY.scene(71))
        assert "Flagged and busiest links" in run.text
        assert {name.split()[0] for name in names(run)[:-1]} == {"leaf1", "leaf2"}


async def test_a_row_of_a_finding_that_ended_stays_marked_while_its_time_is_shown(
    tmp_path: Path,
) -> None:
    async with paused(tmp_path, seconds=70, from_s=30) as run:
        await run.shows("▲ ECMP collision")
        assert rows(run)[0].startswith(" ▲ leaf1 up3 ")
        await run.press("t", *time_of_day(at(65))[:8], "enter")
        await run.shows("No findings")
        assert rows(run)[0].startswith(" △ leaf1 up3 ")


async def test_what_follows_the_cursor_of_a_replay_is_read_from_the_recording(
    tmp_path: Path,
) -> None:
    async with paused(tmp_path, seconds=130, from_s=25) as run:
        await run.shows("┃")
        await run.until(lambda: rows(run)[0].partition("┃")[2].count("█") > 40)


async def test_a_click_goes_to_the_time_of_its_column(tmp_path: Path) -> None:
    async with paused(tmp_path, seconds=118, from_s=5) as run:
        await run.shows("leaf1 up")
        strip = run.app.screen.query_one(TimelineView)
        before = max(len(name) for name in ("leaf1 up1", "leaf2 up4")) + 4
        # The middle of two minutes.
        await run.click(before + (TALL[0] - before) // 2, 2, on=strip)
        await run.heads(time_of_day(at(60))[:7])


async def test_a_small_terminal_has_no_rows_of_links() -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        assert "busiest links" not in run.text
        assert "Busiest link" in run.text


async def test_ports_that_are_not_watched_any_more_are_on_the_screen_of_their_time() -> None:
    # As where a run extends the recording of another one, of more nodes.
    fewer = World(fabric(leaves=1, spines=1, hosts=1, rails=1))
    async with running(COLLISION, size=TALL) as run:
        await run.press("space")
        before = [name.split()[:2] for name in names(run)]
        await run.send(fewer.scene(72))
        assert [name.split()[:2] for name in names(run)] == before
        for keys in (("w",), ("escape", "3"), ("2",), ("5",), ("4", "enter"), ("enter",)):
            await run.press(*keys)
            await run.send(fewer.scene(73))


def of_last_hop(row: int) -> Finding:
    """A finding about gpu006 r3 whose first port is `row`."""
    scene = COLLISION.scene(70)
    return msgspec.structs.replace(
        scene.findings[0],
        cause="incast",
        subject=NIC.id,
        rows=(row,),
        since_ns=scene.snapshot.time_ns - 5 * SECOND_NS,
        seen_ns=scene.snapshot.time_ns,
    )


def marks(run: Running) -> dict[str, str]:
    """The links that have a row, with their marks, from the top down."""
    start = next(n for n, line in enumerate(run.lines) if "Flagged " in line)
    rows = [line[:20] for line in run.lines[start + 2 :] if line[1:2] in ("▲", "△", " ")]
    named = [line for line in rows if line[3:].startswith(("leaf", "gpu"))]
    return {" ".join(line[3:].split()[:2]): line[1].strip() for line in named}


def with_findings(*found: Finding, ended: Finding | None = None) -> Scene:
    scene = HEALTHY.scene(70)
    changes = () if ended is None else ((Change.CLOSE, ended),)
    return replace(scene, findings=found, changes=changes)


@pytest.mark.parametrize("end", ["switch", "NIC"])
async def test_a_flagged_last_hop_has_a_row_by_the_name_of_its_nic_whichever_end_is_first(
    end: str,
) -> None:
    row = NIC.peer if end == "switch" else NIC.row
    assert row is not None
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.send(with_findings(of_last_hop(row)))
        shown = marks(run)
        assert next(iter(shown)) == "gpu006 r3"
        assert shown["gpu006 r3"] == "▲"
        assert list(shown.values()).count("▲") == 1


async def test_the_link_of_a_finding_that_holds_no_more_keeps_its_row_with_an_open_triangle() -> (
    None
):
    now_ns = HEALTHY.scene(70).snapshot.time_ns
    faded = msgspec.structs.replace(of_last_hop(NIC.row), seen_ns=now_ns - 10 * SECOND_NS)
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.send(with_findings(faded))
        assert marks(run)["gpu006 r3"] == "△"


async def test_a_finding_that_ended_in_the_time_of_the_timeline_has_a_row_and_no_other() -> None:
    now_ns = HEALTHY.scene(70).snapshot.time_ns
    for ago_s, mark in ((30, "△"), (3_600, None)):
        ended = msgspec.structs.replace(of_last_hop(NIC.row), until_ns=now_ns - ago_s * SECOND_NS)
        async with running(HEALTHY, size=(120, 40)) as run:
            await run.send(with_findings(ended=ended))
            assert marks(run).get("gpu006 r3") == mark


async def test_the_busiest_links_have_half_of_the_rows_however_many_findings_have_ended() -> None:
    now_ns = HEALTHY.scene(70).snapshot.time_ns
    changes = tuple(
        (
            Change.CLOSE,
            msgspec.structs.replace(
                of_last_hop(port.row), subject=port.id, until_ns=now_ns - SECOND_NS
            ),
        )
        for port in FABRIC.node("gpu006").ports
    )
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.send(replace(HEALTHY.scene(70), changes=changes))
        shown = list(marks(run).values())
        assert 2 <= shown.count("△") <= len(shown) / 2


async def test_flagged_links_without_a_row_are_counted() -> None:
    """More links are flagged than rows are there: a row less must not look like a healthy link."""
    found = [
        msgspec.structs.replace(of_last_hop(port.row), subject=port.id)
        for node in FABRIC.nodes
        for port in node.ports
        if port.role == RAIL
    ]
    async with running(HEALTHY, size=(120, 40)) as run:
        await run.send(with_findings(*found))
        shown = marks(run)
        assert set(shown.values()) == {"▲"}
        left = len(found) - len(shown)
        assert f"Flagged links, {left} more" in run.text


async def test_names_of_wide_characters_do_not_move_the_time_of_their_links() -> None:
    async with running(COLLISION, size=TALL) as run:
        state = run.app.screen_state
        window = state.timeline_window()
        assert state.live is not None
        assert window is not None
        ctx = state.draw_context(state.live, 160)
        ports = [
            (msgspec.structs.replace(port, node=node), " ")
            for port, node in zip(ctx.fabric.ports, ("節点", "節点" * 30, "x" * 90), strict=False)
        ]
        made = link_rows(ctx, ports, ctx.snapshot, window, None)
        assert {width_of(spans) for spans in made.texts} == {made.before}


@pytest.mark.parametrize("width", [12, 30])
async def test_a_narrow_terminal_has_no_rows_of_links_however_tall_the_timeline_still_is(
    width: int,
) -> None:
    async with running(COLLISION, size=(width, 60)) as run:
        # As between a resize and the layout for it.
        run.app.screen.query_one(TimelineView).styles.height = 9
        await run.settle()
        assert "   busiest" not in run.text, "names would leave no column for the time"
