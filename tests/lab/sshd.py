"""A real OpenSSH server in every node, and the files a client needs to reach them.

Each sshd listens on the management address only. All share one host key, so ``known_hosts`` lists
it once for each name and address. Nothing of the machine's own ssh configuration is read.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from tests.lab import login, netns
from tests.lab.netns import LabError

SSHD = "/usr/sbin/sshd"
"""sshd re-executes itself for each connection and refuses to start by a relative name."""

_PRIVSEP_DIR = Path("/run/sshd")
"""Debian's sshd does not start without this directory, which its service would have made."""

_SERVER_CONFIG = """\
Port 22
HostKey {dir}/host_key
AuthorizedKeysFile {dir}/authorized_keys
AllowUsers {user}
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
X11Forwarding no
PrintMotd no
PrintLastLog no
MaxStartups 500
MaxSessions 500
LogLevel VERBOSE
"""

_CLIENT_CONFIG = """\
Host *
    User {user}
    IdentityFile {dir}/key
    IdentitiesOnly yes
    UserKnownHostsFile {dir}/known_hosts
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    BatchMode yes
"""


def write_files(directory: Path, addresses: Mapping[str, str]) -> None:
    """Make keys and configurations in `directory` for nodes (name -> address)."""
    for name in ("host_key", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "fabmon-lab", "-f"]
        subprocess.run([*command, str(directory / name)], check=True)
    (directory / "authorized_keys").write_text((directory / "key.pub").read_text())
    public = " ".join((directory / "host_key.pub").read_text().split()[:2])
    known = [f"{name},{address} {public}\n" for name, address in addresses.items()]
    (directory / "known_hosts").write_text("".join(known))
    values = {"dir": str(directory), "user": login.USER}
    (directory / "sshd_config").write_text(_SERVER_CONFIG.format(**values))
    aliases = [f"Host {n}\n    HostName {a}\n" for n, a in addresses.items()]
    client = "".join(aliases) + _CLIENT_CONFIG.format(**values)
    (directory / "ssh_config").write_text(client)


def start(ns: str, node: str, address: str, directory: Path) -> subprocess.Popen[bytes]:
    """Start the sshd of `node`; its log is ``<node>.sshd.log`` in `directory`."""
    _PRIVSEP_DIR.mkdir(mode=0o755, exist_ok=True)
    server = [SSHD, "-D", "-e", "-f", str(directory / "sshd_config")]
    server += ["-o", f"ListenAddress={address}", "-o", f"PidFile={directory / node}.sshd.pid"]
    # A UTS namespace of its own, so that the node's hostname is the node's name.
    named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', node, *server]
    with (directory / f"{node}.sshd.log").open("wb") as log:
        return subprocess.Popen(
            netns.argv_in(ns, named),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # A ctrl-c in the terminal is for the lab's owner.
        )


def wait(ns: str, address: str, log: Path, timeout_s: float = 240.0) -> None:
    """Wait until the sshd at `address` answers a client in `ns`."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with netns.make_socket(ns, socket.AF_INET, socket.SOCK_STREAM) as client:
                client.settimeout(0.2)  # Sooner than a lost SYN is sent again.
                client.connect((address, 22))
                return
        except OSError as problem:
            if time.monotonic() > deadline:
                raise LabError(f"no sshd at {address}: {log.read_text()}") from problem
            time.sleep(0.02)
