"""What is true in the fabric: collisions, oversubscription and incast from the model's queues, and
the injected faults with the effect that they had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from tests.world.flows import sums
from tests.world.topology import DOWN, FAT_TREE, UP, Floats, Ints, Topology, ends
from tests.world.transport import INFINIBAND, OVERLOADED, State, Transport

GAP_S = 12.0
"""Pauses of a job up to this long do not end an episode."""

INCAST_GAP_S = 0.6
"""The tails of all-to-all steps are short incasts each: normal, unless one lasts."""

LEAST_S = 3.0
"""An overload in all shorter than this is healthy."""

REQUIRED_S, REQUIRED_LOST = 6.0, 0.10
"""From what on an overload must be found."""

EFFECT_S = 4.0
"""An injected fault must be found when it showed in the traffic for so long."""

NEARLY_FULL = 0.9
"""Share of its capacity that a link in overload carries at least: one on which nothing moves is no
queue of its own, but waits for another."""

FULL = 0.97
"""Share of its capacity that a link carries at least that is full, whatever else holds its flows:
relieving only what holds them gains nothing."""

BELOW = 0.9
"""A flow reaches less than this share of what it could send: it is slowed."""

ROOM = 0.93
"""Mean utilisation of the other links of a group below which they have room."""


@dataclass
class Truth:
    """Something that was true from `start_s` to `end_s`; `active_s` of it showed in the traffic.

    `names` are all causes that are right at its `ports` and `nodes` (ids); `cause` is the best.
    `affected` are ids of ports that it slows or pauses.
    """

    cause: str
    names: frozenset[str]
    start_s: float
    end_s: float
    ports: set[str] = field(default_factory=set)
    nodes: set[str] = field(default_factory=set)
    affected: set[str] = field(default_factory=set)
    active_s: float = 0.0
    queued_s: float = 0.0
    """For how much of it the link had a queue of two senders: one that is as full as what holds its
    flows elsewhere, or as a link before it on their paths, has none and need not be found."""
    first_s: float | None = None
    """When it showed first."""
    lost_sum: float = 0.0
    full_s: float = 0.0
    """For how long its link was full since it began, with its whole group too."""
    more_s: float = 0.0
    """What its flows could have moved beside that, at an even use of the group, in seconds of what
    they moved: nothing while the whole group is full."""
    natural: bool = True
    required: bool = False
    inside: bool = False
    """Between switches: hosts alone can see that a path is congested, not why."""
    at_source: bool = True
    """Whether it is where the traffic first meets it: spines towards a leaf are as full as the
    uplinks towards them."""
    note: str = ""

    @property
    def lost(self) -> float:
        """The share of bandwidth lost, while active."""
        return self.lost_sum / self.active_s if self.active_s else 0.0

    @property
    def lost_while_full(self) -> float:
        """The share of bandwidth lost in all the time in which its link was full."""
        return self.more_s / (self.full_s + self.more_s) if self.more_s else 0.0


@dataclass(frozen=True)
class _Seen:
    """A condition of one equilibrium."""

    cause: str
    link: int
    ports: tuple[int, ...]
    lost: float
    affected: tuple[int, ...]
    is_queued: bool
    by_chance: bool
    """Whether flows that are hashed independently may be spread like this."""


Effect = Callable[[State], bool]


class Judge:
    """Observes every equilibrium and keeps what was true."""

    def __init__(self, topology: Topology, transport: Transport) -> None:
        self._topology, self._transport = topology, transport
        self.truths: list[Truth] = []
        self._open: dict[tuple[str, int], Truth] = {}
        self._full_before: dict[tuple[str, int], float] = {}
        """For how long the link of each had been full before."""
        self._state: State | None = None
        self._seen: list[_Seen] = []
        self._full: Ints = np.zeros(0, np.intp)
        self._full_s: Floats = np.zeros(topology.ports)
        """[ports] for how long the link out of each has been full."""
        self._injected: list[tuple[Truth, Effect]] = []
        self._holds: list[Truth] = []
        self.excused: set[int] = set()
        """Links whose overload has another root: an injected fault."""
        self._classes: list[Ints] = []
        self._class = np.full(topology.links, -1)
        self._parallel_links()

    def inject(self, truth: Truth, effect: Effect) -> None:
        """A fault; `effect` says whether it shows in an equilibrium."""
        truth.natural = False
        self.truths.append(truth)
        self._injected.append((truth, effect))
        self._state = None

    def observe(self, start: float, seconds: float, state: State) -> None:
        """A step of the world."""
        if state is not self._state:
            self._state = state
            self._seen, self._full = self._look(state)
            self._holds = [t for t, effect in self._injected if effect(state)]
        now = start + seconds
        for truth in self._holds:
            if truth.start_s - 0.5 <= start <= truth.end_s:
                truth.active_s += seconds
                if truth.first_s is None:
                    truth.first_s = start
        for seen in self._seen:
            key = (seen.cause, seen.link)
            truth_now = self._open.get(key)
            gap = GAP_S if seen.cause != "incast" else INCAST_GAP_S
            if truth_now is None or start - truth_now.end_s > gap:
                truth_now = self._new(seen, start)
                self._open[key] = truth_now
                self._full_before[key] = float(self._full_s[seen.link])
            truth_now.end_s = now
            truth_now.active_s += seconds
            truth_now.queued_s += seconds * seen.is_queued
            truth_now.lost_sum += seen.lost * seconds
            truth_now.more_s += seconds * seen.lost / max(1 - seen.lost, 0.01)
            truth_now.full_s = float(self._full_s[seen.link]) + seconds - self._full_before[key]
            if not seen.by_chance:
                truth_now.names |= {"polarization"}
            truth_now.affected.update(map(self._topology.port_id, seen.affected))
        self._full_s[self._full] += seconds

    def finish(self) -> list[Truth]:
        """All that was true for long enough."""
        kept = [t for t in self.truths if not t.natural or t.active_s >= LEAST_S]
        for truth in kept:
            if truth.natural:
                truth.required = (
                    truth.queued_s >= REQUIRED_S
                    and truth.lost >= REQUIRED_LOST
                    and truth.cause != "incast"
                    and truth.at_source
                )
            else:
                truth.required = truth.required and truth.active_s >= EFFECT_S
        for truth in kept:
            collision = truth.natural and truth.cause == "ecmp_collision"
            if collision and any(_covers(other, truth) for other in kept):
                truth.required = False
        return kept

    def _new(self, seen: _Seen, start: float) -> Truth:
        topology = self._topology
        names = {seen.cause}
        if self._transport.settings.transport == INFINIBAND:
            # Nothing is hashed there: that a path is congested is as good a name.
            names.add("congested_path")
        truth = Truth(seen.cause, frozenset(names), start, start, first_s=start)
        truth.inside = seen.cause != "incast"
        for port in seen.ports:
            for end in ends(topology, port):
                truth.ports.add(topology.port_id(end))
        if seen.cause == "oversubscription" and topology.role[seen.link] == DOWN:
            truth.at_source = False
            truth.nodes.add(topology.node_of(int(topology.peer[seen.link])))
        truth.nodes.add(topology.node_of(ends(topology, seen.link)[0]))
        self.truths.append(truth)
        return truth

    def _look(self, state: State) -> tuple[list[_Seen], Ints]:
        """What is true in an equilibrium, and the links that are full."""
        capacity = self._transport.capacity()
        entries = state.entries
        moves = (state.load >= NEARLY_FULL * capacity) & (capacity > 0)
        carries = (state.load >= FULL * capacity) & (self._class >= 0)
        if not ((state.full | carries) & moves)[: self._topology.ports].any():
            return [], np.zeros(0, np.intp)
        wanted = np.fmin(state.flow_cap, self._receiver_share(state, capacity))
        demand = sums(entries.link, wanted[entries.flow] * entries.share, len(capacity))
        shared = (demand > OVERLOADED * capacity) & carries
        full = np.flatnonzero(((state.full | shared) & moves)[: self._topology.ports])
        found: list[_Seen] = []
        if not len(full):
            return found, full
        below = state.flow_rate < BELOW * wanted
        is_held = (state.slowed[entries.flow] & state.full[entries.link]) | (
            below[entries.flow] & shared[entries.link]
        )
        held = np.flatnonzero(is_held)
        held = held[np.argsort(entries.link[held], kind="stable")]
        slowed, at = entries.flow[held], entries.link[held]
        queues = state.queued & (state.queued_senders >= 2)
        use = state.load / np.maximum(1.0, capacity)
        fair: dict[int, float] = {}
        done: set[int] = set()

        def seen(
            cause: str,
            ports: tuple[int, ...],
            lost: float,
            flows: Ints,
            queued: bool,
            by_chance: bool = True,
        ) -> None:
            ends_of = np.concatenate([state.src[flows], state.dst[flows]])
            slow = tuple(sorted(set(ends_of[ends_of >= 0].tolist())))
            found.append(_Seen(cause, ports[0], ports, lost, slow, queued, by_chance))

        for link in full.tolist():
            group = int(self._class[link])
            if link in self.excused or (group < 0 and not self._is_last_hop(link)):
                continue
            flows = slowed[np.searchsorted(at, link) : np.searchsorted(at, link, "right")]
            flows = np.unique(flows)
            if state.senders[link] < 2 and len(set(state.src[flows].tolist())) < 2:
                continue
            if group < 0:
                lost = 1 - capacity[link] / max(1.0, float(state.offered[link]))
                seen("incast", (link,), lost, flows, True)
                continue
            members = self._classes[group]
            members = members[~self._transport.is_down[members]]
            others = use[members[members != link]]
            if not len(others):
                continue
            if others.mean() < ROOM:
                if group not in fair:
                    fair[group] = self._fair(state, members, capacity)
                lost = self._lost(state, flows, fair[group])
                if lost > 0.02:
                    chance = self._may_be_chance(state, members, use)
                    seen("ecmp_collision", (link,), lost, flows, bool(queues[link]), chance)
            elif group not in done:
                done.add(group)
                offered = float(state.offered[members].sum())
                lost = 1 - float(capacity[members].sum()) / max(1.0, offered)
                if lost > 0.02:
                    queued = bool(queues[members].any())
                    seen("oversubscription", tuple(members.tolist()), lost, flows, queued)
        return found, full

    def _receiver_share(self, state: State, capacity: Floats) -> Floats:
        """[flows] bytes/s: the equal part of what its receiver can get, whatever lies between."""
        sends = np.zeros(len(state.dst), np.bool_)
        sends[state.entries.flow] = True
        flows = np.flatnonzero(sends)
        dst = state.dst[flows]
        flows, dst = flows[dst >= 0], dst[dst >= 0]
        gets = capacity[self._topology.peer[dst]] / np.bincount(dst)[dst]
        share = np.full(len(state.flow_cap), np.inf)
        share[flows] = gets
        return share

    def _may_be_chance(self, state: State, members: Ints, use: Floats) -> bool:
        """Whether as many flows as a group of links carries, hashed independently, use as few links
        as they do in one of ten thousand cases. Forwarding tables do not hash."""
        if self._transport.settings.transport == INFINIBAND:
            return True
        entries = state.entries
        flows = len(np.unique(entries.flow[np.isin(entries.link, members)]))
        used = int((use[members] > 0.01).sum())
        return 2 * used > len(members) or _chance_of_few(flows, used, len(members)) >= 1e-4

    def _fair(self, state: State, members: Ints, capacity: Floats) -> float:
        """What each flow on a group of links would have if the group were used evenly."""
        is_member = np.zeros(len(capacity), np.bool_)
        is_member[members] = True
        on_group = np.zeros(len(state.flow_cap), np.bool_)
        on_group[state.entries.flow[is_member[state.entries.link]]] = True
        return _even_share(state.flow_cap[on_group], float(capacity[members].sum()))

    def _lost(self, state: State, flows: Ints, fair: float) -> float:
        """1 - achieved / what the slowed flows would have at that fair share; 0 where it slows
        none: what waits behind another queue may hold its flows further down."""
        if not len(flows):
            return 0.0
        could = np.minimum(state.flow_cap[flows], fair)
        return float(1 - state.flow_rate[flows].sum() / max(1.0, could.sum()))

    def _is_last_hop(self, link: int) -> bool:
        return int(self._topology.peer[link]) < self._topology.host_ports

    def _parallel_links(self) -> None:
        """The sets of links among which traffic to the same destinations is spread."""
        topology = self._topology
        for switch in topology.switches.values():
            if len(switch.ups) > 1:
                self._add_class(switch.ups)
        towards: dict[tuple[int, int], list[int]] = {}
        for port in range(topology.host_ports, topology.ports):
            peer = int(topology.peer[port])
            if topology.role[port] == DOWN and topology.role[peer] == UP:
                node = int(topology.node[peer])
                tier = topology.switches[node].tier
                place = node if tier == 1 else -1 - (node in self._second_pod())
                towards.setdefault((tier, place), []).append(port)
        for ports in towards.values():
            self._add_class(ports)

    def _second_pod(self) -> set[int]:
        topology = self._topology
        if topology.shape.kind != FAT_TREE:
            return set()
        middle = -(-len(topology.leaves) // 2)
        return {
            node
            for node, switch in topology.switches.items()
            if switch.tier == 2 and min(switch.down) >= middle
        }

    def _add_class(self, ports: Iterable[int]) -> None:
        members = np.array(list(ports), np.intp)
        self._class[members] = len(self._classes)
        self._classes.append(members)


def _covers(other: Truth, truth: Truth) -> bool:
    """Whether a whole group is full for most of the time that one of its links is."""
    together = min(other.end_s, truth.end_s) - max(other.start_s, truth.start_s)
    return (
        other.cause == "oversubscription"
        and not other.ports.isdisjoint(truth.ports)
        and together > 0.5 * (truth.end_s - truth.start_s)
    )


@lru_cache
def _chance_of_few(flows: int, used: int, links: int) -> float:
    """The probability that so many flows, each on a random link, use at most `used` links."""
    occupied = np.zeros(links + 1)
    occupied[0] = 1.0
    number = np.arange(links + 1)
    for _ in range(flows):
        occupied = occupied * number / links + np.append(0, (occupied * (1 - number / links))[:-1])
    return float(occupied[: used + 1].sum())


def _even_share(caps: Floats, capacity: float) -> float:
    """The max-min fair rate of flows with these caps on one pipe of that capacity."""
    left, rate = capacity, 0.0
    ordered = np.sort(caps)
    for number, cap in enumerate(ordered):
        rate = left / (len(ordered) - number)
        if cap >= rate:
            return rate
        left -= cap
    return float("inf")
