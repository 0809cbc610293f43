"""The answer to a scrape: the last values as Prometheus text or OpenMetrics (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from collectors.catalog import CATALOG
from fabmon.agent.streams import ProbeState
from fabmon.fabric.openmetrics import (
    EXPOSED,
    OPENMETRICS,
    PREFIX,
    PROMETHEUS,
    SamplePosition,
    head,
    labels,
    maximum,
    sample_positions,
)
from fabmon.fabric.wire.messages import Hello

_FACTS = (
    "netdev",
    "rdma",
    "rdma_port",
    "link_layer",
    "driver",
    "pci",
    "pcie_speed_gtps",
    "pcie_width",
    "numa_node",
    "mac",
    "guid",
    "hca_type",
    "board_id",
    "fw_ver",
    "bytes_from",
    "pcie_from",
)
"""Labels of `fabmon_port_info`, where known; collectors/readers/device_facts.py describes them."""

_SATURATED = f"{PREFIX}saturated"
_SATURATED_HELP = "the counter is at its maximum, where it sticks: its true value is not known"


class _Family(NamedTuple):
    """One metric: its head lines, and the positions of its values.

    `maximum` is the value at which a counter sticks; there its true value is not known.
    """

    heads: Mapping[str, str]
    sample: str
    metric: str
    factor: float
    maximum: int | None
    places: list[SamplePosition]


class Exposition:
    """The text of the values that follow one hello. `content_type` is OPENMETRICS or PROMETHEUS."""

    def __init__(self, hello: Hello) -> None:
        self._sources = [block.source for block in hello.blocks]
        self._families = list(_families(hello))
        self._infos = {style: _infos(hello, style) for style in (OPENMETRICS, PROMETHEUS)}

    def text(self, state: ProbeState, content_type: str, now_ns: int, *, is_fresh: bool) -> str:
        """The page at `now_ns`. Without fresh frames it has no values, and no source is up."""
        parts = [self._infos[content_type]]
        parts += self._state(state, content_type, now_ns, is_fresh=is_fresh)
        if is_fresh:
            parts += self._values(state, content_type)
        if content_type == OPENMETRICS:
            parts.append("# EOF\n")
        return "".join(parts)

    def _values(self, state: ProbeState, content_type: str) -> Iterator[str]:
        blocks = state.blocks
        saturated = []
        for family in self._families:
            lines = []
            for place in family.places:
                block = blocks[place.block]
                value = None if block is None else block[place.position]
                if value is None:
                    continue
                if value == family.maximum:
                    saturated.append(
                        f'{_SATURATED}{{metric="{family.metric}",{place.labels[1:]} 1\n'
                    )
                    continue
                shown = value if family.factor == 1 else value / family.factor
                lines.append(f"{family.sample}{place.labels} {shown}\n")
            if lines:
                yield family.heads[content_type]
                yield from lines
        if saturated:
            yield head(_SATURATED, "gauge", "", _SATURATED_HELP, content_type)
            yield from saturated

    def _state(
        self, state: ProbeState, content_type: str, now_ns: int, *, is_fresh: bool
    ) -> Iterator[str]:
        help_ = "1 when the source is read; 0 with the reason when not"
        yield head(f"{PREFIX}source_up", "gauge", "", help_, content_type)
        for source in sorted({*self._sources, *state.lost}):
            notice = state.lost.get(source)
            reason = notice.reason if notice is not None else "" if is_fresh else "late"
            named = labels({"source": source, "reason": reason})
            yield f"{PREFIX}source_up{named} {0 if reason else 1}\n"
        ages = {
            source: (now_ns - at) / 1e9
            for source, at in sorted(state.read_at_ns.items())
            if source in self._sources
        }
        if ages:
            help_ = "time since the source was read"
            yield head(f"{PREFIX}source_age_seconds", "gauge", "seconds", help_, content_type)
        for source, age_s in ages.items():
            named = labels({"source": source})
            yield f"{PREFIX}source_age_seconds{named} {max(0.0, age_s):.3f}\n"


def _families(hello: Hello) -> Iterator[_Family]:
    """The metrics of a hello in the catalog's order, so that samples of a metric are adjacent."""
    places = sample_positions(hello)
    for name, row in CATALOG.items():
        if name in places:
            shown = EXPOSED[name]
            heads = {
                style: head(shown.family, shown.type, shown.unit, row.meaning, style)
                for style in (OPENMETRICS, PROMETHEUS)
            }
            yield _Family(heads, shown.sample, name, shown.factor, maximum(row.kind), places[name])


def _infos(hello: Hello, style: str) -> str:
    """The info metrics: of the node, and of each port the facts of all its sources together."""
    node = {"hostname": hello.hostname, "kernel": hello.kernel, "probe": hello.probe}
    ports: dict[tuple[str | None, str], dict[str, Any]] = {}
    for block in hello.blocks:
        for item in block.objects:
            if item.port is not None:
                facts = ports.setdefault((item.node, item.port), {"kind": item.kind})
                facts.update({key: item.info[key] for key in _FACTS if key in item.info})
    help_ = "the node, and the probe that reads it"
    lines = [head(f"{PREFIX}node", "info", "", help_, style)]
    lines.append(f"{PREFIX}node_info{labels(node)} 1\n")
    if ports:
        help_ = "a port, and the known facts about it"
        lines.append(head(f"{PREFIX}port", "info", "", help_, style))
    for (other, port), facts in ports.items():
        names = {"port": port} if other is None else {"node": other, "port": port}
        lines.append(f"{PREFIX}port_info{labels({**names, **facts})} 1\n")
    return "".join(lines)
