"""What an Ethernet NIC counts at its wire: bytes, pause, discards, physical errors.

`pause_*` is the link-wide pause of 802.3x, `pfc_*_prio<N>` the per-priority pause of 802.1Qbb.
rx: the peer asked us to be quiet (we are its victim, or relay); tx: we asked the peer to be quiet.
Every one of them exists only where the driver counts it: mlx5 has a priority's pause counters only
while PFC is on for it, and ice and i40e count frames but not time.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import GAUGE, WRAP64, Metric

_DOC = "Linux Documentation/networking/device_drivers/ethernet (mlx5 counters.rst, and others)"

PRIORITIES = range(8)
"""The priorities of 802.1Qbb."""

_Row = Tuple[str, str, str, str, str]

# name, unit, direction, topic, meaning
_ROWS: Tuple[_Row, ...] = (
    ("phy_link_down_events", "events", "", "state", "times the physical link went down"),
    ("phy_rx_errors", "packets", "rx", "error", "packets received in error"),
    ("phy_tx_errors", "packets", "tx", "error", "packets not sent because of an error"),
    ("phy_rx_crc_errors", "packets", "rx", "error", "packets with a bad checksum"),
    ("phy_rx_symbol_errors", "events", "rx", "error", "symbols received damaged"),
    ("phy_rx_pcs_symbol_errors", "events", "rx", "error", "symbols damaged that FEC did not mend"),
    ("phy_rx_fec_corrected_bits", "bits", "rx", "mended", "bits that FEC mended"),
    ("phy_rx_fec_corrected_blocks", "blocks", "rx", "mended", "blocks that FEC mended"),
    ("phy_rx_fec_corrected_symbols", "events", "rx", "mended", "symbols that FEC mended"),
    ("phy_rx_fec_uncorrectable_blocks", "blocks", "rx", "error", "blocks that FEC could not mend"),
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
    ("pause_ctrl_rx_frames", "packets", "rx", "pause", "pause frames received, of both kinds"),
    ("pause_ctrl_tx_frames", "packets", "tx", "pause", "pause frames sent, of both kinds"),
    ("pause_storm_warnings", "events", "tx", "pause", "the NIC sent pause for nearly too long"),
    ("pause_storm_errors", "events", "tx", "pause", "pause sent for too long: the NIC stopped it"),
    (
        "pci_stalled_read_events",
        "seconds",
        "",
        "congestion",
        "seconds with PCIe reads stalled >30%",
    ),
    ("pci_stalled_write_events", "seconds", "", "congestion", "seconds with PCIe writes stalled"),
    ("pci_buffer_overflows", "packets", "", "drop", "dropped: PCIe did not take the data away"),
    ("pci_rx_signal_errors", "events", "rx", "error", "PCIe signal integrity errors, receiving"),
    ("pci_tx_signal_errors", "events", "tx", "error", "PCIe signal integrity errors, sending"),
)


def phy_metrics() -> Iterator[Metric]:
    """The `phy_*`, `pfc_*`, `pause_*` and `pci_*` rows."""
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        whose = "this port was told to be quiet" if direction == "rx" else "the peer was told so"
        for name, unit, topic, meaning in (
            (f"phy_{direction}_bytes", "bytes", "traffic", f"bytes {verb} on the wire, all of it"),
            (f"phy_{direction}_packets", "packets", "packets", f"packets {verb} on the wire"),
            (f"pause_{direction}_frames", "packets", "pause", f"802.3x pause frames {verb}"),
            (f"pause_{direction}_us", "us", "pause", f"time paused by 802.3x: {whose}"),
            (f"pause_{direction}_transitions", "events", "pause", "802.3x pauses that ended"),
            (f"pfc_{direction}_frames", "packets", "pause", f"PFC frames {verb}, all priorities"),
        ):
            yield Metric(name, unit, WRAP64, direction, topic, meaning, _DOC)
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
                    name, unit, WRAP64, direction, topic, f"{meaning}, priority {prio}", _DOC
                )
    for name, unit, direction, topic, meaning in _ROWS:
        yield Metric(name, unit, WRAP64, direction, topic, meaning, _DOC)
    for what in ("read", "write"):
        yield Metric(
            f"pci_stalled_{what}_percent",
            "percent",
            GAUGE,
            "",
            "congestion",
            f"share of the last second in which PCIe {what}s were stalled",
            _DOC,
        )
