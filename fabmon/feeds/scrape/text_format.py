"""The grammar of exporters' text, Prometheus 0.0.4 and OpenMetrics: one line at a time.

Both are read by the same rules, the laxer of the two: blanks between the parts of a line, a label
list that ends in a comma, an exemplar behind the value. They differ in the unit of timestamps and
in how a page ends; see decoder.py.

https://prometheus.io/docs/instrumenting/exposition_formats, https://prometheus.io/docs/specs/om
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class SeriesName(NamedTuple):
    """What a value is of."""

    name: str
    labels: dict[str, str]


class MetricFamily(NamedTuple):
    """What a page says of its metrics of one name; empty where it says nothing."""

    type: str
    help: str
    unit: str


def series(prefix: bytes) -> SeriesName:
    """The series that a line's first part names. Raises ValueError, saying what is wrong."""
    match = SERIES.fullmatch(prefix)
    if match is None:
        raise ValueError("neither a comment nor a name, labels and a value")
    return series_of(match)


def series_of(match: re.Match[bytes]) -> SeriesName:
    """The same from a match of SERIES."""
    name, labels = match.groups()
    if labels is None:
        return SeriesName(name.decode(), {})
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
    return SeriesName(name.decode(), found)


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


def families(comments: Sequence[bytes]) -> dict[str, MetricFamily]:
    """What HELP, TYPE and UNIT say, by name; comments that say nothing are left out."""
    found: dict[str, MetricFamily] = {}
    for line in comments:
        match = _COMMENT.fullmatch(line)
        about = _ABOUT.fullmatch(match[2]) if match is not None and match[2] else None
        if match is None or about is None:
            continue
        name, text = about[1].decode(), (about[2] or b"").decode(errors="replace")
        known = found.get(name, MetricFamily("", "", ""))
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


# Decodes exporters' text, fast for a page whose series were seen before.
#
# An exporter says the same series in the same order for hours; only the numbers move. So the first
# page is parsed in full and remembered as a layout, and of later pages the numbers are taken where
# they are known to be. That a line still is what it was is not assumed: every line must begin with
# the very bytes of its series, every comment must be the one before, and behind the series there
# must be a number. A page for which that is not so is parsed anew.
#
# Of several designs (a regular expression over the page, literals found one after the other,
# gathers over an array of its bytes) this one, lists of lines and C functions mapped over them, was
# fastest.


Floats = NDArray[np.float64]

_EOF = b"# EOF"
_OF_NUMBERS = b"0123456789+-.eENaIinf"
_MS = 1000.0
_HASH = ord("#")


class PageLayout:
    """Which series a page has, in order. The same object for as long as they stay the same."""

    def __init__(
        self, lines: Sequence[bytes], prefixes: Sequence[bytes | None], series: list[SeriesName]
    ) -> None:
        self.is_sample = bytes(prefix is not None for prefix in prefixes)
        self.is_comment = bytes(prefix is None for prefix in prefixes)
        self.comments = list(compress(lines, self.is_comment))
        self.prefixes = [prefix for prefix in prefixes if prefix is not None]
        self.lengths = [len(prefix) for prefix in self.prefixes]
        self._series: list[SeriesName] | None = series

    def __len__(self) -> int:
        return len(self.prefixes)

    def series(self) -> list[SeriesName]:
        """The series, in the order of the values.

        They are handed out once and made anew after that: a thousand pages of them are large.
        """
        found, self._series = self._series, None
        if found is None:
            found = [series(prefix) for prefix in self.prefixes]
        return found

    def families(self) -> dict[str, MetricFamily]:
        """What the page says of its metrics, by name."""
        return families(self.comments)

    def samples(self, lines: list[bytes]) -> list[bytes] | None:
        """The lines with values of a page of this layout; None when it has another."""
        if len(lines) != len(self.is_sample):
            return None
        if list(compress(lines, self.is_comment)) != self.comments:
            return None
        found = list(compress(lines, self.is_sample))
        return found if all(map(bytes.startswith, found, self.prefixes)) else None


