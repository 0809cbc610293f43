"""`fabmon doctor`: sources as they fare, the table that a person reads, the object for programs."""

from __future__ import annotations

import json
import os
import re
from contextlib import aclosing
from pathlib import Path

import jsonschema
import msgspec
import pytest

from collectors import wire
from collectors.hostfs import HostFS
from collectors.readers import ib_tools
from collectors.source import Unsupported
from fabmon.analysis.audit.sources import SourceState, source_states
from fabmon.analysis.audit.survey import Surveyor
from fabmon.fabric.model import Host
from fabmon.fabric.tick import NodeState, NodeStatus, Tick
from fabmon.fabric.wire.messages import Frame, Hello, Notice, decode
from fabmon.feeds.live import LiveFeed
from fabmon.history.history import History
from fabmon.report.doctor import DoctorRecord, doctor_table, examine
from fabmon.report.output import as_json, json_schema
from fabmon.session.node_queries import examine_nodes
from fabmon.session.session import Session
from tests.builders import START_NS, frame, hello, port, tick, up
from tests.fixtures import parts
from tests.fixtures.hosts import HOSTS
from tests.fixtures.ibfabric import ib_fabric_node
from tests.fixtures.tree import Counter, Tree
from tests.goldens import check_golden
from tests.unit.test_audit import nic
from tests.unit.test_cli import fabmon

GOLDENS = Path(__file__).parent / "goldens"
SCHEMA = Path(__file__).parents[2] / "docs" / "doctor.schema.json"


async def examined(root: Path, frames: int = 3) -> DoctorRecord:
    """What the doctor says of one host whose /sys and /proc are a tree."""
    host = Host(name="gpu1", via="local")
    history, surveyor = History([host]), Surveyor([host])
    async with aclosing(LiveFeed([host], interval_s=0.2, root=str(root))) as feed:
        async for heard in feed:
            snapshot = history.accept(heard)
            surveyor.accept(heard)
            if surveyor.frames_of("gpu1") >= frames:
                break
    return examine(surveyor.survey(snapshot))


async def test_every_source_of_a_host_is_reported_with_its_state(tmp_path: Path) -> None:
    HOSTS["roce"](tmp_path)
    record = await examined(tmp_path)
    states = {source.source: source for source in record.nodes[0].sources}
    assert states["ethtool"].state == "works"
    assert states["ethtool"].objects == 8
    assert states["ethtool"].read_ms is not None
    assert states["ib"].state == "works"
    assert states["routes"].state == "works"
    # Facts have no values: how many objects there are does not say what is known.
    assert re.match(r"\d+ ECMP groups?, \d+ neighbours?", states["routes"].text)
    assert states["dcb"].text.startswith("PFC ")
    assert [fault.check for fault in record.faults if "mlx5_7" in fault.ports[0]][:1] == [
        "pcie_downtrained"
    ]


DIAGS = """#!/bin/sh
case "$0 $*" in
*iblinkinfo*) sleep {seconds}; cat {tree}/iblinkinfo.txt ;;
*perfquery\\ --extended*) sleep {seconds}; cat {tree}/perfquery-x-*.txt ;;
*) cat {tree}/perfquery-3.txt ;;
esac
"""


