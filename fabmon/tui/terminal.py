"""The terminal: colours of Textual's own widgets, the console at our depth, the input driver."""

from __future__ import annotations

import io
import os
import re
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from typing import IO, Any, Literal

from rich.console import Console
from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as WidgetTheme

from fabmon.tui.palette import Depth, Theme

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

_X10_MOUSE = re.compile(rb"\x1b\[M[\x00-\xff]{3}", re.DOTALL)
"""An X10 mouse report; its last three bytes can have any value and need not be UTF-8."""
_X10_BEGUN = re.compile(rb"\x1b\[(M[\x00-\xff]{0,2})?\Z", re.DOTALL)
_READ_BYTES = 4096
_POLL_S = 0.1


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


class InputDecoder:
    """Decodes input as UTF-8; drops bytes that are not UTF-8, and X10 mouse reports."""

    def __init__(self) -> None:
        """With empty buffers."""
        self._decode = getincrementaldecoder("utf-8")(errors="ignore").decode
        self._rest = b""

    def feed(self, data: bytes) -> str:
        """Decode the next bytes. An incomplete character or report is kept for the next call."""
        data = _X10_MOUSE.sub(b"", self._rest + data)
        begun = _X10_BEGUN.search(data)
        self._rest = begun.group() if begun else b""
        return self._decode(data[: len(data) - len(self._rest)])


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
    """Textual's driver with a tolerant input decoder; the end of input raises SIGHUP."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        """As Textual constructs its drivers."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stderr__ is not None
        self._file = _Output(sys.__stderr__)  # type: ignore[assignment]

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read the terminal and post events until the app ends (in a thread of its own)."""
        parser, decoder = XTermParser(self._debug), InputDecoder()
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_POLL_S):
                    data = self._read()
                    if not data:
                        os.kill(os.getpid(), signal.SIGHUP)
                        break
                    text = decoder.feed(data)
                    # An empty text means the end of input to the parser.
                    for event in parser.feed(text) if text else ():
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        try:
            for _ in parser.feed(""):
                pass
        except (EOFError, ParseError):
            pass

    def _read(self) -> bytes:
        """The next bytes of input; empty after a hang-up."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError:
            return b""
