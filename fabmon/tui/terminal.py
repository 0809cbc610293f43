"""The terminal: colours of Textual's own widgets, the console at our depth, the driver."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import selectors
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Sequence
from typing import IO, Any, Literal

from rich.console import Console
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key
from textual.message import Message
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as WidgetTheme

from fabmon.key_priority import KeyPriority
from fabmon.tui.drawings import CHECK_S, SIGNAL, Drawings
from fabmon.tui.palette import Depth, Theme
from fabmon.tui.terminal_background import QUERY, theme_of
from fabmon.tui.typed_input import InputDecoder, KeyParser, typed_or_pasted

_OURS = {
    # background, surface, panel, foreground, primary, accent, rule
    (Depth.TRUECOLOR, Theme.DARK): (
        "#0f1419", "#151c23", "#1d2731", "#c3ccd4", "#3a88c4", "#ff9e2c", "#35414c",
    ),
    (Depth.EIGHT_BIT, Theme.DARK): (
        "#121212", "#1c1c1c", "#303030", "#c6c6c6", "#0087d7", "#ffaf00", "#444444",
    ),
    (Depth.TRUECOLOR, Theme.LIGHT): (
        "#fafbfc", "#eef2f5", "#e6edf3", "#24303a", "#1a5f96", "#a34900", "#c3ccd4",
    ),
    (Depth.EIGHT_BIT, Theme.LIGHT): (
        "#ffffff", "#eeeeee", "#eeeeee", "#303030", "#005faf", "#875f00", "#c6c6c6",
    ),
}  # fmt: skip
"""The colours of Textual's own widgets; those of `fabmon.tui.palette` where they are the same."""
_COLOR_SYSTEMS: dict[Depth, Literal["truecolor", "256"]] = {
    Depth.TRUECOLOR: "truecolor",
    Depth.EIGHT_BIT: "256",
}

_ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l"
_READ_BYTES = 4096
_POLL_S = 0.1
_ANSWER_WITHIN_S = 1.0
"""An answer of the terminal that comes later has no effect."""


def console_of(depth: Depth) -> Console:
    """The console that Textual renders with, at a given depth instead of a guessed one."""
    return Console(
        color_system=_COLOR_SYSTEMS.get(depth, "standard"),
        file=io.StringIO(),
        force_terminal=True,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
    )


def widget_themes(depth: Depth) -> list[WidgetTheme]:
    """The themes of Textual's own widgets at a depth, named as `theme_name` does."""
    return [_widget_theme(depth, theme) for theme in Theme]


def theme_name(depth: Depth, theme: Theme) -> str:
    """The name of a theme of Textual's own widgets."""
    return f"fabmon-{depth}-{theme}"


def _widget_theme(depth: Depth, theme: Theme) -> WidgetTheme:
    """With 16 colours or none, the colours of the terminal."""
    is_dark = theme is Theme.DARK
    if not depth.rgb:
        return WidgetTheme(
            name=theme_name(depth, theme),
            primary="ansi_blue",
            accent="ansi_yellow" if is_dark else "ansi_red",
            foreground="ansi_default",
            background="ansi_default",
            surface="ansi_default",
            panel="ansi_default",
            boost="ansi_default",
            dark=is_dark,
            variables=BUILTIN_THEMES["ansi-dark" if is_dark else "ansi-light"].variables,
            ansi=True,
        )
    background, surface, panel, foreground, primary, accent, rule = _OURS[depth, theme]
    return WidgetTheme(
        name=theme_name(depth, theme),
        primary=primary,
        secondary=primary,
        accent=accent,
        warning=accent,
        error=accent,
        success=primary,
        foreground=foreground,
        background=background,
        surface=surface,
        panel=panel,
        dark=is_dark,
        variables={
            "scrollbar": rule,
            "scrollbar-hover": primary,
            "scrollbar-active": primary,
            "scrollbar-background": background,
            "scrollbar-background-hover": background,
            "scrollbar-background-active": background,
            "scrollbar-corner-color": background,
        },
    )


