"""What the findings about full links say: the sentences and the evidence that they share."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.detector_input import DetectorInput
from fabmon.analysis.evidence.null_model import EFFECTIVE_FLOWS, hashing_evidence
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Rows
from fabmon.analysis.finding import Evidence
from fabmon.analysis.model.bottlenecks import Bottleneck
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.flows.possible_ends import queue_pairs_on_link
from fabmon.fabric.routing_mode import UNKNOWN
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import rounded_percent

ROUTING = "routing"
"""Name of the evidence that has the routing mode of a finding's group."""
MEAN_OF = "mean of"
"""Name of the evidence that has the time of which the numbers of a finding are means, in s."""


def is_in_bursts(found: Bottleneck, t: ModelThresholds) -> bool:
    """Whether a link is full for a part of the time only: some seconds, or parts of each."""
    return found.busy < t.nearly * found.peak_util or found.peak_util < t.full_util


def of_line_rate(snapshot: Snapshot, found: Bottleneck, busy: float) -> str:
    """`64 % of line rate over 5 s`."""
    return (
        f"{rounded_percent(busy)} of line rate over {duration(found.ticks * snapshot.interval_s)}"
    )


def utilisation(snapshot: Snapshot, found: Bottleneck, t: ModelThresholds) -> str:
    """`97 % of line rate over 5 s`; `64 % of line rate over 5 s, 97 % in bursts,`, where no tick
    shows it as full without a number."""
    mean = of_line_rate(snapshot, found, found.busy)
    if not is_in_bursts(found, t):
        return mean
    most = f"{rounded_percent(found.peak_util)} " if found.peak_util >= t.full_util else ""
    return f"{mean}, {most}in bursts,"


def loss(found: Bottleneck) -> str:
    """`48 %`, `up to 48 %`."""
    return f"{'up to ' if found.is_upper_bound else ''}{rounded_percent(found.lost)}"


def may_share(found: Bottleneck) -> int:
    """The number of NICs that may share a link, those that may be in the place of one included."""
    return len(np.union1d(found.link.sharers, found.link.instead))


def sharers(found: Bottleneck) -> int:
    """The number of NICs that share a link, a lower bound where they are not named."""
    return len(found.named) or min(found.flows, may_share(found))


def how_many(found: Bottleneck) -> str:
    """`2 ports`, `at least 2 of 15 ports`, `at least 15 ports` where others bring the rest."""
    count, may = sharers(found), may_share(found)
    if found.are_all or (count == may and not len(found.named)):
        return f"{count} ports"
    return f"at least {count}{f' of {may}' if count < may else ''} ports"


def names(structure: FabricStructure, found: Bottleneck) -> str:
    """` (gpu005 r0, gpu007 r0)`; empty where nobody is named."""
    return f" ({structure.labels(found.named)})" if len(found.named) else ""


def victims(structure: FabricStructure, nics: Rows) -> tuple[str, ...]:
    """Ids of the switch ports towards some NICs; of a NIC itself where its port is not known."""
    near = [nic if (edge := int(structure.peer[nic])) == NONE else edge for nic in nics.tolist()]
    return tuple(structure.ids(near))


def unseen(found: Bottleneck, *more: str) -> str:
    """What is not visible of a full link, in words."""
    queue = "" if found.slowed_by else "a queue at the hosts that share it"
    who = "" if len(found.named) else "which ports share it"
    return "; ".join(filter(None, (queue, who, *more)))


def as_full(structure: FabricStructure, found: Bottleneck, shared: Rows, t: ModelThresholds) -> str:
    """`whether it is that link or leaf1 up2, leaf1 up3, with the same load`: the links of its group
    that carry the same, where nothing but rates says which of them NICs share; else empty. Those
    that are `shared` by others are known."""
    if found.link.of_queue > 0 or found.link.util.max() < t.full_util:
        return ""
    apart = np.abs(found.link.level - found.link.busy) > t.takes_part * found.link.busy
    may_be = ~apart & np.isfinite(found.link.level) & ~np.isin(found.group.rows, shared)
    others = found.group.rows[may_be]
    if not len(others):
        return ""
    return f"whether it is that link or {structure.labels(others)}, with the same load"


def evidence(inputs: DetectorInput, found: Bottleneck) -> tuple[Evidence, ...]:
    """The evidence of all full links: the loss, where one is known, of what time it is, how a queue
    is seen, and of a link between switches how even its group is and how it is selected."""
    group = found.link.group
    mode = group.routing.mode if group else ""
    return (
        *([Evidence.percent("lost bandwidth", found.lost)] if found.lost else []),
        *([Evidence.percent("imbalance", found.imbalance)] if group else []),
        Evidence.percent("highest util", found.peak_util),
        Evidence(MEAN_OF, round(found.ticks * inputs.snapshot.interval_s, 1), "s"),
        Evidence("queue", found.slowed_by or "not seen at the hosts"),
        *([Evidence(ROUTING, "not known" if mode == UNKNOWN else mode)] if group else []),
    )


def hashing(snapshot: Snapshot, found: Bottleneck, flows: float = 0) -> tuple[Evidence, ...]:
    """Evidence: the group beside random hashing of so many flows, of its effective ones where they
    are not known; none where no hash selects its links."""
    if not found.group.routing.may_hash:
        return ()
    effective = found.effective_flows
    shown = round(effective, 1) if flows else round(effective)
    seen, usual = hashing_evidence(
        found.busy / found.group_busy, round(flows or effective), found.links
    )
    queue_pairs, sports = snapshot.connections.once(queue_pairs_on_link, found.row)
    of = f"of {queue_pairs} QPs" if queue_pairs else "flows"
    distinct = [Evidence("distinct UDP source ports", sports, of)] if sports else []
    # A group that is more even than its queue pairs would make it has more effective flows.
    unit = of if shown <= queue_pairs else "flows"
    return seen, Evidence(EFFECTIVE_FLOWS, shown, unit), *distinct, usual
