"""Checks of single nodes: flaps, accumulated errors, PCIe links, NUMA nodes, shared ports."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fabmon.analysis.audit.survey import FIX, NOTE, Problem, Survey
from fabmon.analysis.detectors.gpu_nic_numa import CAUSE, gpus_without_near_nic
from fabmon.analysis.detectors.missing_nvlinks import CAUSE as MISSING_NVLINKS
from fabmon.analysis.detectors.missing_nvlinks import gpus_with_missing_links
from fabmon.analysis.evidence.doubtful_rates import doubtful_rates
from fabmon.fabric.model import FRONTEND, GPU, HOST, RAIL, STORAGE, Port
from fabmon.fabric.pcie import pcie_link_bps
from fabmon.fabric.roles.evidence import DEFAULT, SESSION, carried_by, is_rdma
from fabmon.fabric.wording import bit_rate, label_runs

_FLAPS = 10
"""Changes of carrier since boot up to which a port is fine: switches reboot, cables are moved."""

_TIMES_PEERS = 4
"""A port with more flaps must also have so many times the median of the other rail ports."""

_ERROR_COUNTERS = (
    ("ib_link_downed", "times down"),
    ("ib_link_error_recovery", "link recoveries"),
    ("ib_symbol_errors", "symbol errors"),
    ("ib_excessive_buffer_overruns", "buffer overruns"),
    ("ib_local_link_integrity_errors", "link integrity errors"),
    ("phy_rx_fec_uncorrectable_blocks", "blocks that FEC could not correct"),
    ("rdma_transport_retries_exceeded", "connections given up without an ACK"),
)
"""Counters that are 0 on a good port, and what they count."""


def doubtful(survey: Survey) -> Iterator[Problem]:
    """Rates above the line rate, and cables of which one end counts a multiple of the other."""
    ports = survey.snapshot.fabric.ports
    for each in doubtful_rates(survey.snapshot):
        yield Problem(
            check=each.check,
            severity=FIX,
            ports=(ports[each.row].id,),
            text=each.text,
            advice=each.advice,
        )


def shared_hostnames(survey: Survey) -> Iterator[Problem]:
    """Nodes that report one hostname, or that of another node of the hosts file."""
    by_name: defaultdict[str, set[str]] = defaultdict(set)
    for node, hello in survey.hellos.items():
        if hello.hostname:
            by_name[hello.hostname.lower()].add(node)
    for name, nodes in by_name.items():
        if name in survey.hellos:
            nodes.add(name)
        if len(nodes) > 1:
            yield Problem(
                check="hostname_shared",
                severity=NOTE,
                ports=tuple(sorted(nodes)),
                text=f"{len(nodes)} nodes have the name {name}, by the hosts file or as hostname",
                advice="LLDP names nodes by it: give each its own, or see who takes another's.",
            )


def flapping(survey: Survey) -> Iterator[Problem]:
    """Links that changed carrier since boot far more often than their peers."""
    known = [
        (port, count)
        for port in survey.ports()
        if port.role == RAIL
        and (count := survey.totals.get(port.id, {}).get("netdev_carrier_changes")) is not None
    ]
    counts = sorted(count for _, count in known)
    for port, count in known:
        usual = _median_of_others(counts, count)
        if count > _FLAPS and count > _TIMES_PEERS * (usual or 0):
            compared = "" if usual is None else f", {usual:g} on most ports"
            yield Problem(
                check="carrier_flaps",
                severity=FIX,
                ports=(port.id,),
                text=f"{count} changes of carrier since boot{compared}",
                advice="Clean or change the cable or the optics, then watch the count.",
            )


def _median_of_others(counts: Sequence[int], own: int) -> float | None:
    """The median of sorted counts without one occurrence of `own`; None without others."""
    place = bisect_left(counts, own)
    others = len(counts) - 1
    low, high = ((others - 1) // 2, others // 2)
    if others < 1:
        return None
    return (counts[low + (low >= place)] + counts[high + (high >= place)]) / 2


def errors_added_up(survey: Survey) -> Iterator[Problem]:
    """Ports whose error counters are not 0. They may be old: counters start at boot or reset."""
    for port in survey.ports():
        totals = survey.totals.get(port.id, {})
        counts = [(_total(totals, name), words) for name, words in _ERROR_COUNTERS]
        errors = [f"{count} {words}" for count, words in counts if count]
        if errors:
            yield Problem(
                check="errors",
                severity=NOTE,
                ports=(port.id,),
                text=f"{', '.join(errors)} since the counters started",
                advice="Check whether they still grow: errors /s on the port's page of fabmon.",
            )


def _total(totals: Mapping[str, int], name: str) -> int:
    """A counter's value; on InfiniBand that of its 64-bit variant where it has one."""
    wide = totals.get(name.replace("ib_", "ib_ext_", 1)) if name.startswith("ib_") else None
    return totals.get(name, 0) if wide is None else wide


