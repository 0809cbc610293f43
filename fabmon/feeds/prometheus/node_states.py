"""The state of each node by its samples in Prometheus: up, stale or lost, and the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median

from fabmon.fabric.hosts.nodesets import fold
from fabmon.fabric.moved_times import moved
from fabmon.fabric.tick import STALE_READS, NodeState, NodeStatus
from fabmon.feeds.errors import Misbehaved
from fabmon.feeds.log_digest import LogDigest
from fabmon.feeds.prometheus.queries import QueryRound

_LOST_READS = 6.0
_MAX_LAG_S = 90.0
"""All data may be late together (remote write): a delay of up to this much is assumed at first."""

_DOWN, _SILENT, _UNKNOWN, _NO_PROMETHEUS = "target down", "no samples", "no target", "prometheus"
"""Causes of states, by which equal failures are grouped."""

_WAS_UP = (NodeState.UP, NodeState.STALE, NodeState.LOST)


class NodeStates:
    """Determines the states of nodes round by round. `expected` are nodes that should exist.

    A node is STALE when it could not be scraped or had no sample for 2.5 of its intervals, LOST
    after 6 intervals, and FAILED if it never had a sample. While Prometheus itself does not answer,
    nothing is known about nodes: those that were up are STALE.
    """

    def __init__(self, expected: Iterable[str], log_digest: LogDigest) -> None:
        self.statuses: dict[str, NodeStatus] = {}
        self._expected = tuple(expected)
        self._log_digest = log_digest
        self._latest_s: dict[str, float] = {}
        self._lag_s = _MAX_LAG_S
        self._logged: set[str] = set()
        self._are_moved = False

    def follow_clock(self, jumped_ns: int) -> None:
        """Keep the ages of the states where the wall clock was set: all are reported again."""
        self._are_moved = True
        self.statuses = {name: moved(each, jumped_ns) for name, each in self.statuses.items()}

    def update(
        self,
        result: QueryRound,
        period_s: Mapping[str, float],
        now_ns: int,
        refused: Mapping[str, str],
        *,
        is_past: bool = False,
    ) -> list[NodeStatus]:
        """The states that changed. `period_s` has the seconds between two reads by target,
        `refused` why the series of some are not used.

        In the past a node is STARTING: whether it is UP is decided now.
        """
        for (target, _), read_s in result.read_s.items():
            self._latest_s[target] = max(read_s, self._latest_s.get(target, 0.0))
        if is_past:
            new = [target for target in self._latest_s if target not in self.statuses]
            return [self._set(target, NodeState.STARTING, now_ns) for target in new]
        newest_s = max(self._latest_s.values(), default=result.at_s)
        self._lag_s = max(0.0, min(self._lag_s, result.at_s - newest_s))
        changed = []
        for target in {*self._expected, *self._latest_s, *result.down}:
            if target in refused:
                before = self.statuses.get(target)
                was_up = before is not None and before.state in _WAS_UP
                state = NodeState.LOST if was_up else NodeState.FAILED
                reason, cause = refused[target], Misbehaved.cause
            else:
                state, reason, cause = self._state(target, result, period_s.get(target, 0.0))
            before = self.statuses.get(target)
            if before is None or (before.state, before.cause) != (state, cause):
                changed.append(self._set(target, state, now_ns, reason, cause))
        return self._reported(changed)

    def median_read_s(self) -> float | None:
        """The last read that half of the nodes have, in seconds since 1970; None before any."""
        return median(self._latest_s.values()) if self._latest_s else None

    def prometheus_lost(self, reason: str, now_ns: int) -> list[NodeStatus]:
        """Prometheus does not answer: nodes that were up become STALE."""
        return self._reported(
            [
                self._set(target, NodeState.STALE, now_ns, f"Prometheus: {reason}", _NO_PROMETHEUS)
                for target, status in list(self.statuses.items())
                if status.state is NodeState.UP
            ]
        )

    def _reported(self, changed: list[NodeStatus]) -> list[NodeStatus]:
        are_moved, self._are_moved = self._are_moved, False
        return list(self.statuses.values()) if are_moved else changed

    def _state(
        self, target: str, result: QueryRound, period_s: float
    ) -> tuple[NodeState, str, str]:
        jobs = result.down.get(target)
        latest_s = self._latest_s.get(target)
        if latest_s is None:
            if jobs:
                return NodeState.FAILED, f"Prometheus cannot scrape it ({fold(jobs)})", _DOWN
            return NodeState.FAILED, "Prometheus has no metrics of it that fabmon knows", _UNKNOWN
        age_s = result.at_s - self._lag_s - latest_s
        if age_s <= STALE_READS * period_s and not (jobs and age_s > period_s / 2):
            return NodeState.UP, "", ""
        state = NodeState.LOST if age_s > _LOST_READS * period_s else NodeState.STALE
        if jobs:
            return state, f"Prometheus cannot scrape it ({fold(jobs)})", _DOWN
        return state, f"Prometheus has had no sample of it for {age_s:.0f} s", _SILENT

    def _set(
        self, target: str, state: NodeState, now_ns: int, reason: str = "", cause: str = ""
    ) -> NodeStatus:
        before = self.statuses.get(target)
        since_ns = before.since_ns if before is not None and before.state is state else now_ns
        status = self.statuses[target] = NodeStatus(target, state, since_ns, reason, cause)
        if state is NodeState.UP and target in self._logged:
            self._logged.discard(target)
            self._log_digest.recovered(target)
        elif cause and cause != _NO_PROMETHEUS and target not in self._logged:
            self._logged.add(target)
            self._log_digest.lost(target, cause, reason)
        return status
