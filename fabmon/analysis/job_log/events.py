"""What lines of a job's log say: failures, facts about ranks, what makes the job slow."""

from __future__ import annotations

import msgspec


class Process(msgspec.Struct, frozen=True):
    """Where a line was written: host (empty where the log has none), process and GPU (an index in
    the process; -1: unknown)."""

    host: str
    pid: int
    gpu: int = -1


class Communicator(msgspec.Struct, frozen=True, kw_only=True):
    """A rank of a communicator and its GPU; `pci` is the bus id of the GPU, `gpu` its index on the
    node where NVML reports it, -1 where unknown. `name` is the address or the id."""

    name: str
    rank: int
    ranks: int
    gpu: int
    pci: str


class Devices(msgspec.Struct, frozen=True):
    """The HCAs that NCCL uses on a host, by index; a merged device has several. `address` is that
    of the process for connection setup, empty where unknown."""

    hcas: dict[int, tuple[str, ...]]
    address: str


class Bootstrap(msgspec.Struct, frozen=True):
    """The address of a process for connection setup."""

    address: str


class Channel(msgspec.Struct, frozen=True):
    """A connection over the network: `rank` sends to `peer` over the NIC with this index (-1 where
    the transport has none); `transport` is as in `NET/IB`. `gdr`: by GPUDirect RDMA."""

    rank: int
    peer: int
    transport: str
    hca: int
    is_receive: bool
    gdr: bool = False


class Version(msgspec.Struct, frozen=True):
    """The version of NCCL or RCCL."""

    text: str


class SlowSign(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a job slow or its start late. `kind` is `network` (`text`: the transport in use),
    `gdr_off` (`text`: the HCA), `nics` (`count`: NICs of the provider `text`), `numa`, `no_verbs`,
    `retry` (`text`: the peer of a TCP connection that was tried again), `no_name` (`text`: a host
    that could not be resolved), `loopback` (gloo's address) or `store_closed` (PyTorch's)."""

    kind: str
    text: str = ""
    count: int = 0


COMPLETION = "completion"
REQUEST = "request"
DEVICE = "device"
CALL = "call"
CONNECTION = "connection"
EXCEPTION = "exception"
GPU = "gpu"
PROCESS = "process"
PROGRAM = "program"
STALL = "stall"
SHARED_MEMORY = "shared memory"
"""What the text of a PROGRAM failure begins with that got none, and the name of its meaning."""
CANCELLED = "cancelled: "
"""What the text of a PROCESS failure begins with that Slurm ended; the reason follows."""
TAKEN_DOWN = "process taken down"
"""The text of an EXCEPTION failure: PyTorch ended the process after an error or a timeout."""
NODE_FAILURE = "no longer answered Slurm"
"""The text of a PROCESS failure of a whole node."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A failure, and the fields of its line; -1 or empty where a line has none.

    `kind` is `completion` (a work request of the verbs API), `request` (of libfabric), `device` (an
    event of an HCA), `call` (of a library), `connection` (TCP), `exception` (an error that NCCL
    reports to PyTorch), `gpu` (CUDA or HIP), `process` (it ended), `program` (an exception of the
    job's own code) or `stall` (PyTorch waited in vain). `code` is a status of the verbs API, a code
    of the libfabric provider, or an exit status. `side` is `send` or `recv`, `index` NCCL's index
    of the NIC, `work` the collective that was ended, `rank` a rank that the line names.
    """

    kind: str
    text: str = ""
    code: int = -1
    vendor_error: int = -1
    peer: str = ""
    side: str = ""
    local_gid: str = ""
    remote_gid: str = ""
    hca: str = ""
    index: int = -1
    work: str = ""
    rank: int = -1


class Timeout(msgspec.Struct, frozen=True, kw_only=True):
    """PyTorch's watchdog: a collective that did not finish. `rank` is the rank in the process
    group `group`, -1 where not given, as is `seq`; texts are empty, seconds None then."""

    rank: int
    group: str
    seq: int
    operation: str = ""
    limit_s: float | None = None
    ran_s: float | None = None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of a rank in a process group: the last enqueued and the last completed (None:
    not given)."""

    rank: int
    group: str
    enqueued: int
    completed: int | None


class Signalled(msgspec.Struct, frozen=True):
    """A rank that received the timeout of another rank (`by`, -1 where not named)."""

    rank: int
    by: int


Event = (
    Communicator
    | Devices
    | Bootstrap
    | Channel
    | Version
    | SlowSign
    | Failure
    | Timeout
    | Progress
    | Signalled
)
