"""The queue pairs between two hosts: which ports they are on, and their UDP source ports."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from fabmon.fabric.endpoints import names_of
from fabmon.fabric.flows import FlowTable
from fabmon.fabric.leaves import NONE
from fabmon.fabric.model import Fabric


class Between(NamedTuple):
    """The queue pairs from `src` to `dst`, ports of two hosts; `sports` are distinct, ascending."""

    src: str
    dst: str
    sports: tuple[int, ...]


def between(
    fabric: Fabric,
    flows: FlowTable,
    src: str,
    dst: str,
    from_port: str | None = None,
    to_port: str | None = None,
) -> Between | None:
    """Those from one host to another, of the two ports that have the most of them.

    `from_port` and `to_port` limit the ports. None where no queue pair with a source port that can
    be worked out is known.
    """
    known = np.flatnonzero((flows.dst != NONE) & (flows.sport > 0))
    ends = [
        (fabric.ports[one], fabric.ports[other], sport)
        for one, other, sport in zip(
            flows.src[known].tolist(),
            flows.dst[known].tolist(),
            flows.sport[known].tolist(),
            strict=True,
        )
    ]
    ours = [
        (one.name, other.name, sport)
        for one, other, sport in ends
        if (one.node, other.node) == (src, dst)
        and (from_port is None or from_port in names_of(one))
        and (to_port is None or to_port in names_of(other))
    ]
    if not ours:
        return None
    (pair, _), *_ = Counter((one, other) for one, other, _ in ours).most_common(1)
    sports = {sport for one, other, sport in ours if (one, other) == pair}
    return Between(*pair, tuple(sorted(sports)))
