"""The bandwidth that a training job needs: as one object and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec

from fabmon.analysis.iteration.model_arithmetic import (
    BACKWARD_SHARE,
    DELIVERED,
    ExpectedTraffic,
    JobHints,
    expected_traffic,
)
from fabmon.analysis.iteration.results import JobIteration, exposed_at_most
from fabmon.fabric.time_wording import measured
from fabmon.fabric.wording import (
    bit_rate,
    byte_count,
    percent_range,
    plural,
    rounded_percent,
    trimmed,
)
from fabmon.report.output import aligned

HIDDEN, PARTLY, EXPOSED = "hidden", "partly", "exposed"

_LINE_RATES_BPS = (100e9, 200e9, 400e9, 800e9)


class Computing(msgspec.Struct, frozen=True):
    """The time in which GPUs compute in a step, between `low_s` and `high_s`; `source` is how it
    is known."""

    low_s: float
    high_s: float
    source: str

    @classmethod
    def of_job(cls, job: JobIteration) -> Computing | None:
        """Between the step without what may wait for communication and the whole step; None where
        all of the step may be communication."""
        low_s = job.step_s * (1 - exposed_at_most(job.comm_high, job.mfu))
        return cls(low_s, job.step_s, "measured") if low_s > 0 else None


class LineRateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A line rate, and what a rail's bytes take at 80 % of it. `needed_share` is the needed rate
    (the higher one) over 80 % of line rate, null where the compute time is unknown."""

    line_rate_bps: float
    delivered_bps: float
    comm_s: float
    needed_share: float | None


class MeasuredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The job in a recording: its step, the share of time in communication (0 to 1), the bytes that
    a rail sends in a step, and the rate of a rail meanwhile; null where unknown."""

    hosts: int
    step_s: float
    comm_low: float
    comm_high: float
    rail_bytes: float
    rail_bps: float | None


class RequirementRecord(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="need"):
    """`fabmon need --format json`. Bytes are those of one step and one direction.

    `payload_bytes` are a GPU's gradients, `node_bytes` and `rail_bytes` what a node and each of its
    `rails` send. A data-parallel group is spread over `group_nodes` nodes; a node holds parts of
    `groups_per_node` groups. `collective` is `all-reduce`, `SHARP` or `ZeRO-3`. `comm_s` is the
    time for the bytes at `delivered_bps`, 80 % of `line_rate_bps`. Computing takes `compute_low_s`
    to `compute_high_s`, null where nothing says so, known from `compute_source`. The rate that
    hides the bytes is `needed_low_bps` to `needed_high_bps`: behind all of the computing, and, for
    gradients that are only reduced, behind the backward pass alone. `verdict` is `hidden`, `partly`
    or `exposed` (the lower rate is more than the network delivers), null where unknown.
    """

    params: float
    dtype: str
    dp: int
    tp: int
    pp: int
    gpus: int
    gpus_per_node: int
    rails: int
    collective: str
    group_nodes: int
    groups_per_node: float
    payload_bytes: float
    node_bytes: float
    rail_bytes: float
    line_rate_bps: float
    delivered_bps: float
    comm_s: float
    compute_low_s: float | None
    compute_high_s: float | None
    compute_source: str | None
    needed_low_bps: float | None
    needed_high_bps: float | None
    verdict: str | None
    at_line_rates: list[LineRateRecord]
    measured: MeasuredRecord | None
    not_included: list[str]


def requirement_record(
    hints: JobHints,
    rails: int,
    line_rate_bps: float,
    computing: Computing | None,
    job: JobIteration | None = None,
) -> RequirementRecord:
    """What a job needs of each of the `rails` NICs of a node; `computing` is None where unknown."""
    due = expected_traffic(hints, line_rate_bps, rails)
    low_bps, high_bps = _needed_bps(hints, due, computing)
    delivered_bps = DELIVERED * line_rate_bps
    rates = sorted({*_LINE_RATES_BPS, line_rate_bps})
    return RequirementRecord(
        params=hints.params,
        dtype=hints.dtype,
        dp=hints.dp,
        tp=hints.tp,
        pp=hints.pp,
        gpus=due.gpus,
        gpus_per_node=hints.gpus_per_node,
        rails=rails,
        collective="ZeRO-3" if hints.fsdp else "SHARP" if hints.sharp else "all-reduce",
        group_nodes=due.nodes,
        groups_per_node=due.groups,
        payload_bytes=due.payload,
        node_bytes=due.bytes * rails,
        rail_bytes=due.bytes,
        line_rate_bps=line_rate_bps,
        delivered_bps=delivered_bps,
        comm_s=due.bytes * 8 / delivered_bps,
        compute_low_s=None if computing is None else computing.low_s,
        compute_high_s=None if computing is None else computing.high_s,
        compute_source=None if computing is None else computing.source,
        needed_low_bps=low_bps,
        needed_high_bps=high_bps,
        verdict=_verdict(low_bps, high_bps, delivered_bps),
        at_line_rates=[_at(rate, due.bytes, high_bps) for rate in rates],
        measured=None if job is None else _measured(job),
        not_included=list(_not_included(hints)),
    )


def _needed_bps(
    hints: JobHints, due: ExpectedTraffic, computing: Computing | None
) -> tuple[float | None, float | None]:
    """The rates that hide a rail's bytes behind all computing, and behind the part of it in which
    there is something to send."""
    if computing is None:
        return None, None
    share = 1.0 if hints.fsdp else BACKWARD_SHARE
    return due.needed_bps(computing.high_s), due.needed_bps(computing.low_s * share)


def _verdict(low_bps: float | None, high_bps: float | None, delivered_bps: float) -> str | None:
    if low_bps is None or high_bps is None:
        return None
    if high_bps <= delivered_bps:
        return HIDDEN
    return PARTLY if low_bps <= delivered_bps else EXPOSED


def _at(line_rate_bps: float, count: float, needed_bps: float | None) -> LineRateRecord:
    delivered_bps = DELIVERED * line_rate_bps
    return LineRateRecord(
        line_rate_bps=line_rate_bps,
        delivered_bps=delivered_bps,
        comm_s=count * 8 / delivered_bps,
        needed_share=None if needed_bps is None else needed_bps / delivered_bps,
    )


def _measured(job: JobIteration) -> MeasuredRecord:
    known = job.line_share is not None and job.line_rate_bps is not None
    return MeasuredRecord(
        hosts=len(job.hosts),
        step_s=job.step_s,
        comm_low=job.comm_low,
        comm_high=job.comm_high,
        rail_bytes=job.mean_rail_bytes,
        rail_bps=(job.line_share or 0.0) * (job.line_rate_bps or 0.0) if known else None,
    )


def _not_included(hints: JobHints) -> Iterator[str]:
    """Traffic that the arithmetic leaves out, where the job has it."""
    if hints.tp > hints.gpus_per_node:
        yield (
            f"tensor parallelism: {hints.tp} ranks are more than a node's"
            f" {hints.gpus_per_node} GPUs, so that its all-reduces of every layer cross the network"
        )
    if hints.pp > 1:
        yield "activations between pipeline stages"
    if hints.fsdp:
        yield "micro-batches: with gradient accumulation, ZeRO-3 gathers parameters for each"


def requirement_table(record: RequirementRecord) -> str:
    """The table: the job, a rail's bytes, the needed rate, and the line rates that would do."""
    return "\n".join(_lines(record)) + "\n"


def _lines(record: RequirementRecord) -> Iterator[str]:
    nodes = math.ceil(record.gpus / record.gpus_per_node)
    ways = f"dp {record.dp}, tp {record.tp}, pp {record.pp}"
    yield (
        f"{trimmed(record.params / 1e9)} billion parameters, {record.dtype}, {ways}:"
        f" {plural(record.gpus, 'GPU')} in {plural(nodes, 'node')}, {record.collective}"
    )
    yield ""
    yield from aligned(list(_rows(record)))
    yield ""
    yield from _sentences(record)
    if record.rail_bytes:
        yield ""
        head = ("LINE RATE", "DELIVERED (80 %)", "TIME FOR THE BYTES", "NEEDED / DELIVERED")
        yield from aligned([head, *map(_rate_row, record.at_line_rates)])
    if record.not_included:
        yield ""
        yield from (f"Not included: {each}." for each in record.not_included)


