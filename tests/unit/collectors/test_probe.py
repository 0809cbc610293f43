"""The probe's loop: deadlines, hot-plug, notices, and which sources it reads."""

from __future__ import annotations

import json
import threading
from typing import Any, Dict, List, Optional

import pytest

from collectors.hostfs import HostFS
from collectors.loop import probe as probe_module
from collectors.loop.probe import Probe
from collectors.registry import SOURCES, choose_sources
from collectors.source import Denied, Faults, NoData, Source, Unsupported
from collectors.wire import Object


class Counter(Source):
    """A port whose byte counter counts its reads."""

    name = "counter"
    deadline_s = 20.0

    def __init__(self, host: Optional[HostFS] = None) -> None:
        super().__init__(host or HostFS("/nowhere"))
        self.ports = ["eth0"]
        self.reads = 0

    def discover(self) -> List[Object]:
        return [Object(p, "ethernet", p, {}, ("netdev_tx_bytes",)) for p in self.ports]

    def read(self, faults: Faults) -> List[Optional[int]]:
        self.reads += 1
        return [self.reads for _ in self.ports]

    def signature(self) -> object:
        return tuple(self.ports)


class Stuck(Counter):
    """Its reads hang until somebody lets them go."""

    name = "stuck"
    deadline_s = 0.3

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def read(self, faults: Faults) -> List[Optional[int]]:
        self.gate.wait()
        return super().read(faults)


class Lines:
    """What a probe said, by kind."""

    def __init__(self) -> None:
        self.all: List[List[Any]] = []

    def __call__(self, line: bytes) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.all.append(json.loads(line))

    def of(self, kind: str) -> List[Any]:
        return [line for line in self.all if line[0] == kind]

    @property
    def notices(self) -> List[Dict[str, str]]:
        return [line[1] for line in self.of("notice")]

    def blocks(self, position: int) -> List[Any]:
        """One source's block, frame by frame."""
        return [line[4][position] for line in self.of("frame")]


def run(frames: int, *sources: Source, interval_s: float = 0.05) -> Lines:
    lines = Lines()
    Probe(sources, lines, {"hostname": "gpu001"}, interval_s).run(frames)
    return lines


def test_a_hello_then_a_frame_a_tick() -> None:
    lines = run(3, Counter())
    assert [line[0] for line in lines.all] == ["hello", "frame", "frame", "frame"]
    assert [block[1] for block in lines.blocks(0)] == [1, 2, 3]
    assert [line[1] for line in lines.of("frame")] == [0, 1, 2]


class Clock:
    """Only sleeping moves it, and a little too far."""

    def __init__(self, now_s: float) -> None:
        self.now_s = now_s

    def time(self) -> float:
        return self.now_s

    monotonic = time

    def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s + 0.004


@pytest.mark.parametrize(
    ("start_s", "ticks_s"),
    [(1000.07, [1000.204, 1000.404, 1000.604]), (1000.17, [1000.404, 1000.604, 1000.804])],
    ids=["the next multiple", "the one after it, where the next is too near"],
)
def test_ticks_fall_on_multiples_of_the_interval(
    start_s: float, ticks_s: List[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(start_s)
    at_s: List[float] = []

    def emit(line: bytes) -> None:
        if line.startswith(b'["frame"'):
            at_s.append(clock.now_s)

    monkeypatch.setattr(probe_module, "time", clock)
    Probe([Counter()], emit, {"hostname": "gpu001"}, 0.2).run(4)
    assert at_s == pytest.approx([start_s, *ticks_s])


def test_every_block_has_the_clock_of_its_own_read() -> None:
    lines = run(2, Counter())
    for line in lines.of("frame"):
        assert line[3] <= line[4][0][0] <= line[3] + 1e9


def test_the_probe_reports_its_own_cost() -> None:
    lines = run(3, Counter())
    metrics = [item["metrics"] for item in lines.of("hello")[0][1]["blocks"][-1]["objects"]]
    assert metrics == [["probe_cpu_us", "probe_rss_bytes", "probe_late_us"], ["probe_read_us"]]
    clock, cpu_us, rss, late_us, read_us = lines.blocks(-1)[-1]
    assert clock > 0
    assert cpu_us > 0
    assert rss > 1_000_000
    assert late_us >= 0
    assert read_us >= 0


def test_a_source_that_hangs_costs_its_block_and_nothing_else() -> None:
    stuck, counter = Stuck(), Counter()
    stuck.gate.clear()
    lines = run(5, stuck, counter)
    assert lines.blocks(0) == [None] * 5
    assert [block[1] for block in lines.blocks(1)] == [1, 2, 3, 4, 5]
    assert [(n["event"], n["source"], n["reason"]) for n in lines.notices] == [
        ("lost", "stuck", "late")
    ]


def test_a_source_that_recovers_is_reported_once() -> None:
    class LettingGo(Lines):
        """Lets the reads go once they were reported as lost."""

        def __call__(self, line: bytes) -> None:
            super().__call__(line)
            if self.notices:
                stuck.deadline_s = 20.0
                stuck.gate.set()

    stuck = Stuck()
    stuck.gate.clear()
    lines = LettingGo()
    Probe([stuck], lines, {"hostname": "gpu001"}, 0.05).run(25)
    assert [n["event"] for n in lines.notices] == ["lost", "recovered"]
    assert lines.blocks(0)[0] is None
    assert lines.blocks(0)[-1] is not None


def test_a_hang_does_not_slow_the_ticks_after_the_first() -> None:
    stuck = Stuck()
    stuck.gate.clear()
    lines = run(10, stuck, interval_s=0.2)
    walls = [line[2] / 1e9 for line in lines.of("frame")]
    assert walls[-1] - walls[0] < 3.0, "1.8 s; 3.6 s if each waited for it"


def test_nothing_of_its_kind_is_no_trouble() -> None:
    class Absent(Counter):
        def discover(self) -> List[Object]:
            raise NoData("no /sys/class/infiniband")

    lines = run(1, Absent(), Counter())
    assert lines.notices == []
    assert [block["source"] for block in lines.of("hello")[0][1]["blocks"]] == ["counter", "probe"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Denied("needs CAP_NET_ADMIN"), "denied"),
        (Unsupported("old kernel"), "unsupported"),
        (OSError(5, "Input/output error"), "failed"),
        (ZeroDivisionError("oops"), "failed"),
    ],
)
def test_a_source_that_fails_says_why_once(error: Exception, reason: str) -> None:
    class Failing(Counter):
        def read(self, faults: Faults) -> List[Optional[int]]:
            raise error

    lines = run(3, Failing())
    assert lines.blocks(0) == [None, None, None]
    assert [n["reason"] for n in lines.notices] == [reason]


