"""A dump of PyTorch's Flight Recorder: the last collectives of one rank.

PyTorch writes a pickle or JSON per rank when a collective times out (TORCH_FR_BUFFER_SIZE,
TORCH_NCCL_DUMP_ON_TIMEOUT; torch/csrc/distributed/c10d/FlightRecorder.hpp). The rank is the number
that the name of the file ends in.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec

from fabmon.analysis.flight_recorder.plain_pickle import MOST_VALUES, PickleError, plain_data
from fabmon.malformed_json import MALFORMED, values_in

COMPLETED = "completed"
STARTED = "started"
_FORMAT = re.compile(rb'^\s{0,99}\{(?=[^\0]{0,2000}?"(?:entries|pg_config|pg_status|version)"\s?:)')
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_KEYS = (b"pg_config", b"collective_seq_id")
_RANK = re.compile(r"(\d{1,7})(?:\.(?:json|pkl|pickle))?(?:\.gz)?$")
_OWN_CODE = re.compile(r"(?:/torch/|distributed_c10d\.py$|c10d_logger\.py$|/site-packages/)")


_Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class Frame(msgspec.Struct, frozen=True):
    """A line of Python that was being executed."""

    filename: str = ""
    line: int = 0
    name: str = ""


class Entry(msgspec.Struct, frozen=True):
    """A collective, or a transfer between two ranks (`is_p2p`), that a rank enqueued.

    `process_group` is the name and the description of its group; `collective_seq_id` counts the
    collectives of a group from 1. Times are ns of the rank's wall clock, None where not seen.
    `state` is `scheduled`, `started` or `completed`; of a group without CUDA (gloo) it stays
    `scheduled`. `timeout_ms` is None where not recorded.
    """

    collective_seq_id: _Number
    profiling_name: str = ""
    process_group: tuple[str, str] = ("", "")
    is_p2p: bool = False
    state: str = ""
    time_created_ns: _Number | None = None
    time_discovered_started_ns: _Number | None = None
    time_discovered_completed_ns: _Number | None = None
    timeout_ms: _Number | None = None
    input_sizes: list[list[int]] = []
    output_sizes: list[list[int]] = []
    input_dtypes: list[str] = []
    frames: list[Frame] = []

    @property
    def operation(self) -> str:
        """`all_reduce`, of `nccl:all_reduce`."""
        return self.profiling_name.rpartition(":")[2]

    @property
    def is_completed(self) -> bool:
        """Whether it is known to have completed."""
        return self.state == COMPLETED or self.time_discovered_completed_ns is not None

    @property
    def is_started(self) -> bool:
        """Whether it is known to have started on the GPU."""
        return self.state == STARTED or self.time_discovered_started_ns is not None

    @property
    def place(self) -> str:
        """`train.py:71`, the innermost line that is not PyTorch's; empty where not recorded."""
        own = (each for each in self.frames if not _OWN_CODE.search(each.filename))
        frame = next(own, None)
        return "" if frame is None else f"{frame.filename.rpartition('/')[2]}:{frame.line}"


class _Group(msgspec.Struct, frozen=True):
    name: str = ""
    desc: str = ""
    ranks: str = ""


class _Content(msgspec.Struct, frozen=True):
    entries: list[Entry]
    pg_config: dict[str, _Group] = {}


class Dump(msgspec.Struct, frozen=True):
    """What one `rank` had enqueued, oldest first; `members` are the ranks of each process group by
    its name, as far as the dump has them; gloo's group of all ranks has none. `source` is the name
    of its file. `error` is why it could not be read; its `rank` is -1 where the name does not have
    it."""

    source: str
    rank: int
    entries: tuple[Entry, ...] = ()
    members: dict[str, tuple[int, ...]] = {}
    error: str = ""


def is_dump(block: bytes) -> bool:
    """Whether a file that begins so may be a dump."""
    is_possible = _PICKLE.match(block) or (_FORMAT.match(block) and b'"entries"' in block)
    return bool(is_possible) and any(key in block for key in _KEYS)


def without_places(dump: Dump) -> Dump:
    """A dump without the lines of the job's program."""
    entries = tuple(msgspec.structs.replace(each, frames=[]) for each in dump.entries)
    return msgspec.structs.replace(dump, entries=entries)


def _plain_json(data: bytes) -> Any:
    """What JSON holds. Raises DecodeError."""
    if values_in(data) > MOST_VALUES:
        raise msgspec.DecodeError(f"JSON of more than {MOST_VALUES:,} values")
    return msgspec.json.decode(data)


def read_dump(data: bytes, name: str) -> Dump:
    """The dump in a file of this name, with an `error` where it cannot be read."""
    found = _RANK.search(name)
    if found is None:
        return Dump(
            name, -1, error="its name does not end in the number of the rank, as rank_3 does"
        )
    rank = int(found[1])
    try:
        plain = plain_data(data) if _PICKLE.match(data) else _plain_json(data)
        content = msgspec.convert(plain, _Content)
    except (PickleError, *MALFORMED) as error:
        return Dump(name, rank, error=str(error))
    members = {}
    for group in content.pg_config.values():
        ranks = tuple(sorted(int(each) for each in re.findall(r"\d{1,7}", group.ranks)))
        if ranks:
            members[group.name] = ranks
    return Dump(name, rank, tuple(content.entries), members)