def add_diags(directory: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Commands of infiniband-diags first on the PATH, which take some seconds."""
    ib_fabric_node(directory / "tree")
    for name in ("iblinkinfo", "perfquery"):
        script = directory / name
        script.write_text(DIAGS.format(seconds=seconds, tree=directory / "tree" / "ib_fabric"))
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")


def fabric_of(record: DoctorRecord) -> dict[str, SourceState]:
    """The state of the sources that read the InfiniBand fabric."""
    node = next(node for node in record.nodes if node.node == "gpu1")
    return {each.source: each for each in node.sources if "ib_fabric" in each.source}


async def test_doctor_waits_until_a_fabric_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_diags(tmp_path, monkeypatch, 2.0)
    host = Host(name="gpu1", via="local", sources=("+ib_fabric",))
    record = await examine_nodes(Session.load(None), [host], 120.0)
    states = {name: source.state for name, source in fabric_of(record).items()}
    assert states == {"ib_fabric": "works", "ib_fabric_hcas": "works"}


async def test_a_fabric_that_is_not_read_in_time_is_not_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_diags(tmp_path, monkeypatch, 600.0)
    host = Host(name="gpu1", via="local", sources=("+ib_fabric",))
    record = await examine_nodes(Session.load(None), [host], 4.0)
    assert "still being read" in fabric_of(record)["ib_fabric"].text
    assert "ib_fabric        absent         is still being read" in doctor_table(record)


async def test_a_fabric_without_the_tools_to_read_it_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ib_tools, "_PATH", "")
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(Unsupported, match="it comes with infiniband-diags"):
        ib_tools.find_tools(HostFS())


async def test_a_machine_without_rdma_lacks_those_sources_and_that_is_no_fault(
    tmp_path: Path,
) -> None:
    HOSTS["container"](tmp_path)
    record = await examined(tmp_path)
    states = {source.source: source.state for source in record.nodes[0].sources}
    assert states["netdev"] == "works"
    assert states["ib"] == "absent"
    assert record.faults == []


@pytest.mark.parametrize(
    ("reason", "text", "state"),
    [
        ("denied", "umad0 is for group rdma: join it", "not permitted"),
        ("unsupported", "the driver offers none", "unsupported"),
        ("late", "no answer in 0.2 s", "too slow"),
        ("failed", "Input/output error", "failed"),
    ],
)
def test_a_source_that_is_lost_says_why(reason: str, text: str, state: str) -> None:
    hosts = [Host(name="gpu1")]
    history, surveyor = History(hosts), Surveyor(hosts)
    heard = Tick(
        0,
        START_NS,
        hellos=(("gpu1", hello(port("eth0"))),),
        frames=(("gpu1", frame(0, 1, 2, 3, None)),),
        statuses=up("gpu1"),
        notices=(
            ("gpu1", Notice("lost", "ib_fabric", reason=reason, text=text)),
            ("gpu1", Notice("absent", "netdev", "eth0", "netdev_tx_drops", "failed")),
        ),
    )
    surveyor.accept(heard)
    survey = surveyor.survey(history.accept(heard))
    assert source_states(survey, "gpu1") == [
        SourceState(
            source="netdev", state="works", text="1 failed", objects=1, values=4, missing=1
        ),
        SourceState(source="ib_fabric", state=state, text=text),
    ]


def test_what_a_source_cannot_see_is_named() -> None:
    """Nothing failed, and yet a part is missing: on doctor's line, and in the facts of the node."""
    said = hello(port("eth0"), limits=[{"source": "netdev", "text": "2 of 9 are left out"}])
    history, surveyor = History([Host(name="gpu1")]), Surveyor([Host(name="gpu1")])
    heard = tick(0, {"gpu1": frame(0, 1, 2, 3, 4)}, {"gpu1": said}, up("gpu1"))
    surveyor.accept(heard)
    survey = surveyor.survey(history.accept(heard))
    assert source_states(survey, "gpu1") == [
        SourceState(source="netdev", state="works", text="2 of 9 are left out", objects=1, values=4)
    ]
    assert survey.snapshot.fabric.nodes[0].limits == ("netdev: 2 of 9 are left out",)


def slow_source_beside_a_quick_one() -> Hello:
    blocks = [
        wire.BlockLayout("netdev", 1, [port("eth0", metrics=["netdev_up"])]),
        wire.BlockLayout("ib_errors", 10, [port("eth0", metrics=["ib_symbol_errors"] * 2)]),
    ]
    message = decode(wire.hello(blocks, {"interval_s": 1.0}))
    assert isinstance(message, Hello)
    return message


def test_a_source_that_is_read_rarely_is_judged_by_its_last_reading() -> None:
    hosts = [Host(name="gpu1")]
    history, surveyor = History(hosts), Surveyor(hosts)
    said = slow_source_beside_a_quick_one()
    readings: list[list[int | None] | None] = [[1, None, 7], None, None]
    for seq, block in enumerate(readings):
        heard = Frame(seq, START_NS + seq, 1 + seq, [[1 + seq, 1], block])
        now = tick(seq, {"gpu1": heard}, {"gpu1": said} if seq == 0 else {}, up("gpu1"))
        surveyor.accept(now)
        snapshot = history.accept(now)
    survey = surveyor.survey(snapshot)
    states = {
        state.source: (state.values, state.missing) for state in source_states(survey, "gpu1")
    }
    assert states == {"netdev": (1, 0), "ib_errors": (2, 1)}
    assert survey.totals["gpu1/eth0"]["ib_symbol_errors"] == 7


def test_after_a_reboot_the_readings_before_it_are_forgotten() -> None:
    hosts = [Host(name="gpu1")]
    history, surveyor = History(hosts), Surveyor(hosts)
    said = slow_source_beside_a_quick_one()
    first = Frame(0, START_NS, 1, [[1, 1], [1, 7, 7]])
    surveyor.accept(tick(0, {"gpu1": first}, {"gpu1": said}))
    again = tick(
        1,
        {"gpu1": Frame(0, START_NS, 1, [[1, 1], None])},
        {"gpu1": msgspec.structs.replace(said, boot_id="another")},
    )
    surveyor.accept(again)
    assert "ib_symbol_errors" not in surveyor.survey(history.accept(again)).totals["gpu1/eth0"]


def test_counters_that_another_node_reports_for_a_node_are_ignored() -> None:
    hosts = [Host(name="evil"), Host(name="gpu1")]
    history, surveyor = History(hosts), Surveyor(hosts)
    lie = wire.Object("x", "infiniband", "mlx5_0", {}, ("ib_symbol_errors",), "gpu1")
    truth = wire.Object("mlx5_0", "infiniband", "mlx5_0", {}, ("ib_state",))
    heard = tick(
        0,
        {"evil": frame(0, 65000), "gpu1": frame(0, 4)},
        {"evil": hello(lie), "gpu1": hello(truth)},
        up("evil", "gpu1"),
    )
    surveyor.accept(heard)
    survey = surveyor.survey(history.accept(heard))
    assert survey.totals == {"gpu1/mlx5_0": {"ib_state": 4}}


async def test_why_a_source_is_missing_reaches_the_table(tmp_path: Path) -> None:
    HOSTS["container"](tmp_path)
    (tmp_path / "routes.json").write_text("{broken")
    record = await examined(tmp_path)
    states = {source.source: source for source in record.nodes[0].sources}
    assert states["routes"].state == "failed"
    assert states["routes"].text.startswith("routes.json: ")


async def test_what_a_container_hides_is_named_at_its_source(tmp_path: Path) -> None:
    HOSTS["container"](tmp_path)
    (tmp_path / "dev/infiniband").mkdir(parents=True)
    (tmp_path / "dev/infiniband/uverbs0").touch()
    record = await examined(tmp_path)
    states = {source.source: source for source in record.nodes[0].sources}
    assert states["ib"].state == "absent"
    said = doctor_table(record)
    assert (
        "  ib               absent         /dev/infiniband/uverbs0 without /sys/class/infin" in said
    )
    assert "no RDMA port counters" not in said


async def test_counters_of_made_up_drivers_are_counted_and_named(tmp_path: Path) -> None:
    tree = HOSTS["roce"](tmp_path)
    for place, (driver, names) in enumerate(
        {
            "quux": ["frobs", *(f"q{queue}_wibbles" for queue in range(60))],
            "usual": ["rx_pause_frames", "tx_pause_frames", "frobs"],
        }.items()
    ):
        name = f"eth{place}"
        parts.netdev(tree, name, 90 + place, parts.pci(tree, f"0000:f{place}:00.0", driver))
        tree.ethtool(name, [(each, Counter(1)) for each in names])
    record = await examined(tmp_path)
    counters = {(each.source, each.driver): each for each in record.counters}
    assert counters["ethtool", "quux"].seen == 61
    assert counters["ethtool", "quux"].unmapped == ["frobs", "q[0-59]_wibbles"]
    assert counters["ethtool", "usual"].by_pattern
    said = doctor_table(record)
    (works,) = re.findall(r"  ethtool          works .*", said)
    assert "driver quux: 61 counters, names not known" in works
    assert "driver usual: 2 of 3 counters read, by pattern" in works
    assert "  ethtool          quux           61 counters, names not known. Not read:\n" in said
    assert "  ethtool          mlx5_core      " in said
    assert "      frobs, q[0-59]_wibbles\n" in said


async def test_a_driver_of_which_nothing_is_known_does_not_look_absent(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    parts.netdev(tree, "eth0", 2, parts.pci(tree, "0000:18:00.0", "quux"))
    tree.ethtool("eth0", [("frobs", Counter(1))])
    record = await examined(tmp_path)
    (ethtool,) = (each for each in record.nodes[0].sources if each.source == "ethtool")
    assert (ethtool.state, ethtool.text) == (
        "unsupported",
        "driver quux: 1 counter, name not known",
    )


def record_of_a_rack() -> DoctorRecord:
    """Three identical hosts, one with half its PCIe lanes, and one that cannot be reached."""
    names = ("gpu1", "gpu2", "gpu3")
    hosts = [Host(name=name) for name in (*names, "gpu4")]
    history, surveyor = History(hosts), Surveyor(hosts)
    ports = {name: nic(0, pcie_width=8 if name == "gpu2" else 16) for name in names}
    heard = tick(
        0,
        hellos={name: hello(item) for name, (item, _) in ports.items()},
        frames={name: frame(0, *values) for name, (_, values) in ports.items()},
        statuses=[
            *up(*names),
            NodeStatus("gpu4", NodeState.FAILED, START_NS, "no route to host", "no route"),
        ],
    )
    surveyor.accept(heard)
    return examine(surveyor.survey(history.accept(heard)))


def test_the_table_has_faults_first_and_groups_identical_nodes() -> None:
    check_golden(GOLDENS / "doctor.txt", doctor_table(record_of_a_rack()))


def test_nodes_that_fail_for_one_cause_are_one_block() -> None:
    """Their reasons differ: each names its node."""
    names = [f"gpu{number}" for number in range(1, 5)]
    hosts = [Host(name=name) for name in names]
    history, surveyor = History(hosts), Surveyor(hosts)
    heard = tick(
        0,
        statuses=[
            *(
                NodeStatus(name, NodeState.FAILED, START_NS, f"no address for {name}", "unknown")
                for name in names[:3]
            ),
            NodeStatus("gpu4", NodeState.FAILED, START_NS, "refused by 10.0.0.4:22", "refused"),
        ],
    )
    surveyor.accept(heard)
    said = doctor_table(examine(surveyor.survey(history.accept(heard))))
    assert "gpu[1-3]  (3 nodes)  failed: no address for gpu[1-3]\n" in said
    assert "gpu4  failed: refused by 10.0.0.4:22\n" in said


async def test_the_table_says_what_is_not_known_without_the_sources_that_a_node_lacks(
    tmp_path: Path,
) -> None:
    HOSTS["container"](tmp_path)
    said = doctor_table(await examined(tmp_path))
    assert "rdma             absent         no RDMA statistics: ECN, CNP" in said
    without_device = re.search(r"no device for    (.*)\n", said)
    assert without_device is not None
    assert {"cxi", "nvlink", "pcie", "xgmi", "sonic"} <= set(without_device[1].split(", "))
    assert "rdma_errors" not in said


def test_the_object_follows_its_schema() -> None:
    check_golden(SCHEMA, json_schema(DoctorRecord).decode())
    jsonschema.validate(
        json.loads(as_json(record_of_a_rack())), json.loads(json_schema(DoctorRecord))
    )


def test_this_machine() -> None:
    done = fabmon("doctor", "--format", "json")
    record = json.loads(done.stdout)
    assert done.returncode == (5 if any(f["severity"] == "fix" for f in record["faults"]) else 0)
    states = {each["source"]: each["state"] for each in record["nodes"][0]["sources"]}
    assert states["netdev"] == "works"


def test_a_wrong_hosts_file_is_reported_before_any_node_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "hosts.txt"
    path.write_text("gpu1 flavour=sweet\n")
    done = fabmon("doctor", "--hosts", str(path))
    assert done.returncode == 2
    assert "unknown key 'flavour'" in done.stderr


def test_the_exit_status_says_that_no_node_answered() -> None:
    done = fabmon("doctor", "--host", "localhost port=1", "--duration", "8")
    assert done.returncode == 3
    assert "failed: " in done.stdout
