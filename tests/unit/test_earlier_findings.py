"""What a watch left open when it was killed is open in the next, until it is known to be over."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from fabmon.analysis.earlier_findings import EarlierFinding, EarlierFindings
from fabmon.analysis.finding import Change, Evidence, Finding
from fabmon.analysis.scene import Scene
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.session.config import load
from fabmon.session.kept_findings import KeptFindings
from fabmon.session.session import Session
from fabmon.state_file import StateFile
from tests.builders import (
    SECOND_NS,
    START_NS,
    LeafSpine,
    Watched,
    frame,
    hello,
    new_pipeline,
    port,
    tick,
    up,
    without_neighbours,
)

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


class Ports:
    """A host that reports so many ports, after a watch that left its second one down."""

    def __init__(self, node: str = "a") -> None:
        name = f"site{next(_NAMES)}"
        file = StateFile(EarlierFinding, "findings", name)
        assert file.acquire()
        was = kept_of(f"{node}/eth1")
        file.save([replace_finding(was, since_ns=START_NS, seen_ns=START_NS)])
        file.release()
        session = Session(load(Path("/dev/null")))
        kept = session.kept_findings(name)
        self.pipeline = session.pipeline([Host(name="a")], kept=kept)
        self.seq = 0
        self.closed: list[str] = []

    def seconds(self, seconds: int, *states: int, status: NodeStatus | None = None) -> Scene:
        said = hello(*(port(f"eth{n}", metrics=("netdev_up",)) for n in range(len(states))))
        for _ in range(seconds):
            answers = status is None
            made = tick(
                self.seq,
                {"a": frame(self.seq, *states)} if answers else {},
                {"a": said} if answers else {},
                up("a") if status is None else [status],
            )
            scene = self.pipeline.accept(made)
            self.closed += [each.text for change, each in scene.changes if change is Change.CLOSE]
            self.seq += 1
        return scene


def replace_finding(kept: EarlierFinding, **fields: int) -> EarlierFinding:
    return msgspec.structs.replace(kept, finding=msgspec.structs.replace(kept.finding, **fields))


GONE = "as it was; its port is no longer reported"


@pytest.mark.parametrize("is_down", [True, False])
def test_a_link_whose_port_is_not_reported_yet_stays_open_until_it_is(is_down: bool) -> None:
    """As while a driver is loaded, or a NIC is reset, at the start of the watch."""
    ports = Ports()
    (finding,) = ports.seconds(300, 1).findings
    assert finding.text == GONE
    findings = ports.seconds(60, 1, 0 if is_down else 1).findings
    assert [each.text for each in findings] == ["a r1 is down"] * is_down
    assert ports.closed == ["as it was"] * (not is_down)


def test_a_link_whose_port_is_not_reported_for_a_day_closes_with_the_reason() -> None:
    ports = Ports()
    ports.seconds(60, 1)
    ports.seq += 86_400
    assert ports.seconds(60, 1).findings == ()
    assert ports.closed == [GONE]


def test_a_node_that_has_not_answered_is_waited_for_before_its_port() -> None:
    ports = Ports()
    ports.seq = 100_000
    starting = NodeStatus("a", NodeState.CONNECTING, 0)
    (finding,) = ports.seconds(300, status=starting).findings
    assert (finding.text, "a has not answered" in finding.unseen) == ("as it was", True)
    assert ports.closed == []


def test_a_node_that_never_answers_again_keeps_nothing_open_for_longer_than_a_day() -> None:
    """It was for ever, and so was the alert."""
    ports = Ports()
    failed = NodeStatus("a", NodeState.FAILED, 0)
    assert len(ports.seconds(650, status=failed).findings) == 1
    ports.seq += 86_400
    assert ports.seconds(60, status=failed).findings == ()
    assert ports.closed == [GONE]


@pytest.mark.parametrize("silent", [{"gpu002", "leaf1"}, {"leaf1"}])
def test_a_link_of_silent_nodes_is_not_known_to_be_up(silent: set[str]) -> None:
    """Its finding closed after 15 s, before its nodes counted as lost, and was opened again."""
    site = Site()
    watch = Watch(site)
    watch.seconds(5)
    site.down |= {HOST, LEAF}
    watch.seconds(5)
    site.silent, site.state = silent, NodeState.STALE
    (finding,) = watch.seconds(60).findings
    is_known = silent == {"leaf1"}
    assert finding.unseen == ("" if is_known else "whether it is still so: its nodes are silent")
    site.silent = set()
    (finding,) = watch.seconds(30).findings
    assert (finding.unseen, kinds(watch)) == ("", [f"open link_down {HOST}"])
    site.down.clear()
    watch.seconds(30)
    assert kinds(watch)[1:] == [f"close link_down {HOST}"]


def test_a_node_that_nothing_lists_has_ten_minutes_to_be_reported() -> None:
    ports = Ports(node="b")
    assert len(ports.seconds(590, 1).findings) == 1
    ports.seconds(60, 1)
    assert ports.closed == [GONE]


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


@pytest.mark.parametrize("place", ["fabmon", "fabmon/findings", "."])
def test_where_others_can_replace_the_file_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = StateFile(EarlierFinding, "findings", "pod7")
    assert file.acquire()
    file.save([kept_of(HOST)])
    file.release()
    shared = tmp_path / "state" / place
    shared.chmod(0o777)
    assert file.load() == []
    with pytest.raises(PermissionError):
        file.acquire()
    assert "is not read: " in caplog.text
    shared.chmod(0o700)
    moved = tmp_path / "scratch"
    (tmp_path / "state" / "fabmon").rename(moved)
    (tmp_path / "state" / "fabmon").symlink_to(moved)
    assert len(file.load()) == 1, "a link of the user's own"


@pytest.mark.parametrize("what", ["directory", "fifo", "empty", "huge", "link", "later version"])
def test_whatever_has_the_name_of_a_state_file_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = StateFile(EarlierFinding, "findings", "pod7")
    assert file.acquire()
    path = file.path
    if what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path, 0o600)
    elif what == "huge":
        path.touch(0o600)
        os.truncate(path, 1 << 40)
    elif what == "link":
        path.symlink_to("/dev/zero")
    else:
        path.write_text('{"version": 9, "findings": []}' if what == "later version" else "")
    assert file.load() == []
    if what == "directory":
        with pytest.raises(IsADirectoryError):
            file.save([kept_of(HOST)])
    else:
        file.save([kept_of(HOST)])
        assert len(file.load()) == 1
    assert {each.name for each in path.parent.iterdir()} == {path.name, f"{path.stem}.lock"}
    file.release()


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
