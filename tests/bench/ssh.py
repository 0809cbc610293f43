"""The cost of SSH on the console: nodes behind a real sshd on loopback, frames of 650 values."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

from fabmon.fabric.model import Host
from fabmon.fabric.wire.messages import decode
from fabmon.feeds.live import LiveFeed
from tests.bench.measure import tell
from tests.bench.synthetic import SyntheticNode

NODES, SERIES, PORT, SECONDS = 24, 650, 22622, 10
INTERVAL_S = 0.5

_NODE = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.bench.synthetic import SyntheticNode
def drain():
    while os.read(0, 65536): pass
    os._exit(0)
threading.Thread(target=drain, daemon=True).start()
node = SyntheticNode("node", {series})
lines = [node.frame(seq) for seq in range(8)]
os.write(1, node.hello())
seq = 0
while True:
    line = lines[seq % 8]
    while line: line = line[os.write(1, line):]
    seq += 1
    time.sleep({interval} - time.time() % {interval})
"""

_SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {dir}/host_key
AuthorizedKeysFile {dir}/key.pub
StrictModes no
UsePAM no
PidFile none
MaxStartups 500
ForceCommand {python} {dir}/node.py
"""

_CLIENT = """\
Host *
    IdentityFile {dir}/key
    UserKnownHostsFile {dir}/known_hosts
"""


def main() -> None:
    """Print the console's CPU per node and tick, with SSH and without."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")
    if sshd is None:
        tell("ssh", {"skipped": "apt install openssh-server"})
        return
    with tempfile.TemporaryDirectory() as folder, _server(sshd, Path(folder)):
        connect_s, tick_s, frames = asyncio.run(_watch(Path(folder)))
    decode_s = _decode_alone()
    tell(
        "ssh",
        {
            "nodes": NODES,
            "series_per_node": SERIES,
            "connect_cpu_ms_per_node": round(connect_s / NODES * 1e3, 1),
            "us_per_node_tick": round(tick_s / frames * 1e6, 1),
            "of_which_decode_us": round(decode_s * 1e6, 1),
            "ssh_cores_for_1024_nodes_at_1hz": round((tick_s / frames - decode_s) * 1024, 3),
        },
    )


async def _watch(folder: Path) -> tuple[float, float, int]:
    hosts = [
        Host(name=f"node{i:03}", address="127.0.0.1", port=PORT, user=getuser())
        for i in range(NODES)
    ]
    start_s = time.process_time()
    frames = 0
    async with LiveFeed(
        hosts, interval_s=INTERVAL_S, ssh_config=str(folder / "ssh_config")
    ) as feed:
        seen: set[str] = set()
        async for tick in feed:
            seen |= {name for name, _ in tick.frames}
            if len(seen) == NODES:
                break
        connect_s, start_s = time.process_time() - start_s, time.process_time()
        until_s = time.monotonic() + SECONDS
        async for tick in feed:
            frames += len(tick.frames)
            if time.monotonic() > until_s:
                break
        tick_s = time.process_time() - start_s
    return connect_s, tick_s, frames


def _decode_alone() -> float:
    node = SyntheticNode("node", SERIES)
    lines = [node.frame(seq) for seq in range(500)]
    start_s = time.process_time()
    for line in lines:
        decode(line)
    return (time.process_time() - start_s) / len(lines)


@contextmanager
def _server(sshd: str, folder: Path) -> Iterator[None]:
    for name in ("host_key", "key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{PORT} {public}\n")
    values = {"dir": folder, "port": PORT, "python": sys.executable}
    (folder / "sshd_config").write_text(_SSHD.format(**values))
    (folder / "ssh_config").write_text(_CLIENT.format(**values))
    root = str(Path(__file__).parents[2])
    node = _NODE.format(root=root, series=SERIES, interval=INTERVAL_S)
    (folder / "node.py").write_text(node)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    command = [sshd, "-D", "-e", "-f", str(folder / "sshd_config")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        time.sleep(0.5)
        try:
            yield
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
