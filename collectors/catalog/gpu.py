"""Metrics of GPUs: their links to other GPUs and to the host.

A GPU's `nvlink_*` are the sum of its links; a link's are its own. Both are as seen from the GPU:
tx is what it sends. The bytes are payload, except where the object's `bytes_from` says raw, which
includes the protocol.
"""

from __future__ import annotations

from typing import Iterator, Tuple

from collectors.catalog.metric import GAUGE, WRAP64, Metric

_NVML = "nvml.h (NVML_FI_DEV_*), NVIDIA Management Library reference"
_GPU_METRICS = "Linux drivers/gpu/drm/amd/include/kgd_pp_interface.h (gpu_metrics)"

_Row = Tuple[str, str, str, str, str]

# name, unit, direction, topic, meaning
_EVENTS: Tuple[_Row, ...] = (
    ("nvlink_replays", "events", "", "error", "data sent again after a bad acknowledgement"),
    ("nvlink_recovery_events", "events", "", "error", "times a link retrained to recover"),
    ("nvlink_recoveries", "events", "", "error", "link recoveries that succeeded"),
    ("nvlink_recovery_failures", "events", "", "error", "link recoveries that failed"),
    ("nvlink_crc_errors", "events", "rx", "error", "checksum errors of the data link layer"),
    ("nvlink_crc_flit_errors", "events", "rx", "error", "flits with a bad checksum"),
    ("nvlink_crc_data_errors", "events", "rx", "error", "data with a bad checksum"),
    ("nvlink_ecc_errors", "events", "rx", "error", "data errors found by ECC"),
    ("nvlink_malformed_packets", "packets", "rx", "error", "malformed packets"),
    ("nvlink_buffer_overruns", "packets", "rx", "drop", "packets dropped for lack of buffers"),
    ("nvlink_rx_errors", "packets", "rx", "error", "packets received in error"),
    ("nvlink_rx_remote_errors", "packets", "rx", "error", "packets marked bad further upstream"),
    ("nvlink_rx_general_errors", "packets", "rx", "error", "packets bad for another reason"),
    ("nvlink_integrity_errors", "events", "", "error", "local integrity thresholds crossed"),
    ("nvlink_tx_discards", "packets", "tx", "drop", "packets dropped before sending"),
    ("nvlink_effective_errors", "events", "rx", "error", "errors that FEC did not correct"),
    ("nvlink_fatal_errors", "events", "", "error", "errors that took the link of a switch down"),
    (
        "nvlink_non_fatal_errors",
        "events",
        "",
        "error",
        "errors of a switch's link that it survived",
    ),
    ("pcie_replays", "events", "tx", "error", "PCIe packets sent again"),
    ("nvlink_symbol_errors", "events", "rx", "error", "symbols received damaged"),
    ("c2c_crc_errors", "events", "", "error", "checksum errors of the links to the CPU"),
    ("c2c_replays", "events", "", "error", "data sent again over the links to the CPU"),
    ("c2c_repeated_replays", "events", "", "error", "data sent again twice to or from the CPU"),
    ("pcie_correctable_errors", "events", "", "error", "PCIe errors corrected by the link itself"),
    ("pcie_naks_received", "events", "rx", "error", "PCIe packets that the peer requested again"),
    ("pcie_receiver_errors", "events", "rx", "error", "PCIe errors of the receiver's signal"),
    ("pcie_bad_tlp", "packets", "rx", "error", "PCIe transaction packets received damaged"),
    ("pcie_naks_sent", "events", "tx", "error", "PCIe packets that this GPU requested again"),
    ("pcie_bad_dllp", "packets", "rx", "error", "PCIe data link packets received damaged"),
    ("pcie_non_fatal_errors", "events", "", "error", "PCIe errors that lost a transaction"),
    ("pcie_fatal_errors", "events", "", "error", "PCIe errors that lost the link"),
    ("pcie_unsupported_requests", "events", "", "error", "PCIe requests that were not understood"),
    ("pcie_lcrc_errors", "packets", "rx", "error", "PCIe packets with a bad link checksum"),
    ("pcie_lane_errors", "events", "", "error", "PCIe errors of single lanes"),
)


