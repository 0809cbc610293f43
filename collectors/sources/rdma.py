"""Transport and congestion counters of RDMA devices (`hw_counters/`).

They are in two places: below a port, and below the device for counters that all its ports share
(then the object is the device, and belongs to no port unless it has just one). The kernel refreshes
a whole directory at once and answers from that snapshot for `lifespan` ms (default 10 or 12, the
administrator may set up to 10 s). Reading sooner would return the same numbers, a rate of zero and
then a double one: the longest lifespan found becomes the source's `min_period_s`, and the probe
reads no sooner.

Drivers name their counters differently: one entry per metric, one spelling per driver. The first
spelling that a port has is used; `a+b` is a sum of files. Sources: Linux
drivers/infiniband/hw/{mlx5,bnxt_re,irdma,efa,erdma,hns,mana,hfi1} and sw/rxe,
ROCm/device-metrics-exporter for ionic. bnxt_re, ionic, hns and mana count every CNP received; mlx5
and irdma count those acted upon. bnxt_re took the names of mlx5 for its congestion counters, in the
vendor's driver first. The bytes of hfi1 are not here: on Omni-Path `ib_*` is the wire.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

from collectors.catalog import CATALOG, WRAP32
from collectors.catalog.metric import entries
from collectors.coverage import Coverage, CoverageCount
from collectors.readers import ports
from collectors.readers.counter_files import FileSource
from collectors.source import NoData, Unsupported, from_oserror
from collectors.wire import Object


def _spellings(table: str) -> Dict[str, Tuple[str, ...]]:
    return {name: tuple(names.split(", ")) for name, names in entries(table)}


EACH_TICK = _spellings("""
# Congestion: mlx5 and newer bnxt_re; bnxt_re; irdma; ionic; hns; mana.
rdma_ecn_marked: np_ecn_marked_roce_packets, rx_ecn_marked_pkts, RxECNMrkd, rx_rdma_ecn_pkts,
    received_ecns
rdma_cnp_sent: np_cnp_sent, np_cnp_pkts, tx_cnp_pkts, cnpSent, tx_rdma_cnp_pkts, tx_cnp_pkt,
    sent_cnps
rdma_cnp_handled: rp_cnp_handled, rx_cnp_pkts, cnpHandled, rx_rdma_cnp_pkts, rx_cnp_pkt,
    received_cnps, received_cnp_count
rdma_cnp_ignored: rp_cnp_ignored, cnpIgnored
# Loss and reordering: mlx5; bnxt_re; ionic; rxe; irdma; mana; hfi1.
rdma_out_of_sequence: out_of_sequence, oos_drop_count, resp_rx_outouf_seq, out_of_seq_request,
    Rcvd Out of order packets, responder_oos, RcSeqNak
rdma_packet_sequence_errors: packet_seq_err, seq_err_naks_rcvd, req_rx_pkt_seq_err, rcvd_seq_err,
    Nak Sequence Error, requester_oos_nak, SeqNak
# mlx5 (adaptive); bnxt_re; ionic; irdma, old and new; rxe; efa; hfi1.
rdma_retransmits: roce_adp_retrans, to_retransmits, tx_rdma_retx_pkts, tcpRetransSegs, RetransSegs,
    completer_retry_err, retrans_pkts, RcResend
rdma_retransmit_timeouts: roce_adp_retrans_to, RTO, retrans_timeout_events
rdma_ack_timeouts: local_ack_timeout_err, requester_timeout, RcTimeOut
rdma_rnr_nak_retries: rnr_nak_retry_err, rnr_naks_rcvd, req_rx_rnr_retry_err, rcvd_rnr_err,
    RNR received, requester_rnr_nak, RnrNak
# Drops: mlx5; bnxt_re; ionic; efa; irdma; erdma; hfi1.
rdma_out_of_buffer: out_of_buffer, rx_out_of_buffer, resp_rx_outof_buf
rdma_rx_drops: rx_roce_discards, rx_drops, ip4InDiscards+ip6InDiscards,
    rx_disable_drop_cnt+rx_bps_limit_drop_cnt+rx_pps_limit_drop_cnt, PktDrop
rdma_tx_drops: tx_roce_discards, tx_disable_drop_cnt+tx_bps_limit_drop_cnt+tx_pps_limit_drop_cnt,
    tx_disable_drop_cnt
# Traffic: newer mlx5 (optional, off by default); bnxt_re, efa, mana; ionic; irdma; erdma; hns;
# rxe.
rdma_rx_bytes: rdma_rx_bytes, rx_bytes, rx_rdma_ucast_bytes+rx_rdma_mcast_bytes,
    ip4InOctets+ip6InOctets, rx_bytes_cnt
