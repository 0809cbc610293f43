"""Real traffic: one iperf3 client and server for each UDP flow."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab import netns
from tests.lab.netns import LabError
from tests.lab.tap import Datagram, Tap

PAYLOAD_BYTES = 1400
"""UDP payload of a datagram: fits the MTU, because fragments carry no ports to hash."""

OVERHEAD_BYTES = 42
"""Ethernet, IP and UDP headers, which the kernel's counters count and iperf3's rate does not."""

_FOREVER_S = 86_400
"""The longest run iperf3 accepts."""

_ATTEMPTS = 30
_GREETING_S = 1.0
"""A full link may lose iperf3's single greeting datagram; it would wait 30 s for the answer."""


@dataclass
class Flow:
    """A UDP flow that `start` starts, and `pause` or `stop` ends; its ports are its own until then.

    `mbps` is the rate on the wire in megabits per second, Ethernet header included, as the ports
    count it. `uplink` is the port of the source's leaf it takes, None if it stays below the leaf
    or was left to the hash. `sport` is 0 where the kernel chose.
    """

    src: str
    dst: str
    uplink: str | None
    mbps: float
    sport: int
    dport: int
    src_ns: str
    dst_ns: str
    dst_address: str
    log: Path
    on_stop: Callable[[], None] = lambda: None
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> Flow:
        """Start server and client; returns once its data arrives."""
        for _ in range(_ATTEMPTS):
            with Tap(self.dst_ns) as tap:
                self._spawn_server()
                self._spawn_client()
                if any(self._is_data(seen) for seen in tap.watch(_GREETING_S)):
                    return self
            self._end_processes()
        raise LabError(f"iperf3 {self.src} -> {self.dst} does not connect: {self.log.read_text()}")

    def pause(self) -> None:
        """End the flow at once; `start` starts it again with the same ports."""
        self._end_processes()

    def stop(self) -> None:
        """End the flow at once, for good; safe to call twice."""
        self._end_processes()
        self.on_stop()
        self.on_stop = lambda: None

    @property
    def running(self) -> bool:
        """Whether the client still sends."""
        return bool(self._running) and self._running[-1].poll() is None

    def _spawn_server(self) -> None:
        argv = ["iperf3", "--server", "--one-off", "--port", str(self.dport)]
        server = _spawn(self.dst_ns, argv, self.log.with_suffix(".server.log"))
        self._running.append(server)
        deadline = time.monotonic() + 30.0
        while not listens(server.pid, self.dport):
            if server.poll() is not None or time.monotonic() > deadline:
                raise LabError(f"iperf3 does not listen on {self.dst} port {self.dport}")
            time.sleep(0.005)

    def _spawn_client(self) -> None:
        payload_bps = self.mbps * 1e6 * PAYLOAD_BYTES / (PAYLOAD_BYTES + OVERHEAD_BYTES)
        argv = ["iperf3", "--udp", "--client", self.dst_address, "--port", str(self.dport)]
        argv += ["--length", str(PAYLOAD_BYTES), "--bitrate", str(round(payload_bps))]
        argv += ["--time", str(_FOREVER_S), "--interval", "0"]
        if self.sport:
            argv += ["--cport", str(self.sport)]
        self._running.append(_spawn(self.src_ns, argv, self.log))

    def _is_data(self, seen: Datagram) -> bool:
        """Whether a datagram at the destination is payload of this flow, not its greeting."""
        return seen.dport == self.dport and seen.size_bytes == PAYLOAD_BYTES

    def _end_processes(self) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait()
        self._running.clear()


def _spawn(ns: str, argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(
            netns.argv_in(ns, argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def listens(pid: int, port: int) -> bool:
    """Whether something in the network namespace of `pid` listens on TCP `port`."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == "0A" and int(local.rpartition(":")[2], 16) == port:
                return True
    return False
