"""Metric names of the catalog in OpenMetrics form, and the reverse mapping.

A name is `fabmon_` and the catalog's name, with Prometheus' base unit at the end:
`pfc_rx_pause_us_prio3` is `fabmon_pfc_rx_pause_prio3_seconds_total`. docs/metrics.md explains the
rule. Every name is one metric, whatever its labels are.

    unit      in Prometheus        1 in Prometheus is, in the catalog
    bytes     _bytes               1
    us        _seconds             1,000,000
    seconds   _seconds             1
    bps       _bytes_per_second    8
    percent   _ratio               100
    others    no unit              1

Counters end in `_total`, gauges do not. bit/s become bytes per second, since promtool warns about
other units of data. Bits corrected by FEC are events, not data: their suffix is `_bit_events`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from collectors.catalog import CATALOG, GAUGE, Metric
from fabmon.fabric.wire.messages import Hello, ObjectInfo

PREFIX = "fabmon_"

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
"""The two content types of a page, which are the styles of its text."""

_UNITS: dict[str, tuple[str, float]] = {
    "bytes": ("bytes", 1),
    "us": ("seconds", 1_000_000),
    "seconds": ("seconds", 1),
    "bps": ("bytes_per_second", 8),
    "percent": ("ratio", 100),
}
"""Unit of the catalog -> unit of Prometheus, and the factor between them."""

_OWN_WORD = {"seconds": "events", "bits": "bits"}
"""The last word of names whose unit word differs from the unit."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_PRIORITY = re.compile(r"_prio\d$")


Samples = Iterable[tuple[Mapping[str, Any], object]]
"""Labels and value of each sample."""


class Exposed(NamedTuple):
    """A metric of the catalog in OpenMetrics form.

    `family` is the name in OpenMetrics' TYPE, HELP and UNIT lines, `sample` that of the values:
    the same with `_total` for a counter. `type` is `counter` or `gauge`, `unit` empty where there
    is no base unit. A value times `factor` is in the catalog's unit.
    """

    family: str
    sample: str
    type: str
    unit: str
    factor: float


class MetricMapping(NamedTuple):
    """The catalog metric of a Prometheus sample: sample value times `factor` is in the catalog's
    unit."""

    metric: str
    factor: float


def exposed(metric: Metric) -> Exposed:
    """The OpenMetrics form of a metric."""
    unit, factor = _UNITS.get(metric.unit, ("", 1))
    priority = _PRIORITY.search(metric.name)
    stem = metric.name[: priority.start()] if priority else metric.name
    word = _OWN_WORD.get(metric.unit, metric.unit)
    if unit or metric.unit == "bits":
        stem = stem.removesuffix(f"_{word}")
    parts = [stem, priority[0][1:] if priority else "", unit]
    if metric.unit == "bits":
        parts.append("bit_events")
    family = PREFIX + "_".join(part for part in parts if part)
    if metric.kind == GAUGE:
        return Exposed(family, family, "gauge", unit, factor)
    return Exposed(family, f"{family}_total", "counter", unit, factor)


EXPOSED: dict[str, Exposed] = {name: exposed(metric) for name, metric in CATALOG.items()}
"""Name in the catalog -> its OpenMetrics form."""

_MEANT = {shown.sample: MetricMapping(name, shown.factor) for name, shown in EXPOSED.items()}


def meant(sample: str) -> MetricMapping | None:
    """The metric of a sample name; None if it is not a name of fabmon."""
    return _MEANT.get(sample)


def head(family: str, type_: str, unit: str, help_: str, style: str = OPENMETRICS) -> str:
    """The TYPE, UNIT and HELP lines of a family, in OPENMETRICS or PROMETHEUS; no UNIT where `unit`
    is empty. The older style has no units and no info metrics, and names families as samples."""
    if style == PROMETHEUS:
        name = f"{family}_total" if type_ == "counter" else family
        name, type_ = (f"{family}_info", "gauge") if type_ == "info" else (name, type_)
        return f"# TYPE {name} {type_}\n# HELP {name} {help_}\n"
    said = f"# TYPE {family} {type_}\n"
    if unit:
        said += f"# UNIT {family} {unit}\n"
    return f"{said}# HELP {family} {help_}\n"


def family_lines(
    name: str,
    type_: str,
    unit: str,
    help_: str,
    samples: Samples,
    style: str = OPENMETRICS,
) -> list[str]:
    """The lines of a family, whose name is without PREFIX: its head, then labels and value of each
    sample; none without samples. Older readers take the UNIT lines of a gauge as comments."""
    named = PREFIX + name
    sample = named + {"counter": "_total", "info": "_info"}.get(type_, "")
    lines = [f"{sample}{labels(pairs) if pairs else ''} {value}\n" for pairs, value in samples]
    return [head(named, type_, unit, help_, style), *lines] if lines else []


def choose_content_type(accept: str) -> str:
    """The content type for an `Accept` header: OpenMetrics only where it is preferred."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip().lower() for piece in part.split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    openmetrics, plain = weights.values()
    return OPENMETRICS if openmetrics > 0 and openmetrics >= plain else PROMETHEUS


def _weight(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        match = re.fullmatch(r"q=(\d(?:\.\d{0,3})?)", parameter)
        if match is not None:
            return float(match[1])
    return 1.0


class SamplePosition(NamedTuple):
    """The position of a series in a node's frames: value `position` of block `block`.

    `labels` distinguish it from the other series of its metric; `item` is its object.
    """

    block: int
    position: int
    item: ObjectInfo
    labels: str


def sample_positions(
    hello: Hello, common: Mapping[str, Any] | None = None
) -> dict[str, list[SamplePosition]]:
    """Metric of the catalog -> positions of its values; `common` are labels to put first."""
    places: dict[str, list[SamplePosition]] = {}
    seen: set[tuple[str, str]] = set()
    for at, block in enumerate(hello.blocks):
        position = 1
        for item in block.objects:
            names = {**(common or {}), **_naming(item, block.source)}
            said = labels(names)
            for metric in item.metrics:
                if (metric, said) in seen:
                    said = labels({**names, "object": item.id})
                seen.add((metric, said))
                if metric in EXPOSED:
                    places.setdefault(metric, []).append(SamplePosition(at, position, item, said))
                position += 1
    return places


def _naming(item: ObjectInfo, source: str) -> dict[str, Any]:
    """The labels that distinguish an object from the others of its node."""
    names: dict[str, Any] = {} if item.node is None else {"node": item.node}
    if item.port is not None:
        names["port"] = item.port
    elif item.id != "node":
        names["object"] = item.id
    return {**names, "kind": item.kind, "source": source}


def labels(pairs: Mapping[str, Any]) -> str:
    """The labels after a name: in braces, escaped."""
    inside = ",".join(f'{key}="{str(value).translate(_ESCAPES)}"' for key, value in pairs.items())
    return f"{{{inside}}}"


def maximum(kind: str) -> int | None:
    """The value at which a counter of this kind saturates; None if it does not."""
    bits = kind.removeprefix("sat")
    return 2 ** int(bits) - 1 if bits != kind else None
