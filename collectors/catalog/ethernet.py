"""Metrics of Ethernet ports: the kernel's stack, the wire, Slingshot NICs, and switch queues."""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import GAUGE, WRAP32, WRAP64, Metric

_NETDEV_DOC = "Linux Documentation/networking/statistics.rst"


def netdev_metrics() -> Iterator[Metric]:
    """The `netdev_*` rows."""
    yield Metric(
        "netdev_up", "state", GAUGE, "", "state", "1 when the interface is up", _NETDEV_DOC
    )
    yield Metric(
        "netdev_carrier_changes",
        "events",
        WRAP32,
        "",
        "state",
        "times the link went up or down since the driver loaded",
        _NETDEV_DOC,
    )
    yield Metric(
        "netdev_speed_bps", "bps", GAUGE, "", "state", "line rate, one direction", _NETDEV_DOC
    )
    yield Metric("netdev_mtu", "bytes", GAUGE, "", "state", "largest packet", _NETDEV_DOC)
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        for what, unit, topic, meaning in (
            ("bytes", "bytes", "traffic", f"bytes {verb} through the kernel (RDMA bypasses it)"),
            ("packets", "packets", "packets", f"packets {verb} through the kernel"),
            ("errors", "packets", "error", f"packets not {verb} because of an error"),
            ("drops", "packets", "drop", f"packets to be {verb} that were dropped"),
        ):
            name = f"netdev_{direction}_{what}"
            yield Metric(name, unit, WRAP64, direction, topic, meaning, _NETDEV_DOC)


_PHY_DOC = "Linux Documentation/networking/device_drivers/ethernet (mlx5 counters.rst, and others)"

PRIORITIES = range(8)
"""The priorities of 802.1Qbb."""

_Row = Tuple[str, str, str, str, str]

# name, unit, direction, topic, meaning
_PHY_ROWS: Tuple[_Row, ...] = (
    ("phy_link_down_events", "events", "", "state", "times the physical link went down"),
    ("phy_rx_errors", "packets", "rx", "error", "packets received in error"),
    ("phy_tx_errors", "packets", "tx", "error", "packets not sent because of an error"),
    ("phy_rx_crc_errors", "packets", "rx", "error", "packets with a bad checksum"),
    ("phy_rx_symbol_errors", "events", "rx", "error", "symbols received damaged"),
    (
        "phy_rx_pcs_symbol_errors",
        "events",
        "rx",
        "error",
        "damaged symbols that FEC did not correct",
    ),
    ("phy_rx_fec_corrected_bits", "bits", "rx", "corrected", "bits that FEC corrected"),
    ("phy_rx_fec_corrected_blocks", "blocks", "rx", "corrected", "blocks that FEC corrected"),
    ("phy_rx_fec_corrected_symbols", "events", "rx", "corrected", "symbols that FEC corrected"),
    (
        "phy_rx_fec_uncorrectable_blocks",
        "blocks",
        "rx",
        "error",
        "blocks that FEC could not correct",
    ),
    ("phy_local_faults", "events", "", "error", "local faults of the MAC: nothing usable received"),
    ("phy_remote_faults", "events", "", "error", "remote faults: the peer receives nothing usable"),
    (
        "phy_rx_discards",
        "packets",
        "rx",
        "drop",
        "received and dropped: the port's buffer was full",
    ),
    ("phy_tx_discards", "packets", "tx", "drop", "dropped before sending"),
    ("phy_rx_out_of_buffer", "packets", "rx", "drop", "dropped: the host posted no receive buffer"),
    ("phy_rx_steering_drops", "packets", "rx", "drop", "dropped: no steering rule matched"),
    ("phy_rx_buffer_events", "events", "rx", "congestion", "receive buffer passed its threshold"),
    (
        "limit_rx_packets",
        "packets",
        "rx",
        "congestion",
        "queued or dropped: the rented machine's limit of received bandwidth",
    ),
    (
        "limit_tx_packets",
        "packets",
        "tx",
        "congestion",
        "queued or dropped: the rented machine's limit of sent bandwidth",
    ),
    (
        "limit_pps_packets",
        "packets",
        "",
        "congestion",
        "queued or dropped: the rented machine's limit of packets a second",
    ),
    (
        "limit_connection_drops",
        "packets",
        "",
        "drop",
        "dropped: the rented machine's limit of tracked connections",
    ),
    (
        "limit_local_drops",
        "packets",
        "",
        "drop",
        "dropped: the rented machine's limit of packets to local services (DNS, metadata)",
    ),
    ("pause_ctrl_rx_frames", "packets", "rx", "pause", "pause frames received, 802.3x and PFC"),
    ("pause_ctrl_tx_frames", "packets", "tx", "pause", "pause frames sent, 802.3x and PFC"),
    ("pause_storm_warnings", "events", "tx", "pause", "the NIC has sent pause for nearly too long"),
    (
        "pause_storm_errors",
        "events",
        "tx",
        "pause",
        "pause sent for too long: the NIC stopped sending it",
    ),
    (
        "pci_stalled_read_events",
        "seconds",
        "",
        "congestion",
        "seconds with PCIe reads stalled >30%",
    ),
    ("pci_stalled_write_events", "seconds", "", "congestion", "seconds with PCIe writes stalled"),
    ("pci_buffer_overflows", "packets", "", "drop", "dropped: PCIe did not drain the buffer"),
    ("pci_rx_signal_errors", "events", "rx", "error", "PCIe signal integrity errors, receiving"),
    ("pci_tx_signal_errors", "events", "tx", "error", "PCIe signal integrity errors, sending"),
)