class _Output:
    """Output to the terminal; after a hang-up, writes have no effect."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        try:
            self._file.write(text)
        except OSError:
            return

    def flush(self) -> None:
        try:
            self._file.flush()
        except OSError:
            return

    def fileno(self) -> int:
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """Textual's driver with a tolerant input decoder; the end of input raises SIGHUP.

    It can ask the terminal for its background.
    """

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stderr__ is not None
        self._file = _Output(sys.__stderr__)  # type: ignore[assignment]
        self._answer: Callable[[Theme], object] = lambda _: None
        self._answer_until_s = 0.0
        self._drawings: Drawings = getattr(app, "drawings", None) or Drawings()
        self._key_priority: KeyPriority = getattr(app, "key_priority", None) or KeyPriority()

    def ask_background(self, answer: Callable[[Theme], None]) -> None:
        """Ask the terminal for its background; `answer` is called in the event loop.

        It is not called if the terminal does not answer within a second.
        """
        loop = asyncio.get_running_loop()
        self._answer = lambda theme: loop.call_soon_threadsafe(answer, theme)
        self._answer_until_s = time.monotonic() + _ANSWER_WITHIN_S
        self.write(QUERY)
        self.flush()

    def _sigcont_application(self, *_: object) -> None:
        """Continue after a signal that stopped the process.

        After SIGTSTP, for which the terminal was given back, it is taken again. After SIGSTOP it
        was not: Textual would start a second thread that reads keys, and each would lose some.
        """
        if self._must_signal_resume:
            super()._sigcont_application()
        elif self.attrs_before is not None and not self._loop.is_closed():
            # Not here: the signal may have come in the middle of a write, which holds a lock.
            self._loop.call_soon_threadsafe(self._take_terminal_again, self.attrs_before)

    def _take_terminal_again(self, attrs_before: list[Any]) -> None:
        """Set the modes that the shell may have changed, and draw everything."""
        if self._writer_thread is None:
            return
        attrs = [*attrs_before]
        attrs[tty.LFLAG] = self._patch_lflag(attrs[tty.LFLAG])
        attrs[tty.IFLAG] = self._patch_iflag(attrs[tty.IFLAG])
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.fileno, termios.TCSANOW, attrs)
        self.write(_ALTERNATE_SCREEN)
        self.flush()
        self._app.call_later(self._app.refresh, layout=True)

    @property
    def _awaits_answer(self) -> bool:
        return time.monotonic() < self._answer_until_s

    def _accept_answers(self, answers: Sequence[str]) -> None:
        for theme in filter(None, map(theme_of, answers)):
            if self._awaits_answer:
                self._answer_until_s = 0.0
                self._answer(theme)

    def start_application_mode(self) -> None:
        """As Textual does; a key may end a drawing from now on."""
        signal.signal(SIGNAL, self._drawings.end)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def _post(self, event: Message) -> None:
        if isinstance(event, Key):
            self._drawings.pressed(event.key)
            self._key_priority.pressed()
        self.process_message(event)

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read the terminal and post events until the app ends (in a thread of its own)."""
        parser, decoder = KeyParser(self._debug), InputDecoder()
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            # At the end an answer that is under way is awaited: the shell would take it for keys.
            while not self.exit_event.is_set() or self._awaits_answer:
                poll_s = CHECK_S if self._drawings.is_awaited else _POLL_S
                is_ready = bool(selector.select(parser.wait_s or poll_s))
                self._drawings.check()
                data = self._read() if is_ready else b""
                if is_ready and not data:
                    self._answer_until_s = 0.0
                    os.kill(os.getpid(), signal.SIGHUP)
                    break
                text = decoder.feed(data, self._awaits_answer)
                self._accept_answers(decoder.take_answers())
                if self.exit_event.is_set():
                    continue
                for event in typed_or_pasted([*parser.feed(text), *parser.tick()]):
                    self._post(event)

    def _read(self) -> bytes:
        """The next bytes of input; empty after a hang-up."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError:
            return b""
