"""The simulated fabric over time: jobs, faults and traffic, from event to event."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fabmon.feeds.demo.congestion import Regime, RoutedTraffic
from fabmon.feeds.demo.fabric_state import FabricState
from fabmon.feeds.demo.fault_planner import FaultPlanner, PlannedFault, Truth, cross_leaf_demand
from fabmon.feeds.demo.faults import plan
from fabmon.feeds.demo.flows import Flows, flows_of, placed, storage_flows
from fabmon.feeds.demo.hardware import Hardware
from fabmon.feeds.demo.routing import Router
from fabmon.feeds.demo.scenario import Job, Scenario
from fabmon.feeds.demo.training import Phase, Training

Floats = NDArray[np.float64]
T = TypeVar("T")

_SHORTEST_S = 1e-3
_WHILE_WAITING = 0.1
"""Share of line rate at which the other hosts of a job still communicate while they wait for a
straggler."""

_NVLINK_TIMES = 3.0
"""Bytes over the NVLinks of a GPU per byte that its NIC sends."""

_CHECKPOINT_SHARE = 0.3
"""Share of the line rate of the storage servers that the checkpoint of one job uses."""

_EPOCHS_KEPT, _REGIMES_KEPT = 8, 64
_SEEN_SHARE = 0.005
"""A fault of a link counts as visible once this share of the link's line rate is in use."""


@dataclass(slots=True)
class StepTotals:
    """What happened in one step of time.

    [ports]: bytes sent, seconds paused. [nics]: packets, and the percent of
    the time in which PCIe stalled. [hosts]: bytes that each GPU sent over its NVLinks.
    """

    sent: Floats
    paused_s: Floats
    marked: Floats
    cnp_sent: Floats
    cnp_handled: Floats
    out_of_order: Floats
    sent_again: Floats
    stalled: Floats
    nvlink: Floats


