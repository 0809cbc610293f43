"""Queue pairs for tests: the reports of hosts, written as connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from collectors.wire import Object
from fabmon.fabric.flows.queue_pairs import QueuePairs, queue_pairs_of
from tests.builders import hello

Pair = dict[str, Any]


class Wires:
    """Connections between ports, `node/port` each; each host reports its end."""

    def __init__(self) -> None:
        self._pairs: dict[str, list[Pair]] = defaultdict(list)
        self._processes: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def connect(
        self, one: str, other: str, lqpn: int, rqpn: int, *, job: str = "", psn: int = 0
    ) -> Wires:
        """Add a queue pair at each of two ports. The first sends `psn`, the other one more."""
        self.end(one, lqpn, rqpn, job=job, sq_psn=psn, rq_psn=psn and psn + 1)
        self.end(other, rqpn, lqpn, job=job, sq_psn=psn and psn + 1, rq_psn=psn)
        return self

    def end(
        self, port: str, lqpn: int, rqpn: int, *, job: str = "", sq_psn: int = 0, rq_psn: int = 0
    ) -> Wires:
        """Add one end only: the other is not watched."""
        process = {"comm": "python3", "pid": 4711} | ({"job": job} if job else {})
        processes = self._processes[port]
        if process not in processes:
            processes.append(process)
        pair = {"lqpn": lqpn, "rqpn": rqpn, "sq_psn": sq_psn, "rq_psn": rq_psn, "type": "RC"}
        self._pairs[port].append({**pair, "process": processes.index(process)})
        return self

    def report(self, port: str) -> Object:
        """The report of a host about one of its ports."""
        pairs, name = self._pairs[port], port.partition("/")[2]
        keys = ("lqpn", "rqpn", "type", "sq_psn", "rq_psn", "process")
        info = {key: [pair[key] for pair in pairs] for key in keys}
        about = {"port": name, "count": len(pairs), "processes": self._processes[port]}
        return Object(f"qps/{name}", "queue_pairs", None, {**info, **about}, ())


RAILS = 8


def ring(hosts: Sequence[str]) -> Wires:
    """A ring over the hosts on every rail, two queue pairs a connection."""
    wires = Wires()
    for rail in range(RAILS):
        for place, host in enumerate(hosts):
            after = hosts[(place + 1) % len(hosts)]
            for qp in range(2):
                own = 1000 * rail + 100 * place + 7 * qp + 64
                wires.connect(
                    f"{host}/mlx5_{rail}", f"{after}/mlx5_{rail}", own, own + 50, job="8812"
                )
    return wires


def reported_pairs(
    wires: Wires, hosts: Sequence[str], *silent: str
) -> tuple[tuple[str, QueuePairs], ...]:
    """The reports of those hosts about their NICs; the silent ones send none."""
    found = []
    for host in hosts:
        host_hello = hello(*(wires.report(f"{host}/mlx5_{rail}") for rail in range(RAILS)))
        pairs = queue_pairs_of(host_hello)
        if host not in silent and pairs is not None:
            found.append((host, pairs))
    return tuple(found)
