"""Keeps an unexpected error where it happened: in one view, or outside of the terminal.

An error while a view is drawn becomes a message in that view; an error in a handler of a key or an
event becomes a message in one line. Either is logged once. Whatever else gets out ends the app,
restores the terminal and is raised to the caller of `run_async`.
"""

from __future__ import annotations

import asyncio
import signal
from typing import Any, ClassVar

from rich.console import RenderableType
from textual import events
from textual.app import App
from textual.geometry import Region
from textual.message import Message
from textual.message_pump import MessagePump
from textual.strip import Strip
from textual.widget import Widget

from fabmon.error_log import log_error, log_path, summary

_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT)
_SIGNAL_STATUS = 128
"""Exit status of a program that a signal ended: this and the number of the signal."""
_AT_START = (events.Load, events.Compose, events.Mount)
"""Without what these do there is nothing to show a message in."""


class ContainingApp(App[None]):
    """An app that outlives errors of its views, and leaves the terminal as it was."""

    failure: BaseException | None = None
    """What ended the app; None while nothing has."""

    def __init__(self, **options: Any) -> None:
        """Nothing has gone wrong yet."""
        super().__init__(**options)
        self.contained: list[BaseException] = []
        self._known: set[tuple[str, str]] = set()
        self._logging: set[asyncio.Future[str]] = set()

    def contain(self, error: BaseException, where: str) -> str:
        """Log an error the first time that it happens here. Returns what to show of it."""
        place = (where, _place(error))
        if place not in self._known:
            self._known.add(place)
            self.contained.append(error)
            loop = asyncio.get_running_loop()
            logging = loop.run_in_executor(None, log_error, error, where)
            self._logging.add(logging)
            logging.add_done_callback(self._logging.discard)
        return f"{where} failed: {summary(error)}; details in {log_path()}"

    def is_known(self, error: BaseException, where: str) -> bool:
        """Whether the same has happened here before."""
        return (where, _place(error)) in self._known

    def contain_handler(self, error: BaseException, where: str) -> None:
        """The same for an error in a handler: shown as a message in one line."""
        text = self.contain(error, where)
        self.notify(text, timeout=10, markup=False, severity="error")

    def fail(self, error: BaseException) -> None:
        """End the app; `run_async` raises the error once the terminal is restored."""
        self.failure = self.failure or error
        self.exit(return_code=1)

    async def run_async(self, **options: Any) -> None:
        """Run until the person or a signal ends it. Raises what ended it, if that was an error."""
        loop = asyncio.get_running_loop()
        handled = () if options.get("headless") else _SIGNALS
        for number in handled:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            await super().run_async(**options)
        finally:
            for number in handled:
                loop.remove_signal_handler(number)
        if self._logging:
            await asyncio.gather(*self._logging)
        if self.failure is not None:
            raise self.failure

    def _on_signal(self, number: int) -> None:
        self.exit(return_code=_SIGNAL_STATUS + number)

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            if isinstance(message, _AT_START):
                raise
            self.contain_handler(error, "fabmon")

    def _fatal_error(self) -> None:
        """In place of Textual's traceback with the values of variables."""
        self.failure = self.failure or self._exception
        self._close_messages_no_wait()

    def panic(self, *renderables: RenderableType) -> None:
        """In place of Textual's: nothing is rendered; `run_async` raises what it is about."""
        self.failure = self.failure or self._exception or RuntimeError("the screen failed")
        self._close_messages_no_wait()


class Contained(MessagePump):
    """Mixed into screens and widgets: an error in a handler does not end their message loop."""

    VIEW: ClassVar[str]

    async def _dispatch_message(self, message: Message) -> None:
        try:
            await super()._dispatch_message(message)
        except Exception as error:
            app = self.app
            if isinstance(message, _AT_START) or not isinstance(app, ContainingApp):
                raise
            app.contain_handler(error, view_of(self))


class ContainedWidget(Contained, Widget):
    """Mixed into widgets that draw: a line that cannot be drawn is blank."""

    def strips(self, crop: Region) -> list[Strip]:
        """The lines within `crop`."""
        return super().render_lines(crop)

    def render_lines(self, crop: Region) -> list[Strip]:
        """The same; an error is contained."""
        try:
            return self.strips(crop)
        except Exception as error:
            app = self.app
            if not isinstance(app, ContainingApp):
                raise
            where = view_of(self)
            if not app.is_known(error, where):
                app.contain_handler(error, where)
            return [Strip.blank(crop.width)] * crop.height


def _place(error: BaseException) -> str:
    """File and line that raised it."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"


def view_of(pump: MessagePump) -> str:
    """The name of the view that something belongs to; that of its class outside of views."""
    at: MessagePump | None = pump
    while at is not None:
        view = getattr(at, "VIEW", "")
        if view:
            return str(view)
        at = at._parent
    return type(pump).__name__
