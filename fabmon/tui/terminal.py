"""The terminal: colours of Textual's own widgets, the console at our depth, the driver."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import re
import selectors
import signal
import sys
import termios
import time
import tty
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from inspect import getgeneratorlocals
from itertools import groupby, pairwise
from typing import IO, Any, Literal

from rich.console import Console
from textual import constants
from textual._parser import Read1
from textual._time import get_time
from textual._xterm_parser import BRACKETED_PASTE_END, XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.events import Key, MouseEvent, Paste
from textual.message import Message
from textual.theme import BUILTIN_THEMES
from textual.theme import Theme as WidgetTheme

from fabmon.tui.drawings import CHECK_S, SIGNAL, Drawings
from fabmon.tui.palette import Depth, Theme
from fabmon.tui.terminal_background import ANSWER, ANSWER_BEGUN, QUERY, theme_of

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
_STRING = re.compile(rb"\x1b[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)")
"""A string of the terminal (OSC, DCS, SOS, PM, APC): an answer to a query, of this or of an earlier
program. It is no input, and would press keys."""
_STRING_BEGUN = re.compile(rb"\x1b[]PX^_][^\x07\x1b]*\x1b?\Z")
_LEAST_STRING = 16
"""Bytes of a begun string from which on it is no longer taken for typed keys (alt and a bracket).
Of a longer one no more is kept."""

_MOST_TYPED = 64
"""Different keys in a row that nobody types between two reads, even over a slow connection: more
are pasted. A key that is held is not: its repetitions are alike."""

_TWO_KEYS = re.compile(r"\x1b([^\x1b[O\]PX^_\t\x7fbf])")
"""The Escape key and another in one packet, or a key with alt: no sequence begins like that.
Textual takes some for characters of a Mac. ESC b and ESC f are Option and an arrow key there, by
which a cursor moves by a word."""

_ALTERNATE_SCREEN = "\x1b[?1049h\x1b[?25l"
_ESC, _ESCAPE = b"\x1b", "\x1b"
_READ_BYTES = 4096
_POLL_S = 0.1
_ESCAPE_S = 0.025
"""How long the rest of a key's sequence may take after its ESC, where $ESCDELAY says nothing.

Textual waits 100 ms, and each press of the Escape key waits so long. A terminal writes a sequence
at once, and SSH sends it in one packet.
"""

_REPORT_BEGUN = re.compile(r"\x1b\[[<?\d][\d;:$]*")
_REPORT_S = 0.5
"""How long the rest of a begun report (of the mouse, a mode, a paste) may take: nobody types these
characters in one packet. As keys they would leave the view, and go to others."""

_PASTE_S = 5.0
"""A paste of which nothing more comes for so long has ended: its end is lost. A connection that
stalls in a paste seldom takes longer."""

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


class InputDecoder:
    """Decodes input as UTF-8; drops bytes that are not UTF-8, and X10 mouse reports.

    Answers to the query of the background are not input either: `take_answers` returns them.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")(errors="ignore").decode
        self._rest = b""
        self._answers: list[str] = []

    def feed(self, data: bytes, awaits_answer: bool = False) -> str:
        """Decode the next bytes. An incomplete character or report is kept for the next call.

        So is a single ESC at the end while an answer is awaited: it may begin the answer. Without
        more bytes than these (`data` is empty) what is kept was typed, unless it is a long string.
        """
        is_idle = not data and not self._rest.startswith(b"\x1b[M")
        data = _X10_MOUSE.sub(b"", self._rest + data)
        self._answers += [each.decode("ascii", "replace") for each in ANSWER.findall(data)]
        data = _STRING.sub(b"", data)
        begun = _STRING_BEGUN.search(data) or _X10_BEGUN.search(data) or ANSWER_BEGUN.search(data)
        rest = begun.group() if begun else b""
        data = data[: len(data) - len(rest)]
        if rest == _ESC and not awaits_answer:
            rest, data = b"", data + rest
        elif is_idle and not awaits_answer and rest:
            # Typed keys: Escape first, then the others, which together would be a sequence.
            is_typed = len(rest) < _LEAST_STRING
            rest, data = (rest[1:], data + _ESC) if is_typed else (b"", data)
        elif len(rest) > _LEAST_STRING and ANSWER_BEGUN.fullmatch(rest) is None:
            rest = rest[:_LEAST_STRING] + (_ESC if rest.endswith(_ESC) else b"")
        self._rest = rest
        return self._decode(data)

    def take_answers(self) -> list[str]:
        """The background colours that the terminal has reported since the last call."""
        answers, self._answers = self._answers, []
        return answers


