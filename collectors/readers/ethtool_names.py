"""The names that drivers give to the counters of `ethtool -S`, as metrics of the catalog.

Drivers name their counters differently: one rule for a family of names. A name is matched as a
whole; the groups of the pattern fill the catalog name: {0} is mostly the direction, {1} the
priority; a name that begins with + is a sum of all that match, over queues. Sources: Linux
drivers/net/ethernet/*, and dumps of real NICs. A driver without rules is read by the usual names of
all drivers: what such a counter includes is not known.
"""

from __future__ import annotations

import re
from typing import Dict, Optional, Tuple

_Rules = Tuple[Tuple[str, str], ...]

_MLX5: _Rules = (
    (r"([rt]x)_(bytes|packets)_phy", "phy_{0}_{1}"),
    (r"([rt]x)_prio(\d)_bytes", "phy_{0}_bytes_prio{1}"),
    (r"([rt]x)_prio(\d)_pause", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_prio(\d)_pause_duration", "pfc_{0}_pause_us_prio{1}"),
    (r"([rt]x)_prio(\d)_pause_transition", "pfc_{0}_transitions_prio{1}"),
    (r"([rt]x)_prio(\d)_discards", "phy_{0}_discards_prio{1}"),
    (r"rx_prio(\d)_buf_discard", "phy_rx_host_buffer_drops_prio{0}"),
    (r"rx_prio(\d)_cong_discard", "phy_rx_host_congestion_drops_prio{0}"),
    (r"rx_prio(\d)_marked", "phy_rx_ecn_marked_prio{0}"),
    (r"([rt]x)_global_pause", "pause_{0}_frames"),
    (r"([rt]x)_global_pause_duration", "pause_{0}_us"),
    (r"([rt]x)_global_pause_transition", "pause_{0}_transitions"),
    (r"([rt]x)_pause_ctrl_phy", "pause_ctrl_{0}_frames"),
    (r"tx_pause_storm_(warning|error)_events", "pause_storm_{0}s"),
    (r"([rt]x)_discards_phy", "phy_{0}_discards"),
    (r"([rt]x)_errors_phy", "phy_{0}_errors"),
    (r"rx_crc_errors_phy", "phy_rx_crc_errors"),
    (r"rx_symbol_err_phy", "phy_rx_symbol_errors"),
    (r"rx_pcs_symbol_err_phy", "phy_rx_pcs_symbol_errors"),
    (r"rx_corrected_bits_phy", "phy_rx_fec_corrected_bits"),
    (r"rx_buffer_passed_thres_phy", "phy_rx_buffer_events"),
    (r"link_down_events_phy", "phy_link_down_events"),
    (r"rx_out_of_buffer", "phy_rx_out_of_buffer"),
    (r"rx_steer_missed_packets", "phy_rx_steering_drops"),
    (r"outbound_pci_stalled_rd", "pci_stalled_read_percent"),
    (r"outbound_pci_stalled_wr", "pci_stalled_write_percent"),
    (r"outbound_pci_stalled_rd_events", "pci_stalled_read_events"),
    (r"outbound_pci_stalled_wr_events", "pci_stalled_write_events"),
    (r"outbound_pci_buffer_overflow", "pci_buffer_overflows"),
    (r"([rt]x)_pci_signal_integrity", "pci_{0}_signal_errors"),
)

_BNXT: _Rules = (
    (r"([rt]x)_bytes", "phy_{0}_bytes"),
    (r"([rt]x)_total_frames", "phy_{0}_packets"),
    (r"([rt]x)_bytes_pri(\d)", "phy_{0}_bytes_prio{1}"),
    (r"([rt]x)_pfc_ena_frames_pri(\d)", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_pfc_frames", "pfc_{0}_frames"),
    (r"pfc_pri(\d)_([rt]x)_duration_us", "pfc_{1}_pause_us_prio{0}"),
    (r"pfc_pri(\d)_([rt]x)_transitions", "pfc_{1}_transitions_prio{0}"),
    (r"([rt]x)_pause_frames", "pause_{0}_frames"),
    (r"([rt]x)_stat_discard", "phy_{0}_discards"),
    (r"rx_discard_packets_cos(\d)", "phy_rx_discards_cos{0}"),
    (r"rx_stat_err", "phy_rx_errors"),
    (r"tx_stat_error", "phy_tx_errors"),
    (r"rx_fcs_err_frames", "phy_rx_crc_errors"),
    (r"rx_pcs_symbol_err", "phy_rx_pcs_symbol_errors"),
    (r"rx_corrected_bits", "phy_rx_fec_corrected_bits"),
    (r"rx_fec_corrected_blocks", "phy_rx_fec_corrected_blocks"),
    (r"rx_fec_uncorrectable_blocks", "phy_rx_fec_uncorrectable_blocks"),
    (r"rx_buffer_passed_threshold", "phy_rx_buffer_events"),
    (r"link_down_events", "phy_link_down_events"),
)

_ICE: _Rules = (
    (r"([rt]x)_bytes\.nic", "phy_{0}_bytes"),
    # XOFF starts a pause, XON ends it: both are pause frames, and each XOFF begins one pause.
    (r"([rt]x)_priority_(\d)_xoff\.nic", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_priority_(\d)_xon_2_xoff\.nic", "pfc_{0}_transitions_prio{1}"),
    (r"link_xoff_([rt]x)\.nic", "pause_{0}_frames"),
    (r"rx_dropped\.nic", "phy_rx_discards"),
    (r"tx_errors\.nic", "phy_tx_errors"),
    (r"rx_crc_errors\.nic", "phy_rx_crc_errors"),
    (r"mac_(local|remote)_faults\.nic", "phy_{0}_faults"),
)

_I40E: _Rules = (
    (r"port\.([rt]x)_bytes", "phy_{0}_bytes"),
    # Kernels differ: tx_priority_3_xoff, later tx_priority_3_xoff_tx.
    (r"port\.([rt]x)_priority_(\d)_xoff(?:_[rt]x)?", "pfc_{0}_frames_prio{1}"),
    (r"port\.([rt]x)_priority_(\d)_xon_2_xoff", "pfc_{0}_transitions_prio{1}"),
    (r"port\.link_xoff_([rt]x)", "pause_{0}_frames"),
    (r"port\.rx_dropped", "phy_rx_discards"),
    (r"port\.tx_errors", "phy_tx_errors"),
    (r"port\.rx_crc_errors", "phy_rx_crc_errors"),
    (r"port\.mac_(local|remote)_faults", "phy_{0}_faults"),
)

_CXGB4: _Rules = (
    (r"([rt]x)_octets_ok", "phy_{0}_bytes"),
    (r"([rt]x)_frames_ok", "phy_{0}_packets"),
    (r"([rt]x)_ppp(\d)_frames", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_pause_frames", "pause_{0}_frames"),
    (r"tx_frames_dropped", "phy_tx_discards"),
    (r"tx_error_frames", "phy_tx_errors"),
    (r"rx_fcs_errors", "phy_rx_crc_errors"),
    (r"rx_symbol_errors", "phy_rx_symbol_errors"),
)

_IONIC: _Rules = (
    (r"octets_([rt]x)_ok", "phy_{0}_bytes"),
    (r"frames_([rt]x)_ok", "phy_{0}_packets"),
    (r"frames_([rt]x)_pri_(\d)", "phy_{0}_packets_prio{1}"),
    (r"frames_([rt]x)_pripause", "pfc_{0}_frames"),
    (r"([rt]x)_pripause_(\d)_1us_count", "pfc_{0}_pause_us_prio{1}"),
    (r"frames_([rt]x)_pause", "pause_{0}_frames"),
    (r"([rt]x)_pause_1us_count", "pause_{0}_us"),
    (r"frames_rx_dropped", "phy_rx_discards"),
    (r"frames_rx_bad_all", "phy_rx_errors"),
    (r"frames_tx_bad", "phy_tx_errors"),
    (r"frames_rx_bad_fcs", "phy_rx_crc_errors"),
)

# The unit of hns3's `*_xoff_time` is not documented: not read.
_HNS3: _Rules = (
    (r"mac_([rt]x)_good_oct_num", "phy_{0}_bytes"),
    (r"mac_([rt]x)_good_pkt_num", "phy_{0}_packets"),
    (r"mac_([rt]x)_pfc_pri(\d)_pkt_num", "pfc_{0}_frames_prio{1}"),
    (r"mac_([rt]x)_pfc_pkt_num", "pfc_{0}_frames"),
    (r"mac_([rt]x)_mac_pause_num", "pause_{0}_frames"),
    (r"mac_([rt]x)_bad_pkt_num", "phy_{0}_errors"),
    (r"mac_rx_fcs_err_pkt_num", "phy_rx_crc_errors"),
)

# A cloud's NIC: no counters of a wire, but those of the limits of the rented machine.
_ENA: _Rules = (
    (r"bw_in_allowance_exceeded", "limit_rx_packets"),
    (r"bw_out_allowance_exceeded", "limit_tx_packets"),
    (r"pps_allowance_exceeded", "limit_pps_packets"),
    (r"conntrack_allowance_exceeded", "limit_connection_drops"),
    (r"linklocal_allowance_exceeded", "limit_local_drops"),
)

# The traffic classes are those of the physical port. The `hc_*` bytes are of the whole adapter.
_MANA: _Rules = (
    (r"hc_tc(\d)_([rt]x)_byte_phy", "phy_{1}_bytes_prio{0}"),
    (r"hc_tc(\d)_([rt]x)_pkt_phy", "phy_{1}_packets_prio{0}"),
    (r"hc_tc(\d)_([rt]x)_pause_phy", "pfc_{1}_frames_prio{0}"),
    (r"hc_([rt]x)_pkt_drop_phy", "phy_{0}_discards"),
    (r"hc_rx_discards_no_wqe", "phy_rx_out_of_buffer"),
)

# Virtual NICs have no counters of a wire: drops of each queue, which are added up.
_GVE: _Rules = (
    (r"rx_queue_drop_cnt\[\d+\]", "+phy_rx_discards"),
    (r"rx_no_buffers_posted\[\d+\]", "+phy_rx_out_of_buffer"),
    (r"tx_dropped", "phy_tx_discards"),
)
_VIRTIO: _Rules = (
    (r"rx_?(?:queue_)?\d+_drops", "+phy_rx_discards"),
    (r"tx_?(?:queue_)?\d+_xdp_tx_drops", "+phy_tx_discards"),
)
_IDPF: _Rules = (
    (r"(?:port[-_])?tx-skb_drops", "phy_tx_discards"),
    (r"(?:port[-_])?rx-length_errors", "phy_rx_errors"),
)

_IXGBE: _Rules = (
    (r"([rt]x)_bytes_nic", "phy_{0}_bytes"),
    (r"([rt]x)_pkts_nic", "phy_{0}_packets"),
    (r"([rt]x)_pb_(\d)_pxoff", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_flow_control_xoff", "pause_{0}_frames"),
    (r"rx_missed_errors", "phy_rx_discards"),
    (r"rx_no_dma_resources", "phy_rx_out_of_buffer"),
    (r"([rt]x)_errors", "phy_{0}_errors"),
    (r"rx_crc_errors", "phy_rx_crc_errors"),
)

_MLX4: _Rules = (
    (r"([rt]x)_prio_(\d)_bytes", "phy_{0}_bytes_prio{1}"),
    (r"([rt]x)_prio_(\d)_packets", "phy_{0}_packets_prio{1}"),
    (r"([rt]x)_pause_prio_(\d)", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_pause_duration_prio_(\d)", "pfc_{0}_pause_us_prio{1}"),
    (r"([rt]x)_pause_transition_prio_(\d)", "pfc_{0}_transitions_prio{1}"),
    (r"([rt]x)_pause", "pause_{0}_frames"),
    (r"([rt]x)_pause_duration", "pause_{0}_us"),
    (r"([rt]x)_pause_transition", "pause_{0}_transitions"),
    (r"rx_fifo_errors", "phy_rx_discards"),
    (r"rx_crc_errors", "phy_rx_crc_errors"),
)

# `rx_drops_no_pbuf` is of the whole card.
_BE2NET: _Rules = (
    (r"rx_pause_frames", "pause_rx_frames"),
    (r"tx_pauseframes", "pause_tx_frames"),
    (r"rx_priority_pause_frames", "pfc_rx_frames"),
    (r"tx_priority_pauseframes", "pfc_tx_frames"),
    (r"rx_input_fifo_overflow_drop", "phy_rx_discards"),
    (r"rx_drops_no_erx_descr", "phy_rx_out_of_buffer"),
    (r"rx_crc_errors", "phy_rx_crc_errors"),
    (r"rx_alignment_symbol_errors", "phy_rx_symbol_errors"),
)

# Spectrum switches. The IEEE counters are the wire; a queue is a traffic class, the first eight of
# which carry unicast. The pause times are those of the same register as mlx5's: microseconds.
_MLXSW: _Rules = (
    (r"a_octets_transmitted_ok", "phy_tx_bytes"),
    (r"a_octets_received_ok", "phy_rx_bytes"),
    (r"a_frames_transmitted_ok", "phy_tx_packets"),
    (r"a_frames_received_ok", "phy_rx_packets"),
    (r"a_pause_mac_ctrl_frames_received", "pause_ctrl_rx_frames"),
    (r"a_pause_mac_ctrl_frames_xmitted", "pause_ctrl_tx_frames"),
    (r"a_frame_check_sequence_errors", "phy_rx_crc_errors"),
    (r"a_symbol_error_during_carrier", "phy_rx_symbol_errors"),
    (r"if_in_discards", "phy_rx_discards"),
    (r"if_out_discards", "phy_tx_discards"),
    (r"if_out_errors", "phy_tx_errors"),
    (r"ecn_marked", "phy_tx_ecn_marked"),
    (r"([rt]x)_octets_prio_(\d)", "phy_{0}_bytes_prio{1}"),
    (r"([rt]x)_frames_prio_(\d)", "phy_{0}_packets_prio{1}"),
    (r"([rt]x)_pause_prio_(\d)", "pfc_{0}_frames_prio{1}"),
    (r"([rt]x)_pause_duration_prio_(\d)", "pfc_{0}_pause_us_prio{1}"),
    (r"tc_transmit_queue_tc_(\d)", "queue{0}_occupancy_bytes"),
    (r"tc_no_buffer_discard_uc_tc_(\d)", "queue{0}_tx_drops"),
)

# Counters that Cumulus Linux' own switch driver lists for its front panel, on any chip.
_SWITCHD: _Rules = (
    (r"HwIfInOctets", "phy_rx_bytes"),
    (r"HwIfOutOctets", "phy_tx_bytes"),
    (r"HwIfInPausePkt", "pause_rx_frames"),
    (r"HwIfOutPausePkt", "pause_tx_frames"),
    (r"HwIfInPfc(\d)Pkt", "pfc_rx_frames_prio{0}"),
    (r"HwIfOutPfc(\d)Pkt", "pfc_tx_frames_prio{0}"),
    (r"HwIfInDiscards", "phy_rx_discards"),
    (r"HwIfOutDiscards", "phy_tx_discards"),
    (r"HwIfInErrors", "phy_rx_errors"),
    (r"HwIfOutErrors", "phy_tx_errors"),
    (r"HwIfOutWredDrops", "phy_tx_wred_drops"),
    (r"HwIfOutQ(\d)WredDrops", "queue{0}_tx_wred_drops"),
)

SWITCHD = "switchd"
"""The rules for front-panel ports whose driver is none of the others."""

# The usual names, for a driver without rules. Bytes and packets come last in the list of what may
# be wrong: they are taken only where no RDMA bypasses the interface (see `NOT_WITH_RDMA`).
_COUNT = r"(?:_frames|_packets|_pkts|_pkt|_count|_cnt|_total|_num)?"
_FRONT = r"(?:(?:port|mac|phy|eth|hw)[._])?"
_BACK = r"(?:[._](?:phy|nic|port|mac))?"
_USUAL: _Rules = (
    (rf"{_FRONT}([rt]x)_(?:good_|total_)?(?:bytes|octets)(?:_ok|_good)?{_BACK}", "phy_{0}_bytes"),
    (
        rf"{_FRONT}([rt]x)_(?:good_|total_)?(?:packets|frames|pkts)(?:_ok|_good)?{_BACK}",
        "phy_{0}_packets",
    ),
    (rf"{_FRONT}([rt]x)_(?:mac_|link_|global_)?pause{_COUNT}{_BACK}", "pause_{0}_frames"),
    (rf"{_FRONT}([rt]x)_flow_control_xoff", "pause_{0}_frames"),
    (
        rf"{_FRONT}([rt]x)_(?:pfc|ppp|pause)_?(?:prio|pri|class|tc)?_?([0-7]){_COUNT}{_BACK}",
        "pfc_{0}_frames_prio{1}",
    ),
    (rf"{_FRONT}([rt]x)_prio_?([0-7])_(?:pause|pfc){_COUNT}{_BACK}", "pfc_{0}_frames_prio{1}"),
    (rf"{_FRONT}rx_(?:crc|fcs)(?:_errors?|_err|_errs)?{_COUNT}{_BACK}", "phy_rx_crc_errors"),
    (rf"{_FRONT}rx_symbol_(?:errors?|err|errs){_BACK}", "phy_rx_symbol_errors"),
    (rf"{_FRONT}([rt]x)_(?:errors?|err|errs){_BACK}", "phy_{0}_errors"),
    (
        rf"{_FRONT}([rt]x)_(?:discards?|discarded|dropped|drops?)(?:_packets|_pkts)?{_BACK}",
        "phy_{0}_discards",
    ),
    (r"rx_missed_errors|rx_fifo_errors", "phy_rx_discards"),
    (r"rx_no_buffer(?:_count)?|rx_out_of_buffer", "phy_rx_out_of_buffer"),
    (r"link_down(?:_events|_count|ed)?", "phy_link_down_events"),
)
USUAL = "usual names"
"""The rules for a driver that has none of its own."""

NOT_WITH_RDMA = re.compile(r"phy_[rt]x_(bytes|packets)")
"""Metrics that are the whole wire. Where RDMA bypasses the interface, a name does not say whether
the counter includes it."""

RULES: Dict[str, _Rules] = {
    "mlx5_core": _MLX5,
    "bnxt_en": _BNXT,
    "ice": _ICE,
    "i40e": _I40E,
    "cxgb4": _CXGB4,
    "ionic": _IONIC,
    "hns3": _HNS3,
    "ena": _ENA,
    "mana": _MANA,
    "gve": _GVE,
    "idpf": _IDPF,
    "virtio_net": _VIRTIO,
    "ixgbe": _IXGBE,
    "mlx4_core": _MLX4,
    "mlx4_en": _MLX4,
    "be2net": _BE2NET,
    "mlxsw_spectrum": _MLXSW,
    "mlxsw_spectrum2": _MLXSW,
    "mlxsw_spectrum3": _MLXSW,
    "mlxsw_spectrum4": _MLXSW,
    SWITCHD: (*_SWITCHD, *_USUAL),
    USUAL: _USUAL,
}
"""Driver -> its rules. Other drivers have those of `USUAL`."""

_Compiled = Tuple[Tuple["re.Pattern[str]", str], ...]
_compiled: Dict[str, _Compiled] = {}


def metric_of(driver: str, name: str) -> Tuple[Optional[str], bool]:
    """The catalog name of a driver's counter, and whether all that match are added up."""
    rules = _compiled.get(driver)
    if rules is None:
        rules = tuple((re.compile(rule), metric) for rule, metric in RULES.get(driver, ()))
        _compiled[driver] = rules
    for pattern, metric in rules:
        match = pattern.fullmatch(name)
        if match is not None:
            return metric.lstrip("+").format(*match.groups()), metric.startswith("+")
    return None, False
