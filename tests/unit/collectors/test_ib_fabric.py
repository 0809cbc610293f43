"""The fabric from one node: the real infiniband-diags on a simulated fabric (ibsim, opensm)."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.node_description import hca_name, switch_name
from collectors.readers.ib_tools import check_permission, parse_counters
from collectors.readers.ib_topology import (
    named_ports,
    parse_links,
    switches,
    update_known_links,
)
from collectors.source import Denied, Failed, NoData, NoNews, Unsupported
from collectors.sources import ib_rounds, ib_sweep
from collectors.sources.ib_fabric import IbFabric
from collectors.sources.ib_rounds import Budget
from collectors.wire import Object
from tests import requirements as needed
from tests.fixtures import hosts
from tests.fixtures.ibfabric import GPU1, LEAF, SPINE
from tests.fixtures.ibsim import LIBRARY, Fabric
from tests.fixtures.reading import Answer, ask, read

CAPTURES = Path(__file__).parents[4] / "shared" / "hardware" / "infiniband-diags"
PATIENCE_S = 240
"""For the simulator and the tools, on a machine that is busy with other tests."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator's library leaves a directory for every process where it runs."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def fabric(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fabric]:
    needed.need_command("ibsim", "ibsim-utils")
    needed.need_command("opensm", "opensm")
    needed.need_path("/usr/sbin/iblinkinfo", "apt-get install infiniband-diags")
    needed.need_path(LIBRARY, "apt-get install libumad2sim0")
    # Faster than a real fabric would be asked.
    monkeypatch.setattr(ib_rounds, "MIN_ROUND_S", 0.2)
    monkeypatch.setattr(ib_sweep, "MIN_SWEEP_S", 0.2)
    monkeypatch.setattr(ib_sweep, "SWEEPS_PER_SECOND", 1000)
    monkeypatch.setattr(ib_sweep, "SWITCHES", Budget(500, 200))
    monkeypatch.setattr(ib_sweep, "RETRY_S", 0.1)
    with tempfile.TemporaryDirectory(prefix="fm") as root:
        started = Fabric(root)
        started.start()
        monkeypatch.setenv("PATH", f"{started.bin}:{os.environ['PATH']}")
        yield started
        started.stop()


@pytest.fixture
def source(fabric: Fabric) -> Iterator[IbFabric]:
    made = IbFabric(HostFS())
    yield made
    made.stop()


