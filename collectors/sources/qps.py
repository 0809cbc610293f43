"""RDMA connections: the connected queue pairs of every port, from `rdma resource`.

There are no counters here. Each RDMA port has one object of the kind `queue_pairs`; its info:

    port        the port's name, the same as in the sources that count its bytes
    count       how many reliable or unreliable connections (RC, UC) are ready to send (RTS)
    lqpn, rqpn  the queue pair's own number and that of its peer; these are lists, one element per
    type        queue pair, shorter than `count` where a node has more than 4,096
    sq_psn      packet sequence numbers, sent and received, when the set was last seen to change:
    rq_psn      they change with every packet, which alone does not count as a change
    process     the position of its owner in `processes`
    processes   {pid, comm[, job][, pod][, numa_node]}; without a pid the kernel's own; job is
                Slurm's, pod the uid of Kubernetes', by the cgroup; numa_node is the one that
                all CPUs belong to on which it may run

`count` is 0 where nothing is connected; a node that cannot be queried has no such objects, and a
notice says why. Every queue pair costs the device a query, so that the command runs at the start
and then once a minute at most. The kernel reports the processes in this process' own pid namespace,
to every account. A tree at another root carries the output of `rdma -j resource show qp` in
`<root>/rdma_qp.json`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from collectors.hostfs import HostFS
from collectors.readers import ports
from collectors.readers.background_source import BackgroundSource, command_output
from collectors.source import Denied, Failed, NoData, SourceError, Unsupported
from collectors.wire import Object

_PATH = "/usr/sbin:/sbin:/usr/local/sbin:/opt/mellanox/iproute2/sbin"
"""Directories of `rdma` that a login's PATH may lack."""

_TIMEOUT_S = 10.0
_MAX_ROWS = 4096
_CONNECTED = ("RC", "UC")
_BITS = 0xFFFFFF
"""Queue pair and packet sequence numbers have 24 bits. iWARP connections have no remote number."""
_JOB = re.compile(r"/job_(\d{1,18})(?:/|$)", re.MULTILINE)
_POD = re.compile(
    r"/(?:kubepods[^/\n]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})(?:\.slice)?/"
)
"""A pod's directory: cgroupfs has the uid as it is, systemd with `_` in place of `-`."""
_CPUS = re.compile(r"^Cpus_allowed_list:\s*(\S+)", re.MULTILINE)
_MOST_CPUS = 65_535
_NUMA = "sys/devices/system/node"
_NOT_THERE = ("NETLINK_RDMA", "Unknown argument", "not supported")


class Pair(NamedTuple):
    """A queue pair that is connected and ready to send; `pid` is 0 for the kernel's own."""

    device: str
    port: int
    lqpn: int
    rqpn: int
    type: str
    pid: int
    comm: str
    sq_psn: int
    rq_psn: int


class QueuePairSource(BackgroundSource[List[Pair]]):
    """The connected queue pairs of this machine's RDMA ports."""

    name = "qps"
    capture = "rdma_qp.json"
    repeat_s = 60.0

    def output(self) -> str:
        """The output of `rdma`. Raises NoData without a device, else SourceError."""
        if not self.host.names(ports.INFINIBAND):
            raise NoData("no RDMA device")
        command = shutil.which("rdma", path=f"{os.environ.get('PATH', '')}:{_PATH}")
        if command is None:
            raise Unsupported("no rdma command on this node: it comes with iproute2")
        try:
            return command_output([command, "-j", "resource", "show", "qp"], _TIMEOUT_S)
        except SourceError as error:
            raise _rdma_error(str(error)) from None

    def parse(self, text: str) -> List[Pair]:
        """The queue pairs in the output of `rdma`."""
        return pairs(text)

    def objects(self, facts: List[Pair]) -> List[Object]:
        """One object per port, with or without connections."""
        by_port: Dict[Tuple[str, int], List[Pair]] = {}
        for pair in facts:
            by_port.setdefault((pair.device, pair.port), []).append(pair)
        found = [port for port in ports.find_ports(self.host) if port.rdma is not None]
        if not found:
            raise NoData("no RDMA device")
        pids = {pair.pid for pair in facts} - {0}
        owners = {pid: self._owner(pid) for pid in pids}
        cpus = _cpus_of_nodes(self.host)
        bound = {pid: _numa_node(self.host, pid, cpus) for pid in pids}
        numa = {pid: node for pid, node in bound.items() if node is not None}
        of_ports = [by_port.get((port.rdma or "", port.rdma_port), []) for port in found]
        most = _max_per_port([len(each) for each in of_ports], _MAX_ROWS)
        return [
            Object(
                f"qps/{port.name}",
                "queue_pairs",
                None,
                _info(port.name, each, most, owners, numa),
                (),
            )
            for port, each in zip(found, of_ports)
        ]

    def differs(self, known: List[Pair], facts: List[Pair]) -> bool:
        """Whether a queue pair appeared, went away or changed its owner."""
        return [pair[:7] for pair in known] != [pair[:7] for pair in facts]

    def _owner(self, pid: int) -> Dict[str, str]:
        """The Slurm job and the Kubernetes pod of a process, as far as it is in one, visibly."""
        cgroup = self.host.text("proc", str(pid), "cgroup") or ""
        job, pod = _JOB.search(cgroup), _POD.search(cgroup)
        found = {"job": job[1]} if job else {}
        if pod:
            found["pod"] = pod[1].replace("_", "-")
        return found


