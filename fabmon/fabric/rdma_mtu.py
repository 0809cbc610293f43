"""The MTU of RDMA packets on Ethernet, derived from the interface's MTU.

The kernel computes `active_mtu` of a RoCE port so (Linux include/rdma/ib_addr.h, iboe_get_mtu), and
reports it only through the verbs library: neither sysfs nor RDMA netlink has it. That of an
InfiniBand port cannot be derived.
"""

from __future__ import annotations

_HEADERS = 40 + 8 + 12 + 4 + 28 + 4
"""GRH, UDP, BTH, XRC, atomic ETH, ICRC: bytes of headers that the kernel leaves room for."""

_MTUS = (4096, 2048, 1024, 512, 256)

FULL_RDMA_MTU = 4096


def roce_mtu(netdev_mtu: float) -> int | None:
    """The payload of an RDMA packet, bytes: 1024 for an MTU of 1500; None below 256."""
    room = netdev_mtu - _HEADERS
    return next((mtu for mtu in _MTUS if mtu <= room), None)
