"""A switch of veths in a network namespace of its own, and its real snmpd.

`unshare --net --mount python -m tests.unit.feeds.snmp_in_namespace SCENE DIRECTORY` prints JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import Frame, Hello
from fabmon.feeds.probe_input import ProbeSettings
from fabmon.feeds.transports import snmp
from fabmon.feeds.transports.snmp import SnmpTransport
from tests.unit.feeds.session_reading import read_messages, values_of
from tests.unit.feeds.snmp_server import COMMUNITY, Snmpd

FRAMES, SIZE = 2000, 1400
PACED_FRAMES = 366
PACED_BPS = PACED_FRAMES * SIZE * 8
_COUNTERS = {
    "phy_tx_bytes": "tx_bytes",
    "phy_rx_bytes": "rx_bytes",
    "phy_tx_packets": "tx_packets",
    "phy_rx_packets": "rx_packets",
    "phy_rx_discards": "rx_dropped",
    "phy_tx_errors": "tx_errors",
}


def set_up() -> None:
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    for line in (
        "link set lo up",
        "link add swp1 type veth peer name far1",
        "link add swp2 type veth peer name far2",
        "link set swp1 addrgenmode none alias uplink",
        "link set far1 addrgenmode none",
        "link set swp1 up",
        "link set far1 up",
    ):
        subprocess.run(["ip", *line.split()], check=True)


def send_frames(count: int) -> None:
    """Send real frames of known size from swp1."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind(("swp1", 0))
        frame = b"\xff" * 6 + b"\x02" * 6 + b"\x88\xb5" + bytes(SIZE - 14)
        for _ in range(count):
            raw.send(frame)


def of_kernel(name: str) -> dict[str, int]:
    base = Path("/sys/class/net") / name / "statistics"
    return {metric: int((base / file).read_text()) for metric, file in _COUNTERS.items()}


async def table(directory: Path) -> dict[str, Any]:
    """The output of `fabmon --once` for the switch while frames pass through it."""
    agent, secret = begin(directory)
    hosts = directory / "hosts.txt"
    hosts.write_text(f"switch7 via=snmp address=127.0.0.1 port={agent.port} secret={secret}\n")
    # The agent has the first rates after 10 s: --once waits for 15.
    code = "from fabmon.session import printing; printing._ONCE_S = 60; from fabmon.cli import main"
    program = [sys.executable, "-c", f"{code}; main.main()", "--hosts", str(hosts), "--once"]
    process = await asyncio.create_subprocess_exec(
        *program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    done = asyncio.create_task(process.communicate())
    while not done.done():
        send_frames(10)
        await asyncio.sleep(0.01)
    agent.kill()
    out, errors = await done
    return {"status": process.returncode, "out": out.decode(), "errors": errors.decode()}


async def rates(directory: Path) -> dict[str, Any]:
    """What fabmon shows of the switch while frames pass through it at a constant rate."""
    agent, secret = begin(directory)
    hosts = directory / "hosts.txt"
    hosts.write_text(f"switch7 via=snmp address=127.0.0.1 port={agent.port} secret={secret}\n")
    stopped = threading.Event()
    sender = threading.Thread(target=send_paced, args=(stopped,))
    sender.start()
    program = [str(Path(sys.executable).with_name("fabmon")), "--hosts", str(hosts)]
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            [*program, "--format", "jsonl", "--duration", "30"],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        stopped.set()
        sender.join()
        agent.kill()
    return {"out": done.stdout}


def send_paced(stopped: threading.Event) -> None:
    """Send frames from swp1 at a constant rate, until stopped."""
    # Before all others, where that is permitted: a busy machine does not make the rate another one.
    with suppress(PermissionError):
        os.sched_setscheduler(threading.get_native_id(), os.SCHED_RR, os.sched_param(1))
    began_s, sent = time.monotonic(), 0
    while not stopped.wait(0.003):
        due = int((time.monotonic() - began_s) * PACED_FRAMES)
        send_frames(due - sent)
        sent = due


def begin(directory: Path) -> tuple[Snmpd, Path]:
    """The veths, the agent, and a file with its community."""
    set_up()
    secret = directory / "secret"
    secret.write_text(COMMUNITY)
    secret.chmod(0o600)
    agent = Snmpd(directory, "swp1")
    agent.start()
    return agent, secret


async def counters(directory: Path) -> dict[str, Any]:
    """Known frames through swp1: the counters of the agent and of the kernel."""
    agent, secret = begin(directory)
    transport = SnmpTransport(ProbeSettings(interval_s=0.2))
    host = Host(name="switch7", address="127.0.0.1", port=agent.port, secret=str(secret))
    try:
        session = await transport.open(host)
        messages = await read_messages(session, 1)
        hello, first = messages[0], messages[-1]
        assert isinstance(hello, Hello)
        assert isinstance(first, Frame)
        before = values_of(hello, first, "swp1")
        # The age of the first values is unknown: counters follow once the agent has read them anew.
        known = dict(before)
        while known.get("phy_tx_bytes") is None:
            send_frames(1)
            (frame,) = await read_messages(session, 1)
            assert isinstance(frame, Frame)
            known = values_of(hello, frame, "swp1") or known
        send_frames(FRAMES)
        kernel, moved = of_kernel("swp1"), known
        while {metric: moved.get(metric) for metric in kernel} != kernel:
            (frame,) = await read_messages(session, 1)
            assert isinstance(frame, Frame)
            found = values_of(hello, frame, "swp1")
            moved.update({metric: value for metric, value in found.items() if value is not None})
        await session.close()
    finally:
        await transport.close()
        agent.kill()
    return {
        "ports": [item.port for block in hello.blocks for item in block.objects if item.port],
        "info": hello.blocks[1].objects[0].info,
        "before": before,
        "down": values_of(hello, first, "swp2"),
        "after": moved,
        "kernel": kernel,
    }


if __name__ == "__main__":
    snmp._DETAIL_S = 1.0
    scenes = {"counters": counters, "table": table, "rates": rates}
    print(json.dumps(asyncio.run(scenes[sys.argv[1]](Path(sys.argv[2])))))
