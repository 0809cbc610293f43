"""Every setting with its value and where that is from, for `fabmon config`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fabmon.private_files import make_directory, write_new
from fabmon.session.config import Config, ConfigFile, load, read_file, user_file
from fabmon.session.errors import UsageError, cannot_write
from fabmon.session.preferences import ScreenMemory, screen_settings
from fabmon.session.recorder_setup import ring_home
from fabmon.toml_text import lines_of
from fabmon.tui.palette import deciding_variable, detect

DEFAULT = "default"


class Setting(NamedTuple):
    """A setting: its name in fabmon.toml, its value (None: not set), and where that is from.

    `origin` is `default`, `fabmon.toml:12`, `option --theme`, `environment NO_COLOR` or `state`.
    """

    name: str
    value: Any
    origin: str


class Settings(NamedTuple):
    """All settings. `problem` is why what the screen kept is ignored; empty if it is not."""

    file: Path
    has_file: bool
    entries: list[Setting]
    problem: str


def settings(path: Path | None, options: Mapping[str, Any]) -> Settings:
    """The settings with a configuration file (None: the user's) and options of the command line.

    `options` are values by the name of their setting; None if not given. Raises UsageError.
    """
    file, config = read_file(path), load(path)
    memory = ScreenMemory.load(config, is_live=True)
    given = {name: value for name, value in options.items() if value is not None}
    entries = [
        _option(entry, given) or _from_environment(entry, config) or entry
        for entry in (*_of_screen(config, file, memory, given), *_from_file(config, file))
    ]
    return Settings(file.path, path is not None or file.path.is_file(), entries, memory.problem)


def write_example(path: Path | None) -> Path:
    """Write the commented configuration to a new file (None: the user's); returns its path.

    Raises UsageError if it exists, OutputError if it cannot be written.
    """
    is_users, path = path is None, path or user_file()
    try:
        if is_users:
            make_directory(path.parent)
        # It can name commands: others may read a file that several users share, and no more.
        write_new(path, example_file().read_bytes(), 0o644)
    except FileExistsError as error:
        if error.filename != str(path):
            raise UsageError(f"{error.filename}: not a directory") from None
        raise UsageError(
            f"{path} exists, and --init replaces no file: with --config FILE it writes another"
        ) from None
    except OSError as error:
        raise cannot_write(path, error) from None
    return path


def example_file() -> Path:
    """Path of fabmon.example.toml: beside this module if installed, else in the checkout."""
    installed = Path(__file__).with_name("fabmon.example.toml")
    checkout = Path(__file__).parents[2] / "config" / "fabmon.example.toml"
    return installed if installed.is_file() else checkout


def _from_file(config: Config, file: ConfigFile) -> Iterator[Setting]:
    """All but the choices of the screen, in the order of the configuration; thresholds last."""
    lines = lines_of(file.text)
    values: dict[str, Any] = msgspec.to_builtins(config)
    remember = {"remember": values.pop("screen")["remember"]}
    thresholds = values.pop("thresholds")
    for path, value in _leaves({"screen": remember, **values, "thresholds": thresholds}):
        line = lines.get(path)
        origin = f"{file.path.name}:{line}" if line else DEFAULT
        yield Setting(".".join(map(_toml_key, path)), value, origin)


def _of_screen(
    config: Config, file: ConfigFile, memory: ScreenMemory, given: Mapping[str, Any]
) -> Iterator[Setting]:
    lines = lines_of(file.text)
    theme = given.get("screen.theme")
    for name, setting in screen_settings(config.screen, memory.kept, theme).items():
        line = lines.get(("screen", name))
        origin = f"{file.path.name}:{line}" if setting.origin == "file" else setting.origin
        yield Setting(f"screen.{name}", setting.value, origin)


def _option(entry: Setting, given: Mapping[str, Any]) -> Setting | None:
    if entry.name not in given:
        return None
    option = entry.name.rpartition(".")[2].removesuffix("_s").replace("_", "-")
    return entry._replace(value=given[entry.name], origin=f"option --{option}")


def _from_environment(entry: Setting, config: Config) -> Setting | None:
    """What a setting that is not set, or automatic, comes to in this environment."""
    if entry.name == "color" and entry.value == "auto":
        variable = deciding_variable(os.environ)
        return entry._replace(value=detect(os.environ).value, origin=f"environment {variable}")
    if entry.name == "recording.directory" and entry.value is None:
        is_set = bool(os.environ.get("XDG_RUNTIME_DIR"))
        origin = "environment XDG_RUNTIME_DIR" if is_set else DEFAULT
        return entry._replace(value=str(ring_home(config.recording)), origin=origin)
    return None


def _leaves(
    values: Mapping[str, Any], before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Paths and values; a table without keys is a value, so that it is listed too."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*before, key))
        else:
            yield (*before, key), value


def _toml_key(key: str) -> str:
    is_bare = key.replace("_", "").replace("-", "").isalnum() and key.isascii()
    return key if is_bare else f'"{key}"'
