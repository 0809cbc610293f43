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