def typed_or_pasted(events: Sequence[Message]) -> Iterator[Message]:
    """The events of one read; more keys in a row than anybody types are the text that was pasted.

    A terminal without bracketed paste sends it as keys, each of which would be handled. Of reports
    of the mouse the last ones count: the keys behind thousands would not be heard for seconds.
    """
    for kind, group in groupby(events, _kind):
        run = list(group)
        keys = [each for each in run if isinstance(each, Key)]
        changes = sum(one.key != other.key for one, other in pairwise(keys))
        if kind is Key and changes >= _MOST_TYPED:
            yield Paste("".join(key.character or "" for key in keys))
        else:
            yield from run[-_MOST_TYPED:] if kind is MouseEvent else run


def _kind(event: Message) -> type[Message] | None:
    """Key for a key that is text, MouseEvent for a report of the mouse."""
    if isinstance(event, Key) and event.character is not None:
        return Key
    return MouseEvent if isinstance(event, MouseEvent) else None


class KeyParser(XTermParser):
    """Textual's parser of keys, with a shorter wait after ESC."""

    _escape = ""
    _escape_until_s = 0.0
    _paste_until_s = 0.0

    @staticmethod
    def read1(timeout: float | None = None) -> Read1:  # type: ignore[override]
        """Ask for a character; Textual gives a timeout after an ESC only."""
        is_default = timeout is not None and "ESCDELAY" not in os.environ
        return Read1(_ESCAPE_S if is_default else timeout)

    def feed(self, data: str) -> Iterator[Message]:
        """The events of the next characters; of a sequence that is begun, with those that follow.

        Escape and another key in one packet are a key with alt, or Escape where the other one has
        no such key.
        """
        yield from self._escape_if_due()
        if not data:
            return
        data, self._escape, place = self._escape + data, "", 0
        for found in _TWO_KEYS.finditer(data):
            yield from self._fed(data[place : found.start()])
            place = found.start()
            if self._is_pasting:
                # Of pasted text Textual would make keys: Escape, and what follows it.
                place += 1
                continue
            if self._awaiting.timeout is not None:
                self._timeout_time = 0.0
                yield from super().tick()
            keys = list(self._sequence_to_key_events(found[1], alt=True))
            if not keys[0].key.startswith("alt+"):
                yield Key("escape", _ESCAPE)
            yield from keys
            place = found.end()
        data = data[place:]
        yield from self._fed(data.removesuffix(_ESCAPE))
        if data.endswith(_ESCAPE):
            self._escape = _ESCAPE
            self._escape_until_s = get_time() + (self.read1(constants.ESCAPE_DELAY).timeout or 0)

    def _fed(self, data: str) -> Iterator[Message]:
        # An empty text means the end of input to the parser.
        yield from super().feed(data) if data else ()
        self._paste_until_s = get_time() + _PASTE_S
        if self._awaiting.timeout is not None and _REPORT_BEGUN.fullmatch(self._begun):
            self._timeout_time = max(self._timeout_time or 0.0, get_time() + _REPORT_S)

    @property
    def _is_pasting(self) -> bool:
        return bool(getgeneratorlocals(self._gen).get("bracketed_paste"))

    @property
    def _begun(self) -> str:
        return str(getgeneratorlocals(self._gen).get("sequence", ""))

    @property
    def wait_s(self) -> float | None:
        """How long it waits for the rest of a sequence from its last character on, if it does."""
        if self._is_pasting:
            return None
        if self._escape:
            return max(0.0, self._escape_until_s - get_time())
        return self._awaiting.timeout

    def tick(self) -> Iterator[Message]:
        """The events of a sequence that nothing follows: after a single ESC the Escape key."""
        if not self._is_pasting:
            yield from self._escape_if_due()
            yield from super().tick()
        elif get_time() >= self._paste_until_s:
            self._escape = ""
            pasted = super().feed(BRACKETED_PASTE_END)
            yield from (each for each in pasted if isinstance(each, Paste))

    def _escape_if_due(self) -> Iterator[Message]:
        if self._escape and not self._is_pasting and get_time() >= self._escape_until_s:
            self._escape = ""
            yield Key("escape", _ESCAPE)


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
