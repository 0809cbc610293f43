"""The grammar of exporters' text, Prometheus 0.0.4 and OpenMetrics: one line at a time.

Both are read by the same rules, the laxer of the two: blanks between the parts of a line, a label
list that ends in a comma, an exemplar behind the value. They differ in the unit of timestamps and
in how a page ends; see decoder.py.

https://prometheus.io/docs/instrumenting/exposition_formats, https://prometheus.io/docs/specs/om
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from fabmon.feeds.errors import Misbehaved

_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t]*'
_LABELS = rb"\{[ \t]*(?:" + _LABEL + rb"(?:,[ \t]*" + _LABEL + rb")*(?:,[ \t]*)?)?\}"
_NUMBER = rb"[0-9+\-.eENaIinf]+"

SERIES = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*(" + _LABELS + rb")[ \t]*|[ \t]+)")
"""The part of a line before its value: name and labels."""

VALUE = re.compile(
    rb"(" + _NUMBER + rb")"
    rb"(?:[ \t]+(" + _NUMBER + rb"))?"
    rb"(?:[ \t]+#[ \t]*" + _LABELS + rb"[ \t]*" + _NUMBER + rb"(?:[ \t]+" + _NUMBER + rb")?)?[ \t]*"
)
"""The part of a line behind its series: value, timestamp, exemplar."""

_COMMENT = re.compile(rb"[ \t]*#[ \t]+(TYPE|HELP|UNIT)(?:[ \t]+(.*?))?[ \t]*", re.DOTALL)
_ABOUT = re.compile(rb"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]+(.+))?", re.DOTALL)
_TYPES = (
    *(b"counter", b"gauge", b"histogram", b"summary", b"untyped"),
    *(b"unknown", b"info", b"stateset", b"gaugehistogram"),
)
_PAIR = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_ESCAPED = re.compile(r'\\([\\n"])')
_HELP_ESCAPED = re.compile(r"\\([\\n])")
_SHOWN = 60


class BadPage(Misbehaved):
    """A page that does not follow the format; `line` counts from 1."""

    def __init__(self, line: int, what: str, text: bytes = b"") -> None:
        shown = f": {text[:_SHOWN].decode(errors='replace')!r}" if text else ""
        super().__init__(f"line {line}: {what}{shown}")
        self.line = line


class Series(NamedTuple):
    """What a value is of."""

    name: str
    labels: dict[str, str]


class Family(NamedTuple):
    """What a page says of its metrics of one name; empty where it says nothing."""

    type: str
    help: str
    unit: str


def series(prefix: bytes) -> Series:
    """The series that a line's first part names. Raises ValueError, saying what is wrong."""
    match = SERIES.fullmatch(prefix)
    if match is None:
        raise ValueError("neither a comment nor a name, labels and a value")
    return series_of(match)


def series_of(match: re.Match[bytes]) -> Series:
    """The same from a match of SERIES."""
    name, labels = match.groups()
    if labels is None:
        return Series(name.decode(), {})
    pairs = _PAIR.findall(labels)
    try:
        if b"\\" in labels:
            found = {key.decode(): _unescaped(value.decode()) for key, value in pairs}
        else:
            found = {key.decode(): value.decode() for key, value in pairs}
    except UnicodeDecodeError:
        raise ValueError("a label's value is not UTF-8") from None
    if len(found) != len(pairs):
        raise ValueError("a label is there twice")
    return Series(name.decode(), found)


def check_comment(line: bytes) -> None:
    """Raise ValueError for a HELP, TYPE or UNIT that is none."""
    match = _COMMENT.fullmatch(line)
    if match is None or not match[2]:
        return
    about = _ABOUT.fullmatch(match[2])
    if about is None:
        raise ValueError("a HELP, TYPE or UNIT of no name")
    if match[1] == b"TYPE" and about[2] not in _TYPES:
        raise ValueError("a TYPE that there is not")


def families(comments: Sequence[bytes]) -> dict[str, Family]:
    """What HELP, TYPE and UNIT say, by name; comments that say nothing are left out."""
    found: dict[str, Family] = {}
    for line in comments:
        match = _COMMENT.fullmatch(line)
        about = _ABOUT.fullmatch(match[2]) if match is not None and match[2] else None
        if match is None or about is None:
            continue
        name, text = about[1].decode(), (about[2] or b"").decode(errors="replace")
        known = found.get(name, Family("", "", ""))
        if match[1] == b"TYPE":
            found[name] = known._replace(type=text)
        elif match[1] == b"UNIT":
            found[name] = known._replace(unit=text)
        else:
            found[name] = known._replace(help=_replaced(_HELP_ESCAPED, text))
    return found


def value(text: bytes) -> tuple[float, float | None]:
    """Value and timestamp of a line's second part, the timestamp in the page's unit.

    Raises ValueError for anything else.
    """
    match = VALUE.fullmatch(text)
    if match is None:
        raise ValueError("no number where the value belongs")
    try:
        return float(match[1]), None if match[2] is None else float(match[2])
    except ValueError:
        raise ValueError("a value or a timestamp that is no number") from None


def _unescaped(text: str) -> str:
    return _replaced(_ESCAPED, text)


def _replaced(escaped: re.Pattern[str], text: str) -> str:
    return escaped.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
