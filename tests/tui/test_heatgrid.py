from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from rich.style import Style
from textual.app import App, ComposeResult
from textual.geometry import Region

from fabmon.tui.cells import (
    ABSENT,
    DOWN,
    FLAGGED,
    NOTHING,
    SELECTED,
    STALE,
    UNRATED,
    Codes,
    Look,
    scale,
)
from fabmon.tui.metrics import heat_metric
from fabmon.tui.palette import Depth, palette
from fabmon.tui.widgets.heatgrid import HeatGrid
from tests import work
from tests.tui import golden
from tests.tui.plain_rows import plain_rows


def look(depth: Depth = Depth.TRUECOLOR, digits: bool = False, width: int = 1) -> Look:
    return Look(palette(depth), scale(heat_metric("util"), depth, digits, width))


GRID = (6, 10)
"""Rows and columns of `states`."""


class GridApp(App[None]):
    CSS = "HeatGrid { width: 100%; height: 100%; }"

    def __init__(self, shown: Look) -> None:
        super().__init__()
        self.grid = HeatGrid(shown)

    def compose(self) -> ComposeResult:
        yield self.grid


def states(shown: Look) -> Codes:
    """A row of rising levels, then the same hot, then stale, then the specials; then chosen."""
    top = len(shown.levels.edges)
    line = [round(step / 9 * top) for step in range(10)]
    specials = [ABSENT, ABSENT | STALE, DOWN, DOWN | STALE, UNRATED, NOTHING, 0, 0, 0, 0]
    return np.array(
        [
            line,
            [code | FLAGGED for code in line],
            [code | STALE for code in line],
            specials,
            [code | SELECTED for code in line],
            [
                code | SELECTED
                for code in (*specials[:5], line[4] | FLAGGED, line[4] | STALE, 0, 0, 0)
            ],
        ],
        dtype=np.uint16,
    )


def described(style: Style | None) -> str:
    if style is None:
        return "-"
    colour = style.color.name if style.color else "-"
    paper = style.bgcolor.name if style.bgcolor else "-"
    ways = {"bold": style.bold, "dim": style.dim, "reverse": style.reverse}
    return " ".join([colour, "on", paper, *(way for way, is_on in ways.items() if is_on)])


@pytest.mark.parametrize("depth", list(Depth))
@pytest.mark.parametrize("digits", [False, True])
async def test_lines_in_every_colour_mode(depth: Depth, digits: bool) -> None:
    shown = look(depth, digits)
    codes = states(shown)
    app = GridApp(shown)
    async with app.run_test(size=(60, 12)) as pilot:
        texts = []
        for width, gap in ((1, 0), (2, 1), (3, 1)):
            app.grid.show(codes, plain_rows(*GRID, width, gap), look(depth, digits, width))
            app.grid.put(None)
            await pilot.pause()
            for strip in app.grid.render_lines(Region(0, 0, 44, len(codes))):
                texts.append(f"|{strip.text}|")
                styles = [described(s.style) for s in strip if s.text.strip()]
                texts += [
                    f"    {len(list(run))} x {style}" for style, run in itertools.groupby(styles)
                ]
    shown_digits = digits and depth is not Depth.NONE
    name = f"heatgrid-{depth}{'-digits' if shown_digits else ''}"
    golden.check(name, "\n".join(texts))


_MODES = {"1": "bold", "2": "dim", "7": "reverse"}


def sent_modes(sent: str) -> list[tuple[str, frozenset[str]]]:
    """What a terminal makes of escape sequences: per character its modes, colours left out."""
    shown: list[tuple[str, frozenset[str]]] = []
    modes: frozenset[str] = frozenset()
    for part in sent.split("\x1b[")[1:]:
        parameters, _, text = part.partition("m")
        parameters = re.sub(r"[34]8;(5;\d+|2;\d+;\d+;\d+)", "", parameters)
        for parameter in parameters.split(";"):
            if parameter == "0":
                modes = frozenset()
            elif parameter in _MODES:
                modes |= {_MODES[parameter]}
        shown += [(char, modes) for char in text]
    return shown