rdma_tx_bytes: rdma_tx_bytes, tx_bytes, tx_rdma_ucast_bytes+tx_rdma_mcast_bytes,
    ip4OutOctets+ip6OutOctets, tx_bytes_cnt
rdma_rx_packets: rdma_rx_packets, rx_pkts, rx_rdma_ucast_pkts+rx_rdma_mcast_pkts,
    ip4InPkts+ip6InPkts, rx_packets_cnt, rx_pkt, rcvd_pkts, rx_packets
rdma_tx_packets: rdma_tx_packets, tx_pkts, tx_rdma_ucast_pkts+tx_rdma_mcast_pkts,
    ip4OutPkts+ip6OutPkts, tx_packets_cnt, tx_pkt, sent_pkts, tx_packets
""")
"""Catalog name -> file names, the first that exists is used: counters that are drawn and judged."""

RARELY = _spellings("""
rdma_slow_restarts: roce_slow_restart
rdma_slow_restart_cnps: roce_slow_restart_cnps
rdma_slow_restart_transitions: roce_slow_restart_trans
rdma_implied_nak_errors: implied_nak_seq_err, req_rx_impl_nak_seq_err, Nak Sequence Error Implied,
    requester_implicit_nak
rdma_duplicate_requests: duplicate_request, dup_req, resp_rx_dup_request, responder_dup_request,
    RcDupRew
rdma_icrc_errors: rx_icrc_encapsulated, CRC errors
rdma_rx_errors: rx_roce_errors, rx_err_pkt
rdma_tx_errors: tx_roce_errors, tx_err_pkt, send_err
rdma_rx_write_requests: rx_write_requests, rx_write_req, iwInRdmaWrites
rdma_rx_read_requests: rx_read_requests, rx_read_req, iwInRdmaReads
rdma_rx_atomic_requests: rx_atomic_requests, rx_atomic_req
rdma_rx_dct_connects: rx_dct_connect
# Completions in error: mlx5 and newer bnxt_re; ionic; bnxt_re; rxe; mana; efa.
rdma_transport_retries_exceeded: req_transport_retries_exceeded, req_tx_retry_excd_err,
    max_retry_exceeded, retry_exceeded_err, requester_retries_exceeded
rdma_rnr_retries_exceeded: req_rnr_retries_exceeded, requester_rnr_nak_retries_exceeded,
    retry_rnr_exceeded_err
rdma_req_cqe_errors: req_cqe_error, req_rx_cqe_err, rdma_read_wr_err+rdma_write_wr_err,
    rdma_read_wr_err
rdma_req_cqe_flushes: req_cqe_flush_error, req_rx_cqe_flush
rdma_req_remote_access_errors: req_remote_access_errors, req_rx_rmt_acc_err, remote_access_err,
    nak_access_error
rdma_req_remote_invalid_requests: req_remote_invalid_request, req_rx_rmt_req_err,
    remote_invalid_req_err, nak_inv_req
rdma_resp_cqe_errors: resp_cqe_error, resp_rx_cqe_err
rdma_resp_cqe_flushes: resp_cqe_flush_error, resp_rx_cqe_flush
rdma_resp_length_errors: resp_local_length_error, resp_rx_loc_len_err, res_length_mismatch,
    responder_local_len_error
rdma_resp_remote_access_errors: resp_remote_access_errors, resp_tx_rmt_acc_err,
    responder_rem_access_error
