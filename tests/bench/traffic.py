"""Bursty training traffic as counters of some nodes: ticks at 1 Hz.

Jobs of 16 nodes compute and communicate in turns of 6 to 14 s, 30 to 60 % of it communication. In
it a port carries about 85 % of 400 Gb/s: the job's pace varies by 2 % from second to second, a
port by 0.5 % beside, and reading it by 0.01 %. What a node receives is what its neighbour in the
ring sent. Packets are of 4,174 bytes, and some 20,000 small ones a second. Three ports in ten are
congested in a second (waiting, ECN, CNPs, drawn from exponential distributions); retransmissions,
symbol errors and the kernel's own traffic are rare. Clocks jitter by 20 us, reads by 70 us.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import WORD, Frame, Hello
from tests.builders import SECOND_NS, START_NS, hello, port

PORTS = 8
METRICS = (
    "ib_state", "ib_rate_bps", "ib_tx_bytes", "ib_rx_bytes", "ib_tx_packets", "ib_rx_packets",
    "ib_tx_wait", "ib_symbol_errors", "ib_link_downed", "ib_rx_errors", "ib_tx_discards",
    "rdma_ecn_marked", "rdma_cnp_sent", "rdma_cnp_handled", "rdma_out_of_sequence",
    "rdma_packet_sequence_errors", "rdma_retransmits", "rdma_ack_timeouts",
    "rdma_rnr_nak_retries", "netdev_up", "netdev_tx_bytes", "netdev_rx_bytes", "netdev_tx_drops",
    "netdev_carrier_changes",
)  # fmt: skip

_LINE_BYTES = 50e9
_PACKET_BYTES = 4174
_PER_JOB = 16

Floats = NDArray[np.float64]


class Traffic:
    """Counters of `nodes` x PORTS x METRICS; `step` advances them by a second."""

    def __init__(self, nodes: int, seed: int = 1) -> None:
        rng = self._rng = np.random.default_rng(seed)
        self.nodes = nodes
        self._shape = (nodes, PORTS)
        self.values = np.zeros((nodes, PORTS, len(METRICS)), np.uint64)
        for place, name in enumerate(METRICS):
            self.values[..., place] = self._start(name)
        jobs = max(1, nodes // _PER_JOB)
        self._job = np.arange(nodes) * jobs // nodes
        self._period = rng.uniform(6, 14, jobs)
        self._duty = rng.uniform(0.3, 0.6, jobs)
        self._phase = rng.uniform(0, 10, jobs)
        self._now_s = 0.0
        self.names = [f"gpu{number:04}" for number in range(nodes)]

    @property
    def hosts(self) -> list[Host]:
        """The nodes as hosts."""
        return [Host(name=name) for name in self.names]

    def hellos(self) -> tuple[tuple[str, Hello], ...]:
        """The hello of each node."""
        return tuple(
            (name, hello(*(port(f"mlx5_{r}", f"{name}-{r}", METRICS) for r in range(PORTS))))
            for name in self.names
        )

    def step(self) -> None:
        """Advance by a second of traffic."""
        rng, shape = self._rng, self._shape
        share = (self._done(self._now_s + 1) - self._done(self._now_s)) * self._period
        pace = share * (1 + 0.02 * rng.standard_normal(len(share)))
        level = 0.85 + 0.1 * np.sin(self._now_s / 40 + self._job)
        sent = (_LINE_BYTES * level * pace[self._job])[:, None] * self._about_1(0.005)
        busy = (share[self._job] > 0)[:, None]
        small = rng.poisson(200, shape) + busy * rng.poisson(20_000, shape)
        tx, rx = sent * self._about_1(1e-4), np.roll(sent, 1, axis=0) * self._about_1(1e-4)
        self._add("ib_tx_bytes", np.rint(tx / 4) * 4)
        self._add("ib_rx_bytes", np.rint(rx / 4) * 4)
        self._add("ib_tx_packets", tx / _PACKET_BYTES + small)
        self._add("ib_rx_packets", rx / _PACKET_BYTES + np.roll(small, 1, axis=0))
        congested = busy & (rng.random(shape) < 0.3)
        marked = congested * rng.exponential(2e4, shape)
        self._add("ib_tx_wait", congested * rng.exponential(3e7, shape))
        self._add("rdma_ecn_marked", marked)
        self._add("rdma_cnp_sent", marked / 3)
        self._add("rdma_cnp_handled", congested * rng.exponential(7e3, shape))
        self._add("rdma_out_of_sequence", self._rare(2e-3) * busy * rng.integers(1, 50, shape))
        self._add("rdma_retransmits", self._rare(1e-3) * busy * rng.integers(1, 50, shape))
        self._add("ib_symbol_errors", self._rare(1e-4))
        kernel = self._rare(0.05)
        self._add("netdev_tx_bytes", kernel * rng.integers(60, 4000, shape))
        self._add("netdev_rx_bytes", kernel * rng.integers(60, 6000, shape))
        self._now_s += 1

    def tick(self, seq: int, hellos: Sequence[tuple[str, Hello]] = ()) -> Tick:
        """A tick with the frames of all nodes, as arrays: nodes send packed frames."""
        late_ns = np.abs(self._rng.normal(0, 2e4, self.nodes)).astype(np.int64)
        read_ns = self._rng.integers(20_000, 90_000, self.nodes)
        mono_ns = (10**15 + seq * SECOND_NS + late_ns).tolist()
        values = self.values.reshape(self.nodes, -1).tolist()
        frames = tuple(
            (name, Frame(seq, START_NS + mono, mono, [array(WORD, (mono + read, *row))]))
            for name, mono, read, row in zip(
                self.names, mono_ns, read_ns.tolist(), values, strict=True
            )
        )
        statuses = tuple(NodeStatus(name, NodeState.UP, START_NS) for name, _ in hellos)
        time_ns = START_NS + seq * SECOND_NS
        return Tick(seq, time_ns, hellos=tuple(hellos), frames=frames, statuses=statuses)

    def _start(self, name: str) -> NDArray[np.uint64]:
        fixed = {"ib_state": 4, "netdev_up": 1, "ib_rate_bps": 400_000_000_000}
        if name in fixed:
            return np.full(self._shape, fixed[name], np.uint64)
        most = 1 << (48 if "bytes" in name else 36 if "packets" in name else 32)
        if "error" in name or "downed" in name or "discards" in name or "changes" in name:
            most = 40
        return (self._rng.integers(0, most, self._shape) // 4 * 4).astype(np.uint64)

    def _done(self, now_s: float) -> Floats:
        """Communication so far, in periods."""
        turns = (now_s + self._phase) / self._period
        done: Floats = np.floor(turns) * self._duty + np.minimum(turns % 1, self._duty)
        return done

    def _about_1(self, spread: float) -> Floats:
        return 1 + spread * self._rng.standard_normal(self._shape)

    def _rare(self, chance: float) -> NDArray[np.bool_]:
        return self._rng.random(self._shape) < chance

    def _add(self, name: str, amount: NDArray[np.generic]) -> None:
        count = np.maximum(np.rint(np.asarray(amount, np.float64)), 0).astype(np.uint64)
        self.values[..., METRICS.index(name)] += count


def ticks(nodes: int, count: int, seed: int = 1) -> Iterator[Tick]:
    """`count` ticks of `nodes` nodes; the first has their hellos."""
    traffic = Traffic(nodes, seed)
    for seq in range(count):
        yield traffic.tick(seq, traffic.hellos() if not seq else ())
        traffic.step()
