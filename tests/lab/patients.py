"""Nodes with something wrong with them, beside the good: real servers on ports of their own."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.lab import Lab
from tests.lab.sshd import SSHD
from tests.lab.traffic import listens

_HOST = "gpu001"
"""Where the patients live: they share this node's management address."""

_SILENT = "import socket,time;s=socket.create_server(({!r},{}));c=s.accept();time.sleep(999)"

_WITHOUT_PYTHON = """\
set -e
bin=$(mktemp -d)
mount -t tmpfs none "$bin"
mkdir "$bin/up" "$bin/work"
for name in /usr/bin/python* /usr/bin/pypy*; do
  [ ! -e "$name" ] || mknod "$bin/up/$(basename "$name")" c 0 0
done
mount -t overlay overlay -o "lowerdir=/usr/bin,upperdir=$bin/up,workdir=$bin/work" /usr/bin
exec "$@"
"""
"""A /usr/bin in which every python is struck out, for one process and its children only."""


class Ward:
    """Starts patients and writes the files by which fabmon reaches them and the lab's own nodes."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._address = lab.layout.mgmt_address(_HOST)
        self._ports = iter(range(2201, 2299))
        self._rows: list[str] = []
        self._known: list[str] = []
        self._running: dict[str, tuple[int, tuple[str, ...], subprocess.Popen[bytes]]] = {}

    def sshd(self, name: str, *options: str, without_python: bool = False) -> None:
        """A node whose sshd has options of its own."""
        port = next(self._ports)
        wrap = ("unshare", "--mount", "sh", "-c", _WITHOUT_PYTHON, "sh") if without_python else ()
        command = (*wrap, *self._server(port, options))
        self._running[name] = (port, command, self._start(command, port))
        self._admit(name, port)

    def silent(self, name: str) -> None:
        """A node that accepts TCP and never says a word."""
        port = next(self._ports)
        command = ("python3", "-c", _SILENT.format(self._address, port))
        self._running[name] = (port, command, self._start(command, port))
        self._admit(name, port)

    def kill(self, name: str) -> None:
        """A power cut: the server and all that it started are gone at once."""
        _, _, process = self._running[name]
        for pid in [*_children(process.pid), process.pid]:
            subprocess.run(["kill", "-KILL", str(pid)], check=False, capture_output=True)
        process.wait()

    def restart(self, name: str) -> None:
        """The node is back."""
        port, command, _ = self._running[name]
        self._running[name] = (port, command, self._start(command, port))

    def files(self) -> tuple[Path, Path]:
        """The hosts file and the ssh_config for fabmon."""
        public = " ".join((self._lab.directory / "host_key.pub").read_text().split()[:2])
        known = self._folder / "known_hosts"
        lines = [f"{name} {public}" for name in self._known]
        known.write_text(self._lab.known_hosts.read_text() + "\n".join(lines) + "\n")
        config = self._folder / "ssh_config"
        text = self._lab.ssh_config.read_text()
        config.write_text(text.replace(str(self._lab.known_hosts), str(known)))
        hosts = self._folder / "hosts.txt"
        hosts.write_text(self._lab.hosts_file.read_text() + "\n".join(self._rows) + "\n")
        return hosts, config

    def close(self) -> None:
        """End every patient."""
        for name in self._running:
            self.kill(name)

    def _server(self, port: int, options: tuple[str, ...]) -> tuple[str, ...]:
        config = str(self._lab.directory / "sshd_config")
        own = [f"Port={port}", f"ListenAddress={self._address}:{port}", "PidFile=none", *options]
        return (SSHD, "-D", "-e", *(part for each in own for part in ("-o", each)), "-f", config)

    def _start(self, command: tuple[str, ...], port: int) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        process = self._lab.popen(_HOST, list(command), stdin=quiet, stdout=quiet, stderr=quiet)
        deadline_s = time.monotonic() + 240
        while not listens(process.pid, port):
            is_there = process.poll() is None and time.monotonic() < deadline_s
            assert is_there, f"did not start: {shlex.join(command)}"
            time.sleep(0.02)
        return process

    def _admit(self, name: str, port: int) -> None:
        self._rows.append(f"{name} address={self._address} port={port} user={self._lab.user}")
        self._known.append(f"[{self._address}]:{port}")


@contextmanager
def ward(lab: Lab, folder: Path) -> Iterator[Ward]:
    """A ward that is cleared at the end."""
    with ExitStack() as stack:
        opened = Ward(lab, folder)
        stack.callback(opened.close)
        yield opened


def _children(pid: int) -> list[int]:
    """All descendants of a process, the deepest first; none of one that has ended meanwhile."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path("/proc", str(pid), "task").iterdir():
            for child in (task / "children").read_text().split():
                found += [*_children(int(child)), int(child)]
    return found
