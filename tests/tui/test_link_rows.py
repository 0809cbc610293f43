"""The rows of links in the timeline: which links, what they show, and where their time is."""

from __future__ import annotations

from pathlib import Path

from fabmon.fabric.time_wording import time_of_day
from fabmon.tui.widgets.lines import TimelineView
from tests.tui.fabrics import fabric
from tests.tui.recordings import Watching, at, replaying
from tests.tui.running import Running, running
from tests.tui.scenes import World
from tests.tui.worlds import COLLISION, HEALTHY

TALL = (160, 60)


def rows(run: Running) -> list[str]:
    """The lines of the timeline below that of the busiest link."""
    strip = run.app.screen.query_one(TimelineView)
    lines = run.lines[strip.region.y : strip.region.y + strip.size.height]
    busiest = next(place for place, line in enumerate(lines) if line.startswith("   busiest"))
    return [line.rstrip() for line in lines[busiest + 1 :]]


def names(run: Running) -> list[str]:
    return [" ".join(line.split()[:3]) for line in rows(run)]


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


async def test_a_row_of_a_finding_that_ended_stays_marked_while_its_time_is_shown(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    Watching().record(path, 70)
    async with replaying(path, size=TALL, from_s=30) as run:
        await run.press("space")
        await run.shows("▲ ECMP collision")
        assert rows(run)[0].startswith(" ▲ leaf1 up3 ")
        await run.press("t", *time_of_day(at(65))[:8], "enter")
        await run.shows("No findings")
        assert rows(run)[0].startswith(" △ leaf1 up3 ")


async def test_what_follows_the_cursor_of_a_replay_is_read_from_the_recording(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.fabrec"
    Watching().record(path, 130)
    async with replaying(path, size=TALL, from_s=25) as run:
        await run.press("space")
        await run.shows("┃")
        line = rows(run)[0]
        await run.until(lambda: len(rows(run)[0].partition("┃")[2]) > 80)
        assert "┃" in line


async def test_a_click_goes_to_the_time_of_its_column(tmp_path: Path) -> None:
    path = tmp_path / "a.fabrec"
    Watching().record(path, 118)
    async with replaying(path, size=TALL, from_s=5) as run:
        await run.press("space")
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