def until(what: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < limit, "it did not come"
        time.sleep(0.02)


def found(source: IbFabric) -> List[Object]:
    """The ports, once the first look has brought them and the forwarding tables."""
    return [item for item in all_found(source) if item.kind != "forwarding_tables"]


def all_found(source: IbFabric) -> List[Object]:
    limit = time.monotonic() + PATIENCE_S
    while True:
        with contextlib.suppress(NoData):
            objects = source.discover()
            if objects[-1].kind == "forwarding_tables":
                return objects
        assert time.monotonic() < limit
        time.sleep(0.01)


def fresh(source: IbFabric, objects: List[Object]) -> Answer:
    """The next round's values. What is read changes when the rounds turn out slower than before."""
    limit = time.monotonic() + PATIENCE_S
    known = source.signature()
    while True:
        try:
            return read(source, objects)
        except NoNews:
            assert time.monotonic() < limit
            time.sleep(0.02)
            if source.signature() != known:
                known = source.signature()
                objects[:] = found(source)


def moved(source: IbFabric, objects: List[Object], port: str, metric: str, to: int) -> None:
    until(lambda: fresh(source, objects).of(port)[metric] == to)


def test_every_switch_hca_and_cable_is_found(source: IbFabric) -> None:
    objects = found(source)
    cabled = {item.id: item.info["peer"] for item in objects}
    assert len(cabled) == 16
    assert {item.node for item in objects if item.info["node_role"] == "switch"} == {
        *("leaf1", "leaf2", "spine1", "spine2"),
    }
    peer = cabled["leaf1/p6"]
    assert (peer["node"], peer["port"]) == ("spine2", "p1")
    peer = cabled["gpu4/mlx5_0"]
    assert (peer["node"], peer["port"]) == ("leaf2", "p2")
    values = fresh(source, objects).of("leaf1/p1")
    assert (values["ib_state"], values["ib_phys_state"], values["ib_rate_bps"]) == (4, 5, 10**10)


def test_counters_move(fabric: Fabric, source: IbFabric) -> None:
    objects = found(source)
    fabric.count('"leaf1"[5]', PortXmitData=10**15, SymbolErrorCounter=7, PortXmitWait=77)
    until(lambda: fresh(source, objects).of("leaf1/p5")["ib_symbol_errors"] == 7)
    values = fresh(source, objects).of("leaf1/p5")
    assert isinstance(values["ib_tx_bytes"], int)
    assert 4 * 10**15 <= values["ib_tx_bytes"] < 4 * 10**15 + 10**9
    assert values["ib_tx_wait"] == 77


def test_hcas_are_a_source_of_their_own(fabric: Fabric, source: IbFabric) -> None:
    (hcas,) = source.companions()
    with pytest.raises(NoData):
        hcas.discover()
    found(source)
    fabric.count('"gpu3"[1]', PortXmitData=10**15, SymbolErrorCounter=7)
    limit = time.monotonic() + PATIENCE_S
    values: Dict[str, Any] = {}
    # A round that began before has the errors, of the classic set, and not the bytes.
    while values.get("ib_symbol_errors") != 7 or values["ib_tx_bytes"] < 4 * 10**15:
        assert time.monotonic() < limit, values
        with contextlib.suppress(NoData, NoNews):
            values = dict(read(hcas, hcas.discover()).of("gpu3/mlx5_0"))
    assert [item.id for item in hcas.discover()] == [f"gpu{n}/mlx5_0" for n in (1, 2, 3, 4)]


def test_ports_without_room_and_hcas_that_do_not_answer_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ib_sweep, "MAX_PORTS", 4)
    hosts.HOSTS["ib_fabric"](tmp_path)
    source = IbFabric(HostFS(str(tmp_path)))
    (hcas,) = source.companions()
    assert len(source.discover()) == 4
    assert source.limits == ["1 of 5 ports are left out: a hello has room for 4"]
    monkeypatch.undo()
    source = IbFabric(HostFS(str(tmp_path)))
    (hcas,) = source.companions()
    source.discover()
    assert source.limits == []
    hcas.discover()
    assert hcas.limits == ["1 of 1 HCA ports answer no counter query"]


def test_a_round_is_handed_out_once_with_its_own_clock(source: IbFabric) -> None:
    objects = found(source)
    before_ns = time.monotonic_ns()
    until(lambda: bool(fresh(source, objects)) and (source.values_ns or 0) > before_ns)
    assert source.values_ns is not None
    assert source.values_ns <= time.monotonic_ns()
    source.stop()
    with contextlib.suppress(NoNews):
        source.read({})
    with pytest.raises(NoNews):
        source.read({})


def test_a_cable_that_is_out_is_down_and_known_still(fabric: Fabric, source: IbFabric) -> None:
    objects = found(source)
    fabric.unlink('"leaf1"[6]')
    moved(source, objects, "leaf1/p6", "ib_state", 1)
    moved(source, objects, "spine2/p1", "ib_state", 1)
    again = found(source)
    assert [(item.id, item.info) for item in again] == [(item.id, item.info) for item in objects]
    fabric.relink('"leaf1"[6]')
    fabric.manage()
    moved(source, again, "leaf1/p6", "ib_state", 4)


def test_an_hca_that_is_gone_is_down(fabric: Fabric, source: IbFabric) -> None:
    objects = found(source)
    fabric.unlink('"gpu4"')
    moved(source, objects, "gpu4/mlx5_0", "ib_state", 1)
    moved(source, objects, "leaf2/p2", "ib_state", 1)
    assert fresh(source, objects).of("gpu3/mlx5_0")["ib_state"] == 4


def test_a_subnet_manager_that_reassigns_the_lids(fabric: Fabric, source: IbFabric) -> None:
    objects = found(source)
    fabric.count('"leaf2"[1]', SymbolErrorCounter=5)
    moved(source, objects, "leaf2/p1", "ib_symbol_errors", 5)
    fabric.manage("--reassign_lids")
    fabric.count('"leaf2"[1]', SymbolErrorCounter=6)
    moved(source, objects, "leaf2/p1", "ib_symbol_errors", 6)
    assert [item.id for item in found(source)] == [item.id for item in objects]


