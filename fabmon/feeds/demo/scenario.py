"""A scenario: a fabric, its jobs and its faults, read from TOML.

    seed = 1
    [topology]      kind = "rail", hosts = 16, rails = 8 ...
    [[job]]         name = "llama", collective = "ring", payload_gb = 4 ...
    [[fault]]       kind = "ecmp_collision", at = 10, for = 30, where = "leaf1/up3"
    [[caption]]     at = 10, text = "two elephants on one uplink"

Times are seconds from the start. What `where` leaves open is drawn from the seed.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec

from fabmon import toml_text
from fabmon.fabric.input_files import read_input
from fabmon.fabric.wording import file_error

_MAX_FILE_BYTES = 1 << 24

LEAF_SPINE, RAIL, FAT_TREE = "leaf-spine", "rail", "fat-tree"
KINDS = (LEAF_SPINE, RAIL, FAT_TREE)

_OLD_KINDS = {
    "collision": "ecmp_collision",
    "flap": "flapping_link",
    "pcie_limit": "host_pcie_limit",
}
"""Names of faults in scenario files that were written before faults were named after causes."""


_HOSTS_OF_ONE_EXCHANGE = 128
_EXPERT_GROUP = 16
"""Hosts of an expert-parallel group: an all-to-all of every host of a larger fabric would be
millions of flows, which no job of that size sends either."""


_NAMES_A_FAULT = "Now:"
_HOST = re.compile(r"\b(gpu)(\d+)")


class ScenarioError(Exception):
    """A scenario that cannot be simulated; the message says where and what to do."""


class FabricShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The fabric. 0 and "" mean: derived from the other keys.

    `leaf-spine`: a leaf takes all NICs of `hosts_per_leaf` hosts. `rail`: one leaf takes rail r of
    `hosts_per_leaf` hosts. `fat-tree`: as leaf-spine, but InfiniBand. `oversubscription` is what a
    leaf's hosts can send over what its uplinks carry. `routing`: `hash` of the 5-tuple (ECMP),
    `spray` evenly over all paths (adaptive routing), `static` by destination (InfiniBand's tables).
    Without `ecn` only pause slows a sender. `visible`: `all`, or only the `hosts`; with `lldp`
    hosts report the leaf that each of their NICs is cabled to. The last `storage` hosts are storage
    servers without GPUs. `hash_noise` is the relative variation between the uplinks of a leaf of
    what is sprayed over them. A GPU has `nvlinks` NVLinks; with 0 only its total is reported.
    """

    kind: Literal["leaf-spine", "rail", "fat-tree"] = "leaf-spine"
    hosts: int = 16
    rails: int = 8
    gpus: int = 0
    nvlinks: int = 0
    storage: int = 0
    hosts_per_leaf: int = 0
    spines: int = 0
    oversubscription: float = 1.0
    speed_gbps: float = 400.0
    uplink_gbps: float = 0.0
    routing: Literal["", "hash", "spray", "static"] = ""
    hash_noise: float = 0.0
    ecn: bool = True
    visible: Literal["all", "hosts"] = "all"
    lldp: bool = False


