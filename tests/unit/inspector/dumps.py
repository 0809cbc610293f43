"""Lines as NCCL Inspector writes them: each record with its communicator (v4.0 to v4.2), or after a
marker (v4.3)."""

from __future__ import annotations

import json
from typing import Any

WRITTEN_US = 1_748_030_377_748_202


def header(communicator: str = "DP Group 0", nodes: int = 16) -> dict[str, Any]:
    return {
        "id": "0x7f8c496ae9f661",
        "comm_name": communicator,
        "rank": 2,
        "n_ranks": 8 * nodes,
        "nnodes": nodes,
    }


def metadata(version: str, host: str = "gpu001", written_us: int = WRITTEN_US) -> dict[str, Any]:
    return {
        "inspector_output_format_version": version,
        "git_rev": "",
        "rec_mechanism": "nccl_profiler_interface",
        "dump_timestamp_us": written_us,
        "hostname": host,
        "pid": 4711,
    }


def collective(
    busbw: float = 312.0, size: int = 256 << 20, name: str = "AllReduce", us: int = 1600
) -> dict[str, Any]:
    return {
        "coll": name,
        "coll_algo": "RING",
        "coll_proto": "SIMPLE",
        "coll_sn": 1407,
        "coll_msg_size_bytes": size,
        "coll_exec_time_us": us,
        "coll_timing_source": "kernel_gpu",
        "coll_algobw_gbs": busbw / 2,
        "coll_busbw_gbs": busbw,
    }


def send(busbw: float = 40.0) -> dict[str, Any]:
    return {
        "p2p": "Send",
        "p2p_sn": 1,
        "p2p_peer": 3,
        "p2p_msg_size_bytes": 1 << 20,
        "p2p_exec_time_us": 26,
        "p2p_timing_source": "kernel_gpu",
        "p2p_algobw_gbs": busbw,
        "p2p_busbw_gbs": busbw,
    }


def line(**parts: Any) -> bytes:
    return json.dumps(parts, separators=(",", ":")).encode()


def whole(perf: dict[str, Any], host: str = "gpu001", **of: Any) -> bytes:
    """A record of v4.2, with its communicator and process."""
    key = "coll_perf" if "coll" in perf else "p2p_perf"
    return line(header=header(**of), metadata=metadata("v4.2", host), **{key: perf})


def bare(perf: dict[str, Any]) -> bytes:
    """A record of v4.3, which belongs to the marker before it."""
    return line(**{"coll_perf" if "coll" in perf else "p2p_perf": perf})


def marker(
    collectives: int = 0, sends: int = 0, lost: int = 0, version: str = "v4.3", host: str = "gpu001"
) -> bytes:
    return line(
        header=header(),
        metadata=metadata(version, host),
        dump_stats={
            "coll_records": collectives,
            "coll_dropped_total": lost + 100,
            "coll_dropped_since_last_dump": lost,
            "p2p_records": sends,
            "p2p_dropped_total": 0,
            "p2p_dropped_since_last_dump": 0,
        },
    )


def metrics(gpu: int, busbw: float, lost: int) -> str:
    """The file of a GPU."""
    device = f'version="v5.1",slurm_job_id="{{job}}",node="gpu001",gpu="GPU{gpu}"'
    ours = device.format(job=8801)
    reduced = (
        f'{ours},comm_name="DP Group 0",n_nodes="16",nranks="128",collective="AllReduce",'
        'message_size="256-257MB",algo_proto="Ring_ll"'
    )
    sent = (
        f'{device.format(job="unknown")},comm_name="unknown",n_nodes="1",nranks="4",'
        'p2p_operation="Send",message_size="512-513MB"'
    )
    lines = (
        f"nccl_bus_bandwidth_gbs{{{reduced}}} {busbw}",
        f"nccl_collective_exec_time_microseconds{{{reduced}}} 1600",
        f"nccl_p2p_bus_bandwidth_gbs{{{sent}}} 464.9",
        f"nccl_p2p_exec_time_microseconds{{{sent}}} 1154.87",
        f"nccl_collectives_dropped_total{{{ours}}} {lost}",
    )
    return "".join(f"{line}\n" for line in lines)