class DecodedPage:
    """One answer of an exporter: its layout, and its numbers when they are asked for."""

    def __init__(self, layout: PageLayout, samples: list[bytes], a_second: float) -> None:
        self.layout = layout
        self._samples = samples
        self._a_second = a_second

    def values(self, wanted: Sequence[int] | None = None) -> Floats:
        """The values at those positions of the layout, all of them for None.

        Raises BadPage for a number that is none.
        """
        return self.read(wanted)[0]

    def read(self, wanted: Sequence[int] | None = None) -> tuple[Floats, Floats | None]:
        """The values, and when the exporter says it measured each, in seconds since 1970.

        NaN is a value without a timestamp; None as a whole, that none of them has one, as mostly.
        Raises BadPage for a number that is none.
        """
        rests = self._rests(wanted)
        if not b"".join(rests).translate(None, _OF_NUMBERS):
            try:
                return np.array(list(map(float, rests)), np.float64), None
            except ValueError:
                pass  # the careful way says which
        return self._careful(rests, wanted)

    def _rests(self, wanted: Sequence[int] | None) -> list[bytes]:
        """What stands behind the series."""
        samples, lengths = self._samples, self.layout.lengths
        if wanted is None:
            return [line[length:] for line, length in zip(samples, lengths, strict=True)]
        return [samples[place][lengths[place] :] for place in wanted]

    def _careful(
        self, rests: Sequence[bytes], wanted: Sequence[int] | None
    ) -> tuple[Floats, Floats | None]:
        places = range(len(rests)) if wanted is None else wanted
        pairs = []
        for place, rest in zip(places, rests, strict=True):
            try:
                pairs.append(value(rest))
            except ValueError as error:
                raise BadPage(self._line_of(place), str(error), self._samples[place]) from None
        values = np.array([number for number, _ in pairs], np.float64)
        if all(stamp is None for _, stamp in pairs):
            return values, None
        stamps = [np.nan if stamp is None else stamp / self._a_second for _, stamp in pairs]
        return values, np.array(stamps, np.float64)

    def _line_of(self, place: int) -> int:
        return [at for at, is_sample in enumerate(self.layout.is_sample) if is_sample][place] + 1


class PageDecoder:
    """Decodes the pages of one exporter, one after the other."""

    def __init__(self) -> None:
        self._layout: PageLayout | None = None

    def decode(self, page: bytes, *, openmetrics: bool = False) -> DecodedPage:
        """One page. Raises BadPage when it breaks off or does not follow the format."""
        lines = page.split(b"\n")
        _check_end(lines, openmetrics)
        a_second = 1.0 if openmetrics else _MS
        layout = self._layout
        samples = layout.samples(lines) if layout is not None else None
        if layout is None or samples is None:
            layout = PageLayout(lines, *_parsed(lines))
            samples = list(compress(lines, layout.is_sample))
            DecodedPage(layout, samples, a_second).values()
            self._layout = layout
        return DecodedPage(layout, samples, a_second)


def _check_end(lines: list[bytes], openmetrics: bool) -> None:
    """Raise BadPage for a page without its end: its last number may have lost digits."""
    if openmetrics:
        last = lines[-1] or (lines[-2] if len(lines) > 1 else b"")
        if last != _EOF:
            raise BadPage(len(lines), "the page breaks off: it does not end with # EOF", last)
    elif lines[-1]:
        raise BadPage(len(lines), "the page breaks off in the middle of a line", lines[-1])


def _parsed(lines: list[bytes]) -> tuple[list[bytes | None], list[SeriesName]]:
    """The first part of each line that has a value, None for the others; and their series."""
    prefixes: list[bytes | None] = []
    found: list[SeriesName] = []
    match = SERIES.match
    for number, line in enumerate(lines, 1):
        try:
            start = match(line)
            if start is not None:
                found.append(series_of(start))
                prefixes.append(start[0])
                continue
            text = line.lstrip(b" \t")
            if text and text[0] != _HASH:
                raise ValueError("neither a comment nor a name, labels and a value")
            check_comment(line)
            prefixes.append(None)
        except ValueError as error:
            raise BadPage(number, str(error), line) from None
    return prefixes, found
