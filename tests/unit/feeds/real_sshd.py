"""OpenSSH's own server at a free port, for the account that runs the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.requirements import need_command

_CONFIG = """\
Port {port}
ListenAddress 0.0.0.0
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
MaxStartups 500
"""
_START_S = 240


class RealSshd:
    """A running server; it accepts the keys in `authorized_keys`."""

    def __init__(self, port: int, authorized_keys: Path) -> None:
        self.port = port
        self.authorized_keys = authorized_keys
        self.user = getpass.getuser()


@contextmanager
def real_sshd(directory: Path) -> Iterator[RealSshd]:
    """Run it within the block."""
    need_command("sshd", "openssh-server")
    need_command("ssh-agent", "openssh-client")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    make_key(directory / "host_key")
    (directory / "authorized_keys").write_text("")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (directory / "sshd_config").write_text(_CONFIG.format(port=port, directory=directory))
    sshd = shutil.which("sshd") or "/usr/sbin/sshd"
    server = subprocess.Popen(
        [sshd, "-D", "-e", "-f", str(directory / "sshd_config")], stderr=subprocess.DEVNULL
    )
    try:
        _wait(port)
        yield RealSshd(port, directory / "authorized_keys")
    finally:
        server.terminate()
        server.wait(10)


def make_key(path: Path, passphrase: str = "") -> None:
    """A key pair: `path` and `path`.pub."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "test", "-f", str(path)]
    subprocess.run(command, check=True)


def _wait(port: int) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, "sshd does not answer"
            time.sleep(0.05)