def _phy_metrics() -> Iterator[Metric]:
    """The `phy_*`, `pfc_*`, `pause_*` and `pci_*` rows: the counters of a NIC at its wire.

    `pause_*` is the link-wide pause of 802.3x, `pfc_*_prio<N>` the per-priority pause of 802.1Qbb.
    rx: the peer paused this port, which is its victim or passes the pause on; tx: this port paused
    the peer. Each counter exists only where the driver has it: mlx5 has a priority's pause counters
    only while PFC is on for it, and ice and i40e count frames but not time.
    """
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        whose = "this port was paused" if direction == "rx" else "the peer was paused"
        for name, unit, topic, meaning in (
            (f"phy_{direction}_bytes", "bytes", "traffic", f"all bytes {verb} on the wire"),
            (f"phy_{direction}_packets", "packets", "packets", f"packets {verb} on the wire"),
            (f"pause_{direction}_frames", "packets", "pause", f"802.3x pause frames {verb}"),
            (f"pause_{direction}_us", "us", "pause", f"time paused by 802.3x: {whose}"),
            (f"pause_{direction}_transitions", "events", "pause", "802.3x pauses that ended"),
            (f"pfc_{direction}_frames", "packets", "pause", f"PFC frames {verb}, all priorities"),
        ):
            yield Metric(name, unit, WRAP64, direction, topic, meaning, _PHY_DOC)
        for prio in PRIORITIES:
            for stem, unit, topic, meaning in (
                (f"phy_{direction}_bytes", "bytes", "traffic", f"bytes {verb}"),
                (f"phy_{direction}_packets", "packets", "packets", f"packets {verb}"),
                (f"phy_{direction}_discards", "packets", "drop", "packets dropped"),
                (f"pfc_{direction}_frames", "packets", "pause", f"PFC frames {verb}"),
                (f"pfc_{direction}_pause_us", "us", "pause", f"time paused by PFC: {whose}"),
                (f"pfc_{direction}_transitions", "events", "pause", "PFC pauses begun or ended"),
            ):
                name = f"{stem}_prio{prio}"
                yield Metric(
                    name, unit, WRAP64, direction, topic, f"{meaning}, priority {prio}", _PHY_DOC
                )
    for prio in PRIORITIES:
        for stem, topic, meaning in (
            ("phy_rx_host_buffer_drops", "drop", "dropped: this host's buffer was full"),
            ("phy_rx_host_congestion_drops", "drop", "dropped: this host is congested"),
            ("phy_rx_ecn_marked", "congestion", "marked by the NIC: this host is congested"),
            ("phy_rx_discards_cos", "drop", "dropped: no memory for this class of service"),
        ):
            whose = f"class {prio}" if stem.endswith("cos") else f"priority {prio}"
            name = f"{stem}{prio}" if stem.endswith("cos") else f"{stem}_prio{prio}"
            yield Metric(name, "packets", WRAP64, "rx", topic, f"{meaning}, {whose}", _PHY_DOC)
    for name, unit, direction, topic, meaning in _PHY_ROWS:
        yield Metric(name, unit, WRAP64, direction, topic, meaning, _PHY_DOC)
    for what in ("read", "write"):
        yield Metric(
            f"pci_stalled_{what}_percent",
            "percent",
            GAUGE,
            "",
            "congestion",
            f"share of the last second in which PCIe {what}s were stalled",
            _PHY_DOC,
        )


