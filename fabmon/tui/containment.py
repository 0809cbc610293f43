"""Containment of unexpected errors: they are shown where they occur, and the app continues.

An error while a view is drawn is shown in that view; an error in a handler of a key or an event is
shown as a message of one line. Each is logged once. Any other error ends the app: the terminal is
restored, and `run_async` raises the error.
"""

from __future__ import annotations

import asyncio
from typing import Any

from rich.console import RenderableType
from textual import events
from textual.app import App
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip

from fabmon.error_log import log_error, log_path, summary
from fabmon.key_priority import KeyPriority
from fabmon.tui.drawings import Drawings

_AT_START = (events.Load, events.Compose, events.Mount)
"""If these fail, there is no view to show a message in."""


class ContainingApp(App[None]):
    """An app that survives errors of its views and restores the terminal when it ends."""

    failure: BaseException | None = None
    """The error that ended the app; None if there was none."""

    def __init__(self, **options: Any) -> None:
        """No error so far; `options` are those of `textual.app.App`."""
        super().__init__(**options)
        self.drawings = Drawings()
        self.key_priority = KeyPriority()
        self.contained: list[BaseException] = []
        self._known: set[tuple[str, str]] = set()
        self._logging: set[asyncio.Future[str]] = set()

    def contain(self, error: BaseException, where: str) -> str:
        """Log an error the first time it occurs at a place. Returns its text for the screen."""
        place = (where, _place(error))
        if place not in self._known:
            self._known.add(place)
            self.contained.append(error)
            loop = asyncio.get_running_loop()
            logging = loop.run_in_executor(None, log_error, error, where)
            self._logging.add(logging)
            logging.add_done_callback(self._logging.discard)
        return f"{summary(error)}; details in {log_path()}"

    def is_known(self, error: BaseException, where: str) -> bool:
        """Whether an error from the same line was contained here before."""
        return (where, _place(error)) in self._known

    def contain_handler(self, error: BaseException, where: str) -> None:
        """Contain an error of a handler: log it and show it as a message of one line.

        An error that was contained before is not shown again: it may occur at every tick.
        """
        if self.is_known(error, where):
            return
        text = f"{where} failed: {self.contain(error, where)}"
        self.notify(text, timeout=10, markup=False, severity="error")

    def fail(self, error: BaseException) -> None:
        """End the app with exit status 1; `run_async` raises the error."""
        self.failure = self.failure or error
        self.exit(return_code=1)

    async def run_async(self, **options: Any) -> None:
        """Run until the app exits. Raises the error that ended it."""
        await super().run_async(**options)
        if self._logging:
            await asyncio.gather(*self._logging)
        if self.failure is not None:
            raise self.failure

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if isinstance(message, _AT_START):
                raise
            self.contain_handler(error, "fabmon")

    def _fatal_error(self) -> None:
        """End without Textual's traceback, which shows the values of variables.

        What fails after `exit`, such as a screen that was not complete yet, is no failure.
        """
        if not self._exit:
            self.failure = self.failure or self._exception
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """End without rendering anything; `run_async` raises the error."""
        self.failure = self.failure or self._exception or RuntimeError("the screen failed")
        self._close_messages_no_wait()


class Contained(MessagePump):
    """Mixin for screens and widgets, listed before their Textual base class.

    An error in a handler does not end the message loop; lines that cannot be drawn are blank. The
    mixin is not a widget: Textual inherits style sheets from the first base class that is one.
    """

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            app = self.app
            if isinstance(message, _AT_START) or not isinstance(app, ContainingApp):
                raise
            app.contain_handler(error, view_of(self))

    def strips(self, crop: Region) -> list[Strip]:
        """The rendered lines in `crop`; to be overridden in place of `render_lines`."""
        strips: list[Strip] = super().render_lines(crop)  # type: ignore[misc]
        return strips

    def render_lines(self, crop: Region) -> list[Strip]:
        """The rendered lines in `crop`, blank after an error."""
        try:
            return self.strips(crop)
        except Exception as error:
            app, where = self.app, view_of(self)
            if not isinstance(app, ContainingApp):
                raise
            app.contain_handler(error, where)
            return [Strip.blank(crop.width)] * crop.height


def _place(error: BaseException) -> str:
    """`file:line` that raised the error."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"


def view_of(pump: MessagePump) -> str:
    """The name of the view that a widget belongs to; outside of views, the name of its class."""
    at: MessagePump | None = pump
    while at is not None:
        view = getattr(at, "VIEW", "")
        if view:
            return str(view)
        at = at._parent
    return type(pump).__name__
