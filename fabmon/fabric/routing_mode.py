"""How the switches of a fabric distribute traffic over parallel links."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

HASHED: Final = "hashed"
STATIC: Final = "static"
ADAPTIVE: Final = "adaptive"
UNKNOWN: Final = "unknown"

ConfiguredMode = Literal["hashed", "static", "adaptive"]
"""The modes that the table [routing] of fabmon.toml may assign."""


class Routing(msgspec.Struct, frozen=True):
    """The routing mode of a node, and the `reason`: the fact that it is known from.

    `hashed`: a hash of addresses, ports or queue pairs selects the link of a flow (ECMP).
    `static`: forwarding tables select it by destination, as InfiniBand's subnet manager sets them.
    `adaptive`: packets of one flow take several links, because switches route adaptively or NICs
    spray. `unknown`: no source reports it. `hash_policy` is Linux' `fib_multipath_hash_policy` of a
    switch that hashes in the kernel; None where it is not reported.
    """

    mode: str = UNKNOWN
    reason: str = ""
    hash_policy: int | None = None

    @property
    def may_hash(self) -> bool:
        """Whether a hash collision can explain a hot link. An unknown mode counts as hashed: that
        is the default of Ethernet switches, and InfiniBand is never unknown."""
        return self.mode in (HASHED, UNKNOWN)


NOT_REPORTED = Routing()
"""The routing of a node about which nothing is known."""

_MORE_FLOWS = (
    "the hash more flows: NCCL_IB_QPS_PER_CONNECTION=4, then E-ECMP on the queue pair or"
    " adaptive routing on the switch."
)

_ADVICE = {
    HASHED: f"Give {_MORE_FLOWS}",
    UNKNOWN: f"If the switches hash, which is not known: give {_MORE_FLOWS}",
    STATIC: (
        "Forwarding tables send this traffic over one link: balance them anew. Choose a routing"
        " engine for the topology in opensm.conf (ftree or updn; ar_updn or ar_ftree where"
        " switches support adaptive routing), list the spines in root_guid_file, and let the subnet"
        " manager route again. With LMC 1 or more every NIC has several LIDs, thus paths. More"
        " queue pairs change nothing."
    ),
    ADAPTIVE: (
        "Adaptive routing and packet spraying balance by packet, so this link is not hot by chance:"
        " check that they are on for this traffic class on the switches and the NICs, and that no"
        " link of the group is slower or has errors."
    ),
}

_LAYER_3_HASH = (
    "The switch hashes addresses only (net.ipv4.fib_multipath_hash_policy=0), so more queue pairs"
    " change nothing: set it to 1, then NCCL_IB_QPS_PER_CONNECTION=4."
)


def hot_link_advice(routing: Routing) -> str:
    """What to do about a link that is full beside links of its group with room; one paragraph.

    Sources: NCCL's environment variables; opensm(8), "ROUTING"; NVIDIA, InfiniBand Cluster Bring-up
    Procedure, "Adaptive Routing"; Linux Documentation/networking/ip-sysctl.rst.
    """
    if routing.mode == HASHED and routing.hash_policy == 0:
        return _LAYER_3_HASH
    return _ADVICE.get(routing.mode, _ADVICE[UNKNOWN])
