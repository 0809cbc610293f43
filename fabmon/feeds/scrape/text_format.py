"""Decodes the text format of exporters: Prometheus 0.0.4 and OpenMetrics.

Both are read by the same rules, the less strict of the two: blanks between the parts of a line, a
label list that ends in a comma, an exemplar after the value. They differ in the unit of timestamps
and in how a page ends.

Decoding is fast for a page whose series were seen before. An exporter sends the same series in the
same order for hours, and only the numbers change. So the first page is parsed in full and its
layout is kept; from later pages only the numbers are read, at their known positions. Each line must
still begin with exactly the bytes of its series, each comment must be the one from before, and a
number must follow the series: otherwise the page is parsed in full again. Of several designs (one
regular expression for the page, searching for literals one after the other, gathering from an array
of bytes) this one, C functions mapped over lists of lines, was fastest.

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

Floats = NDArray[np.float64]

_LABEL = rb'[a-zA-Z_][a-zA-Z0-9_]*[ \t]*=[ \t]*"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t]*'
_LABELS = rb"\{[ \t]*(?:" + _LABEL + rb"(?:,[ \t]*" + _LABEL + rb")*(?:,[ \t]*)?)?\}"
_NUMBER = rb"[0-9+\-.eENaIinf]+"

_SERIES = re.compile(rb"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]*(" + _LABELS + rb")[ \t]*|[ \t]+)")
"""The part of a line before its value: name and labels."""

_VALUE = re.compile(
    rb"(" + _NUMBER + rb")"
    rb"(?:[ \t]+(" + _NUMBER + rb"))?"
    rb"(?:[ \t]+#[ \t]*" + _LABELS + rb"[ \t]*" + _NUMBER + rb"(?:[ \t]+" + _NUMBER + rb")?)?[ \t]*"
)
"""The part of a line after its series: value, timestamp, exemplar."""

_COMMENT = re.compile(rb"[ \t]*#[ \t]+(TYPE|HELP|UNIT)(?:[ \t]+(.*))?", re.DOTALL)
_NAME_AND_TEXT = re.compile(rb"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:[ \t]+(.+))?", re.DOTALL)
_TYPES = (
    *(b"counter", b"gauge", b"histogram", b"summary", b"untyped"),
    *(b"unknown", b"info", b"stateset", b"gaugehistogram"),
)
_PAIR = re.compile(rb'\b([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_ESCAPED = re.compile(r'\\([\\n"])')
_MAX_QUOTED_BYTES = 60

_EOF = b"# EOF"
_NUMBER_BYTES = b"0123456789+-.eENaIinf"
_MS_PER_S = 1000.0


class BadPage(Misbehaved):
    """A page that does not follow the format; `line` counts from 1."""

    def __init__(self, line: int, what: str, text: bytes = b"") -> None:
        quoted = f": {text[:_MAX_QUOTED_BYTES].decode(errors='replace')!r}" if text else ""
        super().__init__(f"line {line}: {what}{quoted}")
        self.line = line


class SeriesName(NamedTuple):
    """The metric and labels of a value."""

    name: str
    labels: dict[str, str]


class PageLayout:
    """The series of a page in order. The same object for as long as they do not change."""

    def __init__(
        self,
        lines: Sequence[bytes],
        prefixes: Sequence[bytes | None],
        series: list[SeriesName],
    ) -> None:
        self.is_sample = bytes(prefix is not None for prefix in prefixes)
        self._is_comment = bytes(prefix is None for prefix in prefixes)
        self._comments = list(compress(lines, self._is_comment))
        self._prefixes = [prefix for prefix in prefixes if prefix is not None]
        self.lengths = [len(prefix) for prefix in self._prefixes]
        self._series: list[SeriesName] | None = series

    def series(self) -> list[SeriesName]:
        """The series, in the order of the values.

        They are not kept after the first call but parsed again, because those of a thousand pages
        would use much memory.
        """
        found, self._series = self._series, None
        if found is None:
            matches = map(_SERIES.fullmatch, self._prefixes)
            found = [_series_name(match) for match in matches if match is not None]
        return found

    def samples(self, lines: list[bytes]) -> list[bytes] | None:
        """The lines with values of a page with this layout; None if it has another."""
        if len(lines) != len(self.is_sample):
            return None
        if list(compress(lines, self._is_comment)) != self._comments:
            return None
        found = list(compress(lines, self.is_sample))
        return found if all(map(bytes.startswith, found, self._prefixes)) else None


class DecodedPage:
    """One page: its layout, and its numbers, which are parsed on request."""

    def __init__(self, layout: PageLayout, samples: list[bytes], timestamps_per_s: float) -> None:
        self.layout = layout
        self._samples = samples
        self._timestamps_per_s = timestamps_per_s

    def values(self, wanted: Sequence[int] | None = None) -> Floats:
        """The values at some positions of the layout, or all. Raises BadPage."""
        return self.read(wanted)[0]

    def read(self, wanted: Sequence[int] | None = None) -> tuple[Floats, Floats | None]:
        """The values, and the timestamps that the exporter gives them, in seconds since 1970.

        A timestamp is NaN where a value has none; there is None instead of an array if none of the
        values has one, which is the usual case. Raises BadPage for text that is no number.
        """
        samples, lengths = self._samples, self.layout.lengths
        if wanted is None:
            texts = [line[length:] for line, length in zip(samples, lengths, strict=True)]
        else:
            texts = [samples[position][lengths[position] :] for position in wanted]
        if not b"".join(texts).translate(None, _NUMBER_BYTES):
            try:
                return np.array(list(map(float, texts)), np.float64), None
            except ValueError:
                pass  # read one by one below, which finds the line
        return self._read_each(texts, range(len(texts)) if wanted is None else wanted)

    def _read_each(
        self, texts: Sequence[bytes], positions: Sequence[int]
    ) -> tuple[Floats, Floats | None]:
        values = np.empty(len(texts))
        stamps_s = np.full(len(texts), np.nan)
        has_stamps = False
        for index, (position, text) in enumerate(zip(positions, texts, strict=True)):
            match = _VALUE.fullmatch(text)
            if match is None:
                raise self._bad_sample(position, "there is no number where the value belongs")
            try:
                values[index] = float(match[1])
                if match[2] is not None:
                    stamps_s[index] = float(match[2]) / self._timestamps_per_s
                    has_stamps = True
            except ValueError:
                what = "the value or the timestamp is not a number"
                raise self._bad_sample(position, what) from None
        return values, stamps_s if has_stamps else None

    def _bad_sample(self, position: int, what: str) -> BadPage:
        lines = [at for at, is_sample in enumerate(self.layout.is_sample) if is_sample]
        return BadPage(lines[position] + 1, what, self._samples[position])


class PageDecoder:
    """Decodes the pages of one exporter, one after the other."""

    def __init__(self) -> None:
        self._layout: PageLayout | None = None

    def decode(self, page: bytes, *, openmetrics: bool = False) -> DecodedPage:
        """One page. Raises BadPage when it is cut off or does not follow the format."""
        lines = page.split(b"\n")
        _check_end(lines, openmetrics)
        timestamps_per_s = 1.0 if openmetrics else _MS_PER_S
        layout = self._layout
        samples = layout.samples(lines) if layout is not None else None
        if layout is None or samples is None:
            layout = PageLayout(lines, *_parse(lines))
            samples = list(compress(lines, layout.is_sample))
            DecodedPage(layout, samples, timestamps_per_s).values()
            self._layout = layout
        return DecodedPage(layout, samples, timestamps_per_s)


def _check_end(lines: list[bytes], openmetrics: bool) -> None:
    """Raise BadPage for a page without its end: its last number may lack digits."""
    if openmetrics:
        last = lines[-1] or (lines[-2] if len(lines) > 1 else b"")
        if last != _EOF:
            raise BadPage(len(lines), "the page breaks off: it does not end with # EOF", last)
    elif lines[-1]:
        raise BadPage(len(lines), "the page breaks off in the middle of a line", lines[-1])


def _parse(lines: list[bytes]) -> tuple[list[bytes | None], list[SeriesName]]:
    """The part before the value of each line, None for a line without one; and the series."""
    prefixes: list[bytes | None] = []
    found: list[SeriesName] = []
    for number, line in enumerate(lines, 1):
        try:
            match = _SERIES.match(line)
            if match is not None:
                found.append(_series_name(match))
                prefixes.append(match[0])
                continue
            _check_comment(line)
            prefixes.append(None)
        except ValueError as error:
            raise BadPage(number, str(error), line) from None
    return prefixes, found


def _series_name(match: re.Match[bytes]) -> SeriesName:
    """The series in a match of `_SERIES`. Raises ValueError, which says what is wrong."""
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
        raise ValueError("a label occurs twice")
    return SeriesName(name.decode(), found)


def _check_comment(line: bytes) -> None:
    """Raise ValueError for text that is no comment, or for a malformed HELP, TYPE or UNIT."""
    if line.lstrip(b" \t")[:1] not in (b"#", b""):
        raise ValueError("neither a comment nor a name, labels and a value")
    match = _COMMENT.fullmatch(line.rstrip(b" \t"))
    if match is None or not match[2]:
        return
    about = _NAME_AND_TEXT.fullmatch(match[2])
    if about is None:
        raise ValueError("a HELP, TYPE or UNIT without a metric's name")
    if match[1] == b"TYPE" and about[2] not in _TYPES:
        raise ValueError("an unknown TYPE")


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
