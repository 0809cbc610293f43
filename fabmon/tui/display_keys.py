"""The keys that change how data is shown: metric, unit, colours, filter, sizes of panels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fabmon.tui.choices import AUTO, Choices
from fabmon.tui.palette import Theme
from fabmon.tui.screen_app import ScreenApp
from fabmon.tui.screens.base import ViewScreen
from fabmon.tui.terminal import TerminalDriver, theme_name
from fabmon.tui.widgets.choosers import MetricMenu

_FLASH_S = 0.1
"""The first picture waits so long for the terminal to report its background."""


class DisplayKeys(ScreenApp):
    """The part of the app that changes the choices of the user."""

    def apply_theme(self) -> None:
        """Give Textual's own widgets the theme of the screen."""
        self.theme = theme_name(self.screen_state.depth, self.screen_state.theme)

    async def ask_background(self) -> None:
        """Ask the terminal for its background, and wait so long that nothing flashes.

        An answer that comes later, but within a second, changes the colours.
        """
        state, driver = self.screen_state, self._driver
        if state.choices.theme or not state.depth.rgb or not isinstance(driver, TerminalDriver):
            return
        answered = asyncio.Event()

        def accept(theme: Theme) -> None:
            state.terminal_theme = theme
            self.apply_theme()
            self.repaint()
            answered.set()

        driver.ask_background(accept)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLASH_S):
                await answered.wait()

    def _choose(self, choices: Choices) -> None:
        self.screen_state.choices = choices
        self.repaint()

    def action_display(self, what: str) -> None:
        """Change the `unit`, the `digits`, the `window` of all values, the `ramp` of colours, or
        whether hosts have the colours of their `jobs`."""
        choices, scene = self.screen_state.choices, self.screen_state.scene
        has_steps = scene is not None and scene.step_s > 0
        changes: dict[str, Callable[[], Choices]] = {
            "unit": choices.next_unit,
            "digits": choices.toggle_digits,
            "window": partial(choices.next_window, has_steps),
            "ramp": choices.next_ramp,
            "jobs": choices.toggle_job_colours,
        }
        self._choose(changes[what]())

    def action_metric(self, by: int) -> None:
        """Show the next metric in the cells (`by` = 1), or the previous one (-1)."""
        scene = self.screen_state.scene
        snapshot = None if scene is None else scene.snapshot
        self._choose(self.screen_state.choices.next_metric(snapshot, by))

    def action_metrics(self) -> None:
        """Open the list of metrics."""
        state = self.screen_state
        if isinstance(self.screen, ViewScreen):
            seen = None if state.scene is None else state.seen(state.scene)
            self.push_screen(MetricMenu(seen, state.palette, state.metric), self._show_metric)

    def _show_metric(self, name: str | None) -> None:
        if name is not None:
            self._choose(self.screen_state.choices.with_metric(name))

    def action_metric_named(self, name: str) -> None:
        """Show this metric in the cells."""
        self._show_metric(name)

    def action_match(self, by: int) -> None:
        """Go to the next match of the filter (`by` = 1), or to the previous one (-1)."""
        if not self.screen_state.choices.filter:
            self.say("no filter is set: / sets one")
        elif isinstance(self.screen, ViewScreen) and not self.screen.next_match(by):
            self.say("nothing here matches the filter")

    def action_usual_panels(self) -> None:
        """Give the panels the sizes that fit the terminal."""
        self._choose(self.screen_state.choices.with_findings_share(0))

    async def action_theme(self, name: str) -> None:
        """Use the `dark` or the `light` theme, or that of the terminal (`auto`)."""
        state = self.screen_state
        theme = None if name == AUTO else Theme(name)
        state.choices = state.choices.with_theme(theme)
        await self.ask_background()
        self.apply_theme()
        self.repaint()

    def action_filter(self) -> None:
        """Open the filter line."""
        self.skip_while_typing()
        if isinstance(self.screen, ViewScreen):
            self.screen.ask_filter()

    def action_maximise(self) -> None:
        """Maximise or restore the focused panel."""
        if isinstance(self.screen, ViewScreen):
            self.screen.maximise()
