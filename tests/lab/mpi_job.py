"""A job of Open MPI on the hosts of a lab: it says itself how long its steps take.

`mpirun` in the console starts a rank on every host over the lab's sshd; the ranks exchange over the
NICs of the fabric, by TCP. What they do is in `mpi_job.c`.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fixtures.slurm import SlurmCluster
from tests.lab import Lab, LabError, netns
from tests.lab.hashing import FlowPath

_SOURCE = Path(__file__).with_name("mpi_job.c")
_ESTABLISHED = "01"
_SEEDS = range(1, 2000)

JOB_NAME = "ring"


@dataclass(frozen=True, slots=True)
class Step:
    """An iteration, in seconds on the monotonic clock: when the first rank began to compute, when
    the last was ready to reduce, when the last had the sum.
    """

    begin_s: float
    ready_s: float
    done_s: float

    @property
    def reduce_s(self) -> float:
        """How long the all-reduce took, waiting for late ranks left out."""
        return self.done_s - self.ready_s


@dataclass(frozen=True, slots=True)
class Crowd:
    """The hosts whose flows share an uplink: those that send them, and those that receive them."""

    near: set[str]
    far: set[str]


@dataclass(frozen=True, slots=True)
class _Flow:
    host: str
    far: str
    path: FlowPath
    sport: int

    @property
    def uplink(self) -> str:
        """The port of the leaf that its hash selects now."""
        return self.path.query([self.sport])[0]


class MpiJob:
    """`mpirun` with a rank on each of `hosts`, in this order around the ring of the all-reduce.

    `steps` grows while it runs: those that all ranks have finished. With `slurm` it runs inside an
    allocation of nodes with the hosts' names.
    """

    def __init__(
        self,
        lab: Lab,
        hosts: Sequence[str],
        compute_s: float,
        megabytes: float,
        late_s: float,
        slurm: SlurmCluster | None = None,
    ) -> None:
        self.hosts = list(hosts)
        self.steps: list[Step] = []
        self._lab = lab
        self._pids: dict[str, int] = {}
        self._finished: dict[int, list[dict[str, Any]]] = {}
        self._said: list[str] = []
        program = _compile(lab)
        numbers = [f"{compute_s * 1e3:g}", f"{megabytes:g}", f"{late_s * 1e3:g}"]
        self._process: subprocess.Popen[str] = lab.popen(
            "console",
            [*_allocation(slurm, self.hosts), *_mpirun(lab, self.hosts), str(program), *numbers],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=None if slurm is None else slurm.environment,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if not text.startswith('{"rank"'):
                self._said.append(text)
                continue
            line = json.loads(text)
            if "pid" in line:
                self._pids[line["host"]] = line["pid"]
                # As of the senders: what carries the data does not wait for a CPU.
                os.sched_setscheduler(line["pid"], os.SCHED_RR, os.sched_param(1))
                continue
            ranks = self._finished.setdefault(line["step"], [])
            ranks.append(line)
            if len(ranks) == len(self.hosts):
                step = Step(
                    min(rank["begin_s"] for rank in ranks),
                    max(rank["ready_s"] for rank in ranks),
                    max(rank["done_s"] for rank in ranks),
                )
                self.steps.append(step)

    def __enter__(self) -> MpiJob:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._pids:
            self.send(host, signal.SIGCONT)
        self._process.terminate()
        self._process.wait(timeout=240)
        self._reader.join(timeout=240)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def until_steps(self, count: int, timeout_s: float = 180) -> list[Step]:
        """So many more steps, once they are finished."""
        first = len(self.steps)
        deadline_s = time.monotonic() + timeout_s
        while len(self.steps) < first + count:
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                said = "".join(self._said)
                raise LabError(f"{len(self.steps) - first} of {count} steps: {said}")
            time.sleep(0.02)
        return self.steps[first : first + count]

    def send(self, host: str, number: signal.Signals) -> None:
        """Send a signal to the rank of a host: SIGUSR1 and SIGUSR2, SIGSTOP and SIGCONT."""
        os.kill(self._pids[host], number)

    def find_seeds(self, leaf: str, *shapes: tuple[int, ...]) -> list[int]:
        """Hash seeds of `leaf` for which its uplinks carry as many of the ring's flows as each
        shape says, the most first. Leaves the last one that was tried.
        """
        flows = self._flows(leaf)
        found: dict[tuple[int, ...], int] = {}
        for seed in _SEEDS:
            self._lab.set_hash_seed(leaf, seed)
            taken = Counter(flow.uplink for flow in flows)
            found.setdefault(tuple(sorted(taken.values(), reverse=True)), seed)
            if set(shapes) <= set(found):
                return [found[shape] for shape in shapes]
        raise LabError(f"no seed of {leaf} has its {len(flows)} flows as {shapes}: {found}")

    def crowd(self, leaf: str) -> Crowd:
        """The hosts at both ends of the flows on the uplink of `leaf` that has most of the ring's,
        by the kernel's hash as it is now."""
        by_uplink: dict[str, list[_Flow]] = {}
        for flow in self._flows(leaf):
            by_uplink.setdefault(flow.uplink, []).append(flow)
        most = max(by_uplink.values(), key=len)
        return Crowd({flow.host for flow in most}, {flow.far for flow in most})

    def _flows(self, leaf: str) -> list[_Flow]:
        """What ranks under `leaf` send to the next of the ring, under another leaf."""
        lab, layout = self._lab, self._lab.layout
        flows = []
        for place, host in enumerate(self.hosts):
            far = self.hosts[(place + 1) % len(self.hosts)]
            if layout.leaf_of(host) != leaf or layout.leaf_of(far) == leaf:
                continue
            src, dst = layout.fabric_address(host), layout.fabric_address(far)
            for sport, dport in _connections(lab.ns(host), src, dst):
                entry = layout.port_to(leaf, host)
                path = FlowPath(lab.ns(leaf), entry, src, dst, dport, "tcp")
                flows.append(_Flow(host, far, path, sport))
        return flows


