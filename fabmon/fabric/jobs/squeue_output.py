"""Parses what Slurm's `squeue` prints: lines of our own format, and JSON of both generations.

The lines are asked for first: all versions have them, and a job takes 100 bytes of them instead of
5 kB of JSON. Each begins with a random mark: a name may hold a line end, and what follows it would
otherwise be read as another job.

JSON of Slurm 22.05 has numbers and one state; later versions (data_parser) have objects `{set,
infinite, number}` and lists of states.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from fabmon.fabric.hosts import nodesets
from fabmon.fabric.hosts.host_line import Bad, Word
from fabmon.fabric.jobs.job import Job, start_ns_of
from fabmon.fabric.wire.messages import clean
from fabmon.malformed_json import MALFORMED

_COLUMNS = "%A|%i|%u|%P|%T|%S|%N|%j"
"""Number, number as shown, user, partition, state, start, nodes, and last the name: it may hold
`|`."""
_LAST = 7

_RUNNING = "RUNNING"
_MOST_JOBS = 20_000
_MOST_TEXT = 64


class NotSqueue(ValueError):
    """Output that `squeue` does not print; the message says what is wrong with it."""


class ParsedJobs(NamedTuple):
    """The running jobs, by number, and how many others could not be read."""

    jobs: tuple[Job, ...]
    unread: int


def line_options(mark: str) -> list[str]:
    """The options of `squeue` for lines that begin with a mark."""
    return ["--noheader", "--states=RUNNING", f"--format={mark}|{_COLUMNS}"]


def environment(inherited: dict[str, str]) -> dict[str, str]:
    """The environment in which `squeue` prints these lines, with times in UTC.

    The user's own settings of it would leave jobs or columns out.
    """
    kept = {key: value for key, value in inherited.items() if not key.startswith("SQUEUE_")}
    return {**kept, "TZ": "UTC0", "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C"}


def parse(output: bytes, mark: str) -> ParsedJobs:
    """The running jobs in lines or JSON, whichever it is. Raises NotSqueue."""
    if output.lstrip().startswith(b"{"):
        return parse_json(output)
    return parse_lines(output.decode("utf-8", "replace"), mark)


def parse_lines(text: str, mark: str) -> ParsedJobs:
    """The jobs in lines that begin with a mark. Raises NotSqueue if none does."""
    _, *ours = f"\n{text.rstrip()}".split(f"\n{mark}|")
    if not ours and text.strip():
        raise NotSqueue(f"squeue printed {clean(text.strip())[:60]!r}")
    return _parsed(map(_job_of_line, ours))


def parse_json(data: bytes) -> ParsedJobs:
    """The jobs in JSON of Slurm 22.05 or later. Raises NotSqueue."""
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except MALFORMED as error:
        raise NotSqueue(f"squeue printed JSON that is no list of jobs: {error}") from None
    if answer.errors and not answer.jobs:
        raise NotSqueue(f"squeue reports an error: {clean(str(answer.errors[0]))[:120]}")
    return _parsed(map(_job_of_json, answer.jobs))


class _Number(msgspec.Struct):
    """A number of data_parser; without `set` there is none."""

    set: bool = True
    infinite: bool = False
    number: int | float = 0


_Numeric = int | float | str | None | _Number


class _JsonJob(msgspec.Struct):
    job_id: _Numeric
    array_job_id: _Numeric = None
    array_task_id: _Numeric = None
    het_job_id: _Numeric = None
    het_job_offset: _Numeric = None
    job_state: str | list[str] = ""
    name: str | None = ""
    user_name: str | None = ""
    user_id: _Numeric = None
    partition: str | None = ""
    nodes: str | None = ""
    start_time: _Numeric = None
    job_resources: Any = None


class _Answer(msgspec.Struct):
    jobs: list[msgspec.Raw]
    errors: list[Any] = []


def _parsed(found: Iterable[Job | Bad | None]) -> ParsedJobs:
    """Running jobs by number; None is a job that does not run, Bad one that is unreadable."""
    jobs: dict[str, Job] = {}
    unread = 0
    for each in found:
        if isinstance(each, Job) and len(jobs) < _MOST_JOBS:
            jobs[each.id] = each
        elif each is not None:
            unread += 1
    return ParsedJobs(tuple(sorted(jobs.values(), key=lambda job: (len(job.id), job.id))), unread)


def _job_of_line(line: str) -> Job | Bad | None:
    fields = line.split("|", _LAST)
    if len(fields) != _LAST + 1:
        return Bad(1, "a line with too few columns", "")
    number, shown, user, partition, state, start, nodes, name = fields
    if state.strip() != _RUNNING:
        return None
    return _job(number, shown, name, user, partition, nodes.split(), _time_ns(start))


def _job_of_json(raw: msgspec.Raw) -> Job | Bad | None:
    try:
        found = msgspec.json.decode(raw, type=_JsonJob)
    except MALFORMED as error:
        return Bad(1, str(error), "")
    states = [found.job_state] if isinstance(found.job_state, str) else found.job_state
    if _RUNNING not in states:
        return None
    number = _integer(found.job_id)
    shown = ""
    if _integer(found.array_job_id) and _integer(found.array_task_id) is not None:
        shown = f"{_integer(found.array_job_id)}_{_integer(found.array_task_id)}"
    elif _integer(found.het_job_id):
        shown = f"{_integer(found.het_job_id)}+{_integer(found.het_job_offset) or 0}"
    user_id = _integer(found.user_id)
    user = found.user_name or ("" if user_id is None else str(user_id))
    nodes = [found.nodes] if found.nodes else _allocated(found.job_resources)
    start_ns = start_ns_of(_integer(found.start_time) or 0)
    return _job(str(number), shown, found.name, user, found.partition, nodes, start_ns)


def _job(
    number: str,
    shown: str,
    name: str | None,
    user: str | None,
    partition: str | None,
    node_sets: Sequence[str],
    start_ns: int,
) -> Job | Bad:
    number = number.strip()
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        return Bad(1, "a job without a number", "")
    try:
        nodes = tuple(node for each in node_sets for node in nodesets.expand(Word(each, 1)))
    except Bad as bad:
        return bad
    shown = _text(shown)
    return Job(
        id=number,
        shown_id="" if shown == number else shown,
        name=_text(name),
        user=_text(user),
        partition=_text(partition),
        nodes=nodes,
        start_ns=start_ns,
    )


def _text(text: str | None) -> str:
    return clean((text or "").strip())[:_MOST_TEXT]


def _integer(value: _Numeric) -> int | None:
    """The number in a field of either generation; None where there is none."""
    if isinstance(value, _Number):
        value = value.number if value.set and not value.infinite else None
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else None
    return None if value is None or not abs(value) < 1e18 else int(value)


def _allocated(resources: Any) -> list[str]:
    """The nodes of a job without a list of them, from its resources of either generation."""
    resources = resources if isinstance(resources, dict) else {}
    nodes = resources.get("nodes")
    if isinstance(nodes, str) and nodes:
        return [nodes]
    nodes = nodes if isinstance(nodes, dict) else {}
    if isinstance(nodes.get("list"), str) and nodes["list"]:
        return [nodes["list"]]
    listed = nodes.get("allocation") or resources.get("allocated_nodes") or ()
    names = [each.get("name") or each.get("nodename") for each in listed if isinstance(each, dict)]
    return [name for name in names if isinstance(name, str)]


def _time_ns(text: str) -> int:
    """`2026-11-22T07:40:50`, UTC, in ns since 1970; 0 where it is no time."""
    try:
        return start_ns_of(datetime.datetime.fromisoformat(f"{text.strip()}+00:00").timestamp())
    except ValueError:
        return 0
