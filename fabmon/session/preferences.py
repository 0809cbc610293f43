"""What the screen starts with: options, else fabmon.toml, else what was kept, else defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.session.config import Config, ScreenConfig
from fabmon.session.kept_choices import keep, load_kept
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


@dataclass(frozen=True, slots=True)
class ScreenMemory:
    """The choices of the screen that are kept from run to run.

    `kept` are those of the last runs; `problem` is why they could not be read, or empty. With
    `is_live` the metric is one of them: in a replay and in the demo it belongs to what is shown.
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
            kept.pop("metric", None)
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
        if not self.is_live:
            new.pop("metric")
        return keep({name: value for name, value in new.items() if value != old[name]})


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
