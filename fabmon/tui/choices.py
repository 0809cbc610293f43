"""How the user wants data to be shown: the choices, their changes, and those at the start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fabmon.fabric.filter import Term, parse
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key
from fabmon.tui.metrics import heat_metric, next_metric_name
from fabmon.tui.palette import RAMPS, Theme

AUTO = "auto"
"""The theme of the terminal's background, as an option and a setting name it."""

SHARES = range(20, 71)
"""The parts of the overview, in %, that a user can give to the findings."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How the user wants data to be shown. `theme` is None for that of the terminal.

    `findings_share` is the part of the overview that the findings have, in %; 0: by its size. Every
    change returns new choices.
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

    def next_unit(self) -> Choices:
        """Gb/s, GB/s, %."""
        return replace(self, unit=self.unit.next())

    def with_metric(self, name: str) -> Choices:
        """Show this metric in the cells."""
        return replace(self, metric=heat_metric(name).name)

    def next_metric(self, snapshot: Snapshot | None, by: int) -> Choices:
        """The next metric that this fabric has, or the previous one (`by` = -1)."""
        return replace(self, metric=next_metric_name(self.metric, snapshot, by))

    def next_ramp(self) -> Choices:
        """The next colours."""
        names = [ramp.name for ramp in RAMPS]
        return replace(self, ramp=names[(names.index(self.ramp) + 1) % len(names)])

    def with_theme(self, theme: Theme | None) -> Choices:
        """Use this theme; None: that of the terminal."""
        return replace(self, theme=theme)

    def with_findings_share(self, percent: int) -> Choices:
        """Give the findings this part of the overview, within limits; 0: as much as usual."""
        share = min(max(percent, SHARES[0]), SHARES[-1]) if percent else 0
        return replace(self, findings_share=share)

    def toggle_digits(self) -> Choices:
        """Show or hide the digits in the cells."""
        return replace(self, digits=not self.digits)

    def next_window(self, has_steps: bool) -> Choices:
        """Show all values over the next window; that of an iteration only where one is known."""
        return replace(self, window=self.window.next(has_steps))

    def toggle_job_colours(self) -> Choices:
        """Show the names of hosts in the colours of their jobs, or in that of text."""
        return replace(self, job_colours=not self.job_colours)

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