class World:
    """The fabric and its clock. Equal scenarios move equal bytes. Raises ScenarioError."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.hardware = hardware = Hardware(scenario.topology)
        self.now_s = 0.0
        seed = scenario.seed
        self._router = Router(hardware, seed)
        self.hosts_of = placed(hardware, scenario.job)
        lots = np.random.default_rng([seed, 1])
        self._job_flows = [
            flows_of(hardware, job, hosts, number, lots)
            for number, (job, hosts) in enumerate(zip(scenario.job, self.hosts_of, strict=True))
        ]
        self.trainings = [
            Training(
                job,
                len(hosts),
                np.random.default_rng([seed, 2, number]),
                storage=scenario.topology.storage > 0,
            )
            for number, (job, hosts) in enumerate(zip(scenario.job, self.hosts_of, strict=True))
        ]
        storage_lots = np.random.default_rng([seed, 6])
        self._storage_flows = [
            storage_flows(hardware, hosts, 0, storage_lots, write=write)
            for write in (True, False)
            for hosts in self.hosts_of
        ]
        """The checkpoints of each job, then what each job reads."""
        cross_leaf = cross_leaf_demand(hardware, scenario.job, self._job_flows)
        self.planned = [
            plan(
                fault,
                FaultPlanner(
                    hardware,
                    scenario.job,
                    self.hosts_of,
                    self._job_flows,
                    cross_leaf,
                    np.random.default_rng([seed, 3, number]),
                ),
            )
            for number, fault in enumerate(scenario.fault)
        ]
        self._turns = _turns(self.planned)
        self._epochs: OrderedDict[Hashable, tuple[FabricState, RoutedTraffic]] = OrderedDict()
        self._regimes: OrderedDict[Hashable, Regime] = OrderedDict()
        self._seen: dict[int, float] = {}
        self._enter()

    @property
    def flows(self) -> Flows:
        """The flows of all jobs; `group` is the job's number."""
        return Flows.joined(self._job_flows)

    @property
    def connected(self) -> list[tuple[int | None, Flows]]:
        """The flows whose queue pairs exist now, by the number of their job; None of faults."""
        running = [
            (number, flows)
            for number, flows in enumerate(self._job_flows)
            if _is_on(self.scenario.job[number], self.now_s)
        ]
        return [*running, *((None, flows) for flows, _ in self.conditions.extra)]

    @property
    def truth(self) -> tuple[Truth, ...]:
        """All faults, past, present and future."""
        return tuple(
            msgspec.structs.replace(truth, seen_s=self._seen.get(number))
            for number, planned in enumerate(self.planned)
            for truth in planned.truths
        )

    def advance(self, seconds: float) -> StepTotals:
        """Advance the clock; what moved meanwhile."""
        end_s = self.now_s + seconds
        shares: dict[int, tuple[Regime, float]] = {}
        waited: set[int] = set()
        computed_s = np.zeros(len(self.trainings))
        while end_s - self.now_s > 1e-9:
            self._change()
            regime = self._regime()
            step_s = min(self._until(regime), end_s) - self.now_s
            step_s = min(max(step_s, _SHORTEST_S), end_s - self.now_s)
            for number, training in enumerate(self.trainings):
                training.moved(self._rate(number, regime) * step_s)
                if training.phase is Phase.WAIT:
                    waited.add(number)
                elif training.phase is Phase.COMPUTE:
                    computed_s[number] += step_s
            known = shares.get(id(regime))
            shares[id(regime)] = (regime, step_s + (known[1] if known else 0.0))
            self.now_s += step_s
        self.now_s = end_s
        moved = self._moved(shares.values(), seconds)
        self._add_nvlink(moved, computed_s)
        self._note_seen(moved, waited, seconds)
        return moved

    def _change(self) -> None:
        """Apply the faults and phases that are due now."""
        if any(abs(turn - self.now_s) < 1e-9 or turn <= self.now_s for turn in self._turns[:1]):
            while self._turns and self._turns[0] <= self.now_s + 1e-9:
                self._turns.pop(0)
            self._enter()
        for number, training in enumerate(self.trainings):
            training.step(self.now_s, self.conditions.late.get(number, (0, 0.0))[1])

    def _until(self, regime: Regime) -> float:
        due = [
            training.due_s(self.now_s, self._rate(number, regime))
            for number, training in enumerate(self.trainings)
        ]
        return min([*due, *self._turns[:1]], default=float("inf"))

    def _rate(self, number: int, regime: Regime) -> float:
        """Bytes/s that each NIC of a job sends in its current phase."""
        is_checkpoint = self.trainings[number].phase is Phase.CHECKPOINT
        return float(regime.rate[number + (2 * len(self.trainings) if is_checkpoint else 0)])

    def _enter(self) -> None:
        """Compute the state of the fabric from the active faults."""
        now_s = self.now_s
        active = [planned for planned in self.planned if planned.holds(now_s)]
        self.conditions = FabricState.healthy(self.hardware)
        for planned in active:
            planned.apply(self.conditions, now_s)
        self._epoch = (
            tuple(id(planned) for planned in active),
            self.conditions.rules.up.tobytes(),
        )

        def traffic() -> tuple[FabricState, RoutedTraffic]:
            return self.conditions, self._traffic(self.conditions)

        self._current = _cached(self._epochs, self._epoch, _EPOCHS_KEPT, traffic)[1]

    def _traffic(self, conditions: FabricState) -> RoutedTraffic:
        """Route all flows. Groups: the jobs, their traffic while waiting, their checkpoints, what
        they read, the flows of faults."""
        jobs = self.scenario.job
        parts, wants = [], [conditions.demand.get(n, job.demand) for n, job in enumerate(jobs)]
        for number, flows in enumerate(self._job_flows):
            shares = conditions.rail_shares.get(number)
            if shares is not None:
                weight = flows.weight * shares[flows.src % self.hardware.rails]
                flows = replace(flows, weight=weight)
            parts.append(flows)
        for number, flows in enumerate(list(parts)):
            late = conditions.late.get(number)
            wants.append(_WHILE_WAITING)
            if late is not None:
                rails = self.hardware.rails
                without = (flows.src // rails != late[0]) & (flows.dst // rails != late[0])
                parts.append(_some(flows, without, len(jobs) + number))
        absolute = [False] * len(wants)
        for number, flows in enumerate(self._storage_flows):
            parts.append(replace(flows, group=flows.group + len(wants)))
            wants.append(self._storage_rate(number))
            absolute.append(True)
        for flows, rates in conditions.extra:
            first = len(wants)
            parts.append(replace(flows, group=flows.group + first))
            wants += rates.tolist()
            absolute += [True] * len(rates)
        joined = Flows.joined(parts)
        return RoutedTraffic(
            self.hardware,
            self._router,
            conditions,
            joined,
            np.array(wants, np.float64),
            np.array(absolute, np.bool_),
            np.array([*(job.noise for job in jobs), *[0.0] * (len(wants) - len(jobs))]),
        )

    def _storage_rate(self, number: int) -> float:
        """Bytes/s of each of these storage flows: the checkpoints of the jobs, then their input."""
        write, of_job = divmod(number, len(self.trainings))
        if write:
            return self.scenario.job[of_job].input_gbps * 1e9 / 8
        servers = self.scenario.topology.storage
        share = _CHECKPOINT_SHARE * min(1.0, servers / len(self.hosts_of[of_job]))
        return share * float(self.hardware.speed[0])

    def _regime(self) -> Regime:
        """The steady state for the current phases of the jobs."""
        phases = [training.phase for training in self.trainings]
        sends = [phase is Phase.COMMUNICATE for phase in phases]
        waits = [phase is Phase.WAIT for phase in phases]
        writes = [phase is Phase.CHECKPOINT for phase in phases]
        reads = [phase is not Phase.STOPPED for phase in phases]
        active = np.ones(len(self._current.demand), np.bool_)
        active[: 4 * len(phases)] = [*sends, *waits, *writes, *reads]
        key = (self._epoch, active.tobytes())
        return _cached(self._regimes, key, _REGIMES_KEPT, lambda: self._current.regime(active))

    def _moved(self, shares: Iterable[tuple[Regime, float]], seconds: float) -> StepTotals:
        ports, nics = self.hardware.ports, self.hardware.nics
        sizes = [ports] * 2 + [nics] * 6 + [self.hardware.hosts]
        moved = StepTotals(*(np.zeros(size) for size in sizes))
        for regime, passed_s in shares:
            moved.sent += regime.load_at(self.now_s) * passed_s
            moved.paused_s += regime.pause * passed_s
            moved.marked += regime.marked * passed_s
            moved.cnp_sent += regime.cnp_sent * passed_s
            moved.cnp_handled += regime.cnp_handled * passed_s
            moved.out_of_order += regime.out_of_order * passed_s
            moved.sent_again += regime.sent_again * passed_s
            moved.stalled += regime.stalled * (passed_s / seconds)
        return moved

    def _add_nvlink(self, moved: StepTotals, computed_s: Floats) -> None:
        """Add what GPUs send to each other: tensor parallelism while they compute, and their part
        of a collective between hosts."""
        hardware = self.hardware
        own = moved.sent[: hardware.nics].reshape(hardware.hosts, hardware.rails).mean(axis=1)
        moved.nvlink += own * _NVLINK_TIMES
        for job, hosts, seconds in zip(
            self.scenario.job, self.hosts_of, computed_s.tolist(), strict=True
        ):
            moved.nvlink[hosts] += job.nvlink_gbs * 1e9 * seconds

    def _note_seen(self, moved: StepTotals, waited: set[int], seconds: float) -> None:
        """Note which faults have changed a counter by now."""
        begin_s = self.now_s - seconds
        for number, planned in enumerate(self.planned):
            at = planned.fault.at
            if number in self._seen or at >= self.now_s or planned.fault.until <= begin_s:
                continue
            if planned.at_once or self._makes_a_difference(planned, moved, waited, seconds):
                self._seen[number] = max(at, begin_s)

    def _makes_a_difference(
        self, planned: PlannedFault, moved: StepTotals, waited: set[int], seconds: float
    ) -> bool:
        if planned.fault.kind == "straggler":
            return bool(waited)
        ports = [self.hardware.find_port(link) for truth in planned.truths for link in truth.links]
        peers = self.conditions.rules.peer[ports]
        used = np.maximum(moved.sent[ports], moved.sent[peers]) / (
            self.hardware.speed[ports] * seconds
        )
        return bool((used > _SEEN_SHARE).any())


def _is_on(job: Job, now_s: float) -> bool:
    """Whether a job is running, and so has its connections."""
    return job.start <= now_s and (job.stop is None or now_s < job.stop)


def _some(flows: Flows, which: NDArray[np.bool_], group: int) -> Flows:
    """Some of the flows, as another group."""
    return Flows(
        flows.src[which],
        flows.dst[which],
        np.full(int(which.sum()), group, np.intp),
        flows.weight[which],
        flows.lqpn[which],
        flows.rqpn[which],
    )


def _turns(planned: list[PlannedFault]) -> list[float]:
    """All times at which the state changes, in order."""
    times = {
        time
        for each in planned
        for time in (each.fault.at, each.fault.until, *each.turns)
        if time != float("inf")
    }
    return sorted(times)


def _cached(cache: OrderedDict[Hashable, T], key: Hashable, most: int, make: Callable[[], T]) -> T:
    """The cached value of `key`, or a new one from `make`; the cache has `most` entries."""
    value = cache.get(key)
    if value is None:
        value = cache[key] = make()
        if len(cache) > most:
            cache.popitem(last=False)
    else:
        cache.move_to_end(key)
    return value
