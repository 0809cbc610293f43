"""What an engine answers: series as the bytes of their labels, and numbers as arrays.

Labels are the dear part of an answer: a thousand nodes say 164,000 label sets a tick, and they are
the same ones every time. So they are kept as they came, compared as bytes, and read once.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.prometheus.errors import NotAnEngine, QueryRefused

Floats = NDArray[np.float64]

_SUCCESS = "success"
_PARTIAL = "the answer is partial: a part of the engine did not answer"


class Vector(NamedTuple):
    """The answer to an instant query: `values` [series]."""

    keys: list[bytes]
    values: Floats


class Matrix(NamedTuple):
    """The answer to a range query: `values` [series, steps], NaN where a series has none."""

    keys: list[bytes]
    values: Floats


class Samples(NamedTuple):
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


def vector(body: bytes) -> tuple[Vector, list[str]]:
    """An instant answer, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_POINTS, body)
    points = answer.data.result if answer.data is not None else []
    values = np.array([point.value[1] for point in points], np.float64)
    return Vector([bytes(point.metric) for point in points], values), _warnings(answer)


def matrix(body: bytes, start_s: float, step_s: float, steps: int) -> tuple[Matrix, list[str]]:
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
    return Matrix([bytes(line.metric) for line in lines], values), _warnings(answer)


def samples(body: bytes) -> tuple[list[Samples], list[str]]:
    """Samples as they were stored, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_LINES, body)
    found = []
    for line in answer.data.result if answer.data is not None else []:
        pairs = np.array(line.values, np.float64).reshape(-1, 2)
        found.append(Samples(bytes(line.metric), pairs[:, 0], pairs[:, 1]))
    return found, _warnings(answer)


def names(body: bytes) -> tuple[list[str], list[str]]:
    """A list of names, and what the engine warns of. Raises NotAnEngine."""
    answer = _decoded(_NAMES, body)
    return answer.data or [], _warnings(answer)


def labels(key: bytes) -> dict[str, str]:
    """The labels that a series' bytes say."""
    return _LABELS.decode(key)


def complaint(body: bytes) -> str:
    """What an answer that is a failure says; empty when it is not the API's JSON."""
    try:
        return _HEAD.decode(body).error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _decoded(decoder: msgspec.json.Decoder[_Answer], body: bytes) -> _Answer:
    try:
        try:
            answer = decoder.decode(body)
        except msgspec.ValidationError:
            # The one spelling of a number that the decoder does not know.
            answer = decoder.decode(body.replace(b'"+Inf"', b'"Inf"'))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotAnEngine(f"its answer is not that of the query API: {error}") from None
    if answer.status != _SUCCESS:
        raise QueryRefused(answer.error or "it says neither success nor why not")
    return answer


def _warnings(answer: _Head) -> list[str]:
    return [*answer.warnings, *([_PARTIAL] if answer.is_partial else [])]
