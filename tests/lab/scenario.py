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
    """For how many `seconds` it runs, and the findings that open in them, each a root.

    A finding is `CAUSE of SUBJECT`; a cable is called by its lower end. Any other one is wrong.
    """

    seconds: float
    findings: tuple[str, ...]


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """So many `leaves`, `spines` uplinks each, and `hosts` with `rails` NICs each, shared out.

    Hosts' NICs are called `nic`0, `nic`1, ..., and `management` is what their sshd is reached by.
    Ports run at `speed_mbps`, uplinks at `uplink_mbps` where it is set. `cabling`: fabmon has the
    cables from `neighbours`; or no node has a neighbour entry, and it has a `file` or nothing but
    the `addresses` of the ports.

    `routing`: `hash` leaves the uplink to the kernel's hash, `spray` gives every uplink as many
    connections, by client ports chosen for it. What switches `hash` on is the `5-tuple`, or nothing
    but the UDP `source-port`. Of uplinks in `wires` the kernel knows the line rate. With `visible`
    = `hosts` no switch is watched.
    """

    hosts: int = 16
    rails: int = 1
    spines: int = 4
    leaves: int = 2
    nic: str = "eth"
    management: str = "mgmt0"
    speed_mbps: float = 20.0
    uplink_mbps: float | None = None
    cabling: Literal["neighbours", "file", "addresses"] = "neighbours"
    routing: Literal["hash", "spray"] = "spray"
    hash: Literal["5-tuple", "source-port"] = "5-tuple"
    wires: tuple[str, ...] = ()
    visible: Literal["all", "hosts"] = "all"


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every NIC sends to its peer under the other leaf: a ring whose neighbours are scattered.

    It sends at `demand`, the share of its line rate that it can be fed with; always, or for
    `send_s` after it has computed for `compute_s`, over and over. With a `source_port` all its
    connections share that one. `protocol`: `udp` keeps its rate whatever is lost, `tcp` slows down.

    With `step_mb` it is synchronous, and its pace its own: every NIC sends so many megabytes an
    iteration over TCP, as fast as it can, to the next of the ring or to all others (`pattern`); two
    hosts exchange once both have computed, and the next iteration begins when all has arrived.
    """

    demand: float = 0.0
    step_mb: float = 0.0
    pattern: Literal["ring", "all-to-all"] = "ring"
    compute_s: float = 0.0
    send_s: float = 0.0
    start: float = 0.0
    source_port: int = 0
    protocol: Literal["udp", "tcp"] = "udp"


class Flow(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Connections of their own: from each of `src` to the host of `dst` in the same place, or to
    the only one.

    Each sends `share` of line rate, from rail `rail` to rail `rail`, over `uplink` of the senders'
    leaf where it is set; always, or for `on_s` of every `every_s`. TCP with more than 1 sends all
    that it can.
    """

    src: tuple[str, ...]
    dst: tuple[str, ...]
    share: float
    rail: int = 0
    uplink: str = ""
    start: float = 0.0
    every_s: float = 0.0
    on_s: float = 0.0
    protocol: Literal["udp", "tcp"] = "tcp"


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that goes wrong at `at`, for `for` seconds (to the end without it).

    `collision`: `flows` hosts of the leaf send `share` each over the uplink `where`; of a job with
    `step_mb` so many of its connections, from its first iteration on. `incast`:
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
    flow: tuple[Flow, ...] = ()
    fault: tuple[Fault, ...] = ()

    @property
    def begins_s(self) -> float:
        """When what it is about begins: its first fault, else the last of its traffic to start."""
        starts = [job.start for job in self.job] + [flow.start for flow in self.flow]
        return min((each.at for each in self.fault), default=max(starts, default=0.0))


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises LabError with the file and what is wrong in it."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Scenario)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise LabError(f"{path}: {error}") from None
