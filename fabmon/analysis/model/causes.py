"""What the findings about full links say: the sentences and the evidence that they share."""

from __future__ import annotations

import numpy as np

from fabmon.analysis.evidence.null_model import EFFECTIVE_FLOWS, hashing_evidence
from fabmon.analysis.fabric_structure import NONE, FabricStructure, Rows
from fabmon.analysis.finding import Evidence
from fabmon.analysis.model.bottlenecks import Bottleneck
from fabmon.analysis.thresholds import ModelThresholds
from fabmon.fabric.flows.possible_ends import queue_pairs_on_link
from fabmon.fabric.routing_mode import UNKNOWN, Routing
from fabmon.fabric.snapshot import Snapshot
from fabmon.fabric.time_wording import duration
from fabmon.fabric.wording import rounded_percent

LINK_UTIL = "link util"
"""Name of the evidence that has the utilisation of a finding's link, in %."""

ROUTING = "routing"
"""Name of the evidence that has the routing mode of a finding's group."""
MEAN_OF = "mean of"
"""Name of the evidence that has the time of which the numbers of a finding are means, in s."""


def is_in_bursts(found: Bottleneck, t: ModelThresholds) -> bool:
    """Whether a link is full for a part of the time only."""
    return found.busy < t.accounts * found.peak_util


def window(snapshot: Snapshot, found: Bottleneck) -> str:
    """`5 s`: the time of which the loads in the sentence and the evidence are means."""
    return duration(found.ticks * snapshot.interval_s)


def utilisation(snapshot: Snapshot, found: Bottleneck, t: ModelThresholds) -> str:
    """`97 % of line rate over 5 s`; `97 % of line rate in bursts, 64 % of 5 s,`; of a link that no
    tick shows as full `50 % of line rate over 5 s, in bursts within each second,`."""
    busy = f"{rounded_percent(found.busy)} of line rate over {window(snapshot, found)}"
    if found.peak_util < t.full_util:
        return f"{busy}, in bursts within each second,"
    if not is_in_bursts(found, t):
        return busy
    share = f"{rounded_percent(found.busy / found.peak_util)} of {window(snapshot, found)}"
    return f"{rounded_percent(found.peak_util)} of line rate in bursts, {share},"


def is_loss_known(found: Bottleneck, t: ModelThresholds) -> bool:
    """Whether the NICs that may share a link account for its load; else its loss is not known."""
    return float(found.link.rates.sum()) >= t.accounts * found.link.load_bps


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
    """`2 ports`, `at least 2 of 15 ports`."""
    count, may = sharers(found), may_share(found)
    if len(found.named) or count == may:
        return f"{count} ports"
    return f"at least {count} of {may} ports"


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


def loss_evidence(found: Bottleneck, is_known: bool = True) -> tuple[Evidence, ...]:
    """Evidence: the lost bandwidth, where it is known, and the imbalance of the group."""
    imbalance = Evidence("imbalance", round(found.imbalance * 100, 1), "%")
    return (lost_evidence(found), imbalance) if is_known else (imbalance,)


def lost_evidence(found: Bottleneck) -> Evidence:
    """Evidence: the lost bandwidth."""
    return Evidence("lost bandwidth", round(found.lost * 100, 1), "%")


def time_evidence(found: Bottleneck, interval_s: float) -> tuple[Evidence, ...]:
    """Evidence: the highest utilisation of a link, and the time of which the others are means."""
    return (
        Evidence("highest util", round(found.peak_util * 100, 1), "%"),
        Evidence(MEAN_OF, round(found.ticks * interval_s, 1), "s"),
    )


def queue_evidence(found: Bottleneck) -> Evidence:
    """Evidence: how a queue is seen."""
    return Evidence("queue", found.slowed_by or "not seen at the hosts")


def routing_evidence(routing: Routing) -> Evidence:
    """Evidence: how the switch selects the links of the group."""
    return Evidence(ROUTING, "not known" if routing.mode == UNKNOWN else routing.mode)


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