def test_the_loss_of_the_fabric_and_its_return_are_reported(
    fabric: Fabric, source: IbFabric
) -> None:
    objects = found(source)
    fabric.break_tools("iblinkinfo: discover failed")

    def fails() -> bool:
        try:
            fresh(source, objects)
        except Failed as error:
            return "iblinkinfo: discover failed" in str(error)
        return False

    until(fails)
    assert found(source) == objects, "what was known stays announced"
    fabric.repair_tools()
    until(lambda: not fails())
    moved(source, objects, "leaf1/p1", "ib_state", 4)


def test_no_counter_is_ever_cleared(fabric: Fabric, source: IbFabric) -> None:
    objects = found(source)
    fabric.count('"leaf1"[1]', SymbolErrorCounter=9)
    moved(source, objects, "leaf1/p1", "ib_symbol_errors", 9)
    source.stop()
    commands = {call.partition(" ")[0] for call in fabric.calls()}
    assert commands == {"iblinkinfo", "perfquery", "dump_fts"}
    for call in fabric.calls():
        tool, *words = call.split()
        if tool == "iblinkinfo":
            assert words == ["--line"]
            continue
        if tool == "dump_fts":
            assert words == ["--no_dests"]
            continue
        options = [word for word in words if word.startswith("-")]
        assert set(options) <= {"--extended", "--loop_ports", "--timeout"}, call
        rest = [word for word in words if not word.startswith("-")]
        assert len(rest) == 3, "the timeout, a LID and ports, and no reset mask"


