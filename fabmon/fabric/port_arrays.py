"""What is known of ports, as arrays by row."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fabmon.fabric.model import GPU, ROLE_ORDER, Fabric, Port
from fabmon.fabric.pcie import pcie_payload_bps

NONE = -1
"""No such node, port, index or cable."""

_T = TypeVar("_T", bound=np.generic)

_ROLE_NUMBERS = {role: number for number, role in enumerate(ROLE_ORDER)}


@dataclass(frozen=True, slots=True)
class PortArrays:
    """All arrays are [ports]; NONE, or NaN, where a row has no port any more.

    `role` is the number of the role in ROLE_ORDER, `peer` the row at the other end, `pcie_bps` the
    payload that the port's PCIe link carries one way. `node` and `far` are numbers of the names in
    `names`: of the port's node, and of that at the far end of its cable.
    """

    role: NDArray[np.intp]
    index: NDArray[np.intp]
    peer: NDArray[np.intp]
    pcie_bps: NDArray[np.float32]
    node: NDArray[np.intp]
    far: NDArray[np.intp]
    names: dict[str, int]
    _ports: dict[str, tuple[Port, ...]]

    def has_role(self, *roles: str) -> NDArray[np.bool_]:
        """[ports]: whether a port has one of some roles."""
        found = np.zeros(len(ROLE_ORDER) + 1, np.bool_)
        found[[_ROLE_NUMBERS[role] for role in roles]] = True
        has: NDArray[np.bool_] = found[self.role]
        return has

    def is_same(self, other: PortArrays) -> bool:
        """Whether all arrays have the same values."""
        return self.names == other.names and all(
            np.array_equal(getattr(self, name), getattr(other, name), equal_nan=name == "pcie_bps")
            for name in _ARRAYS
        )


def grown(values: NDArray[_T], size: int, absent: float = 0) -> NDArray[_T]:
    """The values with room for at least `size` along the last axis, as for ports that are new;
    those that are added are `absent`."""
    more = max(0, size - values.shape[-1])
    room = [(0, 0)] * (values.ndim - 1) + [(0, more)]
    return np.pad(values, room, constant_values=absent) if more else values


def port_arrays(fabric: Fabric, before: PortArrays | None = None) -> PortArrays:
    """The arrays of a fabric. `before` are those of an earlier one: only the ports of nodes that
    have other ones now are read."""
    if before is None:
        rows, rates = np.empty(0, np.intp), np.empty(0, np.float32)
        before = PortArrays(rows, rows, rows, rates, rows, rows, {}, {})
    ports = {node.name: node.ports for node in fabric.nodes}
    known, names = before._ports, dict(before.names)
    gone = [old for name, old in known.items() if ports.get(name) is not old]
    new = [own for name, own in ports.items() if known.get(name) is not own]
    old_rows = np.array([port.row for port in chain.from_iterable(gone)], np.intp)
    values = [_values(port, names) for port in chain.from_iterable(new)]
    rows = np.array([port.row for port in chain.from_iterable(new)], np.intp)
    columns = list(zip(*values, strict=True)) or [()] * len(_ARRAYS)
    arrays = {}
    for name, column in zip(_ARRAYS, columns, strict=True):
        array: NDArray[Any] = getattr(before, name)
        absent = array.dtype.type(np.nan if array.dtype.kind == "f" else NONE)
        array = grown(array, len(fabric.ports), absent).copy()
        array[old_rows] = absent
        array[rows] = column
        arrays[name] = array
    return PortArrays(**arrays, names=names, _ports=ports)


_ARRAYS = ("role", "index", "peer", "pcie_bps", "node", "far")


def _values(port: Port, names: dict[str, int]) -> tuple[int, int, int, float, int, int]:
    """The values of a port, in the order of the arrays."""
    return (
        _ROLE_NUMBERS[port.role],
        port.index,
        NONE if port.peer is None else port.peer,
        pcie_payload_bps(port.info, port.role == GPU),
        names.setdefault(port.node, len(names)),
        NONE if port.cable is None else names.setdefault(port.cable.node, len(names)),
    )
