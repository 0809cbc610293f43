"""Scenes of a fabric whose traffic is a pure function of the tick.

A training step of 12 ticks: 4 of computing, 8 of communicating. From `COLLIDES` on, leaf1's up5
carries two flows and its up6 none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectors.catalog import CATALOG
from fabmon.analysis.finding import Change, Evidence, Finding
from fabmon.analysis.scene import Event, Scene
from fabmon.fabric.flows.flow_table import Connections
from fabmon.fabric.flows.queue_pairs import QueuePairs
from fabmon.fabric.heat_columns import HEAT
from fabmon.fabric.model import GPU, HOST, NVLINK, UPLINK, Fabric, Node, Port
from fabmon.fabric.snapshot import Floats, Rows, Snapshot
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.fabric.wire.messages import Notice
from tests.tui.fabrics import fabric

START_NS = 1_795_270_000_000_000_000
"""2026-11-21 14:06:40 UTC."""
LINE = 400e9
STEP = 12


@dataclass(frozen=True)
class World:
    """A fabric and its faults, from which the scene of any tick can be made.

    `collides` is the first tick of the collision (None for never); `down` are rows without
    carrier; `quiet` are nodes that fell silent, and when; `failed` were never reached, and why.
    `gap` are ticks of which nothing is known. `broken` names counters that no port has. `stuck`
    are rows whose `ib_tx_wait` sticks at its maximum; `paused` those that priority 3 was paused on,
    and the share of time. `queue_pairs` are those that nodes report.
    """

    fabric: Fabric = field(default_factory=fabric)
    line_bps: float = LINE
    collides: int | None = None
    down: tuple[int, ...] = ()
    quiet: tuple[tuple[str, int], ...] = ()
    failed: tuple[tuple[str, str, str], ...] = ()
    connecting: tuple[str, ...] = ()
    gap: range = range(0)
    broken: tuple[str, ...] = ("cnp",)
    notices: tuple[tuple[str, Notice], ...] = ()
    stuck: tuple[int, ...] = ()
    paused: tuple[tuple[int, float], ...] = ()
    queue_pairs: tuple[tuple[str, QueuePairs], ...] = ()

    @cached_property
    def connections(self) -> Connections:
        """The RDMA connections that the nodes report."""
        return Connections(self.fabric, dict(self.queue_pairs))

    @cached_property
    def _jitter(self) -> Floats:
        return np.random.default_rng(7).random((64, len(self.fabric.ports)), dtype=np.float32)

    @cached_property
    def _uplinks(self) -> NDArray[np.bool_]:
        return np.array([port.role == UPLINK for port in self.fabric.ports])

    @cached_property
    def _spined(self) -> NDArray[np.bool_]:
        ports = self.fabric.ports
        return np.array([p.peer is not None and ports[p.peer].role == UPLINK for p in ports])

    def util(self, seq: int) -> tuple[Floats, Floats]:
        """(tx, rx) shares of line rate of all ports, before anything is wrong with the nodes."""
        busy = 0.0 if seq % STEP < 4 else 0.86
        tx = np.clip(busy * (0.94 + 0.06 * self._jitter[seq % 64]), 0, 1).astype(np.float32)
        core = self._uplinks | self._spined
        tx[core] *= 0.55
        peers = np.array([-1 if p.peer is None else p.peer for p in self.fabric.ports])
        if self.collides is not None and seq >= self.collides and busy:
            hot, idle = self.guilty
            tx[hot], tx[idle] = 0.982, 0.0
            for row in self.victims:
                tx[row] *= 0.52
        rx = np.where(peers >= 0, tx[peers], np.float32(np.nan))
        inside = np.array([port.role in (GPU, NVLINK) for port in self.fabric.ports])
        rx[inside] = tx[inside] * np.float32(0.9)
        return tx, rx

    @property
    def guilty(self) -> tuple[int, int]:
        """The rows of the uplink that collides and of the one that it left empty."""
        rows = self.fabric.groups[0].rows
        return (rows[4], rows[5]) if len(rows) > 5 else (rows[-2], rows[-1])

    @property
    def victims(self) -> tuple[int, ...]:
        """The rows of the NICs whose flows share the hot uplink."""
        names = [node.name for node in self.fabric.nodes if node.role == HOST]
        wanted = {names[min(1, len(names) - 1)], names[min(3, len(names) - 1)]}
        return tuple(p.row for p in self.fabric.ports if p.node in wanted and p.label == "r3")

    def window(self, column: str, rows: Sequence[int] | Rows, ticks: int, end_seq: int) -> Floats:
        """The rate history of every snapshot."""
        out = np.full((len(rows), ticks), np.nan, dtype=np.float32)
        for place in range(ticks):
            seq = end_seq - ticks + 1 + place
            if seq >= 0 and seq not in self.gap:
                out[:, place] = self.heat(seq)[HEAT.index(column)][list(rows)]
        return out

    def worst(self, ticks: int, end_seq: int) -> Floats:
        """The rate history of every snapshot."""
        out = np.full(ticks, np.nan, dtype=np.float32)
        for place in range(ticks):
            seq = end_seq - ticks + 1 + place
            if seq >= 0 and seq not in self.gap:
                top = 0.0 if seq % STEP < 4 else 0.83
                hot = self.collides is not None and seq >= self.collides and top
                out[place] = 0.98 if hot else top + 0.01 * (seq % 3)
        return out

    def heat(self, seq: int) -> Floats:
        """[HEAT, ports] of a tick."""
        if seq not in self._heats:
            self._heats[seq] = self._heat(seq)
        return self._heats[seq]

    @cached_property
    def _heats(self) -> dict[int, Floats]:
        return {}

    def _heat(self, seq: int) -> Floats:
        tx, rx = self.util(seq)
        heat = np.zeros((len(HEAT), len(tx)), dtype=np.float32)
        heat[0], heat[1] = tx * self.line_bps, rx * self.line_bps
        if self.collides is not None and seq >= self.collides and seq % STEP >= 4:
            hot, _ = self.guilty
            heat[HEAT.index("ecn"), hot] = 12_300
            heat[HEAT.index("pause_rx"), hot] = 0.081
        heat[HEAT.index("stall"), list(self.stuck)] = np.nan
        for row, share in self.paused:
            heat[HEAT.index("pause_rx"), row] = share
        for name in self.broken:
            heat[HEAT.index(name)] = np.nan
        for node, since in self.quiet:
            if seq >= since:
                heat[:, [p.row for p in self.fabric.node(node).ports]] = np.nan
        heat[:2, list(self.down)] = 0
        return heat

    def scene(self, seq: int) -> Scene:
        """The scene of a tick."""
        snapshot = self._moment(seq)
        findings = self._findings(seq, snapshot.time_ns)
        began = [finding for finding in findings if finding.since_ns == snapshot.time_ns]
        events = [
            Event(finding.since_ns, 0, "finding", f"open {finding.cause} {finding.subject}")
            for finding in findings
        ]
        events += [
            Event(START_NS + since * 10**9, since, "node", f"{node} lost")
            for node, since in self.quiet
            if seq >= since + 5
        ]
        events.sort(key=lambda event: event.time_ns)
        return Scene(
            snapshot, tuple(findings), tuple((Change.OPEN, f) for f in began), tuple(events)
        )

    def _moment(self, seq: int) -> Snapshot:
        ports = len(self.fabric.ports)
        heat = self.heat(seq)
        rates = np.full(ports, self.line_bps, dtype=np.float32)
        ages = np.full(ports, 0.2, dtype=np.float32)
        last = heat.copy()
        for node, since in self.quiet:
            if seq >= since:
                rows = [p.row for p in self.fabric.node(node).ports]
                ages[rows] = seq - since + 1
                last[:, rows] = replace(self, quiet=()).heat(since - 1)[:, rows]
        up = np.ones(ports, dtype=np.float32)
        up[list(self.down)] = 0
        columns = {name: place for place, name in enumerate(CATALOG)}
        values = np.full((ports, len(columns)), np.nan, dtype=np.float32)
        inside = np.array([port.role in (GPU, NVLINK) for port in self.fabric.ports])
        for here, stem in ((~inside, "netdev"), (inside, "nvlink")):
            for column, way in enumerate(("tx", "rx")):
                values[here, columns[f"{stem}_{way}_bytes"]] = heat[column, here] / 8
        values[:, columns["netdev_up"]] = up
        values[:, columns["netdev_tx_drops"]] = 0
        for row, share in self.paused:
            values[row, columns["pfc_rx_pause_us_prio3"]] = share * 1e6
        return Snapshot(
            seq=seq,
            time_ns=START_NS + seq * 10**9,
            interval_s=1.0,
            fabric=self.fabric,
            statuses=self._statuses(seq),
            notices={name: (notice,) for name, notice in self.notices},
            probe_cpu={node.name: 0.0004 for node in self.fabric.nodes if node.ports},
            columns=columns,
            values=values,
            heat=heat,
            last_heat=last,
            line_rate_bps=rates,
            best_line_rate_bps=rates,
            tx_util=heat[0] / rates,
            rx_util=heat[1] / rates,
            up=up,
            was_up=np.ones(ports, dtype=np.bool_),
            age_s=ages,
            period_s=np.ones(ports, dtype=np.float32),
            saturated=np.zeros(ports, dtype=np.bool_),
            past=self,
            aligned=_SampledTogether(self),
            connections=self.connections,
            stuck=np.array(
                [row * len(columns) + columns["ib_tx_wait"] for row in self.stuck], np.intp
            ),
        )

    def _statuses(self, seq: int) -> dict[str, NodeStatus]:
        statuses = {
            node.name: NodeStatus(node.name, NodeState.UP, START_NS) for node in self.fabric.nodes
        }
        for name in self.connecting:
            statuses[name] = NodeStatus(name, NodeState.CONNECTING, START_NS, "connecting to it")
        for name, reason, cause in self.failed:
            statuses[name] = NodeStatus(name, NodeState.FAILED, START_NS, reason, cause)
        for name, since in self.quiet:
            if seq >= since:
                state = NodeState.LOST if seq >= since + 5 else NodeState.STALE
                reason = "the connection broke" if state is NodeState.LOST else "no frame from it"
                since_ns = START_NS + since * 10**9
                statuses[name] = NodeStatus(name, state, since_ns, reason, "connection")
        return statuses

    def _findings(self, seq: int, now_ns: int) -> list[Finding]:
        findings = []
        if self.collides is not None and seq >= self.collides + 3:
            findings.append(self._collision(START_NS + (self.collides + 3) * 10**9))
        seen: set[int | None] = set()
        for row in self.down:
            if row in seen:
                continue
            seen.add(self.fabric.ports[row].peer)
            findings.append(_down(self.fabric.ports[row], self.fabric, START_NS + 10**9))
        for name, since in self.quiet:
            if seq >= since + 5:
                findings.append(lost(self.fabric.node(name), START_NS + (since + 5) * 10**9))
        return findings

    def _collision(self, since_ns: int) -> Finding:
        hot, idle = self.guilty
        port = self.fabric.ports[hot]
        rows = self.fabric.groups[0].rows
        victims = [f"{self.fabric.ports[r].node} r3" for r in self.victims]
        return Finding(
            cause="ecmp_collision",
            severity="critical",
            subject=port.id,
            rows=(hot, *(row for row in rows if row != hot)),
            text=f"{port.node} {port.label} sends at 98 % of line rate while its group of"
            f" {len(rows)} is at 47 %; the group loses 52 %"
            f" ({self.fabric.ports[idle].label} idle)",
            evidence=(
                Evidence("link util", 98.2, "%"),
                Evidence("group mean", 47.1, "%"),
                Evidence("lost bandwidth", 52.0, "%"),
                Evidence("group links", len(rows), "links"),
                Evidence("hot ticks", 5, "of 5"),
            ),
            advice="Give the hash more to work with: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on"
            " the queue pair or adaptive routing on the switch.",
            since_ns=since_ns,
            confidence=0.95,
            lost=0.52,
            victims=tuple(victims),
            unseen="the spines' own counters",
        )


def _down(port: Port, fabric_: Fabric, since_ns: int) -> Finding:
    other = "" if port.peer is None else f" to {fabric_.ports[port.peer].display_name}"
    rows = (port.row,) if port.peer is None else (port.row, port.peer)
    return Finding(
        cause="link_down", severity="critical", subject=port.id,
        rows=rows, text=f"{port.display_name}{other} is down", evidence=(),
        advice="Look at the cable and the optics, then at the log of the switch for this port.",
        since_ns=since_ns, confidence=1.0, lost=1.0,
    )  # fmt: skip


def lost(node: Node, since_ns: int) -> Finding:
    return Finding(
        cause="node_lost", severity="critical", subject=node.name,
        rows=tuple(port.row for port in node.ports),
        text=f"{node.name} is lost: the connection broke",
        evidence=(Evidence("cause", "connection"),),
        advice="fabmon keeps trying; look at the node's console or its BMC.",
        since_ns=since_ns, confidence=1.0, lost=1.0,
        unseen="whether the node is down, or only our way to it",
    )  # fmt: skip


def row_of(world: World, port: str) -> int:
    return next(p.row for p in world.fabric.ports if p.id == port)


@dataclass(frozen=True)
class _SampledTogether:
    """The rates of a world whose ports are all sampled at the same instants."""

    world: World

    def window(self, column: str, ticks: int, end_seq: int, rows: Rows | None = None) -> Floats:
        wanted = range(len(self.world.fabric.ports)) if rows is None else rows
        return self.world.window(column, wanted, ticks, end_seq)

    def spread_s(self, ticks: int, end_seq: int) -> float:
        return 0.0
