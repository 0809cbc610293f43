"""The iterations of a job: compute, wait for stragglers, communicate."""

from __future__ import annotations

from enum import Enum

import numpy as np

from fabmon.feeds.demo.flows import share_of_payload
from fabmon.feeds.demo.scenario import Job

_NEVER = float("inf")


class Phase(Enum):
    """The phase of a job. WAIT: for a straggler; CHECKPOINT: writing to the storage servers;
    STOPPED: before its start and after its end."""

    STOPPED = 0
    COMPUTE = 1
    WAIT = 2
    COMMUNICATE = 3
    CHECKPOINT = 4


class Training:
    """The state of a job. `left` is the bytes that each NIC has still to send.

    Without `storage` it writes no checkpoints.
    """

    def __init__(
        self, job: Job, hosts: int, rng: np.random.Generator, *, storage: bool = False
    ) -> None:
        self.job = job
        self.phase = Phase.STOPPED
        self.left = 0.0
        self.iterations = 0
        self._bytes = job.payload_gb * 1e9 * share_of_payload(job, hosts)
        self._rng = rng
        self._until = job.start
        self._checkpoint_at = job.start + job.checkpoint_s
        self._checkpoints = storage and job.checkpoint_s > 0

    @property
    def sends(self) -> bool:
        """Whether its NICs have bytes left to send, to each other or to the storage servers."""
        return self.phase in (Phase.COMMUNICATE, Phase.CHECKPOINT)

    def due_s(self, now_s: float, rate: float) -> float:
        """The time of its next phase change, s, while each NIC sends `rate` bytes/s."""
        if self.sends:
            return now_s + self.left / rate if rate > 0 else _NEVER
        return self._until

    def moved(self, count: float) -> None:
        """Subtract the bytes that each NIC has sent."""
        if self.sends:
            self.left = max(0.0, self.left - count)

    def step(self, now_s: float, late_s: float) -> None:
        """Enter the next phase if it is due; `late_s` is the extra time of a straggler."""
        job = self.job
        if job.stop is not None and now_s >= job.stop:
            self.phase, self._until = Phase.STOPPED, _NEVER
        elif self.sends:
            if self.left <= 1.0:
                self._after_sending(now_s)
        elif now_s >= self._until - 1e-9:
            if self.phase is Phase.STOPPED:
                self._compute(now_s)
            elif self.phase is Phase.COMPUTE and late_s > 0:
                self.phase, self._until = Phase.WAIT, now_s + late_s
            else:
                self.phase, self.left = Phase.COMMUNICATE, self._bytes * self._jitter()

    def _after_sending(self, now_s: float) -> None:
        if self._checkpoints and now_s >= self._checkpoint_at:
            self._checkpoint_at = now_s + self.job.checkpoint_s
            self.phase, self.left = Phase.CHECKPOINT, self.job.checkpoint_gb * 1e9
        else:
            self._compute(now_s)

    def _compute(self, now_s: float) -> None:
        self.iterations += 1
        self.phase = Phase.COMPUTE
        self._until = now_s + self.job.compute_s * self._jitter()

    def _jitter(self) -> float:
        return float(max(0.1, 1.0 + self.job.jitter * self._rng.standard_normal()))
