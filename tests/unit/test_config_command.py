"""`fabmon config`: what it says of every setting, and the file that it writes."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from fabmon.cli.main import cli
from fabmon.session.config import Config, load
from fabmon.session.errors import UsageError
from fabmon.session.preferences import keep
from fabmon.session.setting_origins import example_file
from fabmon.toml_text import line_of, lines_of
from fabmon.tui.choices import Choices
from tests.work import counted

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "config" / "fabmon.example.toml"


@pytest.fixture(autouse=True)
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATE_HOME", "CONFIG_HOME", "RUNTIME_DIR"):
        monkeypatch.setenv(f"XDG_{name}", str(tmp_path / name))
    for name in ("NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["config", *arguments], catch_exceptions=False)
    if result.exception is not None:
        raise result.exception
    return result.output


def origins(*arguments: str) -> dict[str, tuple[Any, str]]:
    record = json.loads(run("--format", "json", *arguments))
    return {each["name"]: (each["value"], each["origin"]) for each in record["settings"]}


def test_without_a_file_everything_is_default_or_of_the_environment(tmp_path: Path) -> None:
    found = origins()
    assert found.pop("color") == ("256", "environment TERM")
    ring = str(tmp_path / "RUNTIME_DIR" / "fabmon")
    assert found.pop("recording.directory") == (ring, "environment XDG_RUNTIME_DIR")
    assert {origin for _, origin in found.values()} == {"default"}
    assert found["interval_s"] == (1.0, "default")
    assert found["thresholds.model.full_util"] == (0.93, "default")
    head = run().splitlines()[0]
    path = tmp_path / "CONFIG_HOME" / "fabmon" / "fabmon.toml"
    assert head == f"file: {path} (does not exist; fabmon config --init writes it)"


def test_every_origin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'interval_s = 2.0\n[screen]\npalette = "grey"\n\n[roles]\n"gpu*/mlx5_8" = "storage"\n'
        'mgmt9 = "rail"\n[keys]\nfreeze = [\n  "f4",\n  "f2",\n]\n'
        "[thresholds.model]\nfull_util = 0.9\n"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    keep({"palette": "cividis", "digits": True, "metric": "no such metric"})
    found = origins("--config", str(path), "--theme", "light", "--ssh-config", "/etc/ssh/mine")
    assert found["interval_s"] == (2.0, "mine.toml:1")
    assert found["screen.palette"] == ("grey", "mine.toml:3")
    assert found["screen.digits"] == (True, "state")
    assert found["screen.metric"] == ("util", "default")
    assert found["screen.theme"] == ("light", "option --theme")
    assert found["ssh_config"] == ("/etc/ssh/mine", "option --ssh-config")
    assert found["color"] == ("none", "environment NO_COLOR")
    assert found['roles."gpu*/mlx5_8"'] == ("storage", "mine.toml:6")
    assert found["keys.freeze"] == (["f4", "f2"], "mine.toml:9")
    assert found["thresholds.model.full_util"] == (0.9, "mine.toml:14")
    assert origins("--config", str(path), "--interval", "5")["interval_s"] == (
        5.0,
        "option --interval",
    )
    assert origins("--config", str(path), "--color", "256")["color"] == ("256", "option --color")


def test_the_table_has_a_line_for_every_setting() -> None:
    lines = run().splitlines()[2:]
    names = [line.split()[0] for line in lines]
    assert len(set(names)) == len(names) == len(origins())
    assert re.fullmatch(r'screen\.theme +"auto" +default', lines[0])
    assert any(re.fullmatch(r"ssh_config +- +default", line) for line in lines)


def test_init_writes_the_example_and_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "CONFIG_HOME" / "fabmon" / "fabmon.toml"
    assert run("--init") == f"wrote {path}\n"
    assert path.read_text() == EXAMPLE.read_text()
    assert load(None) == load(Path("/dev/null"))
    path.write_text("interval_s = 2.0\n")
    with pytest.raises(UsageError, match="exists, and --init replaces no file"):
        run("--init")
    assert path.read_text() == "interval_s = 2.0\n"
    other = tmp_path / "other.toml"
    assert run("--init", "--config", str(other)) == f"wrote {other}\n"
    with pytest.raises(UsageError, match=r"/dev/null.*: [Nn]ot a directory"):
        run("--init", "--config", "/dev/null/fabmon.toml")


def test_a_link_to_nowhere_is_a_file_that_exists(tmp_path: Path) -> None:
    link = tmp_path / "link.toml"
    link.symlink_to(tmp_path / "nowhere.toml")
    with pytest.raises(UsageError, match="exists"):
        run("--init", "--config", str(link))
    assert not (tmp_path / "nowhere.toml").exists()


# The example.


def _uncommented() -> str:
    """The example with every setting in force."""
    return re.sub(r'(?m)^# (?=("[^"]+"|[a-z_]+) = )', "", EXAMPLE.read_text())


def test_every_setting_is_in_the_example_with_its_default() -> None:
    defaults: dict[str, Any] = json.loads(msgspec.json.encode(load(Path("/dev/null"))))
    defaults["screen"] |= {
        "theme": "auto",
        "palette": Choices().ramp,
        "metric": Choices().metric,
        "units": Choices().unit.value,
        "digits": Choices().digits,
        "window": Choices().window.value,
        "findings_share": Choices().findings_share,
    }
    said = tomllib.loads(_uncommented())
    msgspec.convert({**said, "thresholds": defaults["thresholds"]}, Config)
    for name, default in defaults.items():
        assert name in said, name
        for key in default if isinstance(default, dict) else ():
            # Of the many thresholds there is one, as an example.
            assert key in said[name] or name == "thresholds", f"{name}.{key}"
    differing = {
        f"{name}.{key}" if key else name
        for name, value in said.items()
        for key, each in (value.items() if isinstance(value, dict) else [("", value)])
        if _default(defaults, name, key) not in (each, None, [], {})
    }
    # These have a default that no file can say, or none: the example shows what they look like.
    assert differing - {"keys.freeze", "keys.units"} == {"thresholds.model"}
    assert said["thresholds"]["model"].items() <= defaults["thresholds"]["model"].items()


def _default(defaults: dict[str, Any], name: str, key: str) -> Any:
    value = defaults[name]
    return value.get(key) if key else value


def test_the_example_can_be_put_in_force_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(_uncommented())
    assert load(path).screen.palette == "blue"
    assert load(EXAMPLE) == load(Path("/dev/null"))
    assert example_file() == EXAMPLE


# Lines.


def test_lines_of_keys_are_those_that_a_person_counts() -> None:
    text = (
        "# comment\na = 1\n\n[t]\nb = [\n  1,\n]\n'c.d' = '''\n[not.a.table]\n'''\n"
        "[u.v]\nw.x = 2\n[[n]]\nk = 1\n[[n]]\nl = 2\n"
    )
    assert lines_of(text) == {
        ("a",): 2,
        ("t",): 4,
        ("t", "b"): 5,
        ("t", "c.d"): 8,
        ("u",): 11,
        ("u", "v"): 11,
        ("u", "v", "w"): 12,
        ("u", "v", "w", "x"): 12,
        ("n",): 13,
        ("n", "k"): 14,
        ("n", "l"): 16,
    }
    assert lines_of(text.replace("\n", "\r\n")) == lines_of(text)
    assert line_of(text, ("t", "nothing")) == 4
    assert line_of(text, ("nothing",)) is None
    assert line_of(text, ()) is None


def test_a_table_of_cables_costs_its_lines_not_their_square() -> None:
    """`fabmon config` took minutes where fabmon.toml has the 8,000 cables of a fabric."""

    def work(count: int) -> int:
        cables = "".join(f'  "gpu{each}/eth[0-1]  leaf1/swp[1-2]",\n' for each in range(count))
        with counted() as work:
            found = lines_of(f"cables = [\n{cables}] # all\nlast = 1\n")
        assert found == {("cables",): 1, ("last",): count + 3}
        return work.lines

    assert work(200) < 2.5 * work(100)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '\n[screen]\n\npalette = "blu"\n',
            r"fabmon.toml:4: \[screen\] there is no palette 'blu': did you mean blue",
        ),
        (
            "\n[screen]\nmetric = 'bandwidth'\n",
            r"fabmon.toml:3: .*write one of util, tx, rx, pause",
        ),
        ("[screen]\nthem = 'dark'\n", r"fabmon.toml:2: .*did you mean `theme`"),
        ("[screen]\ntheme = 'black'\n", r"fabmon.toml:2: .*write auto, dark or light"),
        (
            "[screen]\nfindings_share = 10\n",
            r"fabmon.toml:2: .* = 10: write 0, or 20 to 70 percent",
        ),
        ("x = " + "[" * 5000, "fabmon.toml: brackets are nested too deep"),
        ("a" + ".a" * 5000 + " = 1", "fabmon.toml: tables are nested too deep"),
        ('a = ["\\u001b[2J"]', "fabmon.toml: control character U\\+001B in a text"),
        ('"\u202ea" = 1', "fabmon.toml: control character U\\+202E in a text"),
        ("x = " + "9" * 5000, "fabmon.toml: a number is too long"),
    ],
)
def test_a_mistake_has_the_line_of_its_key(tmp_path: Path, text: str, error: str) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=error):
        load(path)