def test_the_probe_is_never_held_up(
    fabric: Fabric, source: IbFabric, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fabric that takes long to look at is announced when it has been."""
    fabric.repair_tools(delay_s=2.5)
    source.deadline_s = 2.0
    lines: List[bytes] = []
    probe = Probe([source], lines.append, {}, 0.05)
    monkeypatch.setattr("collectors.loop.probe.LOOK_AGAIN_S", 0.05)
    probe.run(60)
    frames = [line for line in lines if line.startswith(b'["frame"')]
    assert len(frames) == 60
    assert not any(b'"late"' in line for line in lines)


def test_the_budget_stretches_the_rounds(tmp_path: Path) -> None:
    """400 ports of 10 old switches, which are asked twice: 20 processes, 10 a second."""
    texts: Dict[int, str] = {}
    lines = []
    for leaf in range(10):
        for number in range(1, 41):
            end = f'0x{leaf + 1:016x} "leaf{leaf}" {leaf + 1} {number}[  ] ==( 4X 106.25 Gbps'
            peer = f'0x{4096 + 64 * leaf + number:016x} 0 1[  ] "gpu{leaf}x{number} mlx5_0" ( )'
            lines.append(f"{end} Active/  LinkUp)==>  {peer}")
        texts[leaf + 1] = ""

    class Counted(ib_sweep.Sweep):
        asked = 0

    class Tools:
        def links(self) -> str:
            return "\n".join(lines)

        def forwarding_tables(self) -> str:
            raise NoData("not needed here")

        def counters(
            self, lid: int, numbers: List[int], *, extended: bool
        ) -> Callable[[], Dict[int, Dict[str, int]]]:
            Counted.asked += len(numbers)
            return lambda: {number: {"PortXmitData": 1} for number in range(1, 41)}

        def stop(self) -> None:
            return

    sweep = Counted(Tools(), set())  # type: ignore[arg-type]
    began_s = time.monotonic()
    sweep.once()
    took_s = time.monotonic() - began_s
    assert Counted.asked == 800, "the first round finds out that they are old"
    assert took_s >= 1.8
    assert sweep.round is not None
    assert 1.7 <= sweep.round.period_s <= took_s + 0.3
    assert len(sweep.round.ports) == 400


def test_the_own_hca_is_not_read_and_its_cable_is_reported(tmp_path: Path) -> None:
    hosts.HOSTS["ib_fabric"](tmp_path)
    answer = ask("ib_fabric", tmp_path)
    assert [item.id for item in answer.objects] == [
        "Quantum-Mellanox-Technologies/p7",
        "leaf1/p1",
        "leaf1/p3",
        "leaf1/p31",
        "gpu3/mlx5_0",
    ]
    assert answer.info("leaf1/p1")["peer"]["guid"] == f"{GPU1:016x}"
    wide, narrow = answer.of("leaf1/p31"), answer.of("Quantum-Mellanox-Technologies/p7")
    assert wide["ib_ext_tx_discards"] == 100_006, "more than the classic 16 bits hold"
    assert narrow["ib_tx_discards"] == 6
    assert answer.of("leaf1/p3")["ib_state"] == 2, "up, and no subnet manager has seen it"


def test_names_of_switches_and_hcas() -> None:
    assert switch_name("MF0;r-ufm-sw95:MQM8700/U1") == "r-ufm-sw95"
    assert switch_name("MF0;core1:CS7500/L03/U1") == "core1-L03-U1"
    assert switch_name(" 5FB0406-spine-IB02 ") == "5FB0406-spine-IB02"
    assert hca_name("worker20 mlx5_3", 1) == ("worker20", "mlx5_3")
    assert hca_name("o0001 HCA-1", 2) == ("o0001", "HCA-1/2")
    assert hca_name("storage", 1) == ("storage", "p1")


def test_switches_of_one_name_get_different_names_and_sharp_is_no_node(tmp_path: Path) -> None:
    text = "\n".join(
        f'0x{guid:016x} "Quantum Mellanox Technologies" {guid} {port}[  ] ==( 4X 53.125 Gbps '
        f'Active/  LinkUp)==>  0x{peer:016x} 9 1[  ] "{name}" ( )'
        for guid, port, peer, name in (
            (1, 1, 7, "gpu1 mlx5_0"),
            (1, 41, 8, "Mellanox Technologies Aggregation Node"),
            (2, 1, 9, "gpu2 mlx5_0"),
            (2, 2, 3, "x"),
            (8, 1, 1, "Quantum Mellanox Technologies"),
        )
    ).replace('0x0000000000000008 "Quantum Mellanox Technologies"', '0x8 "Aggregation Node"')
    lines = parse_links(text)
    known: Dict[object, object] = {}
    update_known_links(known, lines)  # type: ignore[arg-type]
    names = {port.node for port in named_ports(lines, switches(lines), set())}
    assert names == {
        "Quantum-Mellanox-Technologies-0000000000000001",
        "Quantum-Mellanox-Technologies-0000000000000002",
    }
    assert LEAF != SPINE


def test_the_group_that_may_is_named(tmp_path: Path) -> None:
    needed.need_root()
    device = tmp_path / "dev/infiniband/umad0"
    device.parent.mkdir(parents=True)
    device.touch(0o660)
    os.chown(device, 0, 4)
    for path in (tmp_path, *list(tmp_path.parents)[:-2]):
        path.chmod(0o755)
    check_permission(HostFS(str(tmp_path)))
    os.setresgid(65534, 65534, 0)
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(Denied, match="umad0 is for group adm: join it"):
            check_permission(HostFS(str(tmp_path)))
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def test_a_node_without_infiniband_says_so() -> None:
    needed.need_path("/usr/sbin/iblinkinfo", "apt-get install infiniband-diags")
    if os.path.exists("/dev/infiniband"):
        pytest.skip("this machine has an InfiniBand")
    source = IbFabric(HostFS())
    try:
        with pytest.raises(Unsupported, match="is ib_umad loaded"):
            found(source)
    finally:
        source.stop()


def test_captures_of_real_perfqueries_are_read() -> None:
    if not CAPTURES.is_dir():
        pytest.skip("no captures of hardware beside the repository (../shared/hardware)")
    counters = parse_counters((CAPTURES / "perfquery-0x7cfe9003009ce5b0.txt").read_text())
    assert set(counters) == {1, 2}
    assert counters[2]["PortXmitWait"] == 36510964
    assert counters[1]["PortRcvData"] == 12279028775751
