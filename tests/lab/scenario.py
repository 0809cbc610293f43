"""A scenario of the lab: a fabric, the jobs on it, what goes wrong, and what fabmon is to say.

Read from TOML, in the words of the simulator's scenarios wherever they mean the same. What is here
is done by the kernel, so there are fewer of them: see docs/scenarios.md.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from tests.lab.netns import LabError

FIVE_TUPLE, SOURCE_PORT = "5-tuple", "source-port"


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For how many `seconds` it runs, and which causes open in them, each a root."""

    seconds: float
    findings: tuple[str, ...]


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Two leaves, `spines` uplinks each, `hosts` with `rails` NICs each.

    `routing`: `hash` leaves the uplink to the kernel's hash, `spray` gives every uplink as many
    connections, by client ports chosen for it. What switches `hash` on is the `5-tuple`, or nothing
    but the UDP `source-port`. Of uplinks in `wires` the kernel knows the line rate. With `visible`
    = `hosts` no switch is watched.
    """

    hosts: int = 16
    rails: int = 1
    spines: int = 4
    speed_mbps: float = 50.0
    routing: Literal["hash", "spray"] = "spray"
    hash: Literal["5-tuple", "source-port"] = "5-tuple"
    wires: tuple[str, ...] = ()
    visible: Literal["all", "hosts"] = "all"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every NIC sends to its peer under the other leaf: a ring whose neighbours are scattered.

    It sends at `demand`, the share of its line rate that it can be fed with; always, or for
    `send_s` after it has computed for `compute_s`, over and over. With a `source_port` all its
    connections share that one. `protocol`: `udp` keeps its rate whatever is lost, `tcp` slows down.
    """

    demand: float
    compute_s: float = 0.0
    send_s: float = 0.0
    start: float = 0.0
    source_port: int = 0
    protocol: Literal["udp", "tcp"] = "udp"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that goes wrong at `at`, for `for` seconds (to the end without it).

    `collision`: `flows` hosts of the leaf send `share` each over the uplink `where`. `incast`:
    `flows` hosts send `share` each to the host `where`. `oversubscription`: the job's NICs are fed
    with `share`. `degraded_link`: the uplink `where` runs at `share` of its line rate. `flap`: it
    is down for `down_s` every `period_s`. `straggler`: the host `where` computes for `extra_s`
    longer; the others exchange a tenth meanwhile, and wait. `uneven_rails`: rail r of all hosts
    sends `shares[r]` of what its job feeds it with.
    """

    kind: Literal[
        "collision",
        "incast",
        "oversubscription",
        "degraded_link",
        "flap",
        "straggler",
        "uneven_rails",
    ]
    at: float
    duration: float | None = msgspec.field(default=None, name="for")
    where: str = ""
    flows: int = 2
    share: float = 0.8
    shares: tuple[float, ...] = ()
    period_s: float = 3.0
    down_s: float = 1.0
    extra_s: float = 4.0
    protocol: Literal["udp", "tcp"] = "udp"


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of it."""

    title: str
    expect: Expected
    topology: Topology = Topology()
    job: tuple[Job, ...] = ()
    fault: tuple[Fault, ...] = ()

    @property
    def begins_s(self) -> float:
        """When what it is about begins: its first fault, else its first job."""
        return min((each.at for each in self.fault), default=self.first_job_s)

    @property
    def first_job_s(self) -> float:
        """When there is traffic."""
        return min((each.start for each in self.job), default=0.0)


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises LabError with the file and what is wrong in it."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Scenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise LabError(f"{path}: {error}") from None
