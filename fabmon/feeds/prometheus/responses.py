"""Responses of the Prometheus query API, decoded, and the errors of the Prometheus feed.

PrometheusError   the message says what failed and what to do
|-- BadAccess     a URL, a file or an option cannot be used
|-- NoResponse    no route, refused, a timeout, overload, or a gateway that reports one of these
|-- AccessDenied  a token, a password or a tenant is missing or wrong
|-- QueryRefused  the query was rejected; the message has the server's own words
`-- NotPrometheus the server has no Prometheus query API

Most of a response are labels: a thousand nodes send 164,000 label sets in each tick, and nearly
always the same ones. So they are kept as raw bytes, compared as bytes, and parsed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.wire.messages import clean
from fabmon.feeds.scrape.page_reader import Indices
from fabmon.feeds.scrape.text_format import Floats
from fabmon.malformed_json import MALFORMED, values_in

_SUCCESS = "success"
_NEWLINE, _COMMA = b"\n,"
_MAX_NUMBER_BYTES = 32
_PART_BYTES = 1 << 20
_MOST_SERIES = 262_144
"""Series of one answer: three times those of a metric of 10,000 nodes with 8 ports."""
_MOST_NAMES = 262_144
_MOST_VALUES = 8_000_000
"""Values of a range: of the past 600,000 are asked for at once."""
_MOST_SAMPLES = 5_000_000
"""Samples of an export: what the largest body has at the usual 100 bytes a line."""
_MOST_LINE_BYTES = 65_536
"""Bytes of the labels of a series, or of a line of an export: ten times those of long labels."""
_MOST_PARTS = 10_000_000
"""Values and labels of an answer: those of 80,000 series with 30 labels are a quarter."""
_MOST_WARNINGS = 64
_PARTIAL = "the response is partial: a part of the servers did not answer"


class PrometheusError(Exception):
    """An error of the server. Text that it quotes is made printable and bounded here.

    `cause` is a short word that groups equal failures.
    """

    cause = "prometheus"

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class BadAccess(PrometheusError):
    """A URL, a file or an option cannot be used; the message says which, and what to do."""


class NoResponse(PrometheusError):
    """No route, refused, a timeout, overload, or a gateway that reports one of these."""

    cause = "no answer"


class AccessDenied(PrometheusError):
    """A token, a password or a tenant is missing or wrong."""

    cause = "denied"


class QueryRefused(PrometheusError):
    """The query was rejected; the message has the server's own words."""

    cause = "query refused"


class NotPrometheus(PrometheusError):
    """The server has no Prometheus query API."""

    cause = "not prometheus"


class VectorResult(NamedTuple):
    """The result of an instant query: `keys` are labels as JSON, `values` [series]."""

    keys: list[bytes]
    values: Floats


class MatrixResult(NamedTuple):
    """The result of a range query: `values` [series, steps], NaN where a series has none."""

    keys: list[bytes]
    values: Floats


class ExportedSamples(NamedTuple):
    """Stored samples, in any order: `keys` are labels as a line of CSV, a series may occur several
    times; values and seconds since 1970, parallel."""

    keys: list[bytes]
    values: Floats
    times_s: Floats


class StoredSamples(NamedTuple):
    """One series as it was stored: seconds since 1970 and values, parallel."""

    key: bytes
    times_s: Floats
    values: Floats


