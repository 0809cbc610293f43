"""From what the kernel says of PFC and ECN to what the doctor makes of it."""

from __future__ import annotations

from pathlib import Path

from fabmon.analysis.audit import audit
from fabmon.analysis.audit.survey import Surveyor
from fabmon.fabric.model import Host
from fabmon.history.history import History
from tests.builders import frame, hello, tick, up
from tests.fixtures import hosts, parts
from tests.fixtures.reading import ask


def test_a_rail_without_pfc_on_one_host_and_without_ecn_on_another(tmp_path: Path) -> None:
    names = ("gpu1", "gpu2", "gpu3", "gpu4")
    hellos, frames = {}, {}
    for name in names:
        tree = hosts.roce_host(tmp_path / name, hcas=2)
        if name == "gpu2":
            tree.dcb({"ens1np0": {"pfc_cap": 8, "pfc_en": 0}})
        if name == "gpu3":
            parts.roce_ecn(tree, "sys/class/net/ens1np0", ())
        if name == "gpu4":
            tree.dcb({"ens1np0": None})  # without DCB nothing is known, which is no fault
        netdev, dcb = ask("netdev", tree.root), ask("dcb", tree.root)
        hellos[name] = hello(*netdev.objects, *dcb.objects)
        values = [value for item in netdev.objects for value in netdev.of(item.id).values()]
        frames[name] = frame(0, *(value if isinstance(value, int) else 0 for value in values))
    watched = [Host(name=name) for name in names]
    history, surveyor = History(watched), Surveyor(watched)
    heard = tick(0, hellos=hellos, frames=frames, statuses=up(*names))
    surveyor.accept(heard)
    faults = audit(surveyor.survey(history.accept(heard)))
    found = {(fault.check, fault.ports) for fault in faults if fault.check in ("pfc", "ecn")}
    assert found == {("pfc", ("gpu2/mlx5_0",)), ("ecn", ("gpu3/mlx5_0",))}
