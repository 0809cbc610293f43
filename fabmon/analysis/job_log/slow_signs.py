"""What in the logs of a job makes it slow: TCP instead of RDMA, no GPUDirect RDMA, unused NICs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from fabmon.analysis.job_log.events import Process
from fabmon.analysis.job_log.job_log import JobLog
from fabmon.fabric.wording import name_list, plural

_SOCKET = "Socket"


def slow_signs(log: JobLog) -> list[str]:
    """A sentence for each thing that makes the job slow."""
    return [
        *_network(log),
        *_without_gdr(log),
        *_one_sided_gdr(log),
        *_unused_nics(log),
        *_numa(log),
        *_loopback(log),
    ]


def _processes_of(log: JobLog, kind: str) -> dict[str, set[Process | None]]:
    """The processes by what they wrote of a kind."""
    found: defaultdict[str, set[Process | None]] = defaultdict(set)
    for sign, processes in log.signs.items():
        if sign.kind == kind:
            found[sign.text] |= processes
    return dict(found)


def _hosts_of(processes: set[Process | None]) -> list[str]:
    return sorted({each.host for each in processes if each is not None and each.host})


def _is_one_host(log: JobLog) -> bool:
    """Whether all ranks of the job are known and on one host: its network is not used."""
    ranks = max((facts.ranks for facts in log.processes.values()), default=0)
    known = {log.rank_of(each) for each in log.processes} - {-1}
    return len({each.host for each in log.processes}) == 1 and 0 < ranks <= len(known)


def _network(log: JobLog) -> Iterator[str]:
    by_network = _processes_of(log, "network")
    no_device = _processes_of(log, "no_verbs").get("", set())
    # NCCL takes sockets last: who found no RDMA device and names no other network is over TCP.
    over_tcp = by_network.get(_SOCKET, set()) | no_device.difference(
        log.channels, *by_network.values()
    )
    for process, channels in log.channels.items():
        if any(each.transport == f"NET/{_SOCKET}" for each in channels):
            over_tcp = over_tcp | {process}
    if not over_tcp or _is_one_host(log):
        return
    why = ": NCCL found no InfiniBand or RoCE device, or no libibverbs" if no_device else ""
    others = sorted(name for name in by_network if name != _SOCKET)
    if others:
        where = name_list(_hosts_of(over_tcp), 4) or "some ranks"
        yield (
            f"Ranks use different networks: {where} TCP (NET/Socket), others"
            f" {name_list(others, 3)}{why}. The slower one decides."
        )
    else:
        yield (
            f"The job runs over TCP (NET/Socket), without RDMA{why}. Check libibverbs and the"
            " drivers in the container, NCCL_IB_DISABLE, NCCL_NET and NCCL_IB_HCA."
        )


def _without_gdr(log: JobLog) -> Iterator[str]:
    by_hca = _processes_of(log, "gdr_off")
    if by_hca:
        hosts = _hosts_of(set().union(*by_hca.values()))
        where = f" on {name_list(hosts, 4)}" if hosts else ""
        names = name_list(sorted(filter(None, by_hca)), 8) or "some HCAs"
        yield (
            f"GPUDirect RDMA is disabled for {names}{where}: every byte goes"
            " through host memory. Check nvidia_peermem or DMA-BUF, ACS and IOMMU."
        )


def _one_sided_gdr(log: JobLog) -> Iterator[str]:
    sides: defaultdict[tuple[int, int], dict[bool, bool]] = defaultdict(dict)
    for channels in log.channels.values():
        for each in channels:
            of_pair = sides[each.rank, each.peer]
            of_pair[each.is_receive] = of_pair.get(each.is_receive, False) or each.gdr
    without = Counter(
        pair[1] if is_receive else pair[0]
        for pair, of_pair in sides.items()
        if len(of_pair) == 2 and of_pair[True] != of_pair[False]
        for is_receive, has_gdr in of_pair.items()
        if not has_gdr
    )
    if without:
        ranks = sorted(without)
        processes = {log.process_of(rank) for rank in ranks}
        hosts = _hosts_of(processes)
        where = f" ({name_list(hosts, 4)})" if hosts else ""
        yield (
            f"GPUDirect RDMA is used on one side only of {plural(without.total(), 'connection')}:"
            f" not by rank {name_list([str(rank) for rank in ranks], 8)}{where}. That side copies"
            " through host memory. Check nvidia_peermem or DMA-BUF there."
        )


def _unused_nics(log: JobLog) -> Iterator[str]:
    """Hosts that have, or use, fewer NICs than most others."""
    listed = {name: len(host.hcas) or host.nics for name, host in log.hosts.items()}
    yield from _fewer({name: count for name, count in listed.items() if count}, "has", log)
    used: defaultdict[str, set[int]] = defaultdict(set)
    writers: Counter[str] = Counter()
    for process, channels in log.channels.items():
        writers[process.host] += 1
        used[process.host] |= {each.hca for each in channels if each.hca >= 0}
    # Only hosts whose ranks all wrote of their connections can be compared.
    most = max(writers.values(), default=0)
    counts = {
        host: len(nics)
        for host, nics in used.items()
        if writers[host] == most and listed.get(host, 0) == max(listed.values(), default=0)
    }
    yield from _fewer(counts, "uses", log)


def _fewer(counts: dict[str, int], verb: str, log: JobLog) -> Iterator[str]:
    if len(counts) < 2:
        return
    usual = Counter(counts.values()).most_common(1)[0][0]
    usual = max(usual, max(counts.values())) if len(counts) == 2 else usual
    for host, count in sorted(counts.items()):
        if count < usual:
            missing = _missing(host, log) if verb == "has" else ""
            yield (
                f"{host} {verb} {plural(count, 'NIC')}, others {usual}{missing}: its traffic shares"
                " what is left. Check NCCL_IB_HCA, the ports and drivers there."
            )


def _missing(host: str, log: JobLog) -> str:
    """The HCAs that other hosts have and this one has not, by name."""
    names = {name for each in log.hosts[host].hcas.values() for name in each}
    others = {
        name for other in log.hosts.values() for each in other.hcas.values() for name in each
    } - names
    return f" ({name_list(sorted(others), 4)} is missing)" if names and others else ""


def _numa(log: JobLog) -> Iterator[str]:
    processes = _processes_of(log, "numa")
    if processes:
        hosts = name_list(_hosts_of(set().union(*processes.values())), 4)
        where = f" ({hosts})" if hosts else ""
        yield (
            f"NUMA balancing is on{where}: it moves memory while NCCL uses it. Set"
            " kernel.numa_balancing=0."
        )


def _loopback(log: JobLog) -> Iterator[str]:
    if _processes_of(log, "loopback"):
        yield (
            "gloo could not resolve the name of its own host and uses the loopback address, which"
            " other hosts cannot reach: check /etc/hosts, or set GLOO_SOCKET_IFNAME."
        )


def unresolved(log: JobLog) -> Iterator[str]:
    """A sentence on host names that could not be resolved: of IPv6 alone that is usual."""
    names = sorted(filter(None, _processes_of(log, "no_name")))
    if names:
        yield (
            f"{name_list(names, 4)} could not be resolved (Name or service not known): check DNS"
            " and /etc/hosts of the other hosts."
        )


def retried(log: JobLog) -> Iterator[str]:
    """A sentence on connections that were tried again: as jobs start that is usual."""
    count = sum(own.total() for own in log.retries.values())
    if count:
        peers = sorted({peer for own in log.retries.values() for peer in own if peer})
        to = f" to {name_list(peers, 4)}" if peers else ""
        yield (
            f"{plural(count, 'TCP connection')}{to} could not be made at first and"
            f" {'was' if count == 1 else 'were'} tried again; the log does not show that"
            f" {'it was' if count == 1 else 'they were'} made."
        )
