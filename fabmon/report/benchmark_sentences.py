"""What a run of nccl-tests shows, in sentences of `fabmon explain`."""

from __future__ import annotations

from collections.abc import Iterator

from fabmon.analysis.job_log.nccl_tests import BenchmarkResult, BenchmarkRow, Rails
from fabmon.fabric.wording import (
    bit_rate,
    byte_count,
    byte_rate,
    name_list,
    plural,
    rounded_percent,
)


def benchmark_sentences(test: BenchmarkResult) -> Iterator[str]:
    """The best bandwidth, where it falls off, and wrong values."""
    name = test.name or "nccl-tests"
    if test.lone_hosts:
        hosts = name_list(sorted(set(test.lone_hosts)), 8)
        yield (
            f"{name} ran as {plural(len(test.lone_hosts), 'process', 'separate processes')} of one"
            f" rank each (rank 0 on {hosts}): they did not form one communicator, and the bandwidth"
            " of the network was not measured. Build nccl-tests with MPI=1, and start it with"
            " mpirun or srun."
        )
        return
    if test.best is not None:
        yield _best(name, test, test.best)
    for fall in test.falls[:1]:
        more = f", and at {len(test.falls) - 1} larger sizes" if len(test.falls) > 1 else ""
        yield (
            f"{name} falls off at {byte_count(fall.size)}: {byte_rate(fall.busbw_bps)}, after"
            f" {byte_rate(fall.before_bps)} at a smaller size{more}."
        )
    if test.wrong or test.out_of_bounds:
        count = sum(test.wrong.values()) or test.out_of_bounds
        sizes = name_list([byte_count(size) for size in test.wrong], 4)
        yield (
            f"{name} has {plural(count, 'wrong value')}{f' at {sizes}' if sizes else ''}: data is"
            " damaged, which is no matter of bandwidth. Check ECC and Xid of the GPUs, NVLinks, and"
            " the versions of NCCL and driver."
        )


def _best(name: str, test: BenchmarkResult, best: BenchmarkRow) -> str:
    said = f"{name} reaches {byte_rate(best.busbw_bps)} at {byte_count(best.size)}"
    if test.nodes == 1:
        return f"{said}, within one node: the network has no part in it."
    if test.share is None or test.rails is None:
        return f"{said}. To compare it with the rails, add --rails and --line-rate."
    limit = byte_rate(test.limit_bps)
    if test.is_good is None:
        return f"{said}, {_impossible(test, test.rails, limit)}"
    verdict = "and about 80 % or more is usual."
    if not test.is_good:
        verdict = "less than the usual 80 %: look for the slowest rail and for pauses."
    elif test.share > 1:
        verdict = "more than a ring could: NCCL reduces in the node first."
    return f"{said}, {rounded_percent(test.share)} of the {limit} of the rails, {verdict}"


def _impossible(test: BenchmarkResult, rails: Rails, limit: str) -> str:
    """What is wrong where the rails cannot have carried the result."""
    wrong = "Check --rails, the NICs of a node, and --line-rate, in bits per second"
    if not test.nodes:
        wrong = f"The log does not name the hosts: it may be one node, with NVLink. {wrong}"
    return (
        f"which these rails cannot carry: {plural(rails.count, 'rail')} of"
        f" {bit_rate(rails.line_rate_bps)} ({rails.source}) are {limit}. {wrong}."
    )
