"""The cost of SSH on the console: nodes behind a real sshd on loopback, and the same over HTTP.

`--nodes` is as many as the machine carries: each is three processes. The nodes are those of
`agents`, in one process; what sshd starts for each of them passes its stream on.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

from fabmon.fabric.model import Host
from fabmon.feeds.live import LiveFeed
from tests.bench.agents import address
from tests.bench.measure import tell

NODES, SECONDS = 200, 20
SSH_PORT, AGENT_PORT = 22622, 19836
_CONNECT_S = 120.0

_STREAM = """\
set -- $SSH_CONNECTION
exec 3<>/dev/tcp/$3/{agent_port}
printf 'GET /stream?encoding=delta-deflate HTTP/1.1\\r\\n\\r\\n' >&3
exec cat <&3
"""
"""What sshd runs: the agent has the address that was logged in to. Its reply's headers are what a
login greeting is: skipped up to the hello. HOME is set to another one: a login shell that reads its
user's own files takes half a second of CPU for each node."""

_SSHD = """\
Port {port}
ListenAddress 0.0.0.0
HostKey {dir}/host_key
AuthorizedKeysFile {dir}/key.pub
StrictModes no
UsePAM no
PidFile none
MaxStartups 500
SetEnv HOME={dir}
ForceCommand exec bash {dir}/stream.sh
"""

_CLIENT = """\
Host *
    IdentityFile {dir}/key
    UserKnownHostsFile {dir}/known_hosts
"""


def main() -> None:
    """Print the console's CPU per node and tick over SSH, and what of it is not SSH."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options, _ = parser.parse_known_args()
    sshd = find_sshd()
    if sshd is None:
        tell("ssh", {"skipped": "apt install openssh-server"})
        return
    for name in ("aiohttp", "asyncssh"):
        # Before the clock starts: 0.2 s, once, however many nodes there are.
        importlib.import_module(name)
    with tempfile.TemporaryDirectory() as name, _agents(options.nodes):
        folder = Path(name)
        token = folder / "token"
        token.write_text("bench" * 9 + "\n")
        token.chmod(0o600)
        by_http = [
            Host(
                name=f"gpu{n:04}",
                via="http",
                address=address(n),
                port=AGENT_PORT,
                tls="no",
                secret=str(token),
            )
            for n in range(options.nodes)
        ]
        by_ssh = [
            Host(name=f"gpu{n:04}", address=address(n), port=SSH_PORT, user=getuser())
            for n in range(options.nodes)
        ]
        with server(sshd, folder, AGENT_PORT):
            costs = [
                asyncio.run(_watch(hosts, folder, options.seconds)) for hosts in (by_http, by_ssh)
            ]
    (http_connect_s, http_tick_s), (connect_s, tick_s) = costs
    tell(
        "ssh",
        {
            "nodes": options.nodes,
            "connect_cpu_ms_per_node": round(connect_s * 1e3, 1),
            "us_per_node_tick": round(tick_s * 1e6, 1),
            "connect_cpu_ms_per_node_by_http": round(http_connect_s * 1e3, 1),
            "us_per_node_tick_by_http": round(http_tick_s * 1e6, 1),
            "ssh_cores_for_1024_nodes_at_1hz": round((tick_s - http_tick_s) * 1024, 3),
        },
    )


def find_sshd() -> str | None:
    """The path of sshd; None where it is not installed."""
    return shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")


async def _watch(hosts: Sequence[Host], folder: Path, seconds: float) -> tuple[float, float]:
    """CPU seconds of connecting, for a node, and of a node and tick after that."""
    start_s, frames = time.process_time(), 0
    async with LiveFeed(hosts, ssh_config=str(folder / "ssh_config")) as feed:
        seen: set[str] = set()
        until_s = time.monotonic() + _CONNECT_S
        async for tick in feed:
            seen |= {name for name, _ in tick.frames}
            if len(seen) == len(hosts):
                break
            assert time.monotonic() < until_s, f"{len(seen)} of {len(hosts)} nodes were up"
        connect_s, start_s = time.process_time() - start_s, time.process_time()
        until_s = time.monotonic() + seconds
        async for tick in feed:
            frames += len(tick.frames)
            if time.monotonic() > until_s:
                break
        tick_s = time.process_time() - start_s
    return connect_s / len(hosts), tick_s / frames


@contextmanager
def _agents(nodes: int) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.bench.agents", str(nodes), str(AGENT_PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agents:
        assert agents.stdout is not None
        agents.stdout.readline()
        try:
            yield
        finally:
            agents.terminate()


@contextmanager
def server(sshd: str, folder: Path, agent_port: int) -> Iterator[None]:
    """An sshd at SSH_PORT of every address of an agent, and `ssh_config` for it in a folder."""
    for name in ("host_key", "key"):
        make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(make, check=True)
    public = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.9.*]:{SSH_PORT} {public}\n")
    values = {"dir": folder, "port": SSH_PORT, "agent_port": agent_port}
    (folder / "sshd_config").write_text(_SSHD.format(**values))
    (folder / "ssh_config").write_text(_CLIENT.format(**values))
    (folder / "stream.sh").write_text(_STREAM.format(**values))
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