def pcie_downtrained(survey: Survey) -> Iterator[Problem]:
    """NICs and GPUs whose PCIe link has fewer or slower lanes than they support."""
    for port in survey.ports():
        now, most = _pcie(port, ""), _pcie(port, "max_")
        # A GPU lowers its own link's speed while it is idle; the number of its lanes stays.
        if not (now and most) or port.role not in (RAIL, GPU):
            continue
        if port.role == GPU:
            now = (most[0], now[1])
        if now[0] * now[1] < most[0] * most[1]:
            yield Problem(
                check="pcie_downtrained",
                severity=FIX,
                ports=(port.id,),
                text=f"PCIe {_words(now)}, supports {_words(most)}: "
                f"at most {bit_rate(pcie_link_bps(*now))}",
                advice="Reseat the card, look at riser and slot, and at the BIOS's link speed.",
            )


def shared_with_management(survey: Survey) -> Iterator[Problem]:
    """Rails that carry the node's default route or this console's own connection. With one NIC for
    everything there is nothing to fix."""
    for node in survey.snapshot.fabric.nodes:
        rails = [port for port in node.ports if port.role == RAIL]
        hello = survey.hellos.get(node.name)
        has_rdma = any(is_rdma(port.info) for port in rails)
        if node.role != HOST or hello is None or not (has_rdma or len(rails) > 1):
            continue
        addresses = [
            item.info
            for block in hello.blocks
            for item in block.objects
            if item.kind == "addresses" and item.node is None
        ]
        carried = carried_by(addresses, hello.reached_at)
        for port in rails:
            # A bond has the addresses of its members.
            devices = {port.info.get("netdev", port.name), port.info.get("bond")}
            why = DEFAULT if devices & carried.default else ""
            if devices & carried.session:
                why = f"{SESSION} ({hello.reached_at})"
            if why:
                yield Problem(
                    check="management_shared",
                    severity=FIX if len(rails) > 1 else NOTE,
                    ports=(port.id,),
                    text=f"carries {why} beside the training traffic",
                    advice="Give management a port of its own, or keep NCCL off this one "
                    "(NCCL_IB_HCA, NCCL_SOCKET_IFNAME).",
                )


def used_by_jobs(survey: Survey) -> Iterator[Problem]:
    """Ports that are no rails but have queue pairs of a Slurm job: one problem for each job."""
    flows, ports = survey.snapshot.connections.flows, survey.snapshot.fabric.ports
    used: defaultdict[str, set[int]] = defaultdict(set)
    for flow, row in enumerate(flows.src.tolist()):
        job = flows.owner(flow).job
        if job and ports[row].role in (STORAGE, FRONTEND):
            used[job].add(row)
    for job, rows in used.items():
        names = label_runs(sorted({(ports[r].label, ports[r].role, ports[r].index) for r in rows}))
        yield Problem(
            check="role_in_use",
            severity=NOTE,
            ports=tuple(ports[row].id for row in sorted(rows)),
            text=f"no rails ({names}), but they have queue pairs of job {job}",
            advice="Keep the job off them (NCCL_IB_HCA, UCX_NET_DEVICES); if they are rails, say "
            "so in the table [roles] of fabmon.toml.",
        )


def _pcie(port: Port, which: str) -> tuple[float, int] | None:
    """(GT/s, lanes) of a PCIe link; None when it is not known."""
    speed, width = port.info.get(f"pcie_{which}speed_gtps"), port.info.get(f"pcie_{which}width")
    return (float(speed), int(width)) if speed and width else None


def _words(link: tuple[float, int]) -> str:
    return f"{link[0]:g} GT/s x{link[1]}"


def missing_nvlinks(survey: Survey) -> Iterator[Problem]:
    """GPUs with fewer active NVLinks than others of their model (NV17 among NV18)."""
    for found in gpus_with_missing_links(survey.snapshot):
        yield Problem(
            check=MISSING_NVLINKS.name,
            severity=FIX,
            ports=(found.gpu.id,),
            text=f"{found.text}, on most GPUs of this model {found.usual} are",
            advice=MISSING_NVLINKS.advice,
        )


def distant_gpus(survey: Survey) -> Iterator[Problem]:
    """GPUs whose nearest NIC is on another NUMA node: one problem for each node."""
    for node in survey.snapshot.fabric.nodes:
        far = gpus_without_near_nic(node)
        if far:
            yield Problem(
                check=CAUSE.name,
                severity=FIX,
                ports=tuple(port.id for port in far),
                text="no NIC on the NUMA node of this GPU: its traffic crosses the link "
                "between the CPUs",
                advice="Move a NIC to the other CPU's slots, or bind jobs to the GPUs near one.",
            )
