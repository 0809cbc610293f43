"""Traffic that continues by itself while somebody looks at the lab."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.lab import patterns
from tests.lab.netns import LabError
from tests.lab.traffic import Flow

if TYPE_CHECKING:
    from tests.lab.fabric import Lab

TRAINING_SHARE = 0.55
"""Of line rate, that a training flow sends: two of them on one uplink are too many."""

ON_S = 3.0
OFF_S = 1.0
"""An iteration: communication, then computation."""

COLLISION_PERIOD_S = 40.0
"""In the second half of each period one flow has moved to another's uplink."""


class Training:
    """Hosts of the first leaf send to their peers in step, and half of the peers send back.

    Every flow has an uplink of its own. From time to time the second flow takes the uplink of
    the third, as a rehash would have it: that one is full while the second uplink is empty.
    """

    def __init__(self, lab: Lab) -> None:
        """Plan the flows; nothing is sent yet."""
        first, second = lab.layout.leaves[:2]
        forward = _one_each(lab, first)
        back = _one_each(lab, second)
        self.even = forward + back[: (len(back) + 1) // 2]
        self.uneven = self.even
        if len(forward) > 1:
            moved = forward[1]
            target = forward[2 % len(forward)].uplink
            detour = lab.plan_flow(moved.src, moved.dst, target, TRAINING_SHARE * lab.rate_mbps)
            self.uneven = [detour if flow is moved else flow for flow in self.even]
        self.problems: list[str] = []

    def run(self, stop: threading.Event) -> None:
        """Iterate until `stop` is set; a flow that cannot start misses the iteration."""
        began_s = time.monotonic()
        with ThreadPoolExecutor(len(self.even)) as pool:
            while not stop.is_set():
                phase = (time.monotonic() - began_s) % COLLISION_PERIOD_S
                flows = self.even if phase < COLLISION_PERIOD_S / 2 else self.uneven
                list(pool.map(self._start, flows))
                stop.wait(ON_S)
                for flow in flows:
                    flow.pause()
                stop.wait(OFF_S)

    def _start(self, flow: Flow) -> None:
        try:
            flow.start()
        except LabError as problem:
            self.problems.append(str(problem))


def _one_each(lab: Lab, leaf: str) -> list[Flow]:
    """A planned flow for each host of `leaf` that can have an uplink of its own."""
    ends = zip(patterns.pairs(lab, leaf), lab.layout.uplinks(leaf), strict=False)
    mbps = TRAINING_SHARE * lab.rate_mbps
    return [lab.plan_flow(src, dst, uplink, mbps) for (src, dst), uplink in ends]


@contextmanager
def _mixed(lab: Lab) -> Iterator[None]:
    training = Training(lab)
    stop = threading.Event()
    thread = threading.Thread(target=training.run, args=(stop,), name="training")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        lab.stop_traffic()
        for problem in training.problems:
            print(f"during the session: {problem}")


@contextmanager
def _steady(lab: Lab, begin: Callable[[], object]) -> Iterator[None]:
    begin()
    try:
        yield
    finally:
        lab.stop_traffic()


SCENES = ("mixed", "collision", "spread", "none")


@contextmanager
def scene(lab: Lab, name: str) -> Iterator[None]:
    """Have the traffic called `name` (one of `SCENES`) go on inside the block."""
    beginnings: dict[str, Callable[[], object]] = {
        "collision": lambda: lab.collide("leaf1", lab.layout.uplinks("leaf1")[:3][-1]),
        "spread": lambda: lab.spread(TRAINING_SHARE),
        "none": lambda: None,
    }
    with _mixed(lab) if name == "mixed" else _steady(lab, beginnings[name]):
        yield
