"""Open vSwitch in user space with two veths, in a network namespace of its own: real sFlow, read by
fabmon and by pmacct.

`unshare --net --mount python -m tests.unit.feeds.sflow_in_namespace DIRECTORY` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, aclosing, suppress
from pathlib import Path
from typing import Any

from fabmon.analysis.evidence.flows_on_link import sampled_on_link
from fabmon.fabric.model import SWITCH, Host
from fabmon.feeds.live import LiveFeed
from fabmon.feeds.sflow import receiver
from fabmon.report.sampled_flows import sampled_ports
from fabmon.session.session import Session
from tests.fixtures import sflow

PORT, PEER_PORT = 6343, 6344
SAMPLING = 10
FRAMES = 12_000
PAYLOAD = 1000
SPORTS = (49_153, 49_154, 49_155)
MACS = (b"\x02\0\0\0\0\x01", b"\x02\0\0\0\0\x02")
SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
DAEMON = Path("/usr/sbin")


def run(*argv: str, **more: Any) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, **more)


def set_up(directory: Path, stack: ExitStack) -> None:
    """The veths, Open vSwitch with sFlow to both collectors, and pmacct."""
    run("mount", "-t", "sysfs", "sysfs", "/sys")
    for line in (
        "link set lo up",
        "link add s1 type veth peer name h1",
        "link add s2 type veth peer name h2",
        *(f"link set {name} addrgenmode none" for name in ("s1", "h1", "s2", "h2")),
        *(f"link set {name} up" for name in ("s1", "h1", "s2", "h2")),
    ):
        run("ip", *line.split())
    os.environ |= {f"OVS_{name}DIR": str(directory) for name in ("RUN", "DB", "SYSCONF", "LOG")}
    database, sock = directory / "conf.db", f"unix:{directory}/db.sock"
    run("ovsdb-tool", "create", str(database), SCHEMA)

    def daemon(*argv: str) -> None:
        log = (directory / f"{Path(argv[0]).name}.log").open("w")
        process = subprocess.Popen(argv, stdout=log, stderr=log, cwd=directory)
        stack.callback(process.wait)
        stack.callback(process.terminate)

    daemon(str(DAEMON / "ovsdb-server"), f"--remote=p{sock}", str(database))
    wait_for((directory / "db.sock").exists)
    run("ovs-vsctl", f"--db={sock}", "--no-wait", "init")
    daemon(str(DAEMON / "ovs-vswitchd"), "--disable-system", sock)
    config = {
        "plugins": "print",
        "aggregate": "src_host,dst_host,src_port,dst_port,proto",
        "sfacctd_ip": "127.0.0.1",
        "sfacctd_port": str(PEER_PORT),
        "sfacctd_renormalize": "true",
        "print_refresh_time": "1",
        "print_output": "json",
        "print_output_file": str(directory / "flows.json"),
        "print_output_file_append": "true",
    }
    (directory / "pmacct.conf").write_text("".join(f"{k}: {v}\n" for k, v in config.items()))
    daemon(str(DAEMON / "sfacctd"), "-f", str(directory / "pmacct.conf"))
    targets = ",".join(f'"127.0.0.1:{port}"' for port in (PORT, PEER_PORT))
    bridge = "add-br br0 -- set bridge br0 datapath_type=netdev -- add-port br0 s1"
    agent = f"create sflow agent=lo target=[{targets}] header=128 sampling={SAMPLING} polling=1"
    line = f"{bridge} -- add-port br0 s2 -- --id=@s {agent} -- set bridge br0 sflow=@s"
    run("ovs-vsctl", f"--db={sock}", *line.split())


def wait_for(is_ready: Callable[[], bool], patience_s: float = 240.0) -> None:
    until_s = time.monotonic() + patience_s
    while not is_ready():
        assert time.monotonic() < until_s, "not ready in time"
        time.sleep(0.05)


class Hosts:
    """The two ends: raw frames of RoCE through the switch."""

    def __init__(self) -> None:
        self._raw = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW) for _ in range(2)]
        for raw, name in zip(self._raw, ("h1", "h2"), strict=True):
            raw.bind((name, 0))

    def send(self, count: int, end: int = 0) -> int:
        """Send frames of three flows in turn; the bytes of each."""
        body = bytes(PAYLOAD)
        frames = []
        for place, sport in enumerate(SPORTS):
            packet = sflow.udp(sport, 4791, sflow.bth(0x100 + place) + body)
            ends = ("10.1.0.1", "10.1.0.2")
            frame = sflow.ipv4(ends[end], ends[1 - end], 17, packet)
            frames.append(MACS[1 - end] + MACS[end] + b"\x08\x00" + frame)
        for number in range(count):
            self._raw[end].send(frames[number % len(frames)])
            if number % 50 == 0:
                time.sleep(0.002)  # the switch's one thread drops what comes faster
        return len(frames[0])


def kernel_bytes(name: str) -> int:
    return int(Path(f"/sys/class/net/{name}/statistics/rx_bytes").read_text())


def by_peer(directory: Path) -> dict[str, int]:
    """Packets by UDP source port, as pmacct estimates them."""
    packets: dict[str, int] = {}
    path = directory / "flows.json"
    for line in path.read_text().splitlines() if path.exists() else ():
        flow = json.loads(line)
        if flow["port_dst"] == 4791:
            key = str(flow["port_src"])
            packets[key] = packets.get(key, 0) + flow["packets"]
    return packets


async def scene(directory: Path) -> dict[str, Any]:
    """Frames from h1 to h2: what fabmon shows of s1 and s2, and what the kernel counts."""
    receiver.BATCH_S = 3.0
    session = Session.load(None)
    leaf = Host(name="leaf1", address="127.0.0.1", via="sflow", role=SWITCH)
    feed = session.live_feed([leaf], 1.0, f"127.0.0.1:{PORT}")
    pipeline = session.pipeline([leaf], 1.0)
    hosts = Hosts()
    seen: dict[str, Any] = {}
    sending: asyncio.Task[int] | None = None
    flows: dict[str, list[Any]] = {}
    async with aclosing(feed), asyncio.timeout(240):
        async for tick in feed:
            snapshot = pipeline.accept(tick).snapshot
            ports = {port.name: port for port in snapshot.fabric.ports}
            if sending is None:
                if {"s1", "s2"} <= set(ports):
                    hosts.send(3, end=1)  # the switch learns where h2 is
                    sending = asyncio.create_task(asyncio.to_thread(hosts.send, FRAMES))
                continue
            for batch in tick.sampled:
                for each in batch.flows:
                    key = f"{each.if_index} {each.way} {each.flow.sport}"
                    count = flows.setdefault(key, [0, 0, each.flow.qp])
                    count[0] += each.samples
                    count[1] += each.bytes
                seen["rate"] = batch.rate
            found = sampled_on_link(snapshot, [ports["s2"].row], "tx")
            if found is not None and found.flows and "shown" not in seen:
                seen["shown"] = [
                    (each.flow.sport if each.flow else 0, each.samples, each.error_percent)
                    for each in found.flows
                ]
            if sending.done() and tick.sampled and "shown" in seen:
                size = sending.result()
                break
        listed = sampled_ports(snapshot.sampled) if snapshot.sampled else []
        counted = await counters(feed, ports["s1"].info["ifindex"])
    return {
        **seen,
        "index": {name: each.info["ifindex"] for name, each in ports.items()},
        "flows": flows,
        "frame_bytes": size,
        "listed": [[each.port, each.direction, each.sampling_rate] for each in listed],
        "interval": snapshot.fabric.ports[ports["s1"].row].info["counters"],
        "up": float(snapshot.column("netdev_up")[ports["s1"].row]),
        "counted": counted,
        "kernel": kernel_bytes("s1"),
        "state": str(snapshot.statuses["leaf1"].state),
        "unmatched": list(snapshot.sampled.unmatched) if snapshot.sampled else [],
    }


async def counters(feed: LiveFeed, index: int) -> int | None:
    """The bytes that the switch counts as received by an interface, once they are the kernel's."""
    kept = feed._receiver
    assert kept is not None
    counted = None
    for _ in range(300):
        (port, *_), *_ = [(kept.counters("leaf1") or {})[index]]
        counted = port.rx_bytes
        if counted == kernel_bytes("s1"):
            break
        await asyncio.sleep(0.1)
    return counted


def main(directory: Path) -> None:
    with ExitStack() as stack:
        set_up(directory, stack)
        seen = asyncio.run(scene(directory))
        expected = sum(seen["flows"][key][0] for key in seen["flows"] if " rx " in key)
        with suppress(AssertionError):  # what differs is printed
            wait_for(lambda: sum(by_peer(directory).values()) >= SAMPLING * expected)
        print(json.dumps({**seen, "pmacct": by_peer(directory)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