def _compile(lab: Lab) -> Path:
    program = lab.directory / "mpi_job"
    command = ["mpicc", "-O1", "-o", str(program), str(_SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise LabError(f"mpicc: {done.stderr.strip()}")
    return program


def _allocation(slurm: SlurmCluster | None, hosts: Sequence[str]) -> list[str]:
    """What runs a command inside an allocation of these nodes."""
    if slurm is None:
        return []
    wanted = [f"-N{len(hosts)}", f"-w{','.join(hosts)}", f"-J{JOB_NAME}"]
    # The command ends with the allocation.
    return ["salloc", *wanted, "--quiet", "--kill-command=TERM"]


def _mpirun(lab: Lab, hosts: Sequence[str]) -> list[str]:
    sessions = lab.directory / "mpi"
    sessions.mkdir()
    sessions.chmod(0o1777)  # Of the lab's user on the hosts, of root on the console.
    options = {
        # Ranks are where --host says, in its order, also inside an allocation of Slurm.
        "plm": "rsh",
        "ras": "^slurm",
        "plm_rsh_agent": f"ssh -F {lab.ssh_config}",
        "plm_rsh_no_tree_spawn": "1",  # Hosts have no key to log in to each other.
        "oob_tcp_if_include": "10.99.0.0/16",
        "orte_tmpdir_base": str(sessions),
        "pml": "ob1",
        "btl": "tcp,self",
        "btl_tcp_if_include": lab.layout.nic_of(0),
        "coll_libnbc_iallreduce_algorithm": "1",  # A ring, as NCCL's.
    }
    argv = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "--map-by", "node"]
    argv += ["--host", ",".join(hosts), "-np", str(len(hosts))]
    for name, value in options.items():
        argv += ["--mca", name, value]
    return argv


def _connections(ns: str, own: str, far: str) -> list[tuple[int, int]]:
    """(own port, far port) of the TCP connections of `ns` between two addresses."""
    text = netns.call_in(ns, lambda: Path("/proc/thread-self/net/tcp").read_text())
    found = []
    for line in text.splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        (own_hex, sport), (far_hex, dport) = local.split(":"), remote.split(":")
        if (state, own_hex, far_hex) == (_ESTABLISHED, _hex(own), _hex(far)):
            found.append((int(sport, 16), int(dport, 16)))
    return found


def _hex(address: str) -> str:
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}"
