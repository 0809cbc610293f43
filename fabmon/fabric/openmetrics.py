"""How a metric of the catalog is called in Prometheus, and back.

A name is `fabmon_` and the catalog's name, with Prometheus' base units in the unit's place and at
the end: `pfc_rx_pause_us_prio3` is `fabmon_pfc_rx_pause_prio3_seconds_total`. docs/metrics.md has
the rule for people. Every name stands for one metric, whatever its labels are.

    unit      in Prometheus        a value of 1 there is, in the catalog
    bytes     _bytes               1
    us        _seconds             1,000,000
    seconds   _seconds             1
    bps       _bytes_per_second    8
    percent   _ratio               100
    others    no unit              1

Counters end in `_total` behind that, levels do not. Bits and bit/s become bytes, since promtool
warns of any other unit of data. Bits that FEC mended are events and no amount of data: theirs is
`_bit_events`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from collectors.catalog import CATALOG, GAUGE, Metric
from fabmon.fabric.wire.messages import Hello, ObjectInfo

PREFIX = "fabmon_"

_UNITS: dict[str, tuple[str, float]] = {
    "bytes": ("bytes", 1),
    "us": ("seconds", 1_000_000),
    "seconds": ("seconds", 1),
    "bps": ("bytes_per_second", 8),
    "percent": ("ratio", 100),
}
"""Unit of the catalog -> unit of Prometheus, and how much of the first makes one of the second."""

_OWN_WORD = {"seconds": "events", "bits": "bits"}
"""The last word of a name that says the unit in another way than the unit itself."""

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})

_PRIORITY = re.compile(r"_prio\d$")


class Exposed(NamedTuple):
    """A metric of the catalog as Prometheus has it.

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
    """What a sample of Prometheus stands for: its value times `factor` is the metric's, in the
    catalog's unit."""

    metric: str
    factor: float


def exposed(metric: Metric) -> Exposed:
    """How a metric of the catalog is called."""
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
"""Name in the catalog -> how it is called in Prometheus."""

_MEANT = {shown.sample: MetricMapping(name, shown.factor) for name, shown in EXPOSED.items()}


def meant(sample: str) -> MetricMapping | None:
    """The metric that a sample's name stands for; None when it is none of ours."""
    return _MEANT.get(sample)


def head(family: str, type_: str, unit: str, help_: str) -> str:
    """The lines before a family's samples; no UNIT where `unit` is empty."""
    said = f"# TYPE {family} {type_}\n"
    if unit:
        said += f"# UNIT {family} {unit}\n"
    return f"{said}# HELP {family} {help_}\n"


class SamplePosition(NamedTuple):
    """Where one series of a node's frames is: value `position` of block `block`.

    `labels` tell it from all others of its metric, `item` is the object that it belongs to.
    """

    block: int
    position: int
    item: ObjectInfo
    labels: str


def places_of(
    hello: Hello, common: Mapping[str, Any] | None = None
) -> dict[str, list[SamplePosition]]:
    """Metric of the catalog -> where its values are; `common` are labels to have in front."""
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
    """The labels that tell an object from all others of its node."""
    names: dict[str, Any] = {} if item.node is None else {"node": item.node}
    if item.port is not None:
        names["port"] = item.port
    elif item.id != "node":
        names["object"] = item.id
    return {**names, "kind": item.kind, "source": source}


def labels(pairs: Mapping[str, Any]) -> str:
    """Labels as they stand behind a name, in braces, escaped."""
    inside = ",".join(f'{key}="{str(value).translate(_ESCAPES)}"' for key, value in pairs.items())
    return f"{{{inside}}}"


def maximum(kind: str) -> int | None:
    """Where a counter of a kind of the catalog sticks: its true value is not known there."""
    bits = kind.removeprefix("sat")
    return 2 ** int(bits) - 1 if bits != kind else None