_SAI = "opencomputeproject/SAI inc/saiport.h, saiqueue.h; sonic-swss pfcwd"
_MLXSW = "Linux drivers/net/ethernet/mellanox/mlxsw/spectrum_ethtool.c"

QUEUES = range(8)
"""The unicast queues that are reported."""

FEC_BINS = range(17)
"""Symbol errors in a codeword of RS-544, which corrects 15."""

# name, unit, kind, direction, topic, meaning, documented in
_SWITCH_ROWS: Tuple[Tuple[str, str, str, str, str, str, str], ...] = (
    ("phy_up", "state", GAUGE, "", "state", "1 when the switch chip reports the port up", _SAI),
    ("phy_speed_bps", "bps", GAUGE, "", "state", "line rate as the switch chip reports it", _SAI),
    (
        "phy_tx_ecn_marked",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "packets that this port's queues marked because they are filling",
        _MLXSW,
    ),
    ("phy_tx_wred_drops", "packets", WRAP64, "tx", "congestion", "dropped early by WRED", _SAI),
    (
        "phy_tx_trimmed_packets",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "packets cut to their headers since the buffer was full",
        _SAI,
    ),
    ("phy_tx_trimmed_sent", "packets", WRAP64, "tx", "congestion", "trimmed packets sent", _SAI),
    (
        "phy_tx_trimmed_drops",
        "packets",
        WRAP64,
        "tx",
        "congestion",
        "trimmed packets dropped",
        _SAI,
    ),
    (
        "pfc_watchdog_storms",
        "events",
        WRAP64,
        "",
        "pause",
        "times the switch found a queue paused for too long and ignored the pause",
        _SAI,
    ),
    ("pfc_watchdog_restores", "events", WRAP64, "", "pause", "storms that ended", _SAI),
    (
        "pfc_watchdog_drops",
        "packets",
        WRAP64,
        "",
        "drop",
        "packets dropped by the watchdog while a storm lasted",
        _SAI,
    ),
    ("pfc_watchdog_stormed", "state", GAUGE, "", "pause", "queues in a storm now", _SAI),
)


