"""What a gNMI device has said of its interfaces and neighbours, as blocks of the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator

from collectors.wire import Object
from fabmon.feeds.transports import openconfig
from fabmon.feeds.transports.openconfig import COUNTERS, NEIGHBOURS, STATE, Keys, Leaf
from fabmon.feeds.transports.polled import SampleClock, SourceBlock

_TOLERANCE_S = 5.0
_SETTLE_S = 0.05
"""A sample comes in several notifications: one that is newer is complete at the next poll."""
_MISSED_SAMPLES = 3
_MOST_TEXT = 256
_MOST_NEIGHBOURS = 4096
_TURNED_BACK_NS = 1_000_000_000
"""A time that is earlier by more is of a clock that was set, not of a late notification."""


class _Port:
    """What is known of one interface: its values by source, and the device's times of them.

    `said_s` is when the last value of a source came, by the monotonic clock.
    """

    def __init__(self) -> None:
        self.said_s: dict[str, float] = {}
        self.facts: dict[str, int | str] = {}
        self.values: dict[str, dict[str, int]] = {}
        self.stamps_ns: dict[str, int] = {}
        self.sent_ns: dict[str, int] = {}
        self.waiting: set[str] = set()
        self.clocks: dict[str, SampleClock] = {}
        self.blocks: dict[str, SourceBlock] = {}


class _Neighbour:
    """The facts of an LLDP neighbour, and when the device sent one last, by the monotonic clock."""

    def __init__(self) -> None:
        self.facts: dict[str, str] = {}
        self.said_s = 0.0


class GnmiValues:
    """The last values of the interfaces of one device.

    `sample_s` is by source how often the device was asked to send its values; None: on change.
    """

    def __init__(self, interval_s: float) -> None:
        self.sample_s: dict[str, float | None] = {}
        self._interval_s = interval_s
        self._ports: dict[str, _Port] = {}
        self._neighbours: dict[tuple[str, str], _Neighbour] = {}
        self._lldp: tuple[Object, ...] = ()

    @property
    def has_counters(self) -> bool:
        """Whether the counters of any interface have come."""
        return any(COUNTERS in port.values for port in self._ports.values())

    def add(self, leaf: Leaf, stamp_ns: int) -> None:
        """Take a value, of the device's time `stamp_ns`."""
        now_s = time.monotonic()
        if len(leaf.port) > _MOST_TEXT or len(leaf.neighbour) > _MOST_TEXT:
            return
        if leaf.source == NEIGHBOURS:
            key = (leaf.port, leaf.neighbour)
            if key in self._neighbours or len(self._neighbours) < _MOST_NEIGHBOURS:
                neighbour = self._neighbours.setdefault(key, _Neighbour())
                neighbour.facts[leaf.name] = str(leaf.value)[:_MOST_TEXT]
                neighbour.said_s = now_s
            return
        if leaf.port not in self._ports and len(self._ports) >= openconfig.MOST_PORTS:
            return
        port = self._ports.setdefault(leaf.port, _Port())
        if leaf.name in ("ifindex", "type"):
            value = leaf.value
            port.facts[leaf.name] = value[:_MOST_TEXT] if isinstance(value, str) else value
        elif isinstance(leaf.value, int):
            port.values.setdefault(leaf.source, {})[leaf.name] = leaf.value
            port.said_s[leaf.source] = now_s
            before_ns = port.stamps_ns.get(leaf.source, 0)
            is_late = before_ns - _TURNED_BACK_NS < stamp_ns <= before_ns
            port.stamps_ns[leaf.source] = before_ns + 1 if is_late else stamp_ns

    def delete(self, path: tuple[tuple[str, Keys], ...]) -> None:
        """An interface or a neighbour that is gone."""
        keys = {f"{name}/{key}": value for name, own in path for key, value in own.items()}
        port = keys.get("interface/name", "")
        names = [name for name, _ in path]
        if names[:1] == ["lldp"]:
            self._neighbours.pop((port, keys.get("neighbor/id", "")), None)
        elif names == ["interfaces", "interface"]:
            self._ports.pop(port, None)

    def forget(self, source: str) -> None:
        """Drop what a subscription that ended has said: nothing says any more whether it is so."""
        for port in self._ports.values():
            port.values.pop(source, None)
        if source == NEIGHBOURS:
            self._neighbours.clear()

    def blocks(self) -> list[SourceBlock]:
        """The blocks of all interfaces, with the values that have come since the last call."""
        found = [
            block for name in sorted(self._ports) for block in self._blocks(name, self._ports[name])
        ]
        neighbours = self._neighbour_objects()
        if neighbours:
            found.append(SourceBlock(NEIGHBOURS, neighbours, [], time.monotonic_ns()))
        return found

    def _blocks(self, name: str, port: _Port) -> Iterator[SourceBlock]:
        """The blocks of an interface: one of each source, with the device's clock."""
        if not openconfig.is_port(port.facts):
            return
        now_ns = time.monotonic_ns()
        for source, values in port.values.items():
            stamp_ns = port.stamps_ns[source]
            metrics = tuple(values)
            facts = {"netdev": name, "driver": "gnmi", "ifindex": port.facts.get("ifindex")}
            known = {key: value for key, value in facts.items() if value is not None}
            objects = (Object(name, "ethernet", name, known, metrics),)
            before = port.blocks.get(source)
            if before is not None and before.objects == objects:
                objects = before.objects
            block = SourceBlock(source, objects, None, now_ns, self._every(source))
            if source == STATE:
                # On change: what is not sent again is still so.
                if self._is_current(source, port.said_s[source]):
                    block = block._replace(values=list(values.values()))
            elif now_ns / 1e9 - port.said_s[source] < _SETTLE_S and source not in port.waiting:
                port.waiting.add(source)
            elif stamp_ns != port.sent_ns.get(source):
                port.waiting.discard(source)
                clock = port.clocks.setdefault(source, SampleClock(_TOLERANCE_S))
                at_ns = clock.at(stamp_ns, now_ns)
                if at_ns is not None:
                    block = block._replace(values=list(values.values()), mono_ns=at_ns)
                port.sent_ns[source] = stamp_ns
            port.blocks[source] = block
            yield block

    def _neighbour_objects(self) -> tuple[Object, ...]:
        found = []
        for (dev, number), neighbour in sorted(self._neighbours.items()):
            facts = neighbour.facts
            if facts.get("system-name") and self._is_current(NEIGHBOURS, neighbour.said_s):
                info = {"dev": dev, "peer_node": facts["system-name"]}
                for key, name in (("peer_port", "port-id"), ("peer_port_name", "port-description")):
                    if facts.get(name):
                        info[key] = facts[name]
                found.append(Object(f"{dev}/{number}", "neighbour", None, info, ()))
        objects = tuple(found)
        self._lldp = self._lldp if objects == self._lldp else objects
        return self._lldp

    def _is_current(self, source: str, said_s: float) -> bool:
        """Whether what was said is still so: samples that stay away are of what is gone."""
        sample_s = self.sample_s.get(source)
        return sample_s is None or time.monotonic() - said_s <= _MISSED_SAMPLES * sample_s

    def _every(self, source: str) -> int:
        return max(1, round((self.sample_s.get(source) or 0.0) / self._interval_s))
