"""Decodes exporters' text, fast for a page whose series were seen before.

An exporter says the same series in the same order for hours; only the numbers move. So the first
page is parsed in full and remembered as a layout, and of later pages the numbers are taken where
they are known to be. That a line still is what it was is not assumed: every line must begin with
the very bytes of its series, every comment must be the one before, and behind the series there must
be a number. A page for which that is not so is parsed anew.

Of several designs (a regular expression over the page, literals found one after the other, gathers
over an array of its bytes) this one, lists of lines and C functions mapped over them, was fastest.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.scrape import exposition
from fabmon.feeds.scrape.exposition import BadPage, Family, Series

Floats = NDArray[np.float64]

_EOF = b"# EOF"
_OF_NUMBERS = b"0123456789+-.eENaIinf"
_MS = 1000.0
_HASH = ord("#")


class Layout:
    """Which series a page has, in order. The same object for as long as they stay the same."""

    def __init__(
        self, lines: Sequence[bytes], prefixes: Sequence[bytes | None], series: list[Series]
    ) -> None:
        self.is_sample = bytes(prefix is not None for prefix in prefixes)
        self.is_comment = bytes(prefix is None for prefix in prefixes)
        self.comments = list(compress(lines, self.is_comment))
        self.prefixes = [prefix for prefix in prefixes if prefix is not None]
        self.lengths = [len(prefix) for prefix in self.prefixes]
        self._series: list[Series] | None = series

    def __len__(self) -> int:
        return len(self.prefixes)

    def series(self) -> list[Series]:
        """The series, in the order of the values.

        They are handed out once and made anew after that: a thousand pages of them are large.
        """
        found, self._series = self._series, None
        if found is None:
            found = [exposition.series(prefix) for prefix in self.prefixes]
        return found

    def families(self) -> dict[str, Family]:
        """What the page says of its metrics, by name."""
        return exposition.families(self.comments)

    def samples(self, lines: list[bytes]) -> list[bytes] | None:
        """The lines with values of a page of this layout; None when it has another."""
        if len(lines) != len(self.is_sample):
            return None
        if list(compress(lines, self.is_comment)) != self.comments:
            return None
        found = list(compress(lines, self.is_sample))
        return found if all(map(bytes.startswith, found, self.prefixes)) else None


class Page:
    """One answer of an exporter: its layout, and its numbers when they are asked for."""

    def __init__(self, layout: Layout, samples: list[bytes], a_second: float) -> None:
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
                pairs.append(exposition.value(rest))
            except ValueError as error:
                raise BadPage(self._line_of(place), str(error), self._samples[place]) from None
        values = np.array([number for number, _ in pairs], np.float64)
        if all(stamp is None for _, stamp in pairs):
            return values, None
        stamps = [np.nan if stamp is None else stamp / self._a_second for _, stamp in pairs]
        return values, np.array(stamps, np.float64)

    def _line_of(self, place: int) -> int:
        return [at for at, is_sample in enumerate(self.layout.is_sample) if is_sample][place] + 1


class Decoder:
    """Decodes the pages of one exporter, one after the other."""

    def __init__(self) -> None:
        self._layout: Layout | None = None

    def decode(self, page: bytes, *, openmetrics: bool = False) -> Page:
        """One page. Raises BadPage when it breaks off or does not follow the format."""
        lines = page.split(b"\n")
        _check_end(lines, openmetrics)
        a_second = 1.0 if openmetrics else _MS
        layout = self._layout
        samples = layout.samples(lines) if layout is not None else None
        if layout is None or samples is None:
            layout = Layout(lines, *_parsed(lines))
            samples = list(compress(lines, layout.is_sample))
            Page(layout, samples, a_second).values()
            self._layout = layout
        return Page(layout, samples, a_second)


def _check_end(lines: list[bytes], openmetrics: bool) -> None:
    """Raise BadPage for a page without its end: its last number may have lost digits."""
    if openmetrics:
        last = lines[-1] or (lines[-2] if len(lines) > 1 else b"")
        if last != _EOF:
            raise BadPage(len(lines), "the page breaks off: it does not end with # EOF", last)
    elif lines[-1]:
        raise BadPage(len(lines), "the page breaks off in the middle of a line", lines[-1])


def _parsed(lines: list[bytes]) -> tuple[list[bytes | None], list[Series]]:
    """The first part of each line that has a value, None for the others; and their series."""
    prefixes: list[bytes | None] = []
    found: list[Series] = []
    match = exposition.SERIES.match
    for number, line in enumerate(lines, 1):
        try:
            start = match(line)
            if start is not None:
                found.append(exposition.series_of(start))
                prefixes.append(start[0])
                continue
            text = line.lstrip(b" \t")
            if text and text[0] != _HASH:
                raise ValueError("neither a comment nor a name, labels and a value")
            exposition.check_comment(line)
            prefixes.append(None)
        except ValueError as error:
            raise BadPage(number, str(error), line) from None
    return prefixes, found
