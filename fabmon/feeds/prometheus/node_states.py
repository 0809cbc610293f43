"""Where each node stands, by what the engine has of it: up, stale, lost, and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.tick import NodeState, NodeStatus
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.prometheus.queries import QueryRound

_STALE_READS = 2.5
_LOST_READS = 6.0
_LONGEST_LAG_S = 90.0
"""An engine's data may be late as a whole (remote write): so much is taken for that at first."""

_DOWN, _SILENT, _UNKNOWN, _ENGINE = "target down", "no samples", "no target", "engine"


class NodeStates:
    """Judges nodes look by look. `expected` are nodes that should be there.

    A node is STALE when it could not be scraped or has had no sample for 2.5 of its intervals, LOST
    after 6 of them; FAILED when it never had any. While the engine itself does not answer, nothing
    is known of the nodes: those that were up are STALE.
    """

    def __init__(self, expected: Iterable[str], news: LogDigest) -> None:
        self.statuses: dict[str, NodeStatus] = {}
        self._expected = tuple(expected)
        self._news = news
        self._latest: dict[str, float] = {}
        self._lag_s = _LONGEST_LAG_S
        self._told: set[str] = set()

    def judge(
        self, look: QueryRound, period_s: Mapping[str, float], now_ns: int, *, is_past: bool = False
    ) -> list[NodeStatus]:
        """The states that changed. `period_s` is by target: from one read to the next.

        In the past a node is STARTING: it is UP when it is so now.
        """
        for (target, _), clock in look.clocks.items():
            self._latest[target] = max(clock, self._latest.get(target, 0.0))
        if is_past:
            fresh = [each for each in self._latest if each not in self.statuses]
            return [self._set(each, NodeState.STARTING, now_ns) for each in fresh]
        newest = max(self._latest.values(), default=look.at_s)
        self._lag_s = max(0.0, min(self._lag_s, look.at_s - newest))
        changed = []
        for target in {*self._expected, *self._latest, *look.down}:
            state, reason, cause = self._state(target, look, period_s.get(target, 0.0))
            before = self.statuses.get(target)
            if before is None or (before.state, before.cause) != (state, cause):
                changed.append(self._set(target, state, now_ns, reason, cause))
        return changed

    def engine_lost(self, reason: str, now_ns: int) -> list[NodeStatus]:
        """The engine does not answer: whatever was up is not known to be."""
        return [
            self._set(each, NodeState.STALE, now_ns, f"the engine: {reason}", _ENGINE)
            for each, status in list(self.statuses.items())
            if status.state is NodeState.UP
        ]

    def _state(self, target: str, look: QueryRound, period_s: float) -> tuple[NodeState, str, str]:
        jobs = look.down.get(target)
        latest = self._latest.get(target)
        if latest is None:
            if jobs:
                return NodeState.FAILED, f"the engine cannot scrape it ({fold(jobs)})", _DOWN
            return NodeState.FAILED, "the engine has no metrics of it that fabmon knows", _UNKNOWN
        age_s = look.at_s - self._lag_s - latest
        if age_s <= _STALE_READS * period_s and not (jobs and age_s > period_s / 2):
            return NodeState.UP, "", ""
        state = NodeState.LOST if age_s > _LOST_READS * period_s else NodeState.STALE
        if jobs:
            return state, f"the engine cannot scrape it ({fold(jobs)})", _DOWN
        return state, f"the engine has had no sample of it for {age_s:.0f} s", _SILENT

    def _set(
        self, target: str, state: NodeState, now_ns: int, reason: str = "", cause: str = ""
    ) -> NodeStatus:
        before = self.statuses.get(target)
        since_ns = before.since_ns if before is not None and before.state is state else now_ns
        status = self.statuses[target] = NodeStatus(target, state, since_ns, reason, cause)
        if state is NodeState.UP and target in self._told:
            self._told.discard(target)
            self._news.recovered(target)
        elif cause and cause != _ENGINE and target not in self._told:
            self._told.add(target)
            self._news.lost(target, cause, reason)
        return status
