"""Keys of the user: what fabmon.toml may say, and what the screen then does and shows."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.keys import _character_to_key

from fabmon.session.config import load
from fabmon.session.errors import UsageError
from fabmon.session.screen_values import FIXED, KeyMapError, key_table, mapped
from fabmon.tui.choices import Choices, Preferences
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key, shown, shown_key
from fabmon.tui.palette import Depth, palette
from fabmon.tui.text.key_help import footer, help_page
from tests.tui.running import running
from tests.tui.worlds import HEALTHY


def _keys_of(table: tuple[Key, ...], name: str) -> set[str]:
    return {key.keys for key in table if key.name == name}


def test_every_action_has_one_name_of_plain_letters() -> None:
    actions: dict[str, set[str]] = {}
    for key in KEYS:
        if key.name:
            assert key.name.replace("_", "").isalpha(), key.name
            actions.setdefault(key.name, set()).add(key.action.removeprefix("app.time_"))
    assert all(len(each) == 1 for each in actions.values()), actions


@pytest.mark.parametrize("character", [chr(code) for code in range(33, 127)])
def test_characters_are_the_keys_that_textual_sends(character: str) -> None:
    name = _character_to_key(character)
    table = [Key("freeze", "space", "")]
    assert mapped(table, {"freeze": [character]})[0].keys == name
    assert shown(name) == character


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("space", "space", "space"),
        ("ctrl+k", "ctrl+k", "ctrl+k"),
        ("Ctrl+K", "ctrl+k", "ctrl+k"),
        ("F2", "f2", "F2"),
        ("PgUp", "pageup", "PgUp"),
        ("shift+←", "shift+left", "shift+←"),
        ("tab", "tab", "tab"),
    ],
)
def test_keys_may_be_written_as_the_screen_shows_them(text: str, name: str, said: str) -> None:
    table = [Key("maximise", "z", "")]
    (key,) = mapped(table, {"maximise": [text]})
    assert (key.keys, key.shown) == (name, said)


def test_a_mapping_replaces_the_keys_wherever_the_action_is() -> None:
    table = key_table({"zoom_in": "Z", "overview": ["0", "f5"], "zoom_default": "f6"})
    assert _keys_of(table, "zoom_in") == {"Z"}
    assert _keys_of(table, "overview") == {"0,f5"}
    assert _keys_of(table, "zoom_default") == {"f6"}
    assert _keys_of(table, "zoom_out") == _keys_of(KEYS, "zoom_out")


def test_two_actions_may_change_keys() -> None:
    table = key_table({"freeze": "u", "units": "space"})
    assert _keys_of(table, "freeze") == {"u"}
    assert _keys_of(table, "units") == {"space"}


def test_fixed_keys_keep_their_actions_beside_those_of_the_user() -> None:
    assert {part for key in KEYS for part in key.keys.split(",")} >= FIXED
    assert _keys_of(key_table({"cursor_up": "e"}), "cursor_up") == {"e,up"}
    assert _keys_of(key_table({"back": "backspace"}), "back") == {"backspace,escape"}
    with pytest.raises(KeyMapError, match="esc cannot be mapped: it is fixed"):
        key_table({"freeze": "esc"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('freze = "p"', r"there is no action freze: did you mean freeze\?"),
        ('choose_picture = "p"', r"there is no action choose_picture"),
        ('freeze = "foo"', r"there is no key 'foo': write a character, or a key such as"),
        ('freeze = "hyper+a"', r"there is no key 'hyper\+a'"),
        ('freeze = ""', r"there is no key ''"),
        ("freeze = []", r"freeze needs at least one key"),
        ('freeze = "u"', r"freeze = 'u': u is the key of units \(.+\): map one of the two"),
        ('freeze = "h"', r"freeze = 'h': h is the key of "),
        ('freeze = "Z"\nmaximise = "Z"', r"Z is the key of maximise"),
        ('freeze = ["Z", "q"]', r"freeze = 'q': q is the key of close"),
        ('freeze = "ctrl+c"', r"ctrl\+c cannot be mapped"),
        ("freeze = 1", r"Expected `str \| array`, got `int`"),
    ],
)
def test_a_mapping_that_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(f"interval_s = 2.0\n\n[keys]\n{text}\n")
    with pytest.raises(UsageError, match=rf"fabmon.toml:(3|4): .*{complaint}") as raised:
        load(path)
    assert "\n" not in str(raised.value)
    if "[keys]" in str(raised.value):
        assert "fabmon.toml:4: " in str(raised.value)


def test_footer_and_help_show_the_keys_of_the_user() -> None:
    table = key_table({"units": "f3", "close": "Q", "overview": "f5"})
    tones = palette(Depth.NONE)
    line = footer("overview", 200, tones, table=table).text
    assert "F3 units" in line
    assert line.endswith("? help  Q quit")
    assert "F5/2/3/4/5/6/7 views" in line
    said = [each.text for each in help_page("overview", 100, tones, table)]
    assert any(each.startswith("   F3 ") and "Gb/s" in each for each in said)
    assert not any(each.startswith("   u ") for each in said)


async def test_the_screen_obeys_the_keys_of_the_user_and_no_others() -> None:
    table = key_table({"findings": "f4", "zoom_in": "Z", "palette": "K"})
    async with running(HEALTHY, preferences=Preferences(keys=table)) as run:
        ramp = run.app.screen_state.choices.ramp
        await run.press("c")
        assert run.app.screen_state.choices.ramp == ramp
        await run.press("K")
        assert run.app.screen_state.choices.ramp != ramp
        await run.press("4")
        assert run.view == "overview"
        await run.press("f4")
        await run.goes_to("findings")


async def test_texts_name_the_keys_of_the_user() -> None:
    table = key_table({"units": "f3", "metric": "Y", "help": "f2", "nodes": "N"})
    async with running(HEALTHY, preferences=Preferences(keys=table)) as run:
        assert all(part in run.header for part in ("F3 Gb/s", "Y util"))
        assert "F2 help" in run.lines[-1]
    assert shown_key("nodes", table) == "N"


async def test_the_list_of_names_has_the_themes() -> None:
    async with running(HEALTHY) as run:
        await run.press("colon", *"theme light", "enter")
        await run.until(lambda: run.app.screen_state.palette.theme == "light")
        await run.press("colon", *"theme auto", "enter")
        await run.until(lambda: run.app.screen_state.palette.theme == "dark")


@pytest.mark.parametrize(("size", "axis"), [((160, 40), "width"), ((90, 40), "height")])
async def test_the_panel_of_the_findings_has_the_size_that_the_user_gives_it(
    size: tuple[int, int], axis: str
) -> None:
    async with running(HEALTHY, size=size) as run:
        right = run.app.screen.query_one("#right")

        def part() -> int:
            return int(getattr(right.size, axis))

        usual = part()
        await run.press("(", "(")
        await run.until(lambda: part() > usual)
        larger = part()
        await run.press("z")
        await run.press("z")
        await run.until(lambda: part() == larger)
        await run.press(*")" * 20)
        await run.until(lambda: part() < usual)
        assert run.app.screen_state.choices.findings_share == 20
        await run.app.run_action("usual_panels")
        await run.until(lambda: part() == usual)


async def test_a_size_that_was_kept_is_there_from_the_start() -> None:
    chosen = Preferences(choices=Choices(findings_share=60))
    async with running(HEALTHY, size=(160, 40), preferences=chosen) as run:
        await run.until(lambda: run.app.screen.query_one("#right").size.width == 96)
