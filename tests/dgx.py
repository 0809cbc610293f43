"""A simulated cluster of DGX-like hosts: the demo's rails under the names of a DGX H100, dual-port
storage cards that write checkpoints, and an Ethernet frontend with SSH and the default route."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from fabmon.fabric.model import Host
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import BlockInfo, Frame, Hello, MetricInfo, ObjectInfo
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import FabricShape, Job, Scenario
from tests.fixtures.hosts import DGX_RAILS, DGX_STORAGE

RAILS = tuple(DGX_RAILS)
_NAMES = {f"mlx5_{rail}": f"mlx5_{number}" for rail, number in enumerate(RAILS)}
_BUSES = {f"mlx5_{rail}": bus for rail, bus in enumerate(DGX_RAILS.values())}
_NETDEVS = {f"ib{rail}": f"ibp{bus}s0" for rail, bus in enumerate(DGX_RAILS.values())}

_FRONTENDS = {"eno3": ("0000:0b:00.0", "ixgbe", 10), "ens6f0": ("0000:82:00.0", "ice", 100)}
"""Interface -> PCI address, driver, Gb/s; the first is before all HCAs."""

_NETDEV = ("netdev_up", "netdev_tx_bytes", "netdev_rx_bytes")
_SSH_BYTES_PER_S = 200_000
_CHECKPOINT_EVERY_S, _CHECKPOINT_S, _CHECKPOINT_BYTES_PER_S = 60, 12, 30_000_000_000


class DgxFeed:
    """Ticks of `hosts` DGX-like hosts that train over their rails."""

    def __init__(self, hosts: int = 16, compute_s: float = 1.0) -> None:
        shape = FabricShape(kind="fat-tree", hosts=hosts, rails=8, gpus=8)
        job = Job(name="train", compute_s=compute_s, payload_gb=60.0, demand=0.7)
        self._feed = DemoFeed(Scenario(topology=shape, job=(job,)))
        self._hosts = [host.name for host in self._feed.hosts if host.name.startswith("gpu")]
        self._hellos: dict[str, Hello] = {}
        self._written = 0

    @property
    def hosts(self) -> list[Host]:
        """The watched nodes."""
        return self._feed.hosts

    def step(self) -> Tick:
        """The next tick."""
        tick = self._feed.step()
        if tick.seq % _CHECKPOINT_EVERY_S >= _CHECKPOINT_EVERY_S - _CHECKPOINT_S:
            self._written += _CHECKPOINT_BYTES_PER_S
        hellos = []
        for name, hello in tick.hellos:
            own = self._hello(name, hello) if name in self._hosts else hello
            self._hellos[name] = own
            hellos.append((name, own))
        frames = [
            (name, self._frame(name, frame) if name in self._hosts else frame)
            for name, frame in tick.frames
        ]
        return msgspec.structs.replace(tick, hellos=tuple(hellos), frames=tuple(frames))

    def _hello(self, name: str, hello: Hello) -> Hello:
        address = f"10.20.0.{self._hosts.index(name) + 1}"
        blocks = [_renamed(block) for block in hello.blocks]
        blocks = [_with_storage(block) if block.source == "ib" else block for block in blocks]
        routes = ObjectInfo(
            "addresses/ens6f0",
            "addresses",
            None,
            {"dev": "ens6f0", "addresses": [f"{address}/24"], "default_route": True},
            (),
        )
        frontends = [
            ObjectInfo(
                dev,
                "ethernet",
                dev,
                {"netdev": dev, "pci": pci, "driver": driver, "line_rate_bps": gbps * 10**9},
                _NETDEV,
            )
            for dev, (pci, driver, gbps) in _FRONTENDS.items()
        ]
        blocks += [
            BlockInfo("netdev", 1, tuple(frontends)),
            BlockInfo("routes", 10, (routes,)),
        ]
        metrics = {metric: MetricInfo("bytes", "wrap64") for metric in _NETDEV[1:]}
        return msgspec.structs.replace(
            hello,
            layout=f"{hello.layout}-dgx",
            blocks=tuple(blocks),
            metrics={**hello.metrics, **metrics, "netdev_up": MetricInfo("", "gauge")},
            reached_at=address,
        )

    def _frame(self, name: str, frame: Frame) -> Frame:
        blocks = list(frame.blocks)
        for place, info in enumerate(self._hellos[name].blocks):
            own = blocks[place] if place < len(blocks) else None
            if info.source == "ib" and own is not None:
                up = own[1]
                values = [up, self._written, frame.seq * 1_000, 0, 0, 0]
                blocks[place] = [*own, *(values * len(DGX_STORAGE))]
        sent = frame.seq * _SSH_BYTES_PER_S
        blocks += [[frame.mono_ns, *([1, sent, sent] * len(_FRONTENDS))], None]
        return Frame(frame.seq, frame.wall_ns, frame.mono_ns, blocks)


def _renamed(block: BlockInfo) -> BlockInfo:
    """The block with the names and PCI addresses of a DGX."""
    return msgspec.structs.replace(block, objects=tuple(_object(item) for item in block.objects))


def _object(item: ObjectInfo) -> ObjectInfo:
    info: dict[str, Any] = dict(item.info)
    for key, names in (("rdma", _NAMES), ("port", _NAMES), ("netdev", _NETDEVS), ("dev", _NETDEVS)):
        if key in info:
            info[key] = names.get(info[key], info[key])
    if item.port in _BUSES and "pci" in info:
        info |= {"pci": f"0000:{_BUSES[item.port]:02x}:00.0", "line_rate_bps": 400 * 10**9}
    return msgspec.structs.replace(
        item, id=_text(item.id), port=item.port and _text(item.port), info=info
    )


def _text(name: str) -> str:
    kind, slash, last = name.rpartition("/")
    known: Mapping[str, str] = {**_NAMES, **_NETDEVS}
    return f"{kind}{slash}{known.get(last, last)}"


def _with_storage(block: BlockInfo) -> BlockInfo:
    first = block.objects[0]
    cards = [
        ObjectInfo(
            f"mlx5_{number}",
            first.kind,
            f"mlx5_{number}",
            {
                **first.info,
                "rdma": f"mlx5_{number}",
                "netdev": f"ibp{bus}s0f{function}",
                "mac": f"02:00:00:00:{number:02x}:{function:02x}",
                "guid": f"{number:04x}",
                "pci": f"0000:{bus:02x}:00.{function}",
            },
            first.metrics,
        )
        for number, (bus, function) in DGX_STORAGE.items()
    ]
    return msgspec.structs.replace(block, objects=(*block.objects, *cards))