# The other errors of ionic.
rdma_req_remote_operation_errors: req_rx_oper_err
rdma_req_local_operation_errors: req_tx_loc_oper_err
rdma_req_local_access_errors: req_tx_loc_acc_err
rdma_req_memory_errors: req_tx_mem_mgmt_err
rdma_req_invalid_packets: req_rx_inval_pkts
rdma_resp_invalid_requests: resp_rx_inval_request
rdma_resp_local_operation_errors: resp_rx_loc_oper_err
rdma_resp_out_of_atomics: resp_rx_outof_atomic
rdma_resp_sequence_errors: resp_tx_pkt_seq_err
rdma_resp_remote_invalid_requests: resp_tx_rmt_inval_req_err
rdma_resp_remote_operation_errors: resp_tx_rmt_oper_err
rdma_local_invalidate_errors: req_tx_loc_sgl_inv_err+resp_tx_loc_sgl_inv_err
rdma_resp_table_errors: resp_rx_s0_table_err
# Receivers that were not ready: mana; ionic; rxe.
rdma_rnr_naks_sent: responder_rnr_nak, resp_tx_rnr_retry_err, send_rnr_err
rdma_duplicate_responses: req_rx_dup_response
# The limits of a rented machine: erdma.
rdma_rx_limit_drops: rx_bps_limit_drop_cnt+rx_pps_limit_drop_cnt
rdma_tx_limit_drops: tx_bps_limit_drop_cnt+tx_pps_limit_drop_cnt
# Peers that SRD found silent, or with an impaired connection: efa.
rdma_unresponsive_peers: unresponsive_remote_events
rdma_impaired_connections: impaired_remote_conn_events
rdma_commands_failed: cmds_err
""")
"""The same for counters that explain a known fault, or change only with a broken program."""

SPELLINGS: Dict[str, Tuple[str, ...]] = {**EACH_TICK, **RARELY}
"""All counters."""


_MASK32 = 2**32 - 1
_LIFESPAN = "lifespan"


class Rdma(FileSource):
    """Congestion, loss and traffic of every RDMA port, each tick or as often as refreshed."""

    name = "rdma"
    spellings = EACH_TICK

    def discover(self) -> List[Object]:
        """One object per directory with at least one counter of the catalog."""
        self.close()
        try:
            found = [port for port in ports.find_ports(self.host) if port.rdma is not None]
            if not found:
                raise NoData("no RDMA device")
            by_device: Dict[str, List[ports.DevicePort]] = {}
            for port in found:
                by_device.setdefault(port.rdma or "", []).append(port)
            objects: List[Object] = []
            for device, its_ports in by_device.items():
                objects += self._device_objects(device, its_ports)
            self.coverage = self._coverage(by_device)
        except OSError as error:
            raise from_oserror(error) from error
        if not objects:
            unread = [str(covered) for covered in self.coverage if not covered.read]
            reason = "the RDMA drivers of this machine offer none of these hw_counters"
            raise Unsupported(", ".join(unread) or reason)
        return objects

    def close(self) -> None:
        """Close every file."""
        super().close()
        self.min_period_s = 0.0

    def _coverage(self, by_device: Dict[str, List[ports.DevicePort]]) -> List[Coverage]:
        """What the files of all ports and devices are, the rarely read ones included."""
        count = CoverageCount()
        for device, its_ports in by_device.items():
            paths = [port.rdma_path for port in its_ports] + [f"{ports.INFINIBAND}/{device}"]
            for path in paths:
                there = set(self.host.names(path, "hw_counters")) - {_LIFESPAN}
                if there:
                    count.add(its_ports[0].info.get("driver"), there, _understood(there))
        return count.result()

    def _device_objects(self, device: str, its_ports: List[ports.DevicePort]) -> List[Object]:
        """The objects of the ports, and of the device for further counters shared by them."""
        objects: List[Object] = []
        for port in its_ports:
            directory = f"{port.rdma_path}/hw_counters"
            objects += self._object(port.name, port.kind, port.name, directory, ())
        counted = [metric for item in objects for metric in item.metrics]
        name = its_ports[0].name if len(its_ports) == 1 else None
        directory = f"{ports.INFINIBAND}/{device}/hw_counters"
        return objects + self._object(
            f"{device}/device", its_ports[0].kind, name, directory, counted
        )

    def _object(
        self, name: str, kind: str, port: Optional[str], directory: str, excluded: Sequence[str]
    ) -> List[Object]:
        there = set(self.host.names(directory))
        metrics = tuple(
            metric
            for metric, spellings in self.spellings.items()
            if metric not in excluded and self._add(metric, spellings, directory, there)
        )
        if not metrics:
            return []
        lifespan_ms = self.host.number(directory, _LIFESPAN)
        self.min_period_s = max(self.min_period_s, (lifespan_ms or 0) / 1000)
        info = {} if lifespan_ms is None else {"lifespan_ms": lifespan_ms}
        return [Object(name, kind, port, info, metrics)]

    def _add(
        self, metric: str, spellings: Tuple[str, ...], directory: str, there: Set[str]
    ) -> bool:
        parse = _low_32_bits if CATALOG[metric].kind == WRAP32 else int
        for spelling in spellings:
            parts = spelling.split("+")
            if there.issuperset(parts):
                return self._files.add(*(f"{directory}/{part}" for part in parts), parse=parse)
        return False


def _understood(there: Set[str]) -> Set[str]:
    """The files whose metric is read from them, or from another spelling of it."""
    found: Set[str] = set()
    for spellings in SPELLINGS.values():
        parts = [spelling.split("+") for spelling in spellings]
        if any(there.issuperset(each) for each in parts):
            found.update(name for each in parts for name in each)
    return found


class RdmaErrors(Rdma):
    """Requests, and completions in error, of every RDMA port, every tenth tick."""

    name = "rdma_errors"
    every = 10
    spellings = RARELY

    def _coverage(self, by_device: Dict[str, List[ports.DevicePort]]) -> List[Coverage]:
        """Nothing: `rdma` reports the files of both sources."""
        return []


def _low_32_bits(data: bytes) -> int:
    """The value as the narrowest driver would count it; the rate stays the same."""
    return int(data) & _MASK32
