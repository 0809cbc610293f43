"""A job over the hosts of a lab, and what all of it prints, line by line.

Either each host has a torchrun, and every line begins with the host that printed it, as pdsh and
clush label lines; or mpirun in the console starts all, and labels lines itself. Paths of this
machine are replaced.
"""

from __future__ import annotations

import contextlib
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
from tests.lab.layout import CONSOLE

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
            with contextlib.suppress(OSError):  # It ended meanwhile.
                command = Path(f"/proc/{pid}/cmdline").read_bytes()
                if str(TRAIN).encode() in command or b"orted" in command.split(b"\0")[0]:
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
        argv = ["unshare", "--uts", "sh", "-c", f"{self._set_up(host)} && exec {command}"]
        self._popen(host, argv, environment, f"{host}: ")

    def start_by_mpirun(self, environment: Mapping[str, str]) -> None:
        """Start a rank on each host by mpirun, which enters their namespaces instead of ssh."""
        agent = self._path("agent")
        cases = [
            f"{host}) ns={self.lab.ns(host)} set_up={shlex.quote(self._set_up(host))};;"
            for host in self.hosts
        ]
        agent.write_text(
            "\n".join(
                (
                    "#!/bin/sh",
                    'case "$1" in',
                    *cases,
                    "esac",
                    "shift",
                    'exec ip netns exec $ns unshare --uts sh -c "$set_up && $*"',
                )
            )
        )
        agent.chmod(0o755)
        own = {"MASTER_ADDR": self.hosts[0], "MASTER_PORT": str(PORT), **environment}
        options = {
            "plm": "rsh",
            "plm_rsh_agent": str(agent),
            "plm_rsh_no_tree_spawn": "1",
            "oob_tcp_if_include": "10.99.0.0/16",
            "orte_tmpdir_base": str(self._path("tmp")),
        }
        argv = ["mpirun", "--allow-run-as-root", "--tag-output", "--bind-to", "none"]
        argv += ["--host", ",".join(self.hosts), "-np", str(len(self.hosts))]
        for name, value in options.items():
            argv += ["--mca", name, value]
        for name in (*own, *self._environment):
            argv += ["-x", name]
        command = shlex.join([*argv, str(self._venv / "bin/python"), "-u", str(TRAIN)])
        script = f"hostname {CONSOLE} && exec {command}"
        self._popen(CONSOLE, ["unshare", "--uts", "sh", "-c", script], own, "")

    def _set_up(self, host: str) -> str:
        return " && ".join(
            (
                f"mount --bind {self._path(host)} /etc/hosts",
                f"mount --bind {self._path('nsswitch')} /etc/nsswitch.conf",
                f"hostname {host}",
            )
        )

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self._venv}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "TMPDIR": str(self._path("tmp")),
            "JOB_PIDS": str(self._path("pids")),
            "JOB_STEPS": str(STEPS),
            "JOB_TIMEOUT_S": str(TIMEOUT_S),
        }

    def _popen(
        self, node: str, argv: Sequence[str], environment: Mapping[str, str], label: str
    ) -> None:
        process: subprocess.Popen[bytes] = self.lab.popen(
            node,
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**self._environment, **environment},
        )
        self._processes[node] = process
        reader = threading.Thread(target=self._read, args=(process, label), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, process: subprocess.Popen[bytes], label: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.lines.append(label.encode() + self._neutral(line))

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