def _cpus_of_nodes(fs: HostFS) -> Dict[int, FrozenSet[int]]:
    """NUMA node -> its CPUs; empty on a machine with one."""
    found: Dict[int, FrozenSet[int]] = {}
    for name in fs.names(_NUMA):
        if name.startswith("node") and name[4:].isdecimal():
            found[int(name[4:])] = cpu_list(fs.text(_NUMA, name, "cpulist") or "")
    return found if len(found) > 1 else {}


def _numa_node(fs: HostFS, pid: int, cpus: Dict[int, FrozenSet[int]]) -> Optional[int]:
    """The NUMA node to whose CPUs a process is bound; None where it may run on several."""
    match = _CPUS.search((fs.text("proc", str(pid), "status") or "") if cpus else "")
    allowed = cpu_list(match[1]) if match else frozenset()
    return next((node for node, its in cpus.items() if allowed and allowed <= its), None)


def cpu_list(text: str) -> FrozenSet[int]:
    """`0-3,8` -> the CPUs 0, 1, 2, 3 and 8; empty for anything else."""
    found: List[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            return frozenset()
        found += range(int(first), min(int(last or first), _MOST_CPUS) + 1)
    return frozenset(found)


def pairs(text: str) -> List[Pair]:
    """The connected queue pairs in the output of `rdma -j resource show qp`, in order.

    Raises Failed for other output.
    """
    try:
        # The output is empty where there is no queue pair.
        rows: List[Dict[str, Any]] = json.loads(text) if text.strip() else []
        found = [
            Pair(
                str(row["ifname"]),
                int(row.get("port", 1)),
                int(row["lqpn"]),
                int(row["rqpn"]),
                str(row["type"]),
                int(row.get("pid", 0)),
                str(row.get("comm", "")),
                int(row.get("sq-psn", 0)) & _BITS,
                int(row.get("rq-psn", 0)) & _BITS,
            )
            for row in rows
            if row.get("type") in _CONNECTED and row.get("state") == "RTS" and row.get("rqpn")
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failed(f"rdma did not print queue pairs: {error!r}") from error
    return sorted(pair for pair in found if 0 <= pair.lqpn <= _BITS and 0 < pair.rqpn <= _BITS)


def _info(
    port: str,
    found: List[Pair],
    most: int,
    owners_of: Dict[int, Dict[str, str]],
    numa_nodes: Dict[int, int],
) -> Dict[str, Any]:
    kept = found[:most]
    owners: Dict[Tuple[int, str], int] = {}
    places = [owners.setdefault((pair.pid, pair.comm), len(owners)) for pair in kept]
    processes: List[Dict[str, Any]] = []
    for pid, comm in owners:
        process: Dict[str, Any] = {"comm": comm}
        if pid:
            process["pid"] = pid
        process.update(owners_of.get(pid, {}))
        if pid in numa_nodes:
            process["numa_node"] = numa_nodes[pid]
        processes.append(process)
    return {
        "port": port,
        "count": len(found),
        "lqpn": [pair.lqpn for pair in kept],
        "rqpn": [pair.rqpn for pair in kept],
        "type": [pair.type for pair in kept],
        "sq_psn": [pair.sq_psn for pair in kept],
        "rq_psn": [pair.rq_psn for pair in kept],
        "process": places,
        "processes": processes,
    }


def _max_per_port(counts: List[int], most: int) -> int:
    """How many each port may report, so that all together are at most `most`."""
    left, ports_left = most, len(counts)
    for count in sorted(counts):
        if count * ports_left > left:
            return left // ports_left
        left -= count
        ports_left -= 1
    return most


def _rdma_error(message: str) -> SourceError:
    """The SourceError for an error message of `rdma`."""
    if "ermission denied" in message or "not permitted" in message:
        return Denied(f"{message}: the kernel does not show queue pairs to this account")
    if any(words in message for words in _NOT_THERE):
        return Unsupported(f"{message}: this kernel or iproute2 does not support queue pairs")
    return Failed(message)
