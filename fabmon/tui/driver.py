"""The terminal driver: Textual's, made to survive bytes and hang-ups that it does not expect."""

from __future__ import annotations

import os
import re
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from typing import IO, Any

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

_X10_MOUSE = re.compile(rb"\x1b\[M[\x00-\xff]{3}", re.DOTALL)
"""A mouse report of the oldest kind; its three bytes may be anything, also not UTF-8."""
_X10_BEGUN = re.compile(rb"\x1b\[M[\x00-\xff]{0,2}\Z", re.DOTALL)
_READ_BYTES = 4096
_POLL_S = 0.1


class InputDecoder:
    """Decodes the terminal's bytes as UTF-8; drops other bytes, and X10 mouse reports."""

    def __init__(self) -> None:
        """Nothing has been read."""
        self._decode = getincrementaldecoder("utf-8")(errors="ignore").decode
        self._rest = b""

    def feed(self, data: bytes) -> str:
        """The text in the next bytes; a character or a report may continue in the bytes after."""
        data = _X10_MOUSE.sub(b"", self._rest + data)
        begun = _X10_BEGUN.search(data)
        self._rest = begun.group() if begun else b""
        return self._decode(data[: len(data) - len(self._rest)])


class _Output:
    """The terminal to write to. Once it has hung up, what is written is dropped."""

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
    """Reads keys and draws. A terminal that goes away counts as SIGHUP."""

    def __init__(
        self,
        app: App[Any],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        """For an app, as Textual makes its drivers."""
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        assert sys.__stderr__ is not None
        self._file = _Output(sys.__stderr__)  # type: ignore[assignment]

    def _run_input_thread(self) -> None:
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read the terminal and post events, until the app ends."""
        parser, decoder = XTermParser(self._debug), InputDecoder()
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(_POLL_S):
                    data = self._read()
                    if not data:
                        os.kill(os.getpid(), signal.SIGHUP)
                        break
                    for event in parser.feed(decoder.feed(data)):
                        self.process_message(event)
                for event in parser.tick():
                    self.process_message(event)
        try:
            for _ in parser.feed(""):
                pass
        except (EOFError, ParseError):
            pass

    def _read(self) -> bytes:
        """What the terminal sent; empty when it has hung up."""
        try:
            return os.read(self.fileno, _READ_BYTES)
        except OSError:
            return b""