def _switch_metrics() -> Iterator[Metric]:
    """The `queue<N>_*` and `pfc_watchdog_*` rows, and counters that only a switch has for a port.

    A queue is one of a port's transmit queues, by its number; on a lossless fabric that is mostly
    the priority of the same number. Drops and marks of queues have the topic congestion: the port's
    own discards count the same packets, so that their topic is not `drop`. The watchdog is the one
    that breaks up PFC storms.
    """
    for row in _SWITCH_ROWS:
        yield Metric(*row)
    for errors in FEC_BINS:
        meaning = f"FEC codewords with {errors} symbol errors"
        if errors == FEC_BINS[-1]:
            meaning = f"FEC codewords with {errors} or more symbol errors: not corrected"
        name = f"phy_rx_fec_codewords_s{errors}"
        topic = "corrected"
        yield Metric(name, "blocks", WRAP64, "rx", topic, meaning, _SAI)
    for group in QUEUES:
        yield Metric(
            f"pg{group}_rx_drops",
            "packets",
            WRAP64,
            "rx",
            "congestion",
            f"packets dropped in ingress priority group {group}: a loss where it is lossless",
            _SAI,
        )
    for queue in QUEUES:
        for what, unit, kind, topic, meaning in (
            ("tx_bytes", "bytes", WRAP64, "traffic", "bytes sent from"),
            ("tx_packets", "packets", WRAP64, "packets", "packets sent from"),
            ("tx_drops", "packets", WRAP64, "congestion", "packets dropped for lack of room in"),
            ("tx_wred_drops", "packets", WRAP64, "congestion", "packets dropped early in"),
            ("tx_ecn_marked", "packets", WRAP64, "congestion", "packets marked in"),
            ("occupancy_bytes", "bytes", GAUGE, "congestion", "bytes waiting now in"),
            ("watermark_bytes", "bytes", GAUGE, "congestion", "most bytes that waited recently in"),
        ):
            direction = "tx" if what.startswith("tx") else ""
            yield Metric(
                f"queue{queue}_{what}",
                unit,
                kind,
                direction,
                topic,
                f"{meaning} queue {queue}",
                _SAI,
            )


_CXI_DOC = "HPE 'Cassini Performance Counters User Guide'; shs-cassini-headers cassini_cntr_desc.h"

# name after `cxi_`, unit, direction, topic, meaning
_CXI_ROWS: Tuple[_Row, ...] = (
    ("discards", "packets", "", "drop", "dropped after waiting for too long in a traffic class"),
    ("pfc_fifo_drops", "packets", "", "drop", "dropped: the PFC FIFO was full"),
    ("replay_drops", "packets", "rx", "drop", "dropped while an earlier replay was pending"),
    ("tx_llr_replays", "events", "tx", "error", "link level retries, sending"),
    ("rx_llr_replays", "events", "rx", "error", "link level retries, receiving"),
    ("no_target_nacks", "events", "rx", "error", "requests refused: no connection was free here"),
    ("packet_timeouts", "events", "tx", "error", "packets whose response did not arrive in time"),
    ("connection_timeouts", "events", "tx", "error", "connections whose close was not answered"),
    ("rx_stalled", "ticks", "rx", "congestion", "cycles the receive path waited for a buffer"),
    ("commands_blocked", "ticks", "tx", "congestion", "cycles in which commands waited"),
    ("host_writes", "packets", "rx", "packets", "PCIe writes to the host"),
    ("host_writes_blocked", "ticks", "rx", "congestion", "cycles in which writes waited for PCIe"),
    ("host_reads", "packets", "tx", "packets", "PCIe reads from the host"),
    ("host_reads_blocked", "ticks", "tx", "congestion", "cycles in which reads waited for PCIe"),
    (
        "translation_evictions",
        "events",
        "",
        "congestion",
        "address translations evicted from the cache",
    ),
)


def _cxi_metrics() -> Iterator[Metric]:
    """The `cxi_*` rows: counters that HPE Slingshot NICs (Cassini) have beside the usual ones.

    Their bytes, pause and FEC counters are `phy_*` and `pfc_*`, ECN marks `rdma_ecn_marked`.
    """
    for name, unit, direction, topic, meaning in _CXI_ROWS:
        yield Metric(f"cxi_{name}", unit, WRAP64, direction, topic, meaning, _CXI_DOC)


def port_metrics() -> Iterator[Metric]:
    """All rows of Ethernet ports but those of the kernel's network stack."""
    yield from _phy_metrics()
    yield from _cxi_metrics()
    yield from _switch_metrics()