def gpu_metrics() -> Iterator[Metric]:
    """The `nvlink_*`, `xgmi_*`, `pcie_*` and `gpu_*` rows."""
    for direction, verb in (("rx", "received"), ("tx", "sent")):
        for stem, what, doc in (
            ("nvlink", "over NVLink", _NVML),
            ("xgmi", "over xGMI", _GPU_METRICS),
            ("pcie", "over PCIe, as the GPU sees it", _NVML),
        ):
            yield Metric(
                f"{stem}_{direction}_bytes",
                "bytes",
                WRAP64,
                direction,
                "traffic",
                f"bytes {verb} {what}",
                doc,
            )
        for stem, what in (("nvlink", "NVLink, by GPM"), ("pcie", "PCIe, sampled for 20 ms")):
            yield Metric(
                f"{stem}_{direction}_bps",
                "bps",
                GAUGE,
                direction,
                "traffic",
                f"rate {verb} over {what}: a gauge, where there is no counter",
                _NVML,
            )
    for stem, what in (("nvlink", "NVLink, by DCGM"), ("pcie", "PCIe, from the GPU's firmware")):
        yield Metric(
            f"{stem}_both_bps",
            "bps",
            GAUGE,
            "",
            "traffic",
            f"rate over {what}: both directions together, where they cannot be separated",
            "DCGM dcgm_fields.h (449); ROCm/device-metrics-exporter metricslist.md",
        )
    for name, unit, meaning in (
        ("nvlink_state", "state", "1 when the link is up, 0 when it is not"),
        ("nvlink_speed_bps", "bps", "payload, one direction; of a GPU: of its links that are up"),
        ("xgmi_state", "state", "1 when the link is active; of a GPU: when one of its links is"),
        ("xgmi_speed_bps", "bps", "line rate, one direction; of a GPU: of its links that are up"),
    ):
        doc = _GPU_METRICS if name.startswith("xgmi") else _NVML
        yield Metric(name, unit, GAUGE, "", "state", meaning, doc)
    for name, unit, meaning in (
        ("gpu_busy_percent", "percent", "share of time in which a kernel ran on the GPU"),
        ("gpu_sm_clock_hz", "Hz", "clock of the streaming multiprocessors"),
        ("gpu_max_sm_clock_hz", "Hz", "greatest clock of the streaming multiprocessors"),
        ("gpu_clock_reasons", "state", "bits of nvmlClocksEventReason*: why the clock is lowered"),
    ):
        yield Metric(name, unit, GAUGE, "", "state", meaning, _NVML)
    for name, unit, meaning in (
        ("gpu_fabric_state", "state", "NVLink fabric: 0 none, 1 not started, 2 joining, 3 joined"),
        ("gpu_fabric_status", "state", "result of joining the NVLink fabric: 0, or NVML's error"),
        ("gpu_fabric_clique", "state", "number of the GPUs that reach each other over NVLink"),
        ("gpu_fabric_health", "state", "bits of NVML_GPU_FABRIC_HEALTH_MASK_*"),
        ("c2c_active_links", "state", "links to the CPU of the same module that are active"),
        ("c2c_speed_bps", "bps", "active links to the CPU of the same module, one direction"),
        ("nvlink_effective_ber_e18", "state", "bit errors after FEC, in 10^-18 of all bits"),
        ("nvlink_symbol_ber_e18", "state", "symbol errors after FEC, in 10^-18 of all symbols"),
    ):
        yield Metric(name, unit, GAUGE, "", "state", meaning, _NVML)
    for errors in range(16):
        name = f"nvlink_fec_codewords_s{errors}"
        meaning = f"FEC codewords of the link, bin {errors} of their number of symbol errors"
        yield Metric(name, "events", WRAP64, "rx", "corrected", meaning, _NVML)
    for name, unit, direction, topic, meaning in _EVENTS:
        yield Metric(name, unit, WRAP64, direction, topic, meaning, _NVML)