def _rows(record: RequirementRecord) -> Iterator[tuple[str, str, str]]:
    group = f"{plural(record.dp, 'rank')} in {plural(record.group_nodes, 'node')}"
    groups = f"{record.groups_per_node:g}"
    yield "gradients of a GPU", byte_count(record.payload_bytes), "parameters / (tp x pp) x dtype"
    yield (
        "data-parallel group",
        group,
        f"{groups} such group{'' if groups == '1' else 's'} in each node",
    )
    yield "a node sends per step", byte_count(record.node_bytes), _formula(record)
    rails = f"{plural(record.rails, 'rail')} a node"
    yield "a rail sends per step", byte_count(record.rail_bytes), rails
    if record.compute_low_s is not None and record.compute_high_s is not None:
        low, high = measured(record.compute_low_s), measured(record.compute_high_s)
        yield "computing", low if low == high else f"{low} to {high}", record.compute_source or ""
    if record.needed_low_bps is not None and record.needed_high_bps is not None:
        behind = (
            "behind all of the computing"
            if record.collective == "ZeRO-3"
            else "behind all of the computing, to the backward pass alone"
        )
        low, high = bit_rate(record.needed_low_bps), bit_rate(record.needed_high_bps)
        yield "needed per rail", low if low == high else f"{low} to {high}", behind
    line = bit_rate(record.line_rate_bps)
    usual = f"80 % of {line}, which collectives usually achieve"
    yield "delivered per rail", bit_rate(record.delivered_bps), usual


def _formula(record: RequirementRecord) -> str:
    nodes = record.group_nodes
    if nodes == 1:
        return "nothing: groups do not leave a node"
    factor = {"ZeRO-3": f"3 x {nodes - 1}/{nodes}", "SHARP": "1"}.get(
        record.collective, f"2 x {nodes - 1}/{nodes}"
    )
    return f"{factor} x the payload, of each group"


def _sentences(record: RequirementRecord) -> Iterator[str]:
    if not record.rail_bytes:
        yield "No gradient leaves a node: the network does not limit this job."
        return
    taken = measured(record.comm_s)
    if record.verdict is None:
        yield (
            f"Communication takes {taken} of a step. It is hidden behind computing that takes"
            " longer: add --compute TIME."
        )
    elif record.verdict == HIDDEN:
        yield f"Communication takes {taken} and is hidden behind computing."
    elif record.verdict == PARTLY:
        yield (
            f"Communication takes {taken}: hidden only if it overlaps with nearly all of the"
            " computing."
        )
    else:
        waits = measured(record.comm_s - (record.compute_high_s or 0.0))
        yield f"Communication takes {taken} and is not hidden: a step waits {waits} or longer."
    job = record.measured
    if job is not None:
        rate = "" if job.rail_bps is None else f", at {bit_rate(job.rail_bps)}"
        yield (
            f"Measured: steps of {measured(job.step_s)} on {plural(job.hosts, 'host')}, in which a"
            f" rail sends {byte_count(job.rail_bytes)}"
            f" ({rounded_percent(job.rail_bytes / record.rail_bytes)} of the expected bytes) in"
            f" {percent_range(job.comm_low, job.comm_high)} of the time{rate}."
        )
        nodes = math.ceil(record.gpus / record.gpus_per_node)
        if nodes != job.hosts:
            yield (
                f"The model has {plural(nodes, 'node')}, the job in the recording {job.hosts}: it"
                " is another job, or a part of it was recorded. Compute time and bytes are compared"
                " with those of a job of another size."
            )


def _rate_row(each: LineRateRecord) -> tuple[str, str, str, str]:
    share = "·" if each.needed_share is None else rounded_percent(each.needed_share)
    return bit_rate(each.line_rate_bps), bit_rate(each.delivered_bps), measured(each.comm_s), share