class Grows(Counter):
    """Another port turns up at the third look."""

    name = "grows"
    looks = 0

    def signature(self) -> object:
        self.looks += 1
        if self.looks == 3:
            self.ports = ["eth0", "eth1"]
        return tuple(self.ports)


class Patched(Counter):
    """A source of which one value cannot be read."""

    name = "patched"

    def read(self, faults: Faults) -> List[Optional[int]]:
        faults[0] = "unsupported"
        return [None]


class Closed(Counter):
    """A source that may not be read at all."""

    name = "closed"

    def discover(self) -> List[Object]:
        raise Denied("join the group rdma")


def test_a_source_that_was_never_found_is_reported_after_the_hello() -> None:
    lines = run(2, Closed(), Counter())
    assert [line[0] for line in lines.all] == ["hello", "notice", "frame", "frame"]
    assert [(n["source"], n["reason"]) for n in lines.notices] == [("closed", "denied")]
    assert lines.notices[0]["text"] == "join the group rdma"


def test_lasting_problems_are_reported_again_after_a_new_hello(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_module, "LOOK_AGAIN_S", 0.05)
    lines = run(6, Closed(), Patched(), Grows())
    kinds = [line[0] for line in lines.all]
    hellos = [place for place, kind in enumerate(kinds) if kind == "hello"]
    assert len(hellos) == 2
    facts = [line[1] for line in lines.all[hellos[1] :] if line[0] == "notice"]
    assert [(n["event"], n["source"], n["object"], n["reason"]) for n in facts] == [
        ("lost", "closed", "", "denied"),
        ("absent", "patched", "eth0", "unsupported"),
    ]
    assert kinds[hellos[1] : hellos[1] + 3] == ["hello", "notice", "notice"]


def test_an_absent_value_is_null_and_reported_once_with_its_reason() -> None:
    class Patchy(Counter):
        def read(self, faults: Faults) -> List[Optional[int]]:
            self.reads += 1
            if self.reads in (2, 3):
                faults[0] = "unsupported"
                return [None]
            return [self.reads]

    lines = run(5, Patchy())
    assert [block[1] for block in lines.blocks(0)] == [1, None, None, 4, 5]
    facts = [(n["event"], n["object"], n["metric"], n["reason"]) for n in lines.notices]
    assert facts == [
        ("absent", "eth0", "netdev_tx_bytes", "unsupported"),
        ("recovered", "eth0", "netdev_tx_bytes", ""),
    ]


def test_a_thousand_absent_values_are_not_a_thousand_lines() -> None:
    class Wide(Counter):
        def discover(self) -> List[Object]:
            return [Object("eth0", "ethernet", "eth0", {}, ("netdev_tx_bytes",) * 1000)]

        def read(self, faults: Faults) -> List[Optional[int]]:
            faults.update(dict.fromkeys(range(1000), "denied"))
            return [None] * 1000

    lines = run(2, Wide())
    assert len(lines.notices) == 51
    assert lines.notices[-1]["text"] == "and 950 more values"


def test_hardware_that_comes_is_a_new_hello_with_another_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe_module, "LOOK_AGAIN_S", 0.05)
    lines = run(12, Grows())
    first, second = (line[1] for line in lines.of("hello"))
    assert first["layout"] != second["layout"]
    assert [item["id"] for item in second["blocks"][0]["objects"]] == ["eth0", "eth1"]
    after = lines.all[lines.all.index(["hello", second]) + 1 :]
    assert all(len(line[4][0]) == 3 for line in after if line[0] == "frame")


def test_a_change_that_changes_nothing_is_no_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    class Nervous(Counter):
        def signature(self) -> object:
            return self.reads

    monkeypatch.setattr(probe_module, "LOOK_AGAIN_S", 0.05)
    assert len(run(6, Nervous()).of("hello")) == 1


def test_a_slow_source_is_read_at_every_tenth_tick_and_null_between() -> None:
    class Slow(Counter):
        every = 10

    lines = run(21, Slow(), interval_s=0.05)
    read = [position for position, block in enumerate(lines.blocks(0)) if block is not None]
    assert read == [0, 10, 20]


USUAL = [name for name in SOURCES if not SOURCES[name].on_request]


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        (None, USUAL),
        ([], []),
        (["rdma", "netdev"], ["netdev", "rdma"]),
        (["-routes"], [name for name in USUAL if name != "routes"]),
        (["+ib", "-ib"], [name for name in USUAL if name != "ib"]),
    ],
)
def test_sources_are_chosen_by_name_or_change_the_default_set(
    wanted: Any, chosen: List[str]
) -> None:
    assert choose_sources(wanted) == chosen