@pytest.mark.parametrize("depth", list(Depth))
@pytest.mark.parametrize(("width", "gap"), [(1, 0), (2, 0), (2, 1)])
async def test_what_is_sent_to_the_terminal_shows_what_the_segments_say(
    depth: Depth, width: int, gap: int
) -> None:
    shown = look(depth)
    app = GridApp(shown)
    codes = states(shown)
    codes[:4, ::2] = codes[4, ::2]
    async with app.run_test(size=(30, 6)):
        app.grid.show(codes, plain_rows(*GRID, width, gap))
        for strip in app.grid.render_lines(Region(0, 0, 30, len(codes))):
            sent = strip.render(app.console)
            assert sent.endswith("\x1b[0m")
            wanted = [
                (char, frozenset(mode for mode in _MODES.values() if getattr(style, mode, False)))
                for text, style, _ in strip
                for char in text
            ]
            blanks = str.maketrans("█", " ")
            assert [(char.translate(blanks), modes) for char, modes in sent_modes(sent)] == [
                (char.translate(blanks), modes) for char, modes in wanted
            ]


async def test_only_rows_that_changed_are_made_anew() -> None:
    app = GridApp(look())
    codes = np.ones((20, 40), dtype=np.uint16)
    rows = plain_rows(20, 40)
    async with app.run_test(size=(60, 30)) as pilot:
        app.grid.show(codes, rows)
        await pilot.pause()
        before = app.grid.render_lines(Region(0, 0, 60, 20))
        changed = codes.copy()
        changed[7, 3] = 9
        app.grid.show(changed, rows)
        after = app.grid.render_lines(Region(0, 0, 60, 20))
        assert [y for y in range(20) if before[y] is not after[y]] == [7]


async def test_more_cells_than_room_scroll_both_ways() -> None:
    app = GridApp(look(Depth.NONE))
    codes = np.fromfunction(lambda y, x: (x + y) % 10 * 10 + 5, (100, 100)).astype(np.uint16)
    async with app.run_test(size=(30, 10)) as pilot:
        app.grid.show(codes, plain_rows(100, 100))
        await pilot.pause()
        app.grid.put((70, 60))
        await pilot.pause()
        top, left = app.grid.scroll_offset.y, app.grid.scroll_offset.x
        assert top <= 70 < top + 10
        assert left <= 60 < left + 30
        text = app.grid.render_lines(Region(0, 0, 10, 1))[0].text
        assert text == "".join(str((left + x + top) % 10) for x in range(10))


@pytest.mark.parametrize("key", ["l", "right"])
async def test_the_cursor_passes_over_places_without_a_port(key: str) -> None:
    app = GridApp(look())
    codes = np.array([[1, NOTHING, NOTHING, 1]], dtype=np.uint16)
    async with app.run_test(size=(20, 4)) as pilot:
        app.grid.show(codes, plain_rows(1, 4, 2, 1))
        await pilot.press(key)
        assert app.grid.cursor == (0, 0)
        await pilot.press(key)
        assert app.grid.cursor == (0, 3)
        await pilot.press(key)
        assert app.grid.cursor == (0, 3)


async def test_the_cursor_is_seen_without_colour_and_without_gaps() -> None:
    app = GridApp(look(Depth.NONE))
    codes = np.full((2, 6), 5, dtype=np.uint16)
    async with app.run_test(size=(30, 4)) as pilot:
        app.grid.show(codes, plain_rows(2, 6, 2, 1))
        app.grid.put((1, 2))
        await pilot.pause()
        assert app.grid.render_lines(Region(0, 1, 30, 1))[0].text.rstrip() == " 5  5[ 5] 5  5  5"
        app.grid.show(codes, plain_rows(2, 6))
        app.grid.put((0, 1))
        await pilot.pause()
        segments = list(app.grid.render_lines(Region(0, 1, 30, 1))[0])
        assert not any(segment.style and segment.style.reverse for segment in segments)
        segments = list(app.grid.render_lines(Region(0, 0, 30, 1))[0])
        assert [s.text for s in segments if s.style and s.style.reverse] == ["0"]


async def test_ten_thousand_cells_are_drawn_at_a_few_lines_each() -> None:
    """How long it takes, `make bench` measures."""
    app = GridApp(look())
    random = np.random.default_rng(1)
    codes = random.integers(0, 32, (50, 200)).astype(np.uint16)
    rows = plain_rows(50, 200)
    async with app.run_test(size=(200, 50)) as pilot:
        await pilot.pause()
        with work.counted() as done:
            app.grid.show(codes, rows)
            for strip in app.grid.render_lines(Region(0, 0, 200, 50)):
                strip.render(app.console)
    assert done.lines < 200_000
