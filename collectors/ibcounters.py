"""What perfquery calls the counters of an InfiniBand port, and what the catalog does.

The extended set has 64 bits; devices of the last years have the errors and the waiting in it too.
Where they are not, the classic set has them, narrow and sticking at their maximum.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

from collectors.ibtools import Counters
from collectors.source import Faults

_OCTETS_A_WORD = 4
_MASK64 = 2**64 - 1
_STUCK32 = 2**32 - 1

_DATA: Dict[str, Tuple[str, int]] = {
    "ib_tx_bytes": ("PortXmitData", _OCTETS_A_WORD),
    "ib_rx_bytes": ("PortRcvData", _OCTETS_A_WORD),
    "ib_tx_packets": ("PortXmitPkts", 1),
    "ib_rx_packets": ("PortRcvPkts", 1),
    "ib_tx_unicast_packets": ("PortUnicastXmitPkts", 1),
    "ib_rx_unicast_packets": ("PortUnicastRcvPkts", 1),
    "ib_tx_multicast_packets": ("PortMulticastXmitPkts", 1),
    "ib_rx_multicast_packets": ("PortMulticastRcvPkts", 1),
}
_ERRORS: Dict[str, str] = {
    "tx_wait": "PortXmitWait",
    "symbol_errors": "SymbolErrorCounter",
    "link_error_recovery": "LinkErrorRecoveryCounter",
    "link_downed": "LinkDownedCounter",
    "rx_errors": "PortRcvErrors",
    "rx_remote_physical_errors": "PortRcvRemotePhysicalErrors",
    "rx_switch_relay_errors": "PortRcvSwitchRelayErrors",
    "tx_discards": "PortXmitDiscards",
    "tx_constraint_errors": "PortXmitConstraintErrors",
    "rx_constraint_errors": "PortRcvConstraintErrors",
    "local_link_integrity_errors": "LocalLinkIntegrityErrors",
    "excessive_buffer_overruns": "ExcessiveBufferOverrunErrors",
    "vl15_dropped": "VL15Dropped",
}


class Answers:
    """What a port answered in one round: its extended and its classic counters."""

    def __init__(self, extended: Counters, classic: Counters) -> None:
        self.extended = extended
        self.classic = classic

    def metrics(self) -> Tuple[str, ...]:
        """The metrics that this port has."""
        found: List[str] = [
            metric
            for metric, (name, _) in _DATA.items()
            if name in self.extended or name in self.classic
        ]
        for stem, name in _ERRORS.items():
            if name in self.extended:
                found.append(f"ib_ext_{stem}")
            elif name in self.classic:
                found.append(f"ib_{stem}")
        return tuple(found)

    def value(self, metric: str, faults: Faults, place: int) -> Optional[int]:
        """A metric's value in the catalog's unit; None with its reason at `place` in `faults`."""
        if metric in _DATA:
            name, factor = _DATA[metric]
            value = self.extended.get(name)
            if value is None:
                value = self.classic.get(name)
                if value == _STUCK32:
                    faults[place] = "saturated"
                    return None
            if value is not None:
                return value * factor & _MASK64
        elif metric.startswith("ib_ext_"):
            value = self.extended.get(_ERRORS[metric[len("ib_ext_") :]])
        else:
            value = self.classic.get(_ERRORS[metric[len("ib_") :]])
        if value is None:
            faults[place] = "failed"
        return value


def needs_classic(extended: Counters) -> bool:
    """Whether a port's errors, or all of its counters, are in the classic set only."""
    return any(name not in extended for name in _ERRORS.values())
