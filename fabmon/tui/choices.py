"""How the user wants data to be shown: the choices, their changes, and those at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fabmon.fabric.filter import Term, parse
from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key
from fabmon.tui.palette import RAMPS, Theme

AUTO = "auto"
"""The theme of the terminal's background, as an option and a setting name it."""

SHARES = range(20, 71)
"""The parts of the overview, in %, that a user can give to the findings."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How the user wants data to be shown. `theme` is None for that of the terminal.

    `findings_share` is the part of the overview that the findings have, in %; 0: by its size.
    """

    unit: Unit = Unit.GBIT
    metric: str = "util"
    digits: bool = False
    window: TimeWindow = TimeWindow.MAX
    job_colours: bool = False
    ramp: str = RAMPS[0].name
    theme: Theme | None = None
    findings_share: int = 0
    filter: str = ""
    terms: tuple[Term, ...] = ()

    def with_filter(self, text: str) -> Choices:
        """Set the filter. Raises FilterError if it cannot be parsed."""
        return replace(self, filter=text, terms=parse(text))


@dataclass(frozen=True, slots=True)
class Preferences:
    """How the screen starts: options, configuration and what was kept of the last run.

    `keys` are those of the user. `notice` is shown once at the start; empty for nothing. `keep`
    keeps the choices of the end, and returns why it failed, or nothing.
    """

    choices: Choices = field(default_factory=Choices)
    keys: tuple[Key, ...] = KEYS
    notice: str = ""
    keep: Callable[[Choices], str] = lambda _: ""
