"""Why an engine cannot be read.

EngineError         the message says what, and where there is something to do, what to do
|-- NoAnswer        no route, refused, a timeout, too busy now, or a gateway that says so
|-- Denied          it wants a token, a password or a tenant, or does not take the one given
|-- QueryRefused    it understood the question and did not take it; its own words
`-- NotAnEngine     whatever answers there is no query API of Prometheus
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.wire.messages import clean


class PrometheusError(Exception):
    """The engine's trouble. What it quotes is made printable and bounded here.

    `cause` is a short word that groups equal failures.
    """

    cause = "engine"

    def __init__(self, message: str) -> None:
        super().__init__(clean(message))


class NoResponse(PrometheusError):
    """No route, refused, a timeout, too busy now, or a gateway that says so."""

    cause = "no answer"


class AccessDenied(PrometheusError):
    """It wants a token, a password or a tenant, or does not take the one given."""

    cause = "denied"


class QueryRefused(PrometheusError):
    """It understood the question and did not take it; its own words."""

    cause = "query refused"


class NotPrometheus(PrometheusError):
    """Whatever answers there is no query API of Prometheus."""

    cause = "no engine"


# What an engine answers: series as the bytes of their labels, and numbers as arrays.
#
# Labels are the dear part of an answer: a thousand nodes say 164,000 label sets a tick, and they
# are the same ones every time. So they are kept as they came, compared as bytes, and read once.


Floats = NDArray[np.float64]

_SUCCESS = "success"
_PARTIAL = "the answer is partial: a part of the engine did not answer"


class VectorResult(NamedTuple):
    """The answer to an instant query: `values` [series]."""

    keys: list[bytes]
    values: Floats


class MatrixResult(NamedTuple):
    """The answer to a range query: `values` [series, steps], NaN where a series has none."""

    keys: list[bytes]
    values: Floats


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


class _Head(msgspec.Struct):
    """What every answer has. VictoriaMetrics says `isPartial`, Thanos and Prometheus `warnings`."""

    status: str = ""
    error_type: str = msgspec.field(name="errorType", default="")
    error: str = ""
    warnings: list[str] = []
    is_partial: bool = msgspec.field(name="isPartial", default=False)


class _Points(msgspec.Struct):
    result: list[_Point]


class _Lines(msgspec.Struct):
    result: list[_Line]


class _PointsAnswer(_Head):
    data: _Points | None = None


class _LinesAnswer(_Head):
    data: _Lines | None = None


class _NamesAnswer(_Head):
    data: list[str] | None = None


_Answer = TypeVar("_Answer", bound=_Head)

# Not strict: the numbers are in strings.
_POINTS = msgspec.json.Decoder(_PointsAnswer, strict=False)
_LINES = msgspec.json.Decoder(_LinesAnswer, strict=False)
_NAMES = msgspec.json.Decoder(_NamesAnswer)
_HEAD = msgspec.json.Decoder(_Head)
_LABELS = msgspec.json.Decoder(dict[str, str])


def vector(body: bytes) -> tuple[VectorResult, list[str]]:
    """An instant answer, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_POINTS, body)
    points = answer.data.result if answer.data is not None else []
    values = np.array([point.value[1] for point in points], np.float64)
    return VectorResult([bytes(point.metric) for point in points], values), _warnings(answer)


def matrix(
    body: bytes, start_s: float, step_s: float, steps: int
) -> tuple[MatrixResult, list[str]]:
    """A range answer, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_LINES, body)
    lines = answer.data.result if answer.data is not None else []
    values = np.full((len(lines), steps), np.nan)
    counts = [len(line.values) for line in lines]
    if sum(counts):
        pairs = np.array(list(chain.from_iterable(line.values for line in lines)))
        at = np.rint((pairs[:, 0] - start_s) / step_s).astype(np.intp)
        inside = (at >= 0) & (at < steps)
        rows = np.repeat(np.arange(len(lines)), counts)
        values[rows[inside], at[inside]] = pairs[inside, 1]
    return MatrixResult([bytes(line.metric) for line in lines], values), _warnings(answer)


def samples(body: bytes) -> tuple[list[StoredSamples], list[str]]:
    """Samples as they were stored, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_LINES, body)
    found = []
    for line in answer.data.result if answer.data is not None else []:
        pairs = np.array(line.values, np.float64).reshape(-1, 2)
        found.append(StoredSamples(bytes(line.metric), pairs[:, 0], pairs[:, 1]))
    return found, _warnings(answer)


def names(body: bytes) -> tuple[list[str], list[str]]:
    """A list of names, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_NAMES, body)
    return answer.data or [], _warnings(answer)


def labels(key: bytes) -> dict[str, str]:
    """The labels that a series' bytes say. Raises NotAnEngine."""
    try:
        return _LABELS.decode(key)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotPrometheus(f"the labels of a series are not those of an engine: {error}") from None


def complaint(body: bytes) -> tuple[str, str]:
    """The type of error and its text that a failure says; empty when it is not the API's JSON."""
    try:
        head = _HEAD.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "", ""
    return head.error_type, head.error


def _decoded(decoder: msgspec.json.Decoder[_Answer], body: bytes) -> _Answer:
    try:
        try:
            answer = decoder.decode(body)
        except msgspec.ValidationError:
            # The one spelling of a number that the decoder does not know.
            answer = decoder.decode(body.replace(b'"+Inf"', b'"Inf"'))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotPrometheus(f"its answer is not that of the query API: {error}") from None
    if answer.status != _SUCCESS:
        raise QueryRefused(answer.error or "it says neither success nor why not")
    return answer


def _warnings(answer: _Head) -> list[str]:
    return [*answer.warnings, *([_PARTIAL] if answer.is_partial else [])]
