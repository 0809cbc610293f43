"""Logs of a job, written as four versions of NCCL write them (their format strings, see
fabmon/analysis/job_log/log_lines.py).

The job: two hosts with two GPUs each, ranks 0 to 3, one HCA for each GPU. The ring crosses the
network from rank 1 to rank 2 and from rank 3 to rank 0.
"""

from __future__ import annotations

from dataclasses import dataclass

VERSIONS = ("2.8.4", "2.18.5", "2.23.4", "2.30.7")
NAMES = {5: "IBV_WC_WR_FLUSH_ERR", 12: "IBV_WC_RETRY_EXC_ERR", 13: "IBV_WC_RNR_RETRY_EXC_ERR"}
HCAS = ("mlx5_0", "mlx5_2")


@dataclass(frozen=True)
class Log:
    """Writes the lines of one version."""

    version: str
    hosts: tuple[str, str] = ("gpu001", "gpu002")
    time: str = "2026-05-04 19:55:27"

    @property
    def number(self) -> int:
        return int(self.version.split(".")[1])

    def prefix(self, rank: int, *, is_warning: bool = False, file: str = "") -> str:
        host, gpu = self.hosts[rank // 2], rank % 2
        stamp = f"[{self.time}] " if self.number >= 26 and is_warning else ""
        place = f" {file}" if file else ""
        level = "WARN" if is_warning else "INFO"
        return f"{stamp}{host}:{1000 + rank}:{2000 + rank} [{gpu}]{place} NCCL {level} "

    def start(self) -> list[str]:
        """What a healthy job writes at its start."""
        lines = [f"NCCL version {self.version}+cuda12.4"]
        for rank in range(4):
            info = self.prefix(rank)
            out_of_band = f"eth0:10.0.0.{rank // 2 + 1}<0>"
            indexed = "[0]" if self.number < 9 else ""
            lines.append(f"{info}Bootstrap : Using {indexed}{out_of_band}")
            ordered = "[RO]" if self.number > 9 else ""
            devices = " ".join(f"[{n}]{hca}:1/RoCE" for n, hca in enumerate(HCAS))
            lines.append(f"{info}NET/IB : Using {devices} {ordered}; OOB {out_of_band}")
            lines.append(f"{info}{self.communicator(rank, 4, '0xabcdef01')}")
        lines += self.channel(1, 2) + self.channel(3, 0)
        lines.append(f"{self.prefix(0)}Connected all rings")
        return lines

    def communicator(self, rank: int, ranks: int, identity: str) -> str:
        gpu = rank % 2
        nvml = f" nvmlDev {gpu}" if self.number >= 17 else ""
        comm = f" commId {identity}" if self.number >= 17 else ""
        function = "ncclCommInitRank " if self.number >= 19 else ""
        address = f"0x55e{rank}d0"
        return (
            f"{function}comm {address} rank {rank} nranks {ranks} cudaDev {gpu}{nvml}"
            f" busId {4 + gpu}b000{comm} - Init COMPLETE"
        )

    def channel(self, rank: int, peer: int) -> list[str]:
        """The lines of both ends of a connection, in two channels."""
        lines = []
        for number in range(2):
            for writer, way in ((rank, "send"), (peer, "receive")):
                slash = "/0" if self.number >= 12 else ""
                ids = (
                    [f"{4 + each % 2}b000" for each in (rank, peer)]
                    if self.number < 15
                    else [str(each % 2) for each in (rank, peer)]
                )
                ends = f"{rank}[{ids[0]}] -> {peer}[{ids[1]}]"
                lines.append(
                    f"{self.prefix(writer)}Channel {number:02d}{slash} : {ends} [{way}] via"
                    f" NET/IB/{writer % 2}/GDRDMA"
                )
        return lines

    def completion(self, rank: int, peer: int, status: int, *, gids: bool = True) -> str:
        """A failed request of a rank that receives from a peer; RoCE has GIDs, InfiniBand none."""
        address = f"10.0.0.{peer // 2 + 1}<54862>"
        hca, local, remote = HCAS[rank % 2], gid(rank), gid(peer)
        if self.number < 9:
            warn = self.prefix(rank, is_warning=True, file="transport/net_ib.cc:839")
            what = f"error {status}, opcode 129, len 0, vendor err 129"
            return f"{warn}NET/IB : Got completion with {what}"
        warn = self.prefix(rank, is_warning=True, file="transport/net_ib.cc:1296")
        if self.number < 20:
            ids = f" localGid {local} remoteGid {remote}" if gids else ""
            what = f"error {status}, opcode 0, len 0, vendor err 129 (Recv)"
            return f"{warn}NET/IB : Got completion from peer {address} with {what}{ids}"
        ids = f" localGid {local} remoteGids{remote}" if gids else ""
        if self.number < 28:
            what = f"status={status} opcode=0 len=0 vendor err 129 (Recv)"
            return f"{warn}NET/IB : Got completion from peer {address} with {what}{ids} hca {hca}"
        warn = self.prefix(rank, is_warning=True, file="transport/net_ib/p2p.cc:688")
        what = f"status={NAMES[status]}({status}) opcode=IBV_WC_RECV_RDMA_WITH_IMM(129)"
        return (
            f"{warn}NET/IB: Got completion from peer {address} with {what} vendor_err=129{ids}"
            f" hca {hca}"
        )

    def port_error(self, rank: int) -> str:
        warn = self.prefix(rank, is_warning=True, file="transport/net_ib.cc:94")
        hca = f"{HCAS[rank % 2]}:1 " if self.number >= 12 else ""
        return f"{warn}NET/IB : {hca}Got async event : port error"

    def closed(self, rank: int, peer: int) -> str:
        warn = self.prefix(rank, is_warning=True, file="misc/socket.cc:49")
        function = "socketProgress: " if self.number >= 18 else ""
        host = f"10.0.0.{peer // 2 + 1}"
        return f"{warn}{function}Connection closed by remote peer {host}<38170>"


def gid(rank: int) -> str:
    """The GID of a rank's port, of RoCE over IPv4."""
    return f"::ffff:10.1.{rank % 2}.{rank // 2 + 1}"


def watchdog(rank: int, seq: int, minutes: int = 30, group: str = "default_pg") -> list[str]:
    """What PyTorch writes of a collective that timed out."""
    head = f"[rank{rank}]:[E504 19:55:27.{rank:06d}515 ProcessGroupNCCL.cpp:632] "
    limit = minutes * 60_000
    return [
        f"{head}[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq},"
        f" OpType=ALLREDUCE, NumelIn=8652160, NumelOut=8652160, Timeout(ms)={limit}) ran for"
        f" {limit + 68} milliseconds before timing out.",
        f"{head}[PG ID 0 PG GUID 0({group}) Rank {rank}] Timeout at NCCL work: {seq}, last enqueued"
        f" NCCL work: {seq}, last completed NCCL work: {seq - 1}.",
    ]


def notified(rank: int, last: int, by: int) -> str:
    """What a rank writes that received the timeout of another, and has enqueued less."""
    return (
        f"[rank{rank}]:[E504 19:55:28.000000515 ProcessGroupNCCL.cpp:1987] [PG ID 0 PG GUID"
        f" 0(default_pg) Rank {rank}] Received a dump signal due to a collective timeout from  rank"
        f" {by} and we will try our best to dump the debug info. Last enqueued NCCL work: {last},"
        f" last completed NCCL work: {last}."
    )
