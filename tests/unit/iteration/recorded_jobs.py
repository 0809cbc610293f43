"""Three jobs on a simulated fabric, one of which is slowed down: scenes, and what was simulated."""

from __future__ import annotations

from dataclasses import dataclass, field

from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.analysis.scene import Scene
from fabmon.feeds.demo.feed import DemoFeed
from fabmon.feeds.demo.scenario import Scenario, parse
from tests.builders import new_pipeline

JOBS = """
seed = 3
[topology]
kind = "rail"
hosts = 16
rails = 8
routing = "spray"
[[job]]
name = "llama"
hosts = 8
payload_gb = 80
compute_s = 2.0
[[job]]
name = "moe"
hosts = 4
collective = "all-to-all"
payload_gb = 40
compute_s = 2.5
demand = 0.6
[[job]]
name = "small"
payload_gb = 12
compute_s = 5.5
[[fault]]
kind = "slow_receiver"
at = 120
for = 400
where = "gpu001/r3"
"""
"""An iteration of llama takes 5.5 s, then 10 s; of moe 3.5 s; of small 6.0 s."""


@dataclass
class Play:
    """A scenario that is played tick by tick; `turns` are (tick, iterations) of each job."""

    scenario: Scenario = field(default_factory=lambda: parse(JOBS))
    hints: JobHints | None = None

    def __post_init__(self) -> None:
        self.feed = DemoFeed(self.scenario)
        self.turns: list[list[tuple[int, int]]] = [[] for _ in self.scenario.job]
        self._pipeline = new_pipeline(self.feed.hosts, hints=self.hints)
        self._seq = 0

    def scenes(self, count: int) -> list[Scene]:
        """The next `count` scenes."""
        made = []
        for _ in range(count):
            made.append(self._pipeline.accept(self.feed.step()))
            for turns, training in zip(self.turns, self.feed.world.trainings, strict=True):
                if not turns or turns[-1][1] != training.iterations:
                    turns.append((self._seq, training.iterations))
            self._seq += 1
        return made

    def hosts_of(self, job: int) -> set[str]:
        """The names of a job's hosts."""
        hardware = self.feed.world.hardware
        return {hardware.host_names[host] for host in self.feed.world.hosts_of[job]}

    def step_s(self, job: int, since: int) -> float:
        """The mean length of the iterations since a tick, by what the simulator did."""
        turns = [turn for turn in self.turns[job] if turn[0] >= since]
        (first, one), (last, other) = turns[0], turns[-1]
        return (last - first) / (other - one)
