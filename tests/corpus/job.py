"""A job over the hosts of a lab: a torchrun on each, and what all of them print, line by line.

Every line begins with the host that printed it, as pdsh and clush label lines. Paths of this
machine are replaced.
"""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sysconfig
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.lab import Lab, LabError, netns

TRAIN = Path(__file__).with_name("train.py")
PORT = 29500
TIMEOUT_S = 25
"""How long the job waits for others: more than starting it takes on a busy machine of two cores."""
STEPS = 12
BROKEN_AT = 4
_LAUNCH_S = 120
_GRACE_S = 10
"""As launchers do: so long after a node has failed the others are terminated, and then killed."""


class Job:
    """A job on all hosts of `lab`, of the venv `venv`; its last step is `STEPS`.

    Each host has a /etc/hosts of its own, a hostname, and no other names.
    """

    def __init__(self, lab: Lab, venv: Path) -> None:
        self.lab = lab
        self.hosts = lab.layout.hosts
        self.lines: list[bytes] = []
        self._venv = venv
        self._directory = tempfile.TemporaryDirectory(prefix="corpus-")
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []
        self._cut: list[tuple[str, str]] = []
        for path in (self._path("pids"), self._path("tmp")):
            path.mkdir()
        self._path("nsswitch").write_text("hosts: files\n")
        names = [f"{lab.layout.fabric_address(host)} {host}\n" for host in self.hosts]
        for host in self.hosts:
            self._path(host).write_text("127.0.0.1 localhost\n" + "".join(names))

    def _path(self, name: str) -> Path:
        return Path(self._directory.name) / name

    # -- what is done to it ------------------------------------------------------------------

    def send(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank."""
        os.kill(int(self._path(f"pids/{rank}").read_text()), number)

    def end(self, host: str) -> None:
        """Kill the job's processes on a host."""
        for pid in netns.pids_in([self.lab.ns(host)]):
            # One that ended meanwhile has an empty command line.
            if str(TRAIN).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def lose_power(self, host: str) -> None:
        """As if a host lost power: no launcher hears of it, and nothing answers there."""
        self.cut(host, "eth0")
        self.end(host)
        self._processes.pop(host)

    def cut(self, node: str, port: str) -> None:
        """Take a port of the fabric down, until the job is finished."""
        self._cut.append((node, port))
        self.lab.link_down(node, port)

    def forget(self, host: str, name: str) -> None:
        """Have a host not know a name."""
        lines = self._path(host).read_text().splitlines(keepends=True)
        self._path(host).write_text("".join(each for each in lines if name not in each))

    def occupy(self, host: str) -> None:
        """Have another process listen where the job's store is to."""
        taken = netns.make_socket(self.lab.ns(host), socket.AF_INET, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("0.0.0.0", PORT))
        taken.listen()
        self._sockets.append(taken)

    # -- running it --------------------------------------------------------------------------

    def start(self, host: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start the torchrun of a host."""
        command = shlex.join([str(self._venv / "bin/torchrun"), *options, str(TRAIN)])
        script = " && ".join(
            (
                f"mount --bind {self._path(host)} /etc/hosts",
                f"mount --bind {self._path('nsswitch')} /etc/nsswitch.conf",
                f"hostname {host}",
                f"exec {command}",
            )
        )
        process: subprocess.Popen[bytes] = self.lab.popen(
            host,
            ["unshare", "--uts", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={
                "PATH": f"{self._venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "TMPDIR": str(self._path("tmp")),
                "JOB_PIDS": str(self._path("pids")),
                "JOB_STEPS": str(STEPS),
                "JOB_TIMEOUT_S": str(TIMEOUT_S),
                **environment,
            },
        )
        self._processes[host] = process
        reader = threading.Thread(target=self._read, args=(host, process), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, host: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(host.encode() + b": " + self._neutral(line))

    def _neutral(self, line: bytes) -> bytes:
        for path, replacement in (
            (str(TRAIN), "/opt/train/train.py"),
            (str(self._venv), "/opt/venv"),
            (sysconfig.get_path("stdlib"), "/usr/lib/python3"),
            (str(Path(sysconfig.get_path("scripts")).resolve()), "/usr/bin"),
            (str(self._path("tmp")), "/tmp"),
        ):
            line = line.replace(path.encode(), replacement.encode())
        return line

    def until_step(self, step: int) -> None:
        """Wait until the job has done so many steps."""
        deadline_s = time.monotonic() + _LAUNCH_S
        done = self._path("pids/step")
        while not done.exists() or int(done.read_text() or 0) < step:
            if self._ended() is not None or time.monotonic() > deadline_s:
                raise LabError("the job has not come so far: is the machine busy?")
            time.sleep(0.05)

    def until_failed(self, timeout_s: float) -> bool:
        """Wait until a node has failed, or all are done; whether one did."""
        deadline_s = time.monotonic() + timeout_s
        while self._ended() is None and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return self._ended() is not False

    def _ended(self) -> bool | None:
        """Whether a node failed; None while none has, and some run."""
        codes = [process.poll() for process in self._processes.values()]
        if any(codes):
            return True
        return None if None in codes else False

    def finish(self) -> None:
        """End what still runs, as launchers do when a node has failed, and read to the end."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline_s = time.monotonic() + _GRACE_S
            while time.monotonic() < deadline_s and self._running():
                time.sleep(0.1)
            for host in self._running():
                if number == signal.SIGKILL:
                    self.end(host)
                else:
                    self._processes[host].send_signal(number)
        for reader in self._readers:
            reader.join(timeout=30)
        for taken in self._sockets:
            taken.close()
        for node, port in self._cut:
            self.lab.link_up(node, port)
        self._directory.cleanup()

    def _running(self) -> list[str]:
        return [host for host, process in self._processes.items() if process.poll() is None]
