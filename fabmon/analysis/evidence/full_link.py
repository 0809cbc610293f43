"""Full links and full groups: what evidence/group_load.py finds, and the detectors report."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import numpy as np

from fabmon.analysis.evidence.null_model import effective_flows
from fabmon.analysis.fabric_structure import LinkGroup, Rows
from fabmon.analysis.finding import Evidence
from fabmon.analysis.thresholds import Share, Ticks
from fabmon.fabric.routing_mode import UNKNOWN, Routing
from fabmon.fabric.snapshot import Floats

LINK_UTIL = "link util"
"""Name of the evidence that has the utilisation of a finding's link, in %."""

ROUTING = "routing"
"""Name of the evidence that has the routing mode of a finding's group."""

CLEARLY_UNEVEN = 0.3
"""1 - mean/max of a group, 0 to 1, from which on a full link is reported without knowing who feeds
it, or for how much of the time it is full."""

NO_ROOM = 0.85
"""Mean utilisation of a group, 0 to 1, from which on it has too few links, however it hashes."""

OWN_QUEUE = "marks or drops of the link's own queue"
"""How a queue is seen at a link whose switch counts the packets that it marks or drops there."""

_USED = 0.1
"""Share of the fullest link's load, 0 to 1, above which a link counts as used."""


class EcmpGroupThresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [ecmp_groups]; shares are of line rate and of bandwidth."""

    full_util: Share
    full_util_tcp: Share
    full_ticks: Ticks
    unseen_ticks: Ticks
    room_util: Share
    lost_min: Share


@dataclass(frozen=True, slots=True)
class FullLink:
    """A link of a group that is full and slows its flows.

    `row` is the port that sends into it. `feeders` are the ports that it slows (edge ports of the
    switch before it, or behind it for links into a switch), `named` those whose traffic is known to
    be on it: the others may only wait for them. `level` [members] is the mean utilisation of the
    group's members while the link was full, NaN of those that are down.
    `full_ticks` is the number of these ticks. `lost` is 1 - achieved / possible, 0 to 1: what the
    slowed ports send over what they could (the smaller of their line rate and their fair share of
    the group, whose links carry as much as the full one does). `slowed_by` says how a queue was
    seen (OWN_QUEUE; at the hosts `CNPs or marks`, `pause`, `no credits`; empty where it was not).
    `active` is the number of ports that take part in sharing the group; 0 where it is not known who
    feeds it: then `feeders` is empty, and `lost` is 0. `busy` is the share of time in
    which there was traffic, where the link is full for parts of seconds: `level` is of that time.
    `is_inferred`: no counter shows how long that is; that the senders show a queue makes the
    fullest link full. `at_receivers`: the slowed ports of a link out of a switch are known where
    its traffic arrives, behind another switch.
    """

    row: int
    group: LinkGroup
    level: Floats
    full_ticks: int
    feeders: Rows
    named: Rows
    lost: float
    slowed_by: str
    active: int
    busy: float = 1.0
    is_inferred: bool = False
    at_receivers: bool = False

    @property
    def is_first_hop(self) -> bool:
        """Whether the link leaves a switch that hosts are cabled to."""
        return not self.group.is_inward and len(self.group.hosts) > 0

    @property
    def slows_receivers(self) -> bool:
        """Whether the slowed ports are those that receive what the link carries."""
        return self.group.is_inward or self.at_receivers

    @property
    def is_loss_known(self) -> bool:
        """Whether it is known which ports share the link: without them `lost` is not measured."""
        return len(self.feeders) > 0

    @property
    def severity_order(self) -> tuple[float, float]:
        """Sort key, the highest for the most severe: by lost bandwidth, then by imbalance."""
        return self.lost, self.imbalance

    @property
    def is_upper_bound(self) -> bool:
        """Whether no counter shows for how long the link is full: it loses less if it is full for
        less of the time than what it sends needs."""
        return self.busy < 1 and (self.is_inferred or self.slowed_by == OWN_QUEUE)

    @property
    def links(self) -> int:
        """Members that are up."""
        return int(np.isfinite(self.level).sum())

    @property
    def mean(self) -> float:
        """Mean utilisation of the members."""
        return float(self.level[np.isfinite(self.level)].mean())

    @property
    def util(self) -> float:
        """Utilisation of the link itself."""
        return float(self.level[self.group.rows == self.row][0])

    @property
    def imbalance(self) -> float:
        """1 - mean/max of the group, 0 to 1."""
        return max(0.0, 1.0 - self.mean / float(np.nanmax(self.level)))

    @property
    def used(self) -> int:
        """Members that carry a notable part of the traffic."""
        return int((self.level > _USED * float(np.nanmax(self.level))).sum())

    @property
    def effective_flows(self) -> float:
        """The number of equal flows, hashed at random, that would be as uneven."""
        return effective_flows(self.level[np.isfinite(self.level)])


def routing_evidence(routing: Routing) -> Evidence:
    """Evidence: how the switch selects the links of the group."""
    return Evidence(ROUTING, "not known" if routing.mode == UNKNOWN else routing.mode)


def loss_evidence(link: FullLink) -> tuple[Evidence, ...]:
    """Evidence: the lost bandwidth, where it is known, and the imbalance of the group."""
    imbalance = Evidence("imbalance", round(link.imbalance * 100, 1), "%")
    if not link.is_loss_known:
        return (imbalance,)
    return Evidence("lost bandwidth", round(link.lost * 100, 1), "%"), imbalance


@dataclass(frozen=True, slots=True)
class FullGroup:
    """A group none of whose links has room while ports that feed it are slowed; `lost` as above.

    `ratio` is the line rate of the ports that feed the group over that of its links.
    """

    group: LinkGroup
    level: Floats
    feeders: Rows
    lost: float
    ratio: float
    slowed_by: str


@dataclass(frozen=True, slots=True)
class GroupLoads:
    """What is wrong with the groups of a tick."""

    links: tuple[FullLink, ...]
    groups: tuple[FullGroup, ...]
