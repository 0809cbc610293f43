"""`fabmon export --format openmetrics`: raw counters with their times, series by series.

Names and labels are those of an agent's `/metrics`, with `instance` for the node. OpenMetrics wants
the samples of a series together, and those of a family; see fabmon/recording/spool.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from collectors.catalog import CATALOG
from fabmon.fabric.model import Host
from fabmon.fabric.openmetrics import EXPOSED, Exposed, Place, head, maximum, places_of
from fabmon.fabric.subject import subject
from fabmon.fabric.tick import Tick
from fabmon.history.history import History
from fabmon.recording.spool import Bools, Layout, Spool, Times, Values
from fabmon.report.selection import Links

Wanted = Callable[[str, Place], bool]
"""Whether a series of a node is to be exported."""


def families(spool: Spool, wanted: Wanted) -> Iterator[tuple[float, str]]:
    """The text in pieces, each with the share of it that is done, 0 to 1.

    A counter that stands at its maximum, where it sticks, is absent, as is what was not read.
    """
    nodes = {
        node: [(layout, places_of(layout.hello, {"instance": node})) for layout in layouts]
        for node, layouts in spool.nodes.items()
    }
    there = {name for layouts in nodes.values() for _, places in layouts for name in places}
    names = [name for name in CATALOG if name in there]
    for count, name in enumerate(names):
        shown, row = EXPOSED[name], CATALOG[name]
        begun = False
        for number, (node, layouts) in enumerate(nodes.items()):
            for labels, parts in _series(layouts, name).items():
                text = "".join(
                    _samples(spool, layout, place, f"{shown.sample}{labels}", shown, row.kind)
                    for layout, place in parts
                    if wanted(node, place)
                )
                if text and not begun:
                    begun = True
                    yield 0.0, head(shown.family, shown.type, shown.unit, row.meaning)
                if text:
                    yield (count + number / len(nodes)) / len(names), text
    yield 1.0, "# EOF\n"


def _series(
    layouts: list[tuple[Layout, dict[str, list[Place]]]], name: str
) -> dict[str, list[tuple[Layout, Place]]]:
    """By labels: where a series is in one layout after the other."""
    series: dict[str, list[tuple[Layout, Place]]] = {}
    for layout, places in layouts:
        for place in places.get(name, ()):
            series.setdefault(place.labels, []).append((layout, place))
    return series


def _samples(
    spool: Spool, layout: Layout, place: Place, series: str, shown: Exposed, kind: str
) -> str:
    times_ms = spool.times_ms(layout, place.block)
    values, known = spool.values(layout, place.block, place.position)
    times_ms, values = _told(times_ms, values, known, maximum(kind))
    numbers = values.tolist() if shown.factor == 1 else (values / shown.factor).tolist()
    return "".join(
        [
            f"{series} {value} {ms // 1000}.{ms % 1000:03}\n"
            for value, ms in zip(numbers, times_ms.tolist(), strict=True)
        ]
    )


def _told(
    times_ms: Times, values: Values, known: Bools | None, most: int | None
) -> tuple[Times, Values]:
    """Without what is not known."""
    if most is not None:
        free = values != np.uint64(most)
        known = free if known is None else known & free
    return (times_ms, values) if known is None else (times_ms[known], values[known])


def series_of(spool: Spool, hosts: Sequence[Host], links: Links) -> Wanted:
    """What some filters leave, by the names and the cabling that the nodes told of last."""
    if not links:
        return lambda node, place: True
    hellos = tuple((node, layouts[-1].hello) for node, layouts in spool.nodes.items() if layouts)
    moment = History(hosts).accept(Tick(0, 0, hellos=hellos))
    mask = links.of(moment)
    given = {host.name: host for host in hosts}
    wanted = {
        (port.node, port.name)
        for port in moment.fabric.ports
        if mask is None or (port.node and mask[port.row])
    }

    def is_wanted(node: str, place: Place) -> bool:
        about = subject(place.item, given[node], given)
        return place.item.port is not None and (about, place.item.port) in wanted

    return is_wanted
