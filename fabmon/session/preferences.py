"""What the screen starts with: options, else fabmon.toml, else what was kept, else defaults."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from fabmon.error_log import log_path
from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit, file_error
from fabmon.limited_thread import START_S, call_within
from fabmon.private_files import make_directory, open_own, replace_file
from fabmon.session.config import Config, ScreenConfig
from fabmon.session.screen_values import is_known, key_table
from fabmon.tui.choices import AUTO, Choices, Preferences
from fabmon.tui.palette import Theme


class Setting(NamedTuple):
    """A value and where it is from: `option`, `file`, `state` or `default`."""

    value: Any
    origin: str


def screen_settings(
    config: ScreenConfig, kept: Mapping[str, Any], theme: str | None = None
) -> dict[str, Setting]:
    """Every choice of the screen, by its name in the table [screen]; `theme` is the option."""
    defaults = {**as_settings(Choices()), "theme": AUTO}
    options = {"theme": theme}
    settings = {}
    for name, default in defaults.items():
        layers = (
            ("option", options.get(name)),
            ("file", getattr(config, name)),
            ("state", kept.get(name)),
            ("default", default),
        )
        settings[name] = next(
            Setting(value, origin) for origin, value in layers if value is not None
        )
    return settings


_OF_WHAT_IS_SHOWN = ("metric", "window")


@dataclass(frozen=True, slots=True)
class ScreenMemory:
    """The choices of the screen that are kept from run to run.

    `kept` are those of the last runs; `problem` is why they could not be read, or empty. With
    `is_live` metric and window are two of them: in a replay and in the demo they belong to what is
    shown.
    """

    config: Config
    is_live: bool
    kept: Mapping[str, Any]
    problem: str = ""

    @classmethod
    def load(cls, config: Config, is_live: bool) -> ScreenMemory:
        """What the state directory has; nothing if fabmon.toml says that nothing is kept."""
        values, problem = load_kept() if config.screen.remember else ({}, "")
        kept = {name: value for name, value in values.items() if is_known(name, value)}
        if not is_live:
            kept = {name: value for name, value in kept.items() if name not in _OF_WHAT_IS_SHOWN}
        return cls(config, is_live, kept, problem)

    def preferences(self, theme: str | None) -> Preferences:
        """How the screen starts; `theme` is the option."""
        settings = screen_settings(self.config.screen, self.kept, theme)
        values = {name: each.value for name, each in settings.items()}
        choices = Choices(
            unit=Unit(values["units"]),
            metric=values["metric"],
            digits=values["digits"],
            window=TimeWindow(values["window"]),
            ramp=values["palette"],
            findings_share=values["findings_share"],
            theme=None if values["theme"] == AUTO else Theme(values["theme"]),
        )
        return Preferences(choices, key_table(self.config.keys), self.problem)

    def keep(self, before: Choices, after: Choices) -> str:
        """Keep what the user changed during a run; returns why that failed, or nothing."""
        if not self.config.screen.remember:
            return ""
        old, new = as_settings(before), as_settings(after)
        left_out = () if self.is_live else _OF_WHAT_IS_SHOWN
        changed = {name: value for name, value in new.items() if value != old[name]}
        return keep({name: value for name, value in changed.items() if name not in left_out})


def start_screen(
    config: Config, theme: str | None, *, is_live: bool, is_kept: bool = True
) -> Preferences:
    """The user's choices to begin with; without `is_kept` none are read and none are kept."""
    if not is_kept:
        return ScreenMemory(config, is_live, {}).preferences(theme)
    memory = ScreenMemory.load(config, is_live)
    start = memory.preferences(theme)
    return replace(start, keep=partial(memory.keep, start.choices))


def as_settings(choices: Choices) -> dict[str, Any]:
    """The choices of a screen by their names in the table [screen]."""
    return {
        "theme": choices.theme.value if choices.theme else AUTO,
        "palette": choices.ramp,
        "metric": choices.metric,
        "units": choices.unit.value,
        "digits": choices.digits,
        "window": choices.window.value,
        "findings_share": choices.findings_share,
    }


_MOST_BYTES = 1 << 16


def kept_path() -> Path:
    """The file with the choices that are kept, by their names in the table [screen]."""
    return log_path().with_name("screen.json")


def load_kept() -> tuple[dict[str, Any], str]:
    """What was kept, and why the file is ignored; empty if it is not, or there is none.

    Values are not checked: they may be those of another version.
    """
    try:
        path = kept_path()
        values = json.loads(call_within(START_S, _read, path))
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"kept choices are ignored: {path}: {file_error(error)}"
    except (ValueError, RecursionError):
        return {}, f"kept choices are ignored: {path} is damaged; the next change replaces it"
    except RuntimeError as error:
        return {}, f"kept choices are ignored: {error}"
    if not isinstance(values, dict):
        return {}, f"kept choices are ignored: {path} is damaged; the next change replaces it"
    return values, ""


def keep(changes: Mapping[str, Any]) -> str:
    """Write changed choices into the file, beside what it has; returns why that failed.

    The file is replaced at once, with mode 0600. That of another user is not touched.
    """
    if not changes:
        return ""
    try:
        path = kept_path()
        make_directory(path.parent)
        try:
            before = json.loads(_read(path))
        except (FileNotFoundError, ValueError, RecursionError):
            before = {}
        values = {**(before if isinstance(before, dict) else {}), **changes}
        replace_file(path, (json.dumps(values, indent=1) + "\n").encode())
    except OSError as error:
        return f"the choices were not kept: {error.filename or path}: {file_error(error)}"
    except RuntimeError as error:
        return f"the choices were not kept: {error}"
    return ""


def _read(path: Path) -> str:
    """The text of a regular file of this user. Raises OSError, ValueError for other text."""
    number = open_own(path, os.O_RDONLY)
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "not a regular file")
        if status.st_size > _MOST_BYTES:
            raise ValueError("too large")
        return file.read(_MOST_BYTES + 1).decode("utf-8")
