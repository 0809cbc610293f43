"""The UDP source port of a RoCE connection, which Linux computes from its queue pair numbers.

Switches hash addresses and this port; it is the only difference between flows of the same two NICs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

_DERIVING = ("mlx5", "irdma", "ice", "i40e", "idpf", "erdma", "hns", "mana", "ionic")
"""Drivers that call the kernel's helper; bnxt_re does not (Linux 6.12). A port's `driver` may be
its Ethernet driver."""


def roce_source_port(local_qpn: Numbers, remote_qpn: Numbers) -> Numbers:
    """UDP source ports, 49152 to 65535, of connected queue pairs; the same in both directions.

    Linux include/rdma/ib_verbs.h, for a flow label of 0, which is what NCCL sets:

        static inline u32 rdma_calc_flow_label(u32 lqpn, u32 rqpn)
            u64 v = (u64)lqpn * rqpn;
            v ^= v >> 20;
            v ^= v >> 40;
            return (u32)(v & IB_GRH_FLOWLABEL_MASK);                    /* 0x000FFFFF */

        static inline u16 rdma_flow_label_to_udp_sport(u32 fl)
            u32 fl_low = fl & 0x03fff, fl_high = fl & 0xFC000;
            fl_low ^= fl_high >> 14;
            return (u16)(fl_low | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN);    /* 0xC000 */
    """
    v = np.asarray(local_qpn, np.int64) * np.asarray(remote_qpn, np.int64)
    v ^= v >> 20
    v ^= v >> 40
    label = v & 0xFFFFF
    port: Numbers = ((label & 0x3FFF) ^ ((label & 0xFC000) >> 14)) | 0xC000
    return port


def is_derived(port_info: Mapping[str, Any], kind: str) -> bool:
    """Whether a port's driver uses this formula.

    A vendor's out-of-tree driver, or software that sets a flow label, may differ. InfiniBand has no
    UDP ports.
    """
    driver = str(port_info.get("driver") or "")
    return kind == "ethernet" and driver.startswith(_DERIVING)
