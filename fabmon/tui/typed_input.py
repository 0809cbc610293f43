"""What is typed in a terminal: bytes become keys, pastes and reports of the mouse and of sizes.

A terminal sends answers and reports among keys, in pieces, and over a slow connection several keys
in one packet; what is no input presses no key.
"""

from __future__ import annotations

import os
import re
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Iterator, Sequence
from inspect import getgeneratorlocals
from itertools import groupby, pairwise

from textual import constants
from textual._parser import Read1
from textual._time import get_time
from textual._xterm_parser import BRACKETED_PASTE_END, BRACKETED_PASTE_START, XTermParser
from textual.events import Key, MouseEvent, Paste, Resize
from textual.message import Message

from fabmon.tui.terminal_background import ANSWER, ANSWER_BEGUN

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
are pasted. A key that is held is not: its repetitions are identical."""

_MOST_HELD = 16
"""Repetitions of a key in one read: half a second of a key that is held. Of a character, which may
be typed in an input, _MOST_TYPED count."""

_REPEATED = re.compile(
    rf"((?:\x1b\[<?[\d;]{{0,24}}[A-Za-z~]|[\x00-\U0010ffff]){{1,2}}?)\1{{{_MOST_TYPED},}}"
)
"""One key or report, or two in turn, again and again: to parse 20,000 takes 0.4 s. No more than
_MOST_TYPED are; of characters, which may be for an input, the others are pasted."""

_MOST_CELLS = 1 << 20
"""Of a screen. A size that a terminal reports may be any number, and takes memory."""
_CTRL_C = "\x03"
_ENDING_KEYS = ("q", _CTRL_C)
"""Keys that end the program. Neither is part of what a terminal reports."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character: it cannot be written."""
_SEQUENCES = re.compile(r"(?=\x1b)")

_TWO_KEYS = re.compile(r"\x1b([^\x1b[O\]PX^_\t\x7fbf])")
"""The Escape key and another in one packet, or a key with alt: no sequence begins like that.
Textual takes some for characters of a Mac. ESC b and ESC f are Option and an arrow key there, by
which a cursor moves by a word."""

_ESC, _ESCAPE = b"\x1b", "\x1b"
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
_PRESSED_AFTER_S = 0.1
"""`q` alone, so long after the last of a paste, is pressed: who pastes cannot be that quick."""


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


class _Repeated(Paste):
    """More repetitions of one or two characters than are parsed; they follow those that are."""


def typed_or_pasted(events: Sequence[Message]) -> Iterator[Message]:
    """The events of one read; more keys in a row than anybody types are the text that was pasted.

    A terminal without bracketed paste sends it as keys, each of which would be handled. Of what
    else it reports the last ones count (`_newest`).
    """
    for is_typed, group in groupby(_newest(events), _is_typed):
        run = list(group)
        keys = [each for each in run if isinstance(each, Key)]
        changes = sum(one.key != other.key for one, other in pairwise(keys))
        if is_typed and changes >= _MOST_TYPED:
            yield Paste("".join(map(typed_text, run)))
        else:
            yield from run


def typed_text(event: Message) -> str:
    """The characters that an event is to an input; empty where it is none of text."""
    if isinstance(event, Paste):
        return event.text
    return (event.character or "") if isinstance(event, Key) else ""


def _is_typed(event: Message) -> bool:
    return isinstance(event, Key | _Repeated) and typed_text(event) not in ("", _CTRL_C)


def _newest(events: Sequence[Message]) -> list[Message]:
    """The events without reports that later ones replace: of the mouse the last 64 count, of the
    focus, the size and modes the last, and of a key that is held 16 repetitions, of a character 64.
    The keys behind thousands would not be heard for seconds."""
    kept: list[Message] = []
    repeated = 0
    counts: Counter[type[Message]] = Counter()
    for event in reversed(events):
        kind = MouseEvent if isinstance(event, MouseEvent) else type(event)
        counts[kind] += 1
        is_report = not isinstance(event, Key | Paste)
        if is_report and counts[kind] > (_MOST_TYPED if kind is MouseEvent else 1):
            continue
        if isinstance(event, Resize) and event.size.area > _MOST_CELLS:
            continue
        if isinstance(event, Key):
            if _SURROGATE.search(event.character or ""):
                continue
            is_held = bool(kept) and isinstance(kept[-1], Key) and kept[-1].key == event.key
            repeated = repeated + 1 if is_held else 0
            if repeated >= (_MOST_TYPED if event.is_printable else _MOST_HELD):
                continue
        kept.append(event)
    return kept[::-1]


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
        begun = self._escape + self._begun + data
        if not self._is_pasting and BRACKETED_PASTE_START not in begun:
            place = 0
            for found in _REPEATED.finditer(data):
                kept = found.start() + len(found[1]) * _MOST_TYPED
                yield from self._parsed(data[place:kept])
                place = found.end()
                if found[1].isprintable():
                    yield _Repeated(data[kept:place])
            data = data[place:]
        yield from self._parsed(data)

    def _parsed(self, data: str) -> Iterator[Message]:
        if not data:
            return
        if self._is_pasting:
            idle_s = get_time() - (self._paste_until_s - _PASTE_S)
            if data == _CTRL_C or (data in _ENDING_KEYS and idle_s >= _PRESSED_AFTER_S):
                # Alone in a read it is pressed: the end of the paste is lost.
                yield from self._pasted()
        elif data.startswith(_ENDING_KEYS) and _REPORT_BEGUN.fullmatch(self._begun):
            super().__init__()
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
        for sequence in filter(None, _SEQUENCES.split(data)):
            try:
                yield from super().feed(sequence)
            except Exception:
                # Textual makes characters and shares of numbers that are of none.
                super().__init__()
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
            yield from self._pasted()

    def _pasted(self) -> Iterator[Message]:
        """The text of a paste whose end did not come."""
        self._escape = ""
        pasted = super().feed(BRACKETED_PASTE_END)
        yield from (each for each in pasted if isinstance(each, Paste))

    def _escape_if_due(self) -> Iterator[Message]:
        if self._escape and not self._is_pasting and get_time() >= self._escape_until_s:
            self._escape = ""
            yield Key("escape", _ESCAPE)
