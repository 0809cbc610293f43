from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from fabmon.analysis.causes import CAUSES
from fabmon.tui import keys
from fabmon.tui.app import FabmonApp
from fabmon.tui.glossary import GLOSSARY
from fabmon.tui.key_table import KEYS, MOUSE, SCOPE_TITLES
from fabmon.tui.metrics import HEAT_METRICS
from fabmon.tui.palette import Depth, palette
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.text import key_help as text
from fabmon.tui.text.key_help import footer
from tests.goldens import check_golden
from tests.tui import golden

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_about_keys_is_made_from_the_keys() -> None:
    check_golden(DOCS / "keys.md", _markdown())


def test_no_key_means_two_things_in_one_place() -> None:
    for scope in (keys.OVERVIEW, keys.PORT, keys.FINDING, keys.WATERFALL):
        scopes = {scope, keys.CURSOR, keys.EVERYWHERE}
        used = Counter(
            part for key in KEYS if key.scope in scopes and key.keys for part in key.keys.split(",")
        )
        assert [part for part, count in used.items() if count > 1] == []


def test_keys_that_terminals_and_tmux_take_are_left_alone() -> None:
    used = {part for key in KEYS for part in key.keys.split(",")}
    assert not used & {"ctrl+a", "ctrl+b", "ctrl+s", "ctrl+z"}


def test_help_of_every_view() -> None:
    views = [*keys.ROOT_VIEWS, "node", "port", "pair", "finding", "waterfall"]
    for view in views:
        page = text.help_page(view, 78, palette(Depth.NONE))
        lines = page[next(at for at, each in enumerate(page) if not each.text) + 1 :]
        assert all(len(line.text) <= 78 for line in lines)
        said = [line.text for line in lines]
        # What every view has is in one golden.
        common = said.index(" Heatmap and lists")
        golden.check(f"help-page-{view}", "\n".join(said[:common]))
    # A word changes with what it explains, and needs no golden of its own.
    words = said.index(" Words")
    golden.check("help-page-common", "\n".join(said[common:words]))
    shown = set(" ".join(said[words:]).split())
    assert {part for entry in GLOSSARY.items() for part in " ".join(entry).split()} <= shown


def test_help_begins_with_all_keys_of_a_view_on_one_page_of_80_by_24() -> None:
    """What is left of 24 rows beside the header, the title and the footer."""
    for view in [*keys.ROOT_VIEWS, "node", "port", "pair", "finding", "waterfall"]:
        rows = _sheet(view)
        sheet = "".join(rows)
        assert len(rows) <= 21
        scopes = (view, keys.CURSOR, keys.EVERYWHERE)
        for key in KEYS:
            if key.scope in scopes and key.keys:
                name = key.name.removeprefix("cursor_").replace("_", " ")
                assert f" {key.shown.split()[0]} {name[:7]}" in sheet
    golden.check("help-keys-overview", "\n".join(_sheet("overview")))


def _sheet(view: str) -> list[str]:
    said = [line.text.rstrip() for line in text.help_page(view, 78, palette(Depth.NONE))]
    return said[: said.index("")]


def test_every_screen_has_a_footer_and_help() -> None:
    assert FabmonApp.TITLE == "fabmon", "importing the app defines every screen"
    screens = _subclasses(ViewScreen)
    assert {"overview", "matrix", "pair", "fluctuation"} <= {each.VIEW for each in screens}
    for view in {each.VIEW for each in screens} - {"", "help"}:
        assert text.help_page(view, 78, palette(Depth.NONE))


def _subclasses(cls: type[ViewScreen]) -> list[type[ViewScreen]]:
    return [sub for each in cls.__subclasses__() for sub in (each, *_subclasses(each))]


@pytest.mark.parametrize("is_away", [False, True])
@pytest.mark.parametrize(("view", "out"), [("overview", "q quit"), ("port", "esc back")])
def test_footers_end_with_help_and_the_way_out_and_fit(view: str, out: str, is_away: bool) -> None:
    for width in (20, 40, 80, 200):
        line = footer(view, width, palette(Depth.NONE), is_away).text
        assert len(line) <= width
        assert line.endswith(f"? help  {out}")


def test_in_the_past_the_footer_of_a_finding_keeps_its_key_and_has_one_back() -> None:
    line = footer("finding", 80, palette(Depth.NONE), True).text
    assert "w waterfall" in line
    assert "[ before" in line
    assert line.count("back") == 1


def test_footers_tell_of_the_views_wherever_there_is_room() -> None:
    for view in ("overview", "matrix", "node", "port", "finding", "waterfall", "help"):
        assert "1-7 views" in footer(view, 80, palette(Depth.NONE)).text


def test_every_metric_state_and_mark_is_in_the_glossary() -> None:
    words = " ".join([*GLOSSARY, *GLOSSARY.values()])
    for heat in HEAT_METRICS:
        assert heat.name.lower() in words.lower()
    heads = {word.rpartition(" ")[0] if word[-1] in "▲△✖·▒?❚◆■●▶◉" else word for word in GLOSSARY}
    wanted = """queued connecting starting stale lost failed flagged
        down rail uplink PFC ECN CNP ECMP
        absent tick probe peer busiest spine leaf PAUSED LIVE DELAYED GB/s Gb/s max/mean unrated gap
        downlink Prometheus scale sure bookmark REC ALERTS REPLAY END recorded timeline selected"""
    assert set(wanted.split()) <= heads
    assert {cause.title for cause in CAUSES.values()} <= set(GLOSSARY)


def _markdown() -> str:
    """The text of docs/keys.md."""
    lines = [
        "# Keys",
        "",
        "Generated from `fabmon/tui/key_table.py`; a test compares them.",
        "",
        "The names are those of the table `[keys]` of fabmon.toml, which replaces keys"
        " ([settings](settings.md#keys)).",
        "",
    ]
    for scope, title in SCOPE_TITLES.items():
        rows = [key for key in KEYS if key.scope == scope]
        lines += [f"## {title}", "", "| key | name | what it does |", "|---|---|---|"]
        lines += [
            f"| {' '.join(_code(part) for part in key.shown.split())} "
            f"| {_code(key.name) if key.name else ''} | {key.help} |"
            for key in rows
        ]
        lines.append("")
    lines += ["## Mouse", "", "| | |", "|---|---|"]
    lines += [f"| {what} | {text} |" for what, text in MOUSE]
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`{text}`" if "`" not in text else f"`` {text} ``"
