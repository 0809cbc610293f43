"""What a watch left open when it was killed is open in the next, until it is known to be over."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.earlier_findings import EarlierFinding, EarlierFindings
from fabmon.analysis.finding import Change, Evidence, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.session.config import load
from fabmon.session.kept_findings import KeptFindings
from fabmon.session.session import Session
from fabmon.state_file import StateFile
from tests.builders import SECOND_NS, LeafSpine, Watched, new_pipeline, without_neighbours

HOST, LEAF = "gpu002/eth0", "leaf1/down2"
_NAMES = itertools.count()


class Site(LeafSpine):
    """A fabric that several watches see one after the other. Of `silent` nodes nothing is heard;
    ports that are down report no neighbour, as with LLDP."""

    def __init__(self, hosts: int = 4, speeds: dict[str, float] | None = None) -> None:
        super().__init__(uplinks=2, hosts=hosts, speeds=speeds)
        self.silent: set[str] = set()
        self.slow: set[str] = set()
        self._heard: set[str] = set()
        self.state = NodeState.FAILED

    def started_again(self) -> None:
        """The next watch hears the nodes anew, and in another order."""
        self._heard = set()

    def step(self) -> Tick:
        made = super().step()
        frames = tuple(each for each in reversed(made.frames) if each[0] not in self.silent)
        said = self.hellos()
        hellos = []
        for node in reversed(said):
            if node in self._heard or node in self.silent:
                continue
            hellos.append((node, without_neighbours(said[node], node, self.down)))
        self._heard |= {node for node, _ in hellos}
        statuses = [NodeStatus(node, NodeState.UP, 0) for node, _ in frames]
        statuses += [NodeStatus(node, self.state, 0, "no route to host") for node in self.silent]
        return msgspec.structs.replace(
            made, hellos=tuple(hellos), frames=frames, statuses=tuple(statuses)
        )


class Watch(Watched):
    """A watch of a site; a later one takes up what it left open when it was killed."""

    def __init__(self, site: Site, name: str = "") -> None:
        super().__init__(site)
        site.started_again()
        self.site, self.name = site, name or f"site{next(_NAMES)}"
        session = Session(load(Path("/dev/null")))
        self._kept = session.kept_findings(self.name)
        self.pipeline = session.pipeline(site.hosts, kept=self._kept)

    def killed(self, scene: Scene) -> Watch:
        """The watch that is started after this one was killed at a scene."""
        asyncio.run(save(self._kept, scene))
        self._kept.close()
        return Watch(self.site, self.name)


async def save(kept: KeptFindings, scene: Scene) -> None:
    """Keep the findings of a scene at which some of them changed."""
    changes = tuple((Change.UPDATE, each) for each in scene.findings[:1])
    await kept.accept(replace(scene, changes=changes))
    assert kept._saving is not None
    await kept._saving


def kinds(watch: Watch) -> list[str]:
    """What opened and closed."""
    return [
        f"{change} {finding.cause} {finding.subject}"
        for _, change, finding in watch.changes
        if change is not Change.UPDATE
    ]


def subjects(scene: Scene) -> list[str]:
    return [finding.subject for finding in scene.findings]


def test_a_link_that_is_still_down_stays_one_finding_and_closes_once() -> None:
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.down |= {HOST, LEAF}
    before = watch.seconds(3)
    watch = watch.killed(before)
    scene = watch.seconds(200)
    assert kinds(watch) == []
    (finding,) = scene.findings
    assert (finding.subject, finding.since_ns) == (HOST, before.findings[0].since_ns)
    assert {scene.snapshot.fabric.ports[row].id for row in finding.rows} == {HOST, LEAF}
    assert finding.unseen == ""
    # And killed once more: what had been up is still known.
    watch = watch.killed(scene)
    watch.seconds(100)
    site.down.clear()
    watch.seconds(60)
    assert kinds(watch) == [f"close link_down {HOST}"]


def test_a_link_that_was_repaired_meanwhile_closes_once() -> None:
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.down |= {HOST, LEAF}
    scene = watch.seconds(3)
    site.down.clear()
    watch = watch.killed(scene)
    watch.seconds(30)
    assert kinds(watch) == [f"close link_down {HOST}"]


@pytest.mark.parametrize("state", [NodeState.CONNECTING, NodeState.FAILED])
def test_a_node_that_is_still_lost_stays_so_until_it_answers(state: NodeState) -> None:
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.silent, site.state = {"gpu002"}, NodeState.LOST
    scene = watch.seconds(60)
    assert subjects(scene) == ["gpu002"]
    site.state = state
    watch = watch.killed(scene)
    scene = watch.seconds(300)
    assert kinds(watch) == []
    (finding,) = scene.findings
    assert finding.unseen == (
        "whether it is still so: gpu002 has not answered since fabmon was started"
    )
    site.silent = set()
    watch.seconds(30)
    assert kinds(watch) == ["close node_lost gpu002"]


@pytest.mark.parametrize(
    ("silent", "is_known"), [(("gpu002",), True), (("leaf1",), True), (("gpu002", "leaf1"), False)]
)
def test_one_end_of_a_cable_that_is_down_is_enough(silent: Sequence[str], is_known: bool) -> None:
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.down |= {HOST, LEAF}
    scene = watch.seconds(3)
    site.silent = set(silent)
    watch = watch.killed(scene)
    (finding,) = watch.seconds(200).findings
    assert ("has not answered" not in finding.unseen) is is_known
    assert kinds(watch) == []
    site.silent, site.down = set(), set()
    watch.seconds(40)
    assert kinds(watch) == [f"close link_down {HOST}"]


def test_a_finding_of_before_the_clock_was_set_back_has_begun_by_now() -> None:
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.down |= {HOST, LEAF}
    scene = watch.seconds(3)
    watch = watch.killed(scene)
    site.clock_off_ns = -7200 * SECOND_NS
    scene = watch.seconds(1)
    (finding,) = scene.findings
    assert finding.since_ns <= scene.snapshot.time_ns
    site.down.clear()
    watch.seconds(60)
    (closed,) = [each for _, change, each in watch.changes if change is Change.CLOSE]
    assert closed.until_ns is not None
    assert closed.since_ns <= closed.until_ns


def test_a_collision_that_lasts_is_found_again() -> None:
    site = Site()
    watch = Watch(site)
    site.send(49e6, "gpu001/eth0", "leaf1/up1")
    site.send(49e6, "gpu002/eth0", "leaf1/up1")
    scene = watch.seconds(20)
    assert subjects(scene) == ["leaf1/up1"]
    watch = watch.killed(scene)
    assert subjects(watch.seconds(200)) == ["leaf1/up1"]
    assert kinds(watch) == []
    site.silence()
    watch.seconds(60)
    assert kinds(watch) == ["close ecmp_collision leaf1/up1"]


def kept_of(port: str, cause: str = "link_down") -> EarlierFinding:
    """An open finding of a port that had been up at 100 Mb/s, as an earlier run kept it."""
    finding = Finding(
        cause=cause,
        severity="critical",
        subject=port,
        rows=(),
        text="as it was",
        evidence=(),
        advice="",
        confidence=1.0,
        since_ns=1,
    )
    return EarlierFinding(finding, (port,), (port,), (100e6,))


def left_open(site: Site, cause: str) -> Watch:
    """A watch of a site, after one that left a finding of its port HOST open."""
    name = f"site{next(_NAMES)}"
    file = StateFile(EarlierFinding, "findings", name)
    assert file.acquire()
    file.save([kept_of(HOST, cause)])
    file.release()
    return Watch(site, name)


def test_a_link_that_had_a_higher_rate_before_is_still_degraded() -> None:
    """Its rail has too few ports to know their usual rate."""
    watch = left_open(Site(hosts=2, speeds={HOST: 25e6}), "degraded_link")
    (finding,) = watch.seconds(200).findings
    assert finding.subject == HOST
    assert finding.evidence[1] == Evidence("before", 100_000_000, "bps")
    assert kinds(watch) == []


def test_a_driver_that_failed_works_again_once_its_device_carries_traffic() -> None:
    site = Site()
    watch = left_open(site, "driver_failed")
    (finding,) = watch.seconds(200).findings
    assert finding.unseen.endswith("the kernel logged it before fabmon was started")
    site.send(1e6, HOST)
    watch.seconds(30)
    assert kinds(watch) == [f"close driver_failed {HOST}"]


@pytest.mark.parametrize(
    "content",
    [b'[{"finding":', b"[1]", b'["\xff"]', b'[{"\xff":1}]', b"\0" * 64, b"[" * 20_000_000],
)
def test_a_damaged_file_costs_itself_and_is_said_once(
    content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    kept = KeptFindings("damaged")
    path = kept._file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    assert Session(load(Path("/dev/null"))).pipeline([], kept=kept) is not None
    assert caplog.text.count("not read") == 1
    kept.close()


def test_a_file_of_others_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    kept = KeptFindings("others")
    path = kept._file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"[]")
    path.chmod(0o666)
    assert kept.load() == []
    assert "another user may have written it" in caplog.text
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert kept.load() == []


def test_an_invalid_item_of_a_state_file_costs_itself(caplog: pytest.LogCaptureFixture) -> None:
    file = StateFile(EarlierFinding, "findings", "damaged")
    assert file.acquire()
    file.save([kept_of(HOST), kept_of("gpu002/eth0")])
    file.path.write_bytes(file.path.read_bytes().replace(b'"critical"', b"null", 1))
    assert [each.ports for each in file.load()] == [("gpu002/eth0",)]
    assert "1 of 2 are not read" in caplog.text


@pytest.mark.parametrize(("interval_s", "ticks"), [(1.0, 120), (30.0, 60)])
def test_a_finding_has_the_ticks_that_judge_a_job_whatever_the_interval(
    interval_s: float, ticks: int
) -> None:
    earlier = EarlierFindings([kept_of(HOST, "uneven_rails")])
    pipeline = new_pipeline(LeafSpine().hosts, interval_s)
    fabric, passed = LeafSpine(), 0
    while earlier.not_judged and passed < 200:
        snapshot = pipeline.accept(fabric.step()).snapshot
        opened = {each.key: each for each in earlier.findings}
        earlier.accept(replace(snapshot, interval_s=interval_s), opened, ())
        passed += 1
    assert ticks <= passed <= ticks + 3
