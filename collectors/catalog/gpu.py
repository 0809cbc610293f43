"""Metrics of GPUs: their links to other GPUs and to the host.

A GPU's `nvlink_*` are the sum of its links; a link's are its own. Both are as seen from the GPU:
tx is what it sends. The bytes are payload, except where the object's `bytes_from` says raw, which
includes the protocol.
"""

from __future__ import annotations

from typing import Iterator

from collectors.catalog.metric import WRAP64, Metric, rows

_NVML = "nvml.h (NVML_FI_DEV_*), NVIDIA Management Library reference"
_GPU_METRICS = "Linux drivers/gpu/drm/amd/include/kgd_pp_interface.h (gpu_metrics)"
_EXPORTERS = "DCGM dcgm_fields.h (449); ROCm/device-metrics-exporter metricslist.md"

_TRAFFIC = """
nvlink_{way}_bytes bytes wrap64 {way} traffic: bytes {done} over NVLink
xgmi_{way}_bytes bytes wrap64 {way} traffic: bytes {done} over xGMI
pcie_{way}_bytes bytes wrap64 {way} traffic: bytes {done} over PCIe, as the GPU sees it
nvlink_{way}_bps bps gauge {way} traffic: rate {done} over NVLink, by GPM: a gauge, where there is
    no counter
pcie_{way}_bps bps gauge {way} traffic: rate {done} over PCIe, sampled for 20 ms: a gauge, where
    there is no counter
"""
_BOTH_WAYS = """
nvlink_both_bps bps gauge - traffic: rate over NVLink, by DCGM: both directions together, where they
    cannot be separated
pcie_both_bps bps gauge - traffic: rate over PCIe, from the GPU's firmware: both directions
    together, where they cannot be separated
"""
_STATES = """
nvlink_state state gauge - state: 1 when the link is up, 0 when it is not
nvlink_speed_bps bps gauge - state: payload, one direction; of a GPU: of its links that are up
xgmi_state state gauge - state: 1 when the link is active; of a GPU: when one of its links is
xgmi_speed_bps bps gauge - state: line rate, one direction; of a GPU: of its links that are up
gpu_busy_percent percent gauge - state: share of time in which a kernel ran on the GPU
gpu_sm_clock_hz Hz gauge - state: clock of the streaming multiprocessors
gpu_max_sm_clock_hz Hz gauge - state: greatest clock of the streaming multiprocessors
gpu_clock_reasons state gauge - state: bits of nvmlClocksEventReason*: why the clock is lowered
gpu_fabric_state state gauge - state: NVLink fabric: 0 none, 1 not started, 2 joining, 3 joined
gpu_fabric_status state gauge - state: result of joining the NVLink fabric: 0, or NVML's error
gpu_fabric_clique state gauge - state: number of the GPUs that reach each other over NVLink
gpu_fabric_health state gauge - state: bits of NVML_GPU_FABRIC_HEALTH_MASK_*
c2c_active_links state gauge - state: links to the CPU of the same module that are active
c2c_speed_bps bps gauge - state: active links to the CPU of the same module, one direction
nvlink_effective_ber_e18 state gauge - state: bit errors after FEC, in 10^-18 of all bits
nvlink_symbol_ber_e18 state gauge - state: symbol errors after FEC, in 10^-18 of all symbols
"""
_EVENTS = """
nvlink_replays events wrap64 - error: data sent again after a bad acknowledgement
nvlink_recovery_events events wrap64 - error: times a link retrained to recover
nvlink_recoveries events wrap64 - error: link recoveries that succeeded
nvlink_recovery_failures events wrap64 - error: link recoveries that failed
nvlink_crc_errors events wrap64 rx error: checksum errors of the data link layer
nvlink_crc_flit_errors events wrap64 rx error: flits with a bad checksum
nvlink_crc_data_errors events wrap64 rx error: data with a bad checksum
nvlink_ecc_errors events wrap64 rx error: data errors found by ECC
nvlink_malformed_packets packets wrap64 rx error: malformed packets
nvlink_buffer_overruns packets wrap64 rx drop: packets dropped for lack of buffers
nvlink_rx_errors packets wrap64 rx error: packets received in error
nvlink_rx_remote_errors packets wrap64 rx error: packets marked bad further upstream
nvlink_rx_general_errors packets wrap64 rx error: packets bad for another reason
nvlink_integrity_errors events wrap64 - error: local integrity thresholds crossed
nvlink_tx_discards packets wrap64 tx drop: packets dropped before sending
nvlink_effective_errors events wrap64 rx error: errors that FEC did not correct
nvlink_fatal_errors events wrap64 - error: errors that took the link of a switch down
nvlink_non_fatal_errors events wrap64 - error: errors of a switch's link that it survived
pcie_replays events wrap64 tx error: PCIe packets sent again
nvlink_symbol_errors events wrap64 rx error: symbols received damaged
c2c_crc_errors events wrap64 - error: checksum errors of the links to the CPU
c2c_replays events wrap64 - error: data sent again over the links to the CPU
c2c_repeated_replays events wrap64 - error: data sent again twice to or from the CPU
pcie_correctable_errors events wrap64 - error: PCIe errors corrected by the link itself
pcie_naks_received events wrap64 rx error: PCIe packets that the peer requested again
pcie_receiver_errors events wrap64 rx error: PCIe errors of the receiver's signal
pcie_bad_tlp packets wrap64 rx error: PCIe transaction packets received damaged
pcie_naks_sent events wrap64 tx error: PCIe packets that this GPU requested again
pcie_bad_dllp packets wrap64 rx error: PCIe data link packets received damaged
pcie_non_fatal_errors events wrap64 - error: PCIe errors that lost a transaction
pcie_fatal_errors events wrap64 - error: PCIe errors that lost the link
pcie_unsupported_requests events wrap64 - error: PCIe requests that were not understood
pcie_lcrc_errors packets wrap64 rx error: PCIe packets with a bad link checksum
pcie_lane_errors events wrap64 - error: PCIe errors of single lanes
"""


def gpu_metrics() -> Iterator[Metric]:
    """The `nvlink_*`, `xgmi_*`, `pcie_*` and `gpu_*` rows."""
    for way, done in (("rx", "received"), ("tx", "sent")):
        for row in rows(_TRAFFIC.format(way=way, done=done), _NVML):
            yield row._replace(source=_GPU_METRICS) if row.name.startswith("xgmi") else row
    yield from rows(_BOTH_WAYS, _EXPORTERS)
    for row in rows(_STATES, _NVML):
        yield row._replace(source=_GPU_METRICS) if row.name.startswith("xgmi") else row
    for errors in range(16):
        name = f"nvlink_fec_codewords_s{errors}"
        meaning = f"FEC codewords of the link, bin {errors} of their number of symbol errors"
        yield Metric(name, "events", WRAP64, "rx", "corrected", meaning, _NVML)
    yield from rows(_EVENTS, _NVML)