class Job(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A training job: iterations of `compute_s` of computing, then `payload_gb` per GPU.

    `hosts` 0 takes all hosts that are free; `packed` fills leaf after leaf, `scattered` alternates
    between leaves, so that every ring neighbour is behind another leaf. An all-reduce (`ring`,
    `tree`) moves 2(n-1)/n of the payload per GPU, `all-to-all` (within `group` hosts, 0 for all)
    (n-1)/n. `qps` is the number of queue pairs, and so of flows, of a connection. `demand` is the
    share of line rate that a NIC can send; `jitter` is the relative variation per iteration.
    `spread` is the relative variation of what its NICs send, `noise` that of a flow's rate over
    time.

    Every `checkpoint_s` seconds (0: never) each NIC writes `checkpoint_gb` to the storage servers,
    between two iterations; all the time it reads `input_gbps` from them. `nvlink_gbs` is what a GPU
    sends over its NVLinks while it computes, GB/s.
    """

    name: str = "train"
    hosts: int = 0
    placement: Literal["packed", "scattered"] = "scattered"
    collective: Literal["ring", "tree", "all-to-all"] = "ring"
    payload_gb: float = 40.0
    compute_s: float = 1.0
    qps: int = 1
    group: int = 0
    demand: float = 0.8
    start: float = 0.0
    stop: float | None = None
    jitter: float = 0.02
    spread: float = 0.0
    noise: float = 0.0
    checkpoint_s: float = 0.0
    checkpoint_gb: float = 0.0
    input_gbps: float = 0.0
    nvlink_gbs: float = 0.0


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fault from `at` on, for `for` seconds (without it: to the end).

    `kind` is the name of the cause that must be found, see faults.py.

    `where` is a port (`leaf1/up3`, `leaf1/dn2`, `gpu003/r5`), a switch or a host. The other keys
    are for some kinds only; see faults.py.
    """

    kind: str
    at: float = 0.0
    duration: float | None = msgspec.field(default=None, name="for")
    where: str = ""
    other: str = ""
    job: str = ""
    share: float | None = None
    flows: int | None = None
    period_s: float = 6.0
    down_s: float = 1.5
    extra_s: float = 4.0
    rate: float = 2000.0
    shares: tuple[float, ...] = ()
    shown: bool = True
    crash: bool = False

    def __post_init__(self) -> None:
        """Replace the old name of a kind."""
        if self.kind in _OLD_KINDS:
            msgspec.structs.force_setattr(self, "kind", _OLD_KINDS[self.kind])

    @property
    def until(self) -> float:
        """Seconds from the start to its end; infinity without an end."""
        return float("inf") if self.duration is None else self.at + self.duration


class Caption(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of text on the screen, from `at` for `for` seconds."""

    at: float
    text: str
    duration: float = msgspec.field(default=8.0, name="for")


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All of it."""

    title: str = "demo"
    seed: int = 1
    topology: FabricShape = FabricShape()
    job: tuple[Job, ...] = ()
    fault: tuple[Fault, ...] = ()
    caption: tuple[Caption, ...] = ()


def parse(text: str, name: str = "scenario") -> Scenario:
    """A scenario from TOML. Raises ScenarioError with `name`, the place and the nearest key."""
    try:
        return msgspec.convert(toml_text.loads(text), Scenario)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(f"{name}: {error}") from None
    except msgspec.ValidationError as error:
        raise ScenarioError(f"{name}: {error}{_hint(str(error))}") from None


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises ScenarioError."""
    try:
        return parse(read_input(path, _MAX_FILE_BYTES).decode("utf-8-sig"), str(path))
    except OSError as error:
        raise ScenarioError(f"{path}: {file_error(error)}") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: not UTF-8 text") from None


def tour(kind: str) -> Scenario:
    """The built-in tour on a fabric of this kind."""
    text = resources.files("fabmon.feeds.demo").joinpath("scenarios", f"{kind}.toml").read_text()
    return parse(text, f"{kind}.toml")


def resized(scenario: Scenario, hosts: int | None, seed: int | None) -> Scenario:
    """The scenario with another number of hosts or another seed.

    With another number of hosts, jobs keep their share of them. With fewer, faults choose their
    targets again, and the captions that name one are left out. Raises ScenarioError.
    """
    if seed is not None:
        scenario = msgspec.structs.replace(scenario, seed=seed)
    if hosts is None or hosts == scenario.topology.hosts:
        return scenario
    if hosts % 4:
        raise ScenarioError(f"{hosts} hosts: use a multiple of 4, so that leaves can be filled")
    before = scenario.topology.hosts
    shape = msgspec.structs.replace(
        scenario.topology,
        hosts=hosts,
        storage=scenario.topology.storage * hosts // before if hosts > before else 0,
        nvlinks=scenario.topology.nvlinks if hosts <= before else 0,
    )
    return msgspec.structs.replace(
        scenario,
        topology=shape,
        job=tuple(_that_fit(scenario.job, hosts, before, hosts - shape.storage)),
        fault=tuple(
            msgspec.structs.replace(fault, where="") if hosts < before else fault
            for fault in scenario.fault
        ),
        caption=tuple(
            msgspec.structs.replace(each, text=_HOST.sub(partial(_padded, hosts), each.text))
            for each in scenario.caption
            if hosts > before or not each.text.startswith(_NAMES_A_FAULT)
        ),
    )


def _padded(hosts: int, name: re.Match[str]) -> str:
    """A name of a host as it is in a fabric of so many hosts: gpu014, or gpu0014 of 1,024."""
    return f"{name[1]}{int(name[2]):0{host_digits(hosts)}}"


def host_digits(hosts: int) -> int:
    """Digits of the number in a host's name in a fabric of so many hosts."""
    return max(3, len(str(hosts)))


def _that_fit(jobs: Sequence[Job], hosts: int, before: int, free: int) -> Iterator[Job]:
    """The jobs with their share of the hosts, without those that find too few `free`."""
    for job in jobs:
        job = _resized_job(job, hosts, before)
        free -= job.hosts or free
        if free >= 0:
            yield job


def _resized_job(job: Job, hosts: int, before: int) -> Job:
    """A job with its share of the hosts; on a large fabric its experts are exchanged in groups."""
    if hosts > _HOSTS_OF_ONE_EXCHANGE and job.collective == "all-to-all" and not job.group:
        job = msgspec.structs.replace(job, group=_EXPERT_GROUP)
    if not job.hosts:
        return job
    return msgspec.structs.replace(job, hosts=max(2, job.hosts * hosts // before))


def _hint(message: str) -> str:
    _, _, rest = message.partition("unknown field `")
    unknown, _, where = rest.partition("`")
    tables: dict[str, type[msgspec.Struct]] = {
        "topology": FabricShape,
        "job": Job,
        "fault": Fault,
        "caption": Caption,
    }
    table = next((each for name, each in tables.items() if f"`$.{name}" in where), Scenario)
    known = [field.encode_name for field in msgspec.structs.fields(table)]
    near = difflib.get_close_matches(unknown, known, n=1) if unknown else []
    return f"; did you mean `{near[0]}`?" if near else ""
