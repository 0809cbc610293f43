"""What the screen keeps from run to run, and files that it must not trust."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.session.config import Config, load
from fabmon.session.preferences import ScreenMemory, keep, kept_path, load_kept, screen_settings
from fabmon.tui.choices import Choices
from fabmon.tui.palette import Theme


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "fabmon" / "screen.json"


def config(tmp_path: Path, text: str = "") -> Config:
    path = tmp_path / "fabmon.toml"
    path.write_text(text)
    return load(path)


def test_choices_of_one_run_are_there_in_the_next(state: Path, tmp_path: Path) -> None:
    mine = config(tmp_path)
    before = ScreenMemory.load(mine, is_live=True).preferences(None).choices
    after = replace(
        before,
        ramp="grey",
        metric="ecn",
        unit=Unit.PERCENT,
        digits=True,
        window=TimeWindow.MINUTE,
        theme=Theme.LIGHT,
        findings_share=45,
        filter="leaf1",
    )
    assert ScreenMemory.load(mine, is_live=True).keep(before, after) == ""
    again = ScreenMemory.load(mine, is_live=True).preferences(None).choices
    assert again == replace(after, filter="")
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert [each.name for each in state.parent.iterdir()] == ["screen.json"]


def test_nothing_is_written_when_nothing_was_changed(state: Path, tmp_path: Path) -> None:
    memory = ScreenMemory.load(config(tmp_path), is_live=True)
    assert memory.keep(Choices(), replace(Choices(), filter="leaf1")) == ""
    assert not state.exists()


def test_two_screens_keep_what_each_of_them_changed(state: Path, tmp_path: Path) -> None:
    mine = config(tmp_path)
    memory = ScreenMemory.load(mine, is_live=True)
    memory.keep(Choices(), replace(Choices(), ramp="grey"))
    memory.keep(Choices(), replace(Choices(), digits=True))
    choices = ScreenMemory.load(mine, is_live=True).preferences(None).choices
    assert (choices.ramp, choices.digits) == ("grey", True)


def test_options_and_the_file_win_over_what_was_kept(state: Path, tmp_path: Path) -> None:
    keep({"theme": "light", "palette": "grey", "units": "GB/s"})
    mine = config(tmp_path, '[screen]\npalette = "cividis"\ntheme = "auto"\n')
    kept, _ = load_kept()
    origins = {
        name: (each.value, each.origin)
        for name, each in screen_settings(mine.screen, kept, "dark").items()
    }
    assert origins == {
        "theme": ("dark", "option"),
        "palette": ("cividis", "file"),
        "units": ("GB/s", "state"),
        "metric": ("util", "default"),
        "digits": (False, "default"),
        "window": ("max", "default"),
        "findings_share": (0, "default"),
    }


def test_nothing_is_kept_where_the_file_says_so(state: Path, tmp_path: Path) -> None:
    keep({"palette": "grey"})
    memory = ScreenMemory.load(config(tmp_path, "[screen]\nremember = false\n"), is_live=True)
    assert memory.preferences(None).choices == Choices()
    memory.keep(Choices(), replace(Choices(), ramp="cividis"))
    assert load_kept() == ({"palette": "grey"}, "")


def test_metric_and_window_of_a_replay_are_not_kept_and_those_of_live_not_used(
    state: Path, tmp_path: Path
) -> None:
    mine = config(tmp_path)
    replayed = ScreenMemory.load(mine, is_live=False)
    other = replace(Choices(), metric="ecn", window=TimeWindow.MINUTE)
    replayed.keep(Choices(), replace(other, ramp="grey"))
    assert load_kept() == ({"palette": "grey"}, "")
    ScreenMemory.load(mine, is_live=True).keep(Choices(), other)
    usual = replace(Choices(), ramp="grey")
    assert ScreenMemory.load(mine, is_live=False).preferences(None).choices == usual
    assert ScreenMemory.load(mine, is_live=True).preferences(None).choices == replace(
        other, ramp="grey"
    )


def test_what_another_version_wrote_is_kept_and_what_is_unknown_is_not_used(
    state: Path, tmp_path: Path
) -> None:
    state.parent.mkdir(parents=True)
    state.write_text('{"palette": "viridis", "digits": 1, "units": ["%"], "panels": {"left": 40}}')
    memory = ScreenMemory.load(config(tmp_path), is_live=True)
    assert memory.preferences(None).choices == Choices()
    assert memory.problem == ""
    memory.keep(Choices(), replace(Choices(), digits=True))
    assert json.loads(state.read_text()) == {
        "palette": "viridis",
        "digits": True,
        "units": ["%"],
        "panels": {"left": 40},
    }


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b"[" * 100_000, b" " * 70_000, b'{"palette": NaN'],
    ids=["empty", "cut", "list", "text", "binary", "deep", "large", "nan"],
)
def test_a_damaged_file_is_one_line_and_is_replaced(
    state: Path, tmp_path: Path, data: bytes
) -> None:
    state.parent.mkdir(parents=True)
    state.write_bytes(data)
    memory = ScreenMemory.load(config(tmp_path), is_live=True)
    assert memory.preferences(None).choices == Choices()
    assert memory.problem == (
        f"kept choices are ignored: {state} is damaged; the next change replaces it"
    )
    assert memory.keep(Choices(), replace(Choices(), ramp="grey")) == ""
    assert load_kept() == ({"palette": "grey"}, "")


def test_a_file_that_somebody_else_could_have_put_there_is_not_read_or_replaced(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep({"palette": "grey"})
    owner = state.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    kept, problem = load_kept()
    assert kept == {}
    assert problem == f"kept choices are ignored: {state}: owned by another user"
    assert "owned by another user" in keep({"palette": "blue"})
    monkeypatch.undo()
    assert "grey" in state.read_text()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_no_file_does_not_stop_the_screen(state: Path, tmp_path: Path, kind: str) -> None:
    state.parent.mkdir(parents=True)
    target = tmp_path / "target.json"
    target.write_text('{"palette": "grey"}')
    {"link": lambda: state.symlink_to(target), "pipe": lambda: os.mkfifo(state)}.get(
        kind, state.mkdir
    )()
    kept, problem = load_kept()
    assert kept == {}
    assert problem.startswith(f"kept choices are ignored: {state}: ")
    assert "\n" not in problem
    assert keep({"palette": "blue"}).startswith("the choices were not kept: ")
    assert target.read_text() == '{"palette": "grey"}'


def test_a_directory_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(blocked))
    assert keep({"palette": "grey"}).startswith("the choices were not kept: ")
    assert kept_path().name == "screen.json"