class _Point(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    value: tuple[float, float]


class _Line(msgspec.Struct, gc=False):
    metric: msgspec.Raw
    values: list[tuple[float, float]]


_Item = TypeVar("_Item")
_Data = TypeVar("_Data")


class _Results(msgspec.Struct, Generic[_Item]):
    result: list[_Item]


class _Response(msgspec.Struct, Generic[_Data]):
    """Any response. `isPartial` is of VictoriaMetrics, `warnings` of Prometheus and Thanos."""

    status: str = ""
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: list[str] = []
    is_partial: bool = msgspec.field(name="isPartial", default=False)
    data: _Data | None = None


# Not strict: the numbers are strings.
_POINTS = msgspec.json.Decoder(_Response[_Results[_Point]], strict=False)
_LINES = msgspec.json.Decoder(_Response[_Results[_Line]], strict=False)
_NAMES = msgspec.json.Decoder(_Response[list[str]])
_ANY = msgspec.json.Decoder(_Response[msgspec.Raw])
_LABELS = msgspec.json.Decoder(dict[str, str])


def parse_vector(body: bytes) -> tuple[VectorResult, list[str]]:
    """The result of an instant query, and warnings. Raises NotPrometheus, QueryRefused."""
    response = _decoded(_POINTS, body)
    points = response.data.result if response.data is not None else []
    values = np.array([point.value[1] for point in points], np.float64)
    return VectorResult(_keys(points), values), _warnings(response)


def parse_matrix(
    body: bytes, start_s: float, step_s: float, steps: int
) -> tuple[MatrixResult, list[str]]:
    """The result of a range query, and warnings. Raises NotPrometheus, QueryRefused."""
    response = _decoded(_LINES, body)
    lines = response.data.result if response.data is not None else []
    if len(lines) * steps > _MOST_VALUES:
        raise QueryRefused(f"{len(lines)} series of {steps} values, {_MOST_VALUES} values at most")
    keys = _keys(lines)
    values = np.full((len(lines), steps), np.nan)
    counts = [len(line.values) for line in lines]
    if sum(counts):
        pairs = np.array(list(chain.from_iterable(line.values for line in lines)))
        at = np.rint((pairs[:, 0] - start_s) / step_s)
        inside = (at >= 0) & (at < steps)
        rows = np.repeat(np.arange(len(lines)), counts)
        values[rows[inside], at[inside].astype(np.intp)] = pairs[inside, 1]
    return MatrixResult(keys, values), _warnings(response)


def _keys(items: Sequence[_Point | _Line]) -> list[bytes]:
    """The labels of series. Raises QueryRefused."""
    keys = [bytes(item.metric) for item in items]
    if max(map(len, keys), default=0) > _MOST_LINE_BYTES:
        raise QueryRefused(f"a series with labels of more than {_MOST_LINE_BYTES:,} bytes")
    return keys


EXPORT_FORMAT = ("__value__", "__timestamp__:unix_ms")
"""The first fields of an export's lines; labels follow."""


def parse_export(body: bytes) -> ExportedSamples:
    """Samples of an export. Raises NotPrometheus, QueryRefused."""
    if body.count(b"\n") > _MOST_SAMPLES:
        raise QueryRefused(f"an export of more than {_MOST_SAMPLES:,} samples")
    keys: list[bytes] = []
    values, times_ms = [np.empty(0)], [np.empty(0)]
    start = 0
    # In parts: the places of all characters of all numbers would take 300 MB.
    while start < len(body):
        end = body.find(b"\n", start + _PART_BYTES) + 1 or len(body)
        if end - start > _PART_BYTES + _MOST_LINE_BYTES:
            raise _line_too_long()
        part_keys, part_values, part_times = _parse_lines(body[start:end])
        keys += part_keys
        values.append(part_values)
        times_ms.append(part_times)
        start = end
    return ExportedSamples(keys, np.concatenate(values), np.concatenate(times_ms) / 1e3)


def _line_too_long() -> QueryRefused:
    return QueryRefused(f"an export with a line of more than {_MOST_LINE_BYTES:,} bytes")


def _parse_lines(lines: bytes) -> tuple[list[bytes], Floats, Floats]:
    """Keys, values and milliseconds since 1970."""
    buffer = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(buffer == _NEWLINE)
    starts = np.concatenate([np.zeros(1, np.intp), ends + 1])[: len(ends)]
    # Two commas beyond the last line: a line without commas finds those of another one.
    commas = np.concatenate([np.flatnonzero(buffer == _COMMA), np.full(2, len(lines))])
    if (ends - starts).max(initial=0) > _MOST_LINE_BYTES:
        raise _line_too_long()
    first = np.searchsorted(commas, starts)
    value_ends, time_ends = commas[first], commas[first + 1]
    if (time_ends > ends).any() or not lines.endswith(b"\n"):
        raise NotPrometheus("the response is not an export of samples")
    spans = zip((time_ends + 1).tolist(), ends.tolist(), strict=True)
    keys = [lines[start:end] for start, end in spans]
    values = _numbers(buffer, starts, value_ends)
    return keys, values, _numbers(buffer, value_ends + 1, time_ends)


def _numbers(buffer: NDArray[np.uint8], starts: Indices, ends: Indices) -> Floats:
    """The numbers written at some places of a buffer. Raises NotPrometheus."""
    lengths = ends - starts
    width = int(lengths.max(initial=1))
    if width > _MAX_NUMBER_BYTES:
        raise NotPrometheus("the response is not an export of samples: a number is too long")
    places = np.minimum(starts[:, None] + np.arange(width), len(buffer) - 1)
    texts = np.where(np.arange(width) < lengths[:, None], buffer[places], np.uint8(0))
    try:
        return texts.view(f"S{width}").ravel().astype(np.float64)
    except ValueError as error:
        raise NotPrometheus(f"the response is not an export of samples: {error}") from None


def parse_exported_labels(key: bytes, names: Sequence[str]) -> dict[str, str] | None:
    """The labels of an exported series that are not empty; None if they are ambiguous."""
    texts = key.decode(errors="replace").split(",")
    # Commas in labels are not quoted.
    if len(texts) != len(names):
        return None
    return {name: text for name, text in zip(names, texts, strict=True) if text}


def parse_samples(body: bytes) -> tuple[list[StoredSamples], list[str]]:
    """Samples as they were stored, and warnings. Raises NotPrometheus, QueryRefused."""
    response = _decoded(_LINES, body)
    lines = response.data.result if response.data is not None else []
    found = []
    for key, line in zip(_keys(lines), lines, strict=True):
        pairs = np.array(line.values, np.float64).reshape(-1, 2)
        found.append(StoredSamples(key, pairs[:, 0], pairs[:, 1]))
    return found, _warnings(response)


def parse_names(body: bytes) -> tuple[list[str], list[str]]:
    """A list of names, and warnings. Raises NotPrometheus, QueryRefused."""
    if body.count(b",") > _MOST_NAMES:
        raise QueryRefused(f"more than {_MOST_NAMES:,} names of metrics")
    response = _decoded(_NAMES, body)
    return response.data or [], _warnings(response)


def parse_labels(key: bytes) -> dict[str, str]:
    """The labels in the raw bytes of a series. Raises NotPrometheus."""
    try:
        return _LABELS.decode(key)
    except MALFORMED as error:
        raise NotPrometheus(f"the labels of a series are malformed: {error}") from None


def parse_error(body: bytes) -> tuple[str, str]:
    """The type and text of the error in a failed response; empty if it is not the API's JSON."""
    try:
        response = _ANY.decode(body)
    except MALFORMED:
        return "", ""
    return response.error_type, response.error


def _decoded(decoder: msgspec.json.Decoder[_Response[_Data]], body: bytes) -> _Response[_Data]:
    # Before they are decoded, where they have five times the size. In a text quotes are escaped.
    series = body.count(b'"metric"')
    if series > _MOST_SERIES:
        raise QueryRefused(f"an answer of {series} series, {_MOST_SERIES} at most")
    if values_in(body) > _MOST_PARTS:
        raise QueryRefused(f"an answer of more than {_MOST_PARTS:,} values")
    try:
        try:
            response = decoder.decode(body)
        except msgspec.ValidationError:
            # `+Inf` is the only spelling of a number that the decoder does not accept.
            response = decoder.decode(body.replace(b'"+Inf"', b'"Inf"'))
    except MALFORMED as error:
        raise NotPrometheus(f"the response is not that of the query API: {error}") from None
    if response.status != _SUCCESS:
        raise QueryRefused(response.error or "the response has neither a result nor an error")
    return response


def _warnings(response: _Response[Any]) -> list[str]:
    return [*response.warnings[:_MOST_WARNINGS], *([_PARTIAL] if response.is_partial else [])]
