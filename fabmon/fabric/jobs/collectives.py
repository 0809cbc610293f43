"""What NCCL Inspector measured of collectives, and a report of the last of them."""

from __future__ import annotations

import msgspec

from fabmon.fabric.timestamp import TimeNs

OPERATIONS = frozenset(
    {
        *("allreduce", "allgather", "reducescatter", "broadcast", "reduce"),
        *("alltoall", "gather", "scatter", "send", "recv", "sendrecv"),
    }
)
"""NCCL's names of operations, in small letters."""


class Collective(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A collective or point-to-point operation of one communicator and message size: the means of
    the last minute that was recorded of it.

    `job` is the number that Slurm gave, empty where unknown. `size` is a text, `16 GiB`, or a range
    as in `4-5GB`. `ranks` and `nodes` are those of the communicator, 0 where unknown. `calls` are
    records, one a rank and call, and of metrics one a GPU and page. `time_s` is a call's, `busbw`
    in bytes/s as nccl-tests defines it, `lowest` that of the slowest host. `hosts` are some that
    recorded it.
    """

    job: str = ""
    communicator: str = ""
    operation: str
    size: str = ""
    ranks: int = 0
    nodes: int = 0
    calls: int = 0
    time_s: float
    busbw: float
    lowest: float = 0.0
    lowest_host: str = ""
    hosts: tuple[str, ...] = ()
    latest_ns: TimeNs = 0


class CollectiveReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last minute of each operation, that with most time first.

    `lost` are records that the Inspector reports as lost, `unread` lines and files that could not
    be read, `skipped` bytes of files that grow faster than they are read, all since fabmon started.
    `reason` says why nothing can be read, empty where something can. `read_ns` is the console's
    wall clock.
    """

    read_ns: TimeNs = 0
    reason: str = ""
    lost: int = 0
    unread: int = 0
    skipped: int = 0
    collectives: tuple[Collective, ...] = ()

    def says_the_same(self, other: CollectiveReport | None) -> bool:
        """Whether only the time of the last read differs."""
        return other is not None and msgspec.structs.replace(other, read_ns=self.read_ns) == self
