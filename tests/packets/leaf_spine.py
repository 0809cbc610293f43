"""A small scene, written by hand: two leaves, two spines, four hosts below each leaf.

Two hosts of leaf01 send to two of leaf02 the whole time. From `ONSET_S` on both flows take the link
from leaf01 to spine01, which is full then and marks packets; the link to spine02 is idle.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.packets.archive import ECMP_COLLISION

SECONDS, ONSET_S = 40, 12
FULL_LINK = "leaf01/swp5"
_BPS = 100e9
_PACKET_BYTES = 4096
_MARKED = 0.05
_PER_LEAF = 4
_FLOWS = (("node001", "node005"), ("node002", "node006"))
_COUNTERS = {
    **dict.fromkeys(("tx_bytes", "rx_bytes", "tx_packets", "rx_packets"), "all"),
    **dict.fromkeys(("pause_rx_us", "pause_tx_us", "pause_rx_frames", "pause_tx_frames"), "all"),
    **dict.fromkeys(("rx_ecn_marked", "cnp_sent", "cnp_handled", "naks"), "nic"),
    **{"tx_drops": "all", "tx_ecn_marked": "switch"},
}


def meta(**changes: Any) -> dict[str, Any]:
    """The description of the scene, with some of its keys changed."""
    leaves, spines = ("leaf01", "leaf02"), ("spine01", "spine02")
    hosts = [f"node{number:03}" for number in range(1, 2 * _PER_LEAF + 1)]
    cables = [
        (f"{host}/mlx5_0", f"{leaves[i // _PER_LEAF]}/swp{i % _PER_LEAF + 1}")
        for i, host in enumerate(hosts)
    ]
    cables += [
        (f"{leaf}/swp{_PER_LEAF + 1 + s}", f"{spine}/swp{n + 1}")
        for n, leaf in enumerate(leaves)
        for s, spine in enumerate(spines)
    ]
    ports = [
        {
            "node": end.partition("/")[0],
            "port": end.partition("/")[2],
            "kind": "nic" if end.startswith("node") else "switch",
            "speed_bps": _BPS,
            "peer": other,
        }
        for cable in cables
        for end, other in (cable, cable[::-1])
    ]
    nodes = [
        {
            "name": name,
            "role": "host" if name in hosts else "switch",
            "watched": True,
            "read_before_tick_s": 0.01 * number,
        }
        for number, name in enumerate([*hosts, *leaves, *spines])
    ]
    link = {"port": FULL_LINK, "group": "leaf01 up", "senders": 2, "slowed_by": 0.5}
    truth = {
        "healthy": False,
        "onset_s": ONSET_S,
        "want": [{"cause": ECMP_COLLISION, "subjects": [FULL_LINK], "need": 1}],
        "allowed": [],
        "congested": [link],
        "shared": [],
    }
    made = {
        "name": "collision",
        "title": "two flows share an uplink",
        "congestion_control": "DCQCN, ECN marks, PFC",
        "routes": True,
        "cabling_known": True,
        "nodes": nodes,
        "ports": ports,
        "counters": {name: {"of": of, "scale": 1} for name, of in _COUNTERS.items()},
        "absent": {},
        "speed_changes": [],
        "truth": truth,
    }
    return made | changes


def write(path: Path, about: dict[str, Any]) -> Path:
    """Write the scene with this description; a healthy one keeps its links apart to the end."""
    column = {f"{port['node']}/{port['port']}": i for i, port in enumerate(about["ports"])}
    peer = {f"{port['node']}/{port['port']}": port["peer"] for port in about["ports"]}
    shape = (SECONDS, len(column))
    counts: dict[str, Any] = {name: np.zeros(shape, np.uint64) for name in about["counters"]}

    def add(port: str, second: int, **more: float) -> None:
        for name, count in more.items():
            counts[name][second, column[port]] += np.uint64(count)

    for second in range(SECONDS):
        is_full = not about["truth"]["healthy"] and second >= ONSET_S
        for number, (sender, receiver) in enumerate(_FLOWS):
            spine = 0 if is_full else number
            sent = _BPS / 8 * (0.495 if is_full else 0.6)
            packets = sent / _PACKET_BYTES
            path_of_flow = (
                f"{sender}/mlx5_0",
                f"leaf01/swp{_PER_LEAF + 1 + spine}",
                f"spine{spine + 1:02}/swp2",
                peer[f"{receiver}/mlx5_0"],
            )
            for port in path_of_flow:
                add(port, second, tx_bytes=sent, tx_packets=packets)
                add(peer[port], second, rx_bytes=sent, rx_packets=packets)
            if is_full:
                marks = packets * _MARKED
                add(FULL_LINK, second, tx_ecn_marked=marks)
                add(f"{receiver}/mlx5_0", second, rx_ecn_marked=marks, cnp_sent=marks / 4)
                add(f"{sender}/mlx5_0", second, cnp_handled=marks / 4)
    times = np.arange(1.0, SECONDS + 1)
    np.savez(path, meta=np.array(json.dumps(about)), tick_times=times, **counts)
    return path
