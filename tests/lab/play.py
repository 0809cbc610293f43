"""Plays a scenario on a lab of its own, with fabmon watching it as a person would have it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.lab.build import cables_text
from tests.lab.fabric import Lab
from tests.lab.layout import Layout
from tests.lab.netns import LabError
from tests.lab.plan import Plan, plan
from tests.lab.scenario import Scenario
from tests.lab.senders import Traffic
from tests.lab.truth import Truth, Witness, Wrong
from tests.lab.watching import Line, Watch

SCENARIOS = Path(__file__).parent / "scenarios"
PATIENCE_S = 45.0
"""So much longer a scenario continues where a finding is missing: the machine may be busy."""

_PROJECT = Path(__file__).parents[2]
_SOON_S = 0.2
_OF_CABLE = ("link_down", "flapping_link", "degraded_link", "error_burst")


class TooBusyError(LabError):
    """The machine was too busy to see what happened."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finding of fabmon's, and how long after the beginning of what it is about."""

    what: Wrong
    after_s: float
    text: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was wrong, by the kernel's counters, and what fabmon found."""

    scenario: Scenario
    truth: set[Wrong]
    findings: list[Found]
    counted: list[str]
    """What busy ports sent, and their queues, in words."""
    attempt: int = 1

    @property
    def happened(self) -> bool:
        """Whether the kernel did what the scenario is about, and nothing else."""
        return sorted(map(str, self.truth)) == sorted(self.scenario.expect.findings)

    @property
    def is_right(self) -> bool:
        """Whether all that was wrong was found, once, and nothing else."""
        return Counter(each.what for each in self.findings) == Counter(self.truth)

    @property
    def story(self) -> str:
        """What was expected, was wrong and was found, with the numbers."""
        lines = [f"expected {', '.join(self.scenario.expect.findings) or 'nothing'}"]
        lines.append(
            f"by the kernel's counters {', '.join(sorted(map(str, self.truth))) or 'nothing'}"
        )
        lines += [
            f"found after {each.after_s:.1f} s: {each.what}: {each.text}" for each in self.findings
        ]
        if not self.findings:
            lines.append("no finding")
        if self.attempt > 1:
            lines.append(f"played for the {self.attempt}. time")
        return "\n  ".join([*lines, *self.counted])


def paths() -> list[Path]:
    """The files of the scenarios that are tests."""
    return sorted(SCENARIOS.glob("*.toml"))


def further_paths() -> list[Path]:
    """The files of those that are played by `make lab-scenarios` only."""
    return sorted(SCENARIOS.glob("further/*.toml"))


def play(scenario: Scenario, attempt: int = 1) -> Outcome:
    """Build the lab, watch it, let it happen, and remove the lab.

    Each `attempt`, from 1, has ports and random numbers of its own.
    """
    shape = scenario.topology
    with (
        Lab(
            spines=shape.spines,
            leaves=shape.leaves,
            hosts_per_leaf=shape.hosts // shape.leaves,
            rate_mbps=shape.speed_mbps,
            rails=shape.rails,
            wires=frozenset(shape.wires),
            uplink_mbps=shape.uplink_mbps,
            nic=shape.nic,
            host_mgmt=shape.management,
            arp=shape.cabling == "neighbours",
        ) as lab,
        Watch(lab, *_options(lab, scenario), hosts=_hosts_file(lab, scenario)) as watch,
    ):
        watch.until_all_up()
        planned = plan(scenario, lab, PATIENCE_S, attempt)
        with _sending(lab, planned.traffic) as begin_s, Witness(lab) as witness:
            _happen(lab.layout, scenario, planned, begin_s, watch)
        if witness.is_sparse:
            samples = f"{len(witness.samples)} samples in {witness.seconds:.0f} s"
            raise TooBusyError(f"the machine was too busy: {samples}")
        began_s = begin_s + scenario.begins_s
        findings = [_found(lab.layout, line, watch.start_s - began_s) for line in watch.findings()]
        truth = Truth(lab, witness, began_s + 1)
        return Outcome(scenario, truth.wrong(), findings, truth.counted(), attempt)


def _options(lab: Lab, scenario: Scenario) -> list[str]:
    if scenario.topology.cabling != "file":
        return []
    path = lab.directory / "cables.csv"
    path.write_text(cables_text(lab.layout))
    return ["--topology", str(path)]


def _hosts_file(lab: Lab, scenario: Scenario) -> Path:
    if scenario.topology.visible == "all":
        return lab.hosts_file
    lines = lab.hosts_file.read_text().splitlines()
    path = lab.directory / "visible.txt"
    path.write_text("\n".join(line for line in lines if "role=switch" not in line) + "\n")
    return path


@contextmanager
def _sending(lab: Lab, traffic: Traffic) -> Iterator[float]:
    """Have the traffic run; when it began, on the monotonic clock."""
    process = subprocess.Popen(
        lab.console_argv([sys.executable, "-m", "tests.lab.senders"]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_PROJECT,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(msgspec.json.encode(traffic) + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n", "the senders do not connect"
        begin_s = time.monotonic() + _SOON_S
        process.stdin.write(f"{begin_s}\n".encode())
        process.stdin.flush()
        try:
            yield begin_s
        finally:
            process.kill()


def _happen(
    layout: Layout, scenario: Scenario, planned: Plan, begin_s: float, watch: Watch
) -> None:
    """Do the deeds in time, and wait for the end, or for what is still to be found."""
    deeds = list(planned.deeds)
    wanted = set(scenario.expect.findings)
    end_s = begin_s + scenario.expect.seconds
    while (now_s := time.monotonic()) < end_s + PATIENCE_S:
        while deeds and deeds[0].at_s <= now_s - begin_s:
            deeds.pop(0).do()
        if now_s >= end_s:
            findings = [_found(layout, line, 0.0) for line in watch.findings()]
            if wanted <= {str(each.what) for each in findings}:
                return
        time.sleep(0.02)


def _found(layout: Layout, line: Line, began_s: float) -> Found:
    """A finding by what it is about; a cable by its lower end, whichever end the finding names."""
    subject = line["subject"]
    if line["cause"] in _OF_CABLE:
        for cable in layout.cables:
            if subject == f"{cable.upper.node}/{cable.upper.port}":
                subject = f"{cable.lower.node}/{cable.lower.port}"
    return Found(Wrong(line["cause"], subject), line["at_s"] + began_s, line["text"])
